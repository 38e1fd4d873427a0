"""Schedules that fold the stages into a V: rank r runs stage r and stage 2p-1-r.

A microbatch goes down the ranks and comes back up, so that rank 0 has both ends
and its backward starts where its forward has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pipeproof.spec import (
    F,
    I,
    W,
    bubble,
    deadlock_free,
    least,
    loop,
    makespan,
    messages,
    most,
    peak_activations,
    same_gradients,
    schedule,
    within,
)


def _two_chunks(v: int) -> str | None:
    return None if v == 2 else "a V has v=2 chunks a rank"


_CLAIMS = (
    deadlock_free("nccl"),
    same_gradients(),
    messages(equals=lambda p, m: 4 * m * (p - 1)),
)


def _idle_of_a_short_run(p: int, m: int) -> Fraction:
    """Nothing, once there are microbatches enough for the warm-up of rank 0."""
    return 1 - Fraction(6 * m, 6 * m + 2 * max(0, 2 * p - 1 - m))


@schedule(
    name="zb-v",
    paper="Zero bubble pipeline parallelism, arXiv 2401.10241, section 6",
    placement="wave",
    recipe="zero-bubble",
    valid=_two_chunks,
    claims=[
        *_CLAIMS,
        peak_activations(equals=lambda p, m, rank: least(2 * p, 2 * m, m + 1 + rank)),
        makespan(equals=lambda p, m: 6 * m + most(p - 1, 2 * (2 * p - 1 - m))),
        bubble("idle_over_span", equals=_idle_of_a_short_run),
    ],
)
def zb_v(p: Any, m: Any, rank: Any, v: Any = 2) -> Iterator[Any]:
    """A V without a bubble, in the memory of 1F1B's rank 0 on every rank.

    Made for m of 2p-1 or more; with fewer microbatches the ops of those that
    are missing are left out.
    """

    def down(letter: Any, i: Any) -> Iterator[Any]:
        for j in within(i, 0, m):
            yield letter(j, chunk=0)

    def up(letter: Any, i: Any) -> Iterator[Any]:
        for j in within(i, 0, m):
            yield letter(j, chunk=1)

    count = most(m, 2 * p - 1)
    first = 2 * (p - rank) - 1  # forwards before the first microbatch is back
    for i in loop(first):
        yield from down(F, i)
    for i in loop(rank):
        yield from up(F, i)
        yield from down(F, first + i)
    for i in loop(p - rank):
        yield from up(F, rank + i)
        yield from up(I, i)
        yield from up(W, i)
    # The ranks are in step now: each round takes one microbatch both ways.
    rounds = count - p
    for i in loop(rounds):
        yield from down(F, first + rank + i)
        yield from down(I, i)
        yield from down(W, i)
        yield from up(F, p + i)
        yield from up(I, p - rank + i)
        yield from up(W, p - rank + i)
    for i in loop(rank):
        yield from down(I, rounds + i)
        yield from up(I, rounds + p - rank + i)
    for i in loop(p - rank):
        yield from down(I, rounds + rank + i)
        yield from down(W, rounds + i)
    for i in loop(rank):
        yield from up(W, rounds + p - rank + i)
    for i in loop(rank):
        yield from down(W, rounds + p - rank + i)
