"""DualPipe and DualPipeV: forwards overlapped with backwards, in eight steps.

A rank runs two streams of microbatches: one that comes down the ranks, and one
that comes up. In DualPipe they are two pipelines in opposite directions, each
rank hosting a stage of either; in DualPipeV they are the two ways of a V. Seen
from the rank where a stream turns up late, the order is the same, so that
`_eight_steps` writes it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from pipeproof.spec import (
    B,
    F,
    I,
    W,
    deadlock_free,
    makespan,
    messages,
    peak_activations,
    same_gradients,
    schedule,
    together,
)
from pipeproof.spec.ops import Letter, Op

Stream = Callable[[Letter, int], Op]
"""An op of one of the streams: of a letter, on the n-th microbatch of the stream."""


def _eight_steps(ranks: int, rank: int, each: int, near: Stream, far: Stream) -> Iterator[Any]:
    """The order of a rank that is ``rank`` ranks away from where ``near`` begins.

    ``each`` microbatches come from either side; the ``far`` stream arrives
    from beyond the last of ``ranks`` ranks.
    """
    beyond = ranks - 1 - rank
    forward = {near: count(), far: count()}
    backward = {near: count(), far: count()}
    owed: list[Op] = []  # weight gradients that are left for later, oldest first

    def ahead(stream: Stream) -> Op:
        return stream(F, next(forward[stream]))

    def back(stream: Stream, split: bool = False) -> Op:
        number = next(backward[stream])
        if split:
            owed.append(stream(W, number))
        return stream(I if split else B, number)

    for _ in range(2 * beyond):  # 1
        yield ahead(near)
    for _ in range(rank + 1):  # 2
        yield ahead(near)
        yield ahead(far)
    for _ in range(beyond):  # 3
        yield back(far, split=True)
        yield owed.pop(0)
        yield ahead(far)
    for turn in range(each - 2 * ranks + rank + 1):  # 4
        if turn == 0 and beyond == 0:
            # The far stream turns round here: its backward waits for what just ran.
            yield ahead(near)
            yield back(far)
        else:
            yield together(ahead(near), back(far))
        yield together(ahead(far), back(near))
    for _ in range(beyond):  # 5
        yield back(far)
        yield together(ahead(far), back(near))
    for turn in range(rank + 1):  # 6
        # From the middle on, weight gradients are left for the gaps that follow.
        half = (rank + 1) // 2
        yield back(far, split=turn > half or (turn == half and rank % 2 == 1))
        yield back(near, split=turn >= half)
    for _ in range(beyond):  # 7
        yield owed.pop(0)
        yield back(near, split=True)
    yield from owed  # 8


def _dualpipe_sizes(p: int, m: int) -> str | None:
    if p % 2:
        return "p must be even, as two pipelines meet in the middle"
    if m % 2:
        return "m must be even, half of it for each direction"
    return None if m >= 2 * p else f"it takes m = 2 p = {2 * p} microbatches to fill both ways"


@schedule(
    name="dualpipe",
    paper="DeepSeek-V3, arXiv 2412.19437, section 3.2.1",
    placement="two-way",
    recipe="dualpipe",
    valid=_dualpipe_sizes,
    grid={"p": (2, 4, 6), "m": (4, 8, 10, 12, 14, 20)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        messages(equals=lambda p, m: 2 * m * (p - 1)),
        peak_activations(equals=lambda p: p + 1),
        makespan(equals=lambda p, m: 3 * m + p // 2 - 1),
    ],
)
def dualpipe(p: int, m: int, rank: int) -> Iterator[Any]:
    """Two pipelines in opposite directions, forwards overlapped with backwards.

    The first half of the microbatches goes down the ranks, the second up. The
    order depends on the parity of the rank, so it is listed for given sizes. Its
    repository counts (p/2 - 1)(pair + B - 3 W) of idle time, where a message leaves
    with its sender's next batch; the time here is that of messages sent at once.
    """
    half = m // 2

    def down(letter: Letter, number: int) -> Op:
        return letter(number)

    def up(letter: Letter, number: int) -> Op:
        return letter(half + number, way=1)

    if rank < p // 2:
        yield from _eight_steps(p // 2, rank, half, down, up)
    else:
        yield from _eight_steps(p // 2, p - 1 - rank, half, up, down)


def _dualpipe_v_sizes(p: int, m: int, v: int) -> str | None:
    if v != 2:
        return "a V has v=2 chunks a rank"
    return None if m >= 2 * p else f"it takes m = 2 p = {2 * p} microbatches to fill the V"


@schedule(
    name="dualpipe-v",
    paper="DualPipeV, after arXiv 2412.19437 and Cut-in-half, Sea AI Lab",
    placement="wave",
    recipe="dualpipe",
    valid=_dualpipe_v_sizes,
    grid={"p": (1, 2, 3, 4), "m": (2, 4, 6, 8, 9, 10, 12)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        messages(equals=lambda p, m: 4 * m * (p - 1)),
        peak_activations(equals=lambda p: 2 * p + 1),
        makespan(equals=lambda p, m: 6 * m + p - 1),
    ],
)
def dualpipe_v(p: int, m: int, rank: int, v: int = 2) -> Iterator[Any]:
    """DualPipe cut in half: one pipeline as a V, its two ways overlapped.

    The order depends on the parity of the rank, so it is listed for given sizes.
    """

    def down(letter: Letter, number: int) -> Op:
        return letter(number, chunk=0)

    def up(letter: Letter, number: int) -> Op:
        return letter(number, chunk=1)

    yield from _eight_steps(p, rank, m, down, up)
