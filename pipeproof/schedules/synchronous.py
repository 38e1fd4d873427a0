"""Schedules with one stage a rank that update once, after all microbatches."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pipeproof.spec import (
    B,
    F,
    R,
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


def _as_long_as_fill_and_drain(p: Any, m: Any, F: Any, B: Any) -> Any:
    return (m + p - 1) * (F + B)


_FILL_AND_DRAIN = (
    deadlock_free("nccl"),
    same_gradients(),
    makespan(equals=_as_long_as_fill_and_drain),
    bubble("idle_over_elapsed", equals=lambda p, m: Fraction(p - 1, m + p - 1)),
    bubble("overhead_over_ideal", equals=lambda p, m: Fraction(p - 1, m)),
    messages(equals=lambda p, m: 2 * m * (p - 1)),
)
"""What filling the pipeline once and draining it once costs, in whatever order the
forwards and backwards in between come."""


@schedule(
    name="gpipe",
    paper="GPipe, arXiv 1811.06965",
    recipe="grouped",
    claims=[*_FILL_AND_DRAIN, peak_activations(equals=lambda m: m)],
)
def gpipe(m: Any, rank: Any) -> Iterator[Any]:
    """Fill and drain: all forwards, then all backwards."""
    for i in loop(m):
        yield F(i)
    for i in loop(m):
        yield B(i)


def _one_f_one_b(m: Any, warm_up: Any) -> Iterator[Any]:
    """``warm_up`` forwards, then a forward and a backward in turn, then backwards."""
    for i in loop(warm_up):
        yield F(i)
    for i in loop(m - warm_up):
        yield F(warm_up + i)
        yield B(i)
    for i in loop(m - warm_up, m):
        yield B(i)


@schedule(
    name="1f1b",
    paper="PipeDream-Flush, arXiv 2006.09503; DAPPLE, arXiv 2007.01045",
    recipe="megatron",
    claims=[*_FILL_AND_DRAIN, peak_activations(equals=lambda p, m, rank: least(m, p - rank))],
)
def one_f_one_b(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """Warm up, then one forward and one backward in turn, then cool down."""
    yield from _one_f_one_b(m, least(p - 1 - rank, m))


@schedule(
    name="eager-1f1b",
    paper="DAPPLE (early backward, schedule B), arXiv 2007.01045; Alpa's cross-mesh "
    "resharding, arXiv 2211.05322",
    recipe="megatron",
    claims=[
        *_FILL_AND_DRAIN,
        peak_activations(equals=lambda p, m, rank: least(m, 2 * (p - rank) - 1)),
    ],
)
def eager_one_f_one_b(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """1F1B that warms up twice as long: a message has a forward's time to arrive.

    No rank needs its input right when the rank before has made it, so that
    communication overlaps with computing, for nearly twice the activations.
    """
    yield from _one_f_one_b(m, least(2 * (p - 1 - rank), m))


def _recomputing(p: Any, m: Any, F: Any, R: Any, B: Any) -> Any:
    return m * (F + R + B) + (p - 1) * (F + B)


@schedule(
    name="gpipe-recompute",
    paper="GPipe, arXiv 1811.06965, section 2.3",
    recipe="grouped",
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        makespan(equals=_recomputing),
        messages(equals=lambda p, m: 2 * m * (p - 1)),
        peak_activations(equals=lambda m: m),
    ],
)
def gpipe_recompute(m: Any, rank: Any) -> Iterator[Any]:
    """Fill and drain; every forward is run again right before its backward.

    What a microbatch keeps meanwhile is the input of the stage, so an
    activation here is smaller than elsewhere. A rank recomputes its first
    microbatch while it waits for the gradient, which hides that recompute.
    """
    for i in loop(m):
        yield F(i)
    for i in loop(m):
        yield R(i)
        yield B(i)


@schedule(
    name="1f1b-recompute",
    paper="Megatron-LM, arXiv 2104.04473, section 3.5",
    recipe="megatron",
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        messages(equals=lambda p, m: 2 * m * (p - 1)),
        peak_activations(equals=lambda p, m, rank: least(m, p - rank)),
    ],
)
def one_f_one_b_recompute(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """1F1B; every forward is run again right before its backward.

    What a microbatch keeps meanwhile is the input of the stage, so an
    activation here is smaller than elsewhere.
    """
    warm_up = least(p - 1 - rank, m)
    for i in loop(warm_up):
        yield F(i)
    for i in loop(m - warm_up):
        yield F(warm_up + i)
        yield R(i)
        yield B(i)
    for i in loop(m - warm_up, m):
        yield R(i)
        yield B(i)


@schedule(
    name="inference",
    forward_only=True,
    paper="GPipe, arXiv 1811.06965: its forward half",
    recipe="deepspeed",
    claims=[
        deadlock_free("nccl"),
        makespan(equals=lambda p, m, F: (m + p - 1) * F),
        bubble("idle_over_elapsed", equals=lambda p, m: Fraction(p - 1, m + p - 1)),
        messages(equals=lambda p, m: m * (p - 1)),
        peak_activations(equals=1),
    ],
)
def inference(m: Any, rank: Any) -> Iterator[Any]:
    """Forward only: every microbatch once through the stages."""
    for i in loop(m):
        yield F(i)
