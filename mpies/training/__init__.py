"""Training: the generation loop, the evaluation of members, and the update."""
