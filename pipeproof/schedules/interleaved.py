"""Schedules with several stages a rank, round and round: stage = chunk p + rank."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pipeproof.spec import (
    B,
    F,
    I,
    W,
    bubble,
    deadlock_free,
    loop,
    makespan,
    messages,
    peak_activations,
    same_gradients,
    schedule,
)


def _messages(p: int, m: int, v: int) -> int:
    """Every boundary of stages is one of ranks, unless there is a single rank."""
    return 2 * m * (p * v - 1) if p > 1 else 0


def _groups_fit(p: int, m: int, g: int) -> str | None:
    """Megatron-LM's rule: a chunk's turn must fill the pipeline, the last one too."""
    if g < p:
        return f"a group of g microbatches must have p={p} or more"
    if 0 < m % g < p:
        return f"the last group has m % g = {m % g} microbatches; it must have p={p} or more"
    return None


def _groups_fit_and_exist(p: int, m: int, g: int) -> str | None:
    """The warm-up runs whole groups, so that there must be one."""
    return f"a group of g microbatches needs m={g} or more" if g > m else _groups_fit(p, m, g)


def _turns(m: int, v: int, g: int) -> list[tuple[int, int]]:
    """(microbatch, chunk) of a rank's forwards: a group of g microbatches runs one
    chunk after the other. Backwards come in the same order, last chunk first."""
    return [
        (i, chunk)
        for start in range(0, m, g)
        for chunk in range(v)
        for i in range(start, min(start + g, m))
    ]


@schedule(
    name="interleaved",
    paper="Megatron-LM, arXiv 2104.04473",
    recipe="torch",
    valid=_groups_fit,
    grid={"p": (1, 2, 3, 4), "m": (2, 3, 4, 6, 7, 8, 12), "v": (1, 2, 3)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        messages(equals=_messages),
        makespan(equals=lambda p, m, v, F, B: (m * v + p - 1) * (F + B)),
        bubble("overhead_over_ideal", equals=lambda p, m, v: Fraction(p - 1, m * v)),
        peak_activations(
            equals=lambda p, m, v, g, rank: min(m * v, 2 * (p - 1 - rank) + (v - 1) * g + 1)
        ),
    ],
)
def interleaved(p: int, m: int, v: int, rank: int, g: Any = lambda p: p) -> Iterator[Any]:
    """1F1B over v chunks a rank, a group of microbatches through each in turn.

    ``g`` is the group's size, p unless given; a last group may be smaller. The
    order depends on how m divides into groups, so it is listed for given sizes.
    It is issued as torch does: Megatron-LM's batches mix up the messages of two
    ranks that are each other's neighbour on both sides (p=2).
    """
    turns = _turns(m, v, g)
    warm_up = min(2 * (p - 1 - rank) + (v - 1) * g, len(turns))
    for n in range(len(turns) + warm_up):
        if n < len(turns):
            i, chunk = turns[n]
            yield F(i, chunk=chunk)
        if n >= warm_up:
            i, chunk = turns[n - warm_up]
            yield B(i, chunk=v - 1 - chunk)


@schedule(
    name="interleaved-zb",
    paper="Megatron-LM, arXiv 2104.04473, with the backward split as in arXiv 2401.10241",
    recipe="torch",
    valid=_groups_fit_and_exist,
    grid={"p": (1, 2, 3, 4), "m": (2, 3, 4, 6, 7, 8, 12), "v": (1, 2, 3)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        messages(equals=_messages),
        makespan(equals=lambda p, m, v: 3 * m * v + p - 1),
        bubble("overhead_over_ideal", equals=lambda p, m, v: Fraction(p - 1, 3 * m * v)),
        peak_activations(equals=lambda p, m, v, g: min(m * v, p + (v - 1) * g)),
    ],
)
def interleaved_zero_bubble(
    p: int, m: int, v: int, rank: int, g: Any = lambda p: p
) -> Iterator[Any]:
    """Interleaved with half the warm-up; weight gradients fill the gaps.

    Rank r has run r input gradients when its first weight gradient comes: what
    it forwards later than rank 0 it computes later than it might. The order
    depends on how m divides into groups, so it is listed for given sizes.
    """
    turns = _turns(m, v, g)
    count = len(turns)
    warm_up = min(p - 1 - rank + (v - 1) * g, count)
    for n in range(count + warm_up):
        if n < count:
            i, chunk = turns[n]
            yield F(i, chunk=chunk)
        if n >= warm_up:
            i, chunk = turns[n - warm_up]
            yield I(i, chunk=v - 1 - chunk)
        if n >= warm_up + rank:
            i, chunk = turns[n - warm_up - rank]
            yield W(i, chunk=v - 1 - chunk)
    for i, chunk in turns[max(0, count - rank) :]:
        yield W(i, chunk=v - 1 - chunk)


def _breadth_first_turns(p: int, m: int, v: int) -> int:
    """Turns of a rank from the first start to the last end, with F = B = one turn.
    A chunk that is through before its first microbatch is back has to wait."""
    return (v - 1) * max(m, p) + m + p - 1


@schedule(
    name="breadth-first",
    paper="Breadth-first pipeline parallelism, arXiv 2211.05953",
    recipe="torch",
    grid={"p": (1, 2, 3, 4), "m": (1, 2, 3, 4, 6, 8), "v": (1, 2, 3)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        messages(equals=_messages),
        peak_activations(equals=lambda m, v: m * v),
        makespan(equals=lambda p, m, v, F, B: _breadth_first_turns(p, m, v) * (F + B)),
        bubble(
            "overhead_over_ideal",
            equals=lambda p, m, v: Fraction(_breadth_first_turns(p, m, v), m * v) - 1,
        ),
    ],
)
def breadth_first(m: Any, v: int, rank: Any) -> Iterator[Any]:
    """All microbatches through each chunk in turn, and back, last one first."""
    for chunk in range(v):
        for i in loop(m):
            yield F(i, chunk=chunk)
    for chunk in reversed(range(v)):
        for i in loop(m):
            yield B(m - 1 - i, chunk=chunk)
