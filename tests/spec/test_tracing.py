"""Reading a definition for its loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipeproof.schedules.table import SCHEDULES, find
from pipeproof.spec import B, F, I, W, least, loop, schedule, together
from pipeproof.spec.definition import Definition
from pipeproof.spec.sizes import NotLoops
from pipeproof.spec.tracing import traced, unrolled


def same_at(definition: Definition, fixed: dict[str, int], points: list[dict[str, int]]) -> None:
    """The loops, unrolled, are the ops that the function yields."""
    loops = traced(definition, fixed)
    for given in points:
        sizes = definition.sizes({**given, **fixed})
        for rank in range(sizes["p"]):
            known = {**sizes, "rank": rank}
            run = definition.function(**{n: known[n] for n in definition.parameters})
            assert unrolled(loops, sizes, rank) == list(run)


POINTS = [{"p": p, "m": m} for p in (1, 2, 3, 5) for m in (1, 2, 4, 7)]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_known_schedules_are_their_loops(name: str) -> None:
    same_at(find(name), {}, POINTS)


def test_loops_nest_and_may_follow_each_other() -> None:
    @schedule
    def groups(p: Any, m: Any, v: Any, rank: Any) -> Iterator[Any]:
        for i in loop(m):
            for c in loop(v):
                yield F(i, chunk=c)
            for c in loop(v):
                yield together(F(i, chunk=c), B(i, chunk=v - 1 - c))
        for i in loop(least(m, p)):
            yield I(i)
            yield W(i)

    same_at(groups, {"v": 2}, POINTS)
    same_at(groups, {"v": 2, "m": 3}, [{"p": 2}, {"p": 4}])
    same_at(groups, {}, [{**point, "v": v} for point in POINTS for v in (1, 3)])


def test_its_loops_can_be_printed() -> None:
    assert traced(find("1f1b")).lines() == [
        "for i_0 in 0 .. least(m, p - rank - 1) - 1:",
        "  F(i_0)",
        "for i_1 in 0 .. -least(m, p - rank - 1) + m - 1:",
        "  F(i_1 + least(m, p - rank - 1))",
        "  B(i_1)",
        "for i_2 in -least(m, p - rank - 1) + m .. m - 1:",
        "  B(i_2)",
    ]


def counts(m: Any, rank: Any) -> Iterator[Any]:
    done = 0
    for _ in loop(m):
        yield F(done)
        done = done + 1


def leaves(m: Any, rank: Any) -> Iterator[Any]:
    for i in loop(m):
        yield F(i)
        break


def escapes(m: Any, rank: Any) -> Iterator[Any]:
    last: Any = 0
    for i in loop(m):
        last = i
        yield F(i)
    yield B(last)


def asks(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    if rank == 0:
        yield F(0)


def ranges(m: Any, rank: Any) -> Iterator[Any]:
    for i in range(m):
        yield F(i)


def texts(m: Any, rank: Any) -> Iterator[Any]:
    yield "0F0"


def everyone(p: Any, m: Any) -> list[str]:
    return ["0F0"] * int(p)


def alternates(m: Any, rank: Any) -> Iterator[Any]:
    for inner in (loop(m), loop(m)):
        first = True
        for i in inner:
            yield F(i) if first else B(i)
            first = False


@pytest.mark.parametrize(
    "function", [counts, leaves, escapes, asks, ranges, texts, everyone, alternates]
)
def test_what_is_no_loop_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(NotLoops):
        traced(schedule(function))


def test_every_known_schedule_can_be_found() -> None:
    for name in SCHEDULES:
        assert find(name).name == name
