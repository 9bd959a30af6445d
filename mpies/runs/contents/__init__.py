"""The files of a run directory, a module for each kind of file."""
