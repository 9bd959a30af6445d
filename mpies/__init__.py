"""Policies trained by evolution strategies on CPU clusters: the same bits on one rank as on a thousand."""

__version__ = "0.1.0"
