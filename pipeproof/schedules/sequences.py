"""Schedules that cut sequences: a microbatch goes through in k slices.

Attention lets a slice look back at the slices before it, so that forwards take
the slices of a sequence in order and backwards in reverse: the gradients of
what was looked at are complete when the slice's own turn comes. An activation
here is that of one slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pipeproof.spec import (
    B,
    F,
    bubble,
    deadlock_free,
    loop,
    makespan,
    messages,
    peak_activations,
    same_gradients,
    schedule,
)

_CLAIMS = (
    deadlock_free("nccl"),
    same_gradients(),
    messages(equals=lambda p, m, k: 2 * m * k * (p - 1)),
    makespan(equals=lambda p, m, k, F, B: (m * k + p - 1) * (F + B)),
    bubble("overhead_over_ideal", equals=lambda p, m, k: Fraction(p - 1, m * k)),
)


@schedule(
    name="terapipe",
    paper="TeraPipe, arXiv 2102.07988",
    recipe="grouped",
    slices="k",
    grid={"k": (1, 2, 3)},
    claims=[*_CLAIMS, peak_activations(equals=lambda m, k: m * k)],
)
def terapipe(m: Any, rank: Any, k: Any = 4) -> Iterator[Any]:
    """Fill and drain over the slices of all microbatches."""
    for i in loop(m):
        for part in loop(k):
            yield F(i, slice=part)
    for i in loop(m):
        for part in loop(k):
            yield B(i, slice=k - 1 - part)


@schedule(
    name="seq1f1b",
    paper="Seq1F1B, arXiv 2406.03488",
    recipe="grouped",
    slices="k",
    grid={"k": (1, 2, 3)},
    claims=[
        *_CLAIMS,
        peak_activations(equals=lambda p, m, k, rank: min(m * k, p - rank + k - 1)),
    ],
)
def seq_one_f_one_b(p: int, m: int, rank: int, k: int = 4) -> Iterator[Any]:
    """1F1B over slices: k - 1 forwards more, as the last slice is the first one back.

    Which slice comes next is a matter of division by k, so the order is listed
    for given sizes.
    """
    warm_up = min(p - 1 - rank + k - 1, m * k)
    for n in range(m * k + warm_up):
        if n < m * k:
            yield F(n // k, slice=n % k)
        if n >= warm_up:
            i, part = divmod(n - warm_up, k)
            yield B(i, slice=k - 1 - part)
