"""Schedules without a flush: weights are updated while microbatches are on their way.

The order is that of 1F1B. What differs is when a rank updates its weights, and
which version an op uses; a step here is a run of m microbatches from empty to
empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeproof.spec import (
    B,
    F,
    deadlock_free,
    least,
    loop,
    makespan,
    messages,
    peak_activations,
    schedule,
    staleness,
    update,
    update_rule,
    weight_versions,
)

_CLAIMS = (
    deadlock_free("nccl"),
    messages(equals=lambda p, m: 2 * m * (p - 1)),
    makespan(equals=lambda p, m, F, B: (m + p - 1) * (F + B)),
    peak_activations(equals=lambda p, m, rank: least(m, p - rank)),
)


def _updating_after_each(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """1F1B with an update after every backward."""
    warm_up = least(p - 1 - rank, m)
    for i in loop(warm_up):
        yield F(i)
    for i in loop(m - warm_up):
        yield F(warm_up + i)
        yield B(i)
        yield update()
    for i in loop(m - warm_up, m):
        yield B(i)
        yield update()


@schedule(
    name="pipedream",
    paper="PipeDream, arXiv 1806.03377",
    recipe="grouped",
    stash=True,
    grid={"p": (2, 3, 4), "m": (2, 3, 4, 6, 8)},
    claims=[
        *_CLAIMS,
        update_rule("stashed"),
        staleness(equals=lambda p, m, rank: least(p - 1 - rank, m - 1)),
        weight_versions(at_most=lambda p, m, rank: least(p - rank, m)),
    ],
)
def pipedream(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """1F1B that updates after each backward, which uses its forward's weights.

    The version of a forward is kept until its backward: as many versions as
    microbatches are on their way. Stages use different versions for one
    microbatch, so that its gradient is that of no single model.
    """
    yield from _updating_after_each(p, m, rank)


@schedule(
    name="pipemare",
    paper="PipeMare, arXiv 1910.05124",
    recipe="grouped",
    grid={"p": (2, 3, 4), "m": (2, 3, 4, 6, 8)},
    claims=[
        *_CLAIMS,
        update_rule("inconsistent"),
        weight_versions(equals=1),
    ],
)
def pipemare(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """1F1B that updates after each backward and keeps one version of the weights.

    A backward meets other weights than its forward did; the learning rate is
    scaled down by stage, and the difference is corrected for, to bear that.
    Where p=1 nothing is on its way, and the rule is an ordinary update.
    """
    yield from _updating_after_each(p, m, rank)


def _whole_batches(p: int, m: int, a: int) -> str | None:
    if a < p:
        return f"its paper asks that an update takes a={p} or more microbatches"
    if m % a or m == a:
        return (
            f"m must be a multiple of a={a}, the microbatches of an update, and twice it or more"
        )
    return None


@schedule(
    name="pipedream-2bw",
    paper="PipeDream-2BW, arXiv 2006.09503",
    recipe="grouped",
    valid=_whole_batches,
    grid={"p": (1, 2, 3, 4), "m": (2, 3, 4, 6, 8, 9, 12)},
    claims=[
        *_CLAIMS,
        update_rule("delayed"),
        staleness(equals=1),
        weight_versions(equals=2),
    ],
)
def pipedream_2bw(p: int, m: int, rank: int, a: Any = lambda p: p) -> Iterator[Any]:
    """1F1B that updates after every ``a`` microbatches, with weights one update old.

    All stages use, for both passes of a microbatch, the version that was made
    before the last one: two versions are kept, whatever the depth. Batches are
    counted by division, so the order is listed for given sizes.
    """
    warm_up = min(p - 1 - rank, m)
    for n in range(m + warm_up):
        if n < m:
            yield F(n, version=max(0, n // a - 1))
        if n >= warm_up:
            i = n - warm_up
            yield B(i, version=max(0, i // a - 1))
            if i % a == a - 1:
                yield update()
