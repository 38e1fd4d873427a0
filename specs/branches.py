"""Stages that are no chain: two branches that a third stage joins."""

from pipeproof.spec import B, F, deadlock_free, loop, messages, same_gradients, schedule


@schedule(
    graph=lambda p: {2: (0, 1)},
    grid={"p": (3,), "m": (1, 2, 4)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        messages(equals=lambda m: 4 * m),
    ],
)
def branches(p, m, rank):
    """Fill and drain; stages 0 and 1 both read the data and feed stage 2."""
    for i in loop(m):
        yield F(i)
    for i in loop(m):
        yield B(i)
