"""1F1B, as its papers tell it: warm up, one forward and one backward in turn, cool
down. Proved for every size by `pipeproof prove specs/one_f_one_b.py`."""

from pipeproof.spec import (
    B,
    F,
    deadlock_free,
    least,
    loop,
    makespan,
    peak_activations,
    same_gradients,
    schedule,
)


@schedule(
    recipe="grouped",
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        peak_activations(equals=lambda p, m, rank: least(m, p - rank)),
        makespan(equals=lambda p, m, F, B: (m + p - 1) * (F + B)),
    ],
)
def one_f_one_b(p, m, rank):
    """One forward and one backward in turn."""
    warm_up = least(p - 1 - rank, m)
    for i in loop(warm_up):
        yield F(i)
    for i in loop(m - warm_up):
        yield F(warm_up + i)
        yield B(i)
    for i in loop(m - warm_up, m):
        yield B(i)
