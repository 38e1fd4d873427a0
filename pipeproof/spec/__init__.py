"""Schedules as Python: a function of the sizes that yields each rank's ops.

    from pipeproof.spec import B, F, least, loop, peak_activations, schedule

    @schedule(claims=[peak_activations(lambda p, m, rank: least(m, p - rank))])
    def one_f_one_b(p, m, rank):
        warm_up = least(p - 1 - rank, m)
        for i in loop(warm_up):
            yield F(i)
        for i in loop(m - warm_up):
            yield F(warm_up + i)
            yield B(i)
        for i in loop(m - warm_up, m):
            yield B(i)

``pipeproof check FILE.py`` judges every definition of a file over its grid of
sizes. Written with ``loop``, ``least`` and ``most``, a definition also shows its
loops (`pipeproof.spec.tracing`), so that it can be proved for all sizes.
"""

from pipeproof.program.costs import Costs
from pipeproof.spec.claims import (
    bubble,
    deadlock_free,
    makespan,
    messages,
    peak_activations,
    peak_bytes,
    same_gradients,
    staleness,
    update_rule,
    weight_versions,
)
from pipeproof.spec.definition import Definition, schedule
from pipeproof.spec.ops import B, F, I, R, W, allreduce, together, update
from pipeproof.spec.orders import by_priority, by_start, read
from pipeproof.spec.placements import Placement
from pipeproof.spec.sizes import least, loop, most, within

__all__ = [
    "B",
    "Costs",
    "Definition",
    "F",
    "I",
    "Placement",
    "R",
    "W",
    "allreduce",
    "bubble",
    "by_priority",
    "by_start",
    "deadlock_free",
    "least",
    "loop",
    "makespan",
    "messages",
    "most",
    "peak_activations",
    "peak_bytes",
    "read",
    "same_gradients",
    "schedule",
    "staleness",
    "together",
    "update",
    "update_rule",
    "weight_versions",
    "within",
]
