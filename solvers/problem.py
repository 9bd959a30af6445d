"""The error that a user's own solver causes."""


class SolverProblem(ValueError):
    """The user's own solver cannot go on; the message is one line that says why and how to mend it."""
