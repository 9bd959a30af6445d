"""From the noise table to the directions of a population."""
