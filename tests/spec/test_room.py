"""Ops that are there only sometimes, and forwards that leave room for others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pipeproof.errors import InputError
from pipeproof.program.ops import Kind
from pipeproof.spec import B, F, by_priority, loop, schedule, within
from pipeproof.spec.running import run
from pipeproof.spec.tracing import traced, unrolled


def test_within_is_an_if() -> None:
    assert [list(within(i, 1, 3)) for i in range(-1, 5)] == [[], [], [1], [2], [], []]


def test_within_can_be_read_for_loops() -> None:
    @schedule
    def late(m: Any, rank: Any) -> Iterator[Any]:
        for i in loop(m + 2):
            for j in within(i, 0, m):
                yield F(j)
            for j in within(i - 2, 0, m):
                yield B(j)

    for m in (1, 2, 5):
        expected = list(late.function(m=m, rank=0))
        assert len(expected) == 2 * m
        assert unrolled(traced(late), {"p": 1, "m": m}, 0) == expected


def oldest(op: Any, rank: int) -> Any:
    """Forwards first, of the first chunk first: what fills the room too early."""
    return op.kind is not Kind.F, op.chunk, op.microbatch


def test_room_for_later_chunks_keeps_a_limited_run_going() -> None:
    def full(p: int, m: int, v: int) -> Any:
        return by_priority(oldest, limit=lambda rank: v)

    def reserved(p: int, m: int, v: int) -> Any:
        return by_priority(oldest, limit=lambda rank: v, reserve=lambda op, rank: v - 1 - op.chunk)

    sizes = {"p": 2, "m": 3, "v": 2}
    with pytest.raises(InputError, match="gets stuck"):
        run(schedule(full), sizes)
    assert len(run(schedule(reserved), sizes).kind) == 2 * 3 * 4
