"""The explicit-state search: every execution of a program whose end is open.

A third reading of the program format, beside the event graph and the model
executor, sharing no code with either: for programs with *choice*, where no
single run decides.
"""

LIMIT = 200_000
"""States beyond which a search gives up, unless told otherwise: about a minute."""
