"""Solvers that other packages compute: those of pycma and of Nevergrad."""
