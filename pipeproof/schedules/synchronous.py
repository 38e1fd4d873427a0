"""Schedules with one stage a rank that update once, after all microbatches."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pipeproof.spec import (
    B,
    F,
    bubble,
    deadlock_free,
    least,
    loop,
    makespan,
    messages,
    peak_activations,
    same_gradients,
    schedule,
)


@schedule(
    name="gpipe",
    paper="GPipe, arXiv 1811.06965",
    recipe="grouped",
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        peak_activations(equals=lambda m: m),
        makespan(equals=lambda p, m, F, B: (m + p - 1) * (F + B)),
        bubble("idle_over_elapsed", equals=lambda p, m: Fraction(p - 1, m + p - 1)),
        messages(equals=lambda p, m: 2 * m * (p - 1)),
    ],
)
def gpipe(m: Any, rank: Any) -> Iterator[Any]:
    """Fill and drain: all forwards, then all backwards."""
    for i in loop(m):
        yield F(i)
    for i in loop(m):
        yield B(i)


@schedule(
    name="1f1b",
    paper="PipeDream-Flush, arXiv 2006.09503; DAPPLE, arXiv 2007.01045",
    recipe="grouped",
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        peak_activations(equals=lambda p, m, rank: least(m, p - rank)),
        makespan(equals=lambda p, m, F, B: (m + p - 1) * (F + B)),
        bubble("idle_over_elapsed", equals=lambda p, m: Fraction(p - 1, m + p - 1)),
        messages(equals=lambda p, m: 2 * m * (p - 1)),
    ],
)
def one_f_one_b(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """Warm up, then one forward and one backward in turn, then cool down."""
    warm_up = least(p - 1 - rank, m)
    for i in loop(warm_up):
        yield F(i)
    for i in loop(m - warm_up):
        yield F(warm_up + i)
        yield B(i)
    for i in loop(m - warm_up, m):
        yield B(i)
