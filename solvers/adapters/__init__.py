"""Solvers that others wrote: those of pycma and Nevergrad, and the user's own, with the checks of these."""
