"""An order by start times, as a solver gives it: two ranks, two microbatches."""

from pipeproof.spec import B, F, by_start, deadlock_free, makespan, same_gradients, schedule

STARTS = [
    (0, F(0), 0),
    (0, F(1), 1),
    (1, F(0), 1),
    (1, B(0), 2),
    (1, F(1), 4),
    (1, B(1), 5),
    (0, B(0), 4),
    (0, B(1), 7),
]


@schedule(
    grid={"p": (2,), "m": (2,)},
    claims=[deadlock_free("nccl"), same_gradients(), makespan(equals=9)],
)
def solved(p, m):
    """Each rank runs its ops by their starts."""
    return by_start(STARTS)
