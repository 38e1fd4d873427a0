"""pipeproof proves or refutes pipeline-parallel training schedules.

The package imports nothing heavy by itself: ``import pipeproof`` costs
milliseconds, and every room below loads what it needs when it is used.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
