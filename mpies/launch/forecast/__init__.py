"""What a job will take: measured constants, and the model that predicts seconds, memory and price from them."""
