"""A dynamic order: whenever a rank is free it runs the ready op that matters most.

Backwards in two parts (I and W), so that weight gradients fill what would be idle.
"""

from pipeproof.program.ops import Kind
from pipeproof.spec import (
    by_priority,
    deadlock_free,
    makespan,
    peak_activations,
    same_gradients,
    schedule,
)

URGENCY = {Kind.I: 0, Kind.F: 1, Kind.W: 2}


@schedule(
    grid={"p": (1, 2, 4), "m": (1, 2, 4, 8)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        peak_activations(lambda p, m: min(m, p)),
        makespan(lambda p, m, F, I, W: m * (F + I + W) + 2 * (p - 1) * (F + I)),
    ],
)
def greedy(p, m):
    """Input gradients first, then forwards, weight gradients last; the memory of 1F1B."""
    return by_priority(lambda op, rank: URGENCY[op.kind], limit=lambda rank: p, split=True)
