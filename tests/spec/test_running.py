"""Definitions run at given sizes, and what they get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipeproof.errors import InputError
from pipeproof.formats.torch_schedule import print_schedule
from pipeproof.program.ops import Kind
from pipeproof.program.schedules import Schedule
from pipeproof.schedules.table import find
from pipeproof.spec import (
    B,
    F,
    I,
    R,
    W,
    allreduce,
    by_priority,
    by_start,
    schedule,
    together,
    update,
)
from pipeproof.spec.definition import Definition
from pipeproof.spec.placements import Placement
from pipeproof.spec.running import run


def at(definition: Definition, **sizes: int) -> Schedule:
    return run(definition, definition.sizes(sizes))


def text(definition: Definition, **sizes: int) -> list[str]:
    return print_schedule(at(definition, **sizes)).split()


def test_rows_are_those_of_the_ranks() -> None:
    assert text(find("1f1b"), p=2, m=3) == ["0F0,0F1,0B0,0F2,0B1,0B2", "1F0,1B0,1F1,1B1,1F2,1B2"]


def test_chunks_lie_as_the_placement_says() -> None:
    def chunks(v: int, rank: int) -> Iterator[Any]:
        for c in range(v):
            yield F(0, chunk=c)

    looped = schedule(name="x")(chunks)
    wave = schedule(name="x", placement="wave")(chunks)
    own = schedule(name="x", placement=Placement("swapped", lambda r, c, w, p: c * p + p - 1 - r))(
        chunks
    )
    assert text(looped, p=2, m=1, v=2) == ["0F0,2F0", "1F0,3F0"]
    assert text(wave, p=2, m=1, v=2) == ["0F0,3F0", "1F0,2F0"]
    assert text(wave, p=2, m=1, v=3) == ["0F0,3F0,4F0", "1F0,2F0,5F0"]
    assert text(own, p=2, m=1, v=1) == ["1F0", "0F0"]


def test_two_ways_host_every_stage_twice() -> None:
    @schedule(placement="two-way")
    def both(p: int, m: int, rank: int) -> Iterator[Any]:
        yield F(0)
        yield F(1, way=1)

    made = at(both, p=2, m=2)
    assert made.hosts == ((0, 1), (0, 1))
    assert made.other_way is not None
    assert made.other_way.tolist() == [False, True]
    stages, microbatches = made.stage.tolist(), made.microbatch.tolist()
    assert stages == [0, 1, 1, 0]
    assert made.host_of(made.stage, made.microbatch).tolist() == [0, 0, 1, 1]
    assert microbatches == [0, 1, 0, 1]


def test_slices_count_within_their_sequence() -> None:
    @schedule(slices="k")
    def sliced(p: int, m: int, rank: int, k: int = 2) -> Iterator[Any]:
        for i in range(m):
            for part in range(k):
                yield F(i, slice=part)

    assert at(sliced, p=1, m=2).microbatch.tolist() == [0, 1, 2, 3]
    assert at(sliced, p=1, m=2, k=3).microbatches == 6


def test_updates_stashes_and_sums() -> None:
    @schedule(stash=True)
    def stashed(p: int, m: int, rank: int) -> Iterator[Any]:
        yield F(0)
        yield update()
        yield F(1)
        yield B(0)
        yield allreduce("unit 0")
        yield B(1)

    made = at(stashed, p=1, m=2)
    assert [Kind(k).name for k in made.kind] == ["F", "STEP", "F", "B", "COLL", "B"]
    told = {i: (a.label, dict(a.more)) for i, a in made.attributes.items()}
    assert told == {
        1: ("w0", {}),
        3: (None, {"wv": 0}),
        4: ("stage 0 unit 0", {"kind": "allreduce", "group": "stage 0"}),
        5: (None, {"wv": 1}),
    }
    assert made.details.versions == "fb-equal"
    assert made.details.groups == {"stage 0": (0,)}


def test_overlapped_ops_share_a_cell() -> None:
    @schedule
    def pair(m: int, rank: int) -> Iterator[Any]:
        yield F(0)
        yield together(F(1), B(0))

    assert text(pair, p=1, m=2) == ["0F0,(0F1;0B0)OVERLAP_F_B"]


def test_rows_in_torch_notation_and_starts() -> None:
    rows = schedule(lambda p, m: ["0F0,0F1,0B0,0B1", "1F0,(1F1;1B0)OVERLAP_F_B,1B1"])
    assert text(rows, p=2, m=2)[1] == "1F0,(1F1;1B0)OVERLAP_F_B,1B1"
    starts = schedule(lambda p, m: by_start([(0, B(0), 5), (0, F(0), 0), (0, R(0), 4.5)]))
    assert text(starts, p=1, m=1) == ["0F0,0R0,0B0"]


def test_a_greedy_order_with_backwards_first_is_1f1b() -> None:
    @schedule
    def greedy(p: int, m: int) -> Any:
        return by_priority(lambda op, rank: op.kind is Kind.F, limit=lambda rank: p - rank)

    for p in (1, 2, 4):
        for m in (1, 3, 8):
            assert text(greedy, p=p, m=m) == text(find("1f1b"), p=p, m=m)


def test_a_greedy_order_may_split_backwards() -> None:
    @schedule
    def split(p: int, m: int) -> Any:
        return by_priority(lambda op, rank: {Kind.I: 0, Kind.F: 1, Kind.W: 2}[op.kind], split=True)

    assert text(split, p=2, m=2) == ["0F0,0F1,0I0,0W0,0I1,0W1", "1F0,1I0,1F1,1I1,1W0,1W1"]


def generator(*items: Any) -> Callable[..., Any]:
    def ops(m: int, rank: int) -> Iterator[Any]:
        yield from items

    return ops


def failing(m: int, rank: int) -> Iterator[Any]:
    yield F(0)
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (generator(3), "rank 0 yields 3; expected an op such as F(0)"),
        (generator(F("a")), "rank 0 yields F(a): the microbatch 'a' is no whole number"),
        (generator(F(-1)), "rank 0 yields F(-1): microbatches count from 0"),
        (generator(F(1.5)), "the microbatch 1.5 is no whole number"),
        (generator(F(0, chunk=1)), "a rank has 1 chunk(s)"),
        (generator(F(0, stage=1)), "there are 1 stages"),
        (generator(F(0, way=1)), "has 1 way(s)"),
        (generator(F(0, slice=1)), "a sequence has 1 slice(s)"),
        (generator(together(F(0), 3)), "rank 0 overlaps 3; expected ops"),  # type: ignore[arg-type]
        (generator("0X0"), "found '0X0'"),
        (generator("0SEND_F0"), "expected compute ops"),
        (generator(), "yields no op at p=1, m=1"),
        (failing, "raised KeyError at p=1, m=1: 'lost'"),
        (lambda p, m: 3, "returned 3; expected a list of rows, one a rank"),
        (lambda p, m: ["0F0", "1F0"], "returned 2 rows for p=1; expected one a rank"),
        (lambda p, m: by_start([(1, F(0), 0)]), "found F(0) on rank 1"),
        (lambda p, m: by_priority(lambda op, r: 0, limit=lambda r: 0), "gets stuck"),
    ],
)
def test_nonsense_is_an_error_that_says_where(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        at(schedule(name="odd")(function), p=1, m=1)
    assert says in error.value.message


def test_an_error_has_the_line_of_the_definition() -> None:
    with pytest.raises(InputError) as error:
        at(schedule(failing), p=1, m=1)
    assert error.value.line == failing.__code__.co_firstlineno + 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"p": 2}, "needs a value for m, the number of microbatches"),
        ({"p": 0, "m": 1}, "found p = 0; expected a number of 1 or more"),
        ({"p": 2, "m": 2, "k": 1}, "has no size k; expected p, m, v"),
        ({"p": 2, "m": 2, "v": 2}, "is not defined for p=2, m=2, v=2: it has one chunk a rank"),
        ({"p": 3, "m": 2}, "is not defined for p=3, m=2: p must be even"),
    ],
)
def test_sizes_it_does_not_have(given: dict[str, int], says: str) -> None:
    even = schedule(valid=lambda p: "p must be even" if p % 2 else None)(generator(F(0)))
    with pytest.raises(InputError) as error:
        even.sizes(given)
    assert says in error.value.message


def test_a_default_may_depend_on_the_sizes_before_it() -> None:
    def grouped(p: int, m: int, rank: int, g: Any = lambda p: 2 * p) -> Iterator[Any]:
        yield F(g)

    definition = schedule(grouped)
    assert definition.sizes({"p": 3, "m": 1})["g"] == 6
    assert definition.sizes({"p": 3, "m": 1, "g": 1})["g"] == 1


def test_the_grid_skips_sizes_that_are_not_meant() -> None:
    definition = schedule(
        grid={"p": (1, 2), "m": (4, 2)}, valid=lambda p, m: "more" if m < 2 * p else None
    )(generator(F(0)))
    points = [(s["p"], s["m"]) for s in definition.on_grid()]
    assert points == [(1, 2), (1, 4), (2, 4)]
    assert [s["m"] for s in definition.on_grid({"p": 2})] == [4]
    with pytest.raises(InputError):
        list(definition.on_grid({"q": 1}))


def test_split_backwards() -> None:
    @schedule
    def parts(m: int, rank: int) -> Iterator[Any]:
        yield F(0)
        yield I(0)
        yield W(0)

    assert text(parts, p=1, m=1) == ["0F0,0I0,0W0"]
