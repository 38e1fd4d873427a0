"""Proofs for all sizes: what is proved, what is refuted, and that neither is luck."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
import z3

from pipeproof.judge.for_all_sizes import judge_for_all
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.proofs.sizes.lane import END, Kinds, Lane, lane_of
from pipeproof.proofs.sizes.prove import Proof, prove
from pipeproof.proofs.sizes.ranking import Ranking
from pipeproof.proofs.sizes.smtlib import smtlib
from pipeproof.recipes.issuing import issued
from pipeproof.schedules.table import find
from pipeproof.spec import (
    B,
    F,
    I,
    R,
    W,
    least,
    loop,
    most,
    peak_activations,
    schedule,
    staleness,
    together,
    update,
)
from pipeproof.spec.definition import Definition
from pipeproof.spec.running import run
from pipeproof.spec.sizes import NotLoops
from pipeproof.spec.tracing import traced
from pipeproof.verdict import Status


def quiet(what: str, count: int) -> None: ...


def proved(definition: Definition) -> Proof:
    return prove(definition, traced(definition), quiet)


def statuses(proof: Proof) -> dict[str, Status]:
    return {r.check: r.status for r in proof.results}


PROVED = ("gpipe", "1f1b", "gpipe-recompute", "1f1b-recompute", "inference", "pipedream")


@pytest.mark.parametrize("name", PROVED)
def test_a_known_schedule_is_proved(name: str) -> None:
    proof = proved(find(name))
    found = statuses(proof)
    assert set(found.values()) == {Status.HOLDS}
    assert set(found) >= {"coverage", "order", "matching", "deadlock", "memory"}
    assert proof.ranking is not None
    assert all(r.scope == "all sizes: p >= 1, m >= 1" for r in proof.results)


@pytest.mark.parametrize("name", PROVED)
def test_its_numbers_grow_along_every_wait_of_real_programs(name: str) -> None:
    """The groups of the programs that the recipe makes, and the messages in them."""
    definition = find(name)
    proof = proved(definition)
    assert proof.ranking is not None
    for p in (1, 2, 3, 4):
        for m in (1, 2, 3, 5):
            sizes = definition.sizes({"p": p, "m": m})
            made = run(definition, sizes)
            grows_along(issued(made, "grouped"), proof.lane, proof.ranking, sizes)


def grows_along(program: Program, lane: Lane, ranking: Ranking, sizes: dict[str, int]) -> None:
    numbers = [list(numbers_of(lane, ranking, sizes, rank)) for rank in range(program.ranks)]
    groups: dict[int, tuple[int, int]] = {}  # op -> (rank, which group of the rank)
    for entry in program.lanes:
        before = 0
        for op in range(entry.first, entry.stop):
            groups[op] = entry.rank, before
            before += program.kind[op] <= Kind.R or program.kind[op] == Kind.STEP
        assert len(numbers[entry.rank]) == before + 1
    for own in numbers:
        assert all(one < other for one, other in pairwise(own))
    m = program.messages
    ends: dict[tuple[int, int, int], list[int]] = {}
    for row in range(len(m.op)):
        sender, receiver = (
            (m.rank[row], m.peer[row]) if m.send[row] else (m.peer[row], m.rank[row])
        )
        key = int(sender), int(receiver), int(m.payload[row])
        ends.setdefault(key, []).append(int(m.op[row]))
    for pair in ends.values():
        for one, other in (pair, reversed(pair)):
            (rank, group), (there, counterpart) = groups[one], groups[other]
            if counterpart:  # it is posted when the group before it has ended
                assert numbers[rank][group] > numbers[there][counterpart - 1]


def numbers_of(
    lane: Lane, ranking: Ranking, sizes: dict[str, int], rank: int
) -> Iterator[Fraction]:
    """The numbers of a rank's groups in order, counted from the loops."""
    known = {**sizes, "rank": rank}
    case = []
    for extreme in lane.extremes:
        values = [part.value(known) for part in extreme.parts]
        case.append(values.index(max(values) if extreme.most else min(values)))

    def number(kind: Kinds, index: int) -> Fraction:
        values = {"i": index, "1": 1, **known}
        own = ranking.coefficients[kind, tuple(case)]
        return sum((c * values[n] for c, n in zip(own, ranking.names, strict=True)), Fraction(0))

    for phase, entry in enumerate(lane.phases):
        for index in range(entry.start.value(known), entry.stop.value(known)):
            for place in range(len(entry.ops)):
                yield number((phase, place), index)
    yield number(END, 0)


def test_any_solver_can_check_the_questions_again() -> None:
    for name in ("gpipe", "1f1b"):
        proof = proved(find(name))
        script = smtlib(name, proof.asked)
        assert script.count("(check-sat)") == len(proof.asked) > 20
        for part in script.split("(push 1)")[1:]:
            solver = z3.Solver()
            declared = "".join(x + "\n" for x in script.splitlines() if x.startswith("(declare"))
            solver.from_string(declared + part.split("(check-sat)")[0])
            assert solver.check() == z3.unsat


# --- what is wrong is never proved ------------------------------------------------


def one_f_one_b(
    *,
    warm: Callable[[Any, Any], Any] = lambda p, rank: p - 1 - rank,
    shift: int = 0,
    cool: int = 0,
    swapped: bool = False,
    backward: Callable[[Any, Any], Any] = lambda i, m: i,
    bound: Callable[..., Any] = lambda p, m, rank: least(m, p - rank),
) -> Definition:
    """1F1B, with something else where it is asked for."""

    @schedule(name="mutant", recipe="grouped", claims=[peak_activations(equals=bound)])
    def mutant(p: Any, m: Any, rank: Any) -> Iterator[Any]:
        warm_up = most(0, least(warm(p, rank), m))
        for i in loop(warm_up):
            yield F(i)
        for i in loop(m - warm_up):
            if swapped:
                yield B(backward(i, m))
                yield F(warm_up + i + shift)
            else:
                yield F(warm_up + i + shift)
                yield B(backward(i, m))
        for i in loop(m - warm_up, m - cool):
            yield B(backward(i, m))

    return mutant


def run_at(definition: Definition, sizes: dict[str, int]) -> Any:
    return run(definition, sizes)


def test_the_original_of_the_mutants_is_proved() -> None:
    outcome = judge_for_all("mutant", one_f_one_b(), run_at, quiet)
    assert outcome.report.status is Status.HOLDS


MUTANTS = {
    "one forward fewer to warm up": one_f_one_b(warm=lambda p, rank: p - 2 - rank),
    "one forward more to warm up": one_f_one_b(warm=lambda p, rank: p - rank),
    "warm-up the wrong way": one_f_one_b(warm=lambda p, rank: rank),
    "no warm-up": one_f_one_b(warm=lambda p, rank: 0),
    "a forward skipped": one_f_one_b(shift=1),
    "a backward left out": one_f_one_b(cool=1),
    "backward before forward": one_f_one_b(swapped=True),
    "backwards in reverse": one_f_one_b(backward=lambda i, m: m - 1 - i),
    "a bound that is one too small": one_f_one_b(bound=lambda p, m, rank: least(m, p - rank - 1)),
    "a bound that is never reached": one_f_one_b(bound=lambda p, m, rank: least(m, p - rank + 1)),
    "a bound of another rank": one_f_one_b(bound=lambda p, m, rank: least(m, rank + 1)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_refuted_at_small_sizes(name: str) -> None:
    outcome = judge_for_all("mutant", MUTANTS[name], run_at, quiet)
    assert outcome.report.status is Status.VIOLATED
    assert outcome.refuted is not None
    assert all(f.replayed for f in outcome.refuted.findings)
    assert outcome.refuted.sizes["ranks"] <= 3
    assert outcome.refuted.sizes["microbatches"] <= 3


def test_more_updates_than_claimed_are_not_proved() -> None:
    @schedule(recipe="grouped", stash=True, claims=[staleness(lambda p, rank: p - 2 - rank)])
    def stale(p: Any, m: Any, rank: Any) -> Iterator[Any]:
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

    assert statuses(proved(stale))["versions"] is Status.UNDETERMINED
    assert judge_for_all("stale", stale, run_at, quiet).report.status is Status.VIOLATED


def test_a_schedule_beyond_the_method_is_left_open() -> None:
    """It ends at every size, but not within a linear number of steps."""
    outcome = judge_for_all("eager-1f1b", find("eager-1f1b"), run_at, quiet)
    assert outcome.report.status is Status.UNDETERMINED
    assert outcome.proof is not None
    found = statuses(outcome.proof)
    assert found.pop("deadlock") is Status.UNDETERMINED
    assert set(found.values()) == {Status.HOLDS}
    assert any("nothing is violated" in note.lower() for note in outcome.report.notes)


def split_backward(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    for i in loop(m):
        yield F(i)
    for i in loop(m):
        yield I(i)
    for i in loop(m):
        yield W(i)


def weights_first(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    for i in loop(m):
        yield F(i)
    for i in loop(m):
        yield W(i)
        yield I(i)


def recomputes_early(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    for i in loop(m):
        yield R(i)
        yield F(i)
    for i in loop(m):
        yield B(i)


def test_order_on_the_own_rank() -> None:
    assert statuses(proved(schedule(split_backward)))["order"] is Status.HOLDS
    for wrong in (weights_first, recomputes_early):
        assert statuses(proved(schedule(wrong)))["order"] is Status.UNDETERMINED


def test_activations_are_counted_only_of_what_is_in_order() -> None:
    """A backward that runs before its forward frees nothing, whatever the counts say."""

    @schedule(recipe="grouped", claims=[peak_activations(lambda p, m: least(p, m))])
    def early(p: Any, m: Any, rank: Any) -> Iterator[Any]:
        warm_up = least(rank, m)
        for i in loop(warm_up):
            yield F(i)
        for i in loop(m - warm_up):
            yield B(i)
            yield F(warm_up + i)
        for i in loop(m - warm_up, m):
            yield B(i)

    found = statuses(proved(early))
    assert found["order"] is found["memory"] is Status.UNDETERMINED
    assert judge_for_all("early", early, run_at, quiet).report.status is Status.VIOLATED


def overlapping(m: Any, rank: Any) -> Iterator[Any]:
    for i in loop(m):
        yield together(F(i), B(i))


def nested(m: Any, rank: Any) -> Iterator[Any]:
    for _ in loop(m):
        for j in loop(m):
            yield F(j)


def chunked(m: Any, v: Any, rank: Any) -> Iterator[Any]:
    for i in loop(m):
        yield F(i, chunk=v - 1)


@pytest.mark.parametrize("function", [overlapping, nested, chunked])
def test_what_the_method_does_not_reach_is_refused(function: Any) -> None:
    definition = schedule(function)
    with pytest.raises(NotLoops):
        lane_of(definition, traced(definition))


def test_loops_that_are_not_what_it_does_prove_nothing() -> None:
    turns = {"count": 0}

    @schedule
    def forgetful(m: Any, rank: Any) -> Iterator[Any]:
        for i in loop(m):
            turns["count"] += 1
            yield F(i) if turns["count"] < 9 else F(0)
        for i in loop(m):
            yield B(i)

    outcome = judge_for_all("forgetful", forgetful, run_at, quiet)
    assert outcome.proof is None
    assert outcome.report.status is not Status.HOLDS
    assert outcome.reason is not None and "keeps something between its turns" in outcome.reason


def test_restricted_sizes_and_slices_are_refused() -> None:
    for name in ("hanayo", "terapipe", "encoder-decoder"):
        with pytest.raises(NotLoops):
            proved(find(name))
