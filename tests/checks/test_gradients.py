"""gradients: right programs hold; every seeded error is found, and told."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeproof.checks import gradients
from pipeproof.checks.accumulators import Unknown, accumulator_uses, readings, storages
from pipeproof.checks.apart import left_to_chance
from pipeproof.checks.linear import compared, difference, listed, told
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import undetermined
from pipeproof.formats.program_json import read_program
from pipeproof.replay.values import Values
from pipeproof.verdict import CheckResult, Finding, Status, Verdict
from tests.value_programs import (
    ALIAS,
    GROUPS,
    NAMES,
    Lanes,
    Sum,
    asked_gradients,
    on_lanes,
    sums,
    value_program,
)

CASES = Path(__file__).parent.parent / "data" / "cases"

Rank = list[list[Any]]


def judged(*ranks: Rank | Lanes, **document: Any) -> CheckResult:
    result = asked_gradients(value_program(*ranks, **document))
    assert result is not None
    return result


def holds(*ranks: Rank | Lanes, **document: Any) -> CheckResult:
    result = judged(*ranks, **document)
    assert result.status is Status.HOLDS and not result.findings and result.evidence
    return result


def broken(*ranks: Rank | Lanes, **document: Any) -> Finding:
    """The only finding; its claim was confirmed."""
    result = judged(*ranks, **document)
    assert result.status is Status.VIOLATED and result.summary == result.findings[0].message
    (finding,) = result.findings
    assert finding.verdict is Verdict.NUMERIC
    return finding


def is_open(*ranks: Rank | Lanes, **document: Any) -> str:
    """Why the answer is undetermined."""
    result = judged(*ranks, **document)
    assert result.status is Status.UNDETERMINED and result.reason is not None
    return result.reason


def backward(microbatch: int, form: dict[str, Any], name: str = "w", **more: Any) -> list[Any]:
    return ["X", f"backward {microbatch}", {"grad": {name: form}, **more}]


STEP = ["STEP", "w"]
HALVES = {"w": {"g0": "1/2", "g1": "1/2"}}
UNITS = {"w": {"g0": 1, "g1": 1}}


def reduced(kind: str = "allreduce", group: str = "world", **given: Any) -> list[Any]:
    return ["COLL", kind, group, "w", {"param": "w", **given}]


def accumulated(*ops: list[Any], m: int = 2) -> Rank:
    """Gradients g0 and g1 of one rank, then ``ops``."""
    return [*(backward(n, {f"g{n}": 1}) for n in range(m)), *ops]


def pair(*ops: list[Any]) -> list[Rank]:
    """Two ranks with a gradient each, then ``ops``."""
    return [[backward(0, {f"g{rank}": 1}), *ops] for rank in (0, 1)]


# --- scaling ----------------------------------------------------------------------


def test_the_mean_over_microbatches() -> None:
    result = holds(accumulated(["SCALE", "w", "1/2"], STEP), want=HALVES)
    assert result.summary == "1 update as wanted" and result.evidence["forms"] == {"w": 1}
    finding = broken(accumulated(STEP), want=HALVES, m=2)
    assert finding.message == (
        "rank 0 steps w on g0 + g1; wanted 1/2 g0 + 1/2 g1: every coefficient is 2 times what it "
        "should be"
    )
    assert finding.cause == (
        "A sum over 2 (the number of microbatches) stands where the mean is wanted, or it is "
        "reduced twice."
    )
    assert finding.cures == ("Divide by 2 once: op avg, or SCALE by 1/2.",)
    assert [step.text for step in finding.counterexample.steps] == [
        "X backward 0 adds g0 to w",
        "X backward 1 adds g1 to w",
        "STEP w finds g0 + g1",
    ]


def test_the_mean_over_ranks() -> None:
    holds(*pair(reduced(op="avg"), STEP), want=HALVES)
    finding = broken(*pair(reduced(), STEP), want=HALVES)
    assert finding.count == 2 and [place.rank for place in finding.where] == [0, 1]
    assert "2 (the number of ranks in world)" in finding.cause
    assert finding.counterexample.steps[1].text == "allreduce w takes the sum of w over world"


def test_divided_twice() -> None:
    finding = broken(*pair(["SCALE", "w", "1/2"], reduced(op="avg"), STEP), want=HALVES)
    assert finding.message.endswith("every coefficient is 1/2 of what it should be")
    assert finding.cause.startswith("It is divided by 2 (the number of ranks in world) once too")
    assert "divides again" in finding.cause


def test_another_factor() -> None:
    finding = broken(accumulated(["SCALE", "w", "3/4"], STEP), want=HALVES)
    assert finding.message.endswith("every coefficient is 3/2 times what it should be")
    assert finding.cause == "It is scaled by another factor than the wanted form."
    assert "is -1 times" in broken(accumulated(["SCALE", "w", -1], STEP), want=UNITS).message


def test_a_mean_of_means() -> None:
    tokens = {"w": {"t0": "1/3", "t1": "1/3", "t2": "1/3"}}
    long, short = {"t0": 1, "t1": 1}, {"t2": 1}
    right = [backward(0, long), backward(1, short), ["SCALE", "w", "1/3"], STEP]
    holds(right, want=tokens)
    means = [dict.fromkeys(long, "1/4"), dict.fromkeys(short, "1/2")]
    finding = broken([backward(0, means[0]), backward(1, means[1]), STEP], want=tokens)
    assert finding.message.endswith(
        "the weights still add up to 1, but they are shared out unevenly"
    )
    assert "a mean of local means" in finding.cause


# --- contributions ----------------------------------------------------------------


def test_only_the_last_microbatch() -> None:
    ranks = accumulated(STEP)
    holds(ranks, want=UNITS)
    ranks[1] = backward(1, {"g1": 1}, grad_mode="set")
    finding = broken(ranks, want=UNITS)
    assert finding.message == "rank 0 steps w on g1; wanted g0 + g1: g0 is missing"
    assert finding.cause == (
        "X backward 0 contributes g0; after it X backward 1 assigns instead of adding (grad_mode "
        "set), and what was there is lost."
    )
    assert [place.op for place in finding.where] == ["STEP w", "X backward 1", "X backward 0"]
    holds(ranks, want={"w": {"g1": 1, "g0": 0}})  # a zero is as good as nothing


def test_cleared_between_microbatches() -> None:
    ranks = [["ZERO", "w"], backward(0, {"g0": 1}), ["ZERO", "w"], backward(1, {"g1": 1}), STEP]
    finding = broken(ranks, want=UNITS)
    assert "after it ZERO w clears it" in finding.cause
    assert finding.cures[0].startswith("Clear the accumulator once")
    holds([*ranks[:2], *ranks[3:]], want=UNITS)


def test_not_cleared_between_steps() -> None:
    stale = [backward(9, {"old": 1})]
    finding = broken([*stale, *accumulated(STEP)], want=UNITS)
    assert finding.message.endswith("old does not belong there")
    assert "left over from the step before" in finding.cause
    holds([*stale, ["ZERO", "w"], *accumulated(STEP)], want=UNITS)
    holds([*accumulated(STEP), *accumulated(STEP)], want=UNITS)  # a step clears


def test_stepped_before_anything_arrives() -> None:
    finding = broken([STEP, *accumulated()], want=UNITS)
    assert finding.message == (
        "rank 0 steps w on nothing; wanted g0 + g1: no contribution has reached it"
    )
    assert finding.cures == ("Step after the last backward and the last reduction.",)


def test_added_twice() -> None:
    finding = broken([*accumulated(), backward(1, {"g1": 1}), STEP], want=UNITS)
    assert finding.message.endswith("g1 counts twice")
    assert "a backward that ran again" in finding.cause


def test_never_reduced() -> None:
    holds(*pair(reduced(), STEP), want=UNITS)
    finding = broken(*pair(STEP), want=UNITS)
    assert finding.message.endswith("g1 is missing") and finding.count == 2
    assert "is not reduced into this one" in finding.cause


def test_tied_weights_reduced_too_late() -> None:
    def rank(number: int, *ops: list[Any]) -> Rank:
        step = [STEP] if number in (1, 2) else []
        return [backward(0, {f"g{number}": 1}), *ops, *step]

    groups = {"dp0": [0, 1], "dp1": [2, 3], "tied0": [0, 2], "tied1": [1, 3]}
    want = {"w": {f"g{n}": "1/2" for n in range(4)}}

    def scatter(number: int) -> list[Any]:
        return reduced("reducescatter", f"dp{number // 2}", op="avg", owner=(1, 1, 2, 2)[number])

    def tie(number: int) -> list[Any]:
        return reduced("allreduce", f"tied{number % 2}")

    late = [rank(n, scatter(n), tie(n)) for n in range(4)]
    finding = broken(*late, want=want, groups=groups)
    assert finding.count == 2
    assert finding.message.endswith("g2 is missing; g3 counts twice")
    assert "adds up what the ranks have left, parts and wholes" in finding.cause
    holds(*[rank(n, tie(n), scatter(n)) for n in range(4)], want=want, groups=groups)


def test_reduced_with_another_parameter() -> None:
    def rank(symbol: str, order: str) -> Rank:
        forms = {"grad": {"w": {f"w{symbol}": 1}, "v": {f"v{symbol}": 1}}}
        calls = [["COLL", "allreduce", "world", "c", {"param": name}] for name in order]
        return [["X", "backward", forms], *calls, STEP, ["STEP", "v"]]

    want = {n: {f"{n}0": 1, f"{n}1": 1} for n in "wv"}
    holds(rank("0", "wv"), rank("1", "wv"), want=want)
    finding = broken(rank("0", "wv"), rank("1", "vw"), want=want)
    assert finding.count == 4
    assert finding.message == (
        "rank 0 steps w on w0 + v1; wanted w0 + w1: w1 is missing; v1 does not belong there"
    )
    assert "those that meet do not belong together" in finding.cause


def test_several_kinds_of_error() -> None:
    forms = {"grad": {"w": {"a": 1}, "v": {"a": 2}, "u": {"a": 2}}}
    steps = [["STEP", name] for name in "wvu"]
    want: dict[str, Any] = {"w": {"a": 1, "b": 1}, "v": {"a": 1}, "u": {"a": 1, "b": 0}}
    result = judged([["X", "x", forms], *steps], want=want)
    assert [(f.count, f.where[0].op) for f in result.findings] == [(1, "STEP w"), (2, "STEP v")]


def test_a_mixture() -> None:
    finding = broken(
        [backward(0, {"a": 2, "x": 1, "c": "1/3"}), STEP], want={"w": {"a": 1, "b": 1, "c": 1}}
    )
    assert finding.message.endswith(
        "b is missing; x does not belong there; a counts twice and c counts 1/3 times"
    )
    assert finding.cause.startswith("Contributions are reduced over other ranks")


# --- reported values --------------------------------------------------------------


def test_a_metric_that_shares_its_storage() -> None:
    loss = ["X", "loss", {"grad": {"loss": {"l0": 1}}}]
    report = [loss, ["SCALE", "loss", "1/2"], ["REPORT", "shown"]]
    finding = broken(report, want={"shown": {"l0": 1}}, alias={"shown": "loss"})
    assert finding.message.startswith("rank 0 reports shown as 1/2 l0; wanted l0")
    assert finding.cause == "shown and loss are one storage: SCALE loss changes both."
    early = [loss, ["REPORT", "shown"], ["SCALE", "loss", "1/2"]]
    result = holds(early, want={"shown": {"l0": 1}}, alias={"shown": "loss"})
    assert result.summary == "1 reported value as wanted"


def test_a_report_leaves_the_value() -> None:
    ranks = accumulated(["REPORT", "w"], ["SCALE", "w", 1], ["REPORT", "w"], STEP)
    assert holds(ranks, want=UNITS).summary == "1 update as wanted; 2 reported values as wanted"


# --- asynchronous reductions ------------------------------------------------------


def test_a_reduction_counts_when_it_was_waited_for() -> None:
    posted = reduced(req="q", op="avg")
    holds(*pair(posted, ["WAIT", "q"], STEP), want=HALVES)
    # In flight, the value is one or the other: a race, and nothing to compare.
    reason = is_open(*pair(posted, STEP, ["WAIT", "q"]), want=HALVES)
    assert reason.startswith("w is open at STEP w on rank 0: ")
    assert reason.endswith("is still in flight there")


def test_a_disturbed_reduction_is_open_everywhere() -> None:
    posted, wait = reduced(req="q"), ["WAIT", "q"]
    one = [backward(0, {"g0": 1}), posted, backward(1, {"g0": 1}), wait]
    other = [backward(0, {"g1": 1}), posted, wait, STEP]
    assert "rank 0 touches it while" in is_open(one, other, want=UNITS)
    # A look does not disturb, but what it sees is open.
    look = [backward(0, {"g0": 1}), posted, ["REPORT", "w"], wait]
    holds(look[:2] + look[3:], other, want=UNITS)
    assert is_open(look, other, want=UNITS).startswith("w is open at REPORT w on rank 0")
    # Two at once on one storage disturb each other.
    twice = [backward(0, {"g0": 1}), posted, reduced(req="p"), wait, ["WAIT", "p"]]
    second = [backward(0, {"g1": 1}), posted, reduced(req="p"), wait, ["WAIT", "p"], STEP]
    assert is_open(twice, second, want=UNITS).startswith("w is open at STEP w on rank 1")
    # What is assigned or cleared after the wait is known again.
    fresh = [*one, ["ZERO", "w"], *accumulated(STEP)]
    assert judged(fresh, other[:-1], want=UNITS).status is Status.HOLDS


def test_nobody_is_named_to_own_what_is_scattered() -> None:
    ranks = pair(reduced("reducescatter"), STEP)
    assert "names no owner" in is_open(*ranks, want=UNITS)


# --- lanes ------------------------------------------------------------------------


def test_a_lane_that_reduces() -> None:
    def rank(number: int, *, ordered: bool) -> Lanes:
        compute = [backward(0, {f"g{number}": 1}), ["SIGNAL", "made"]]
        reduce = [["AWAIT", "made"], reduced(op="avg"), ["SIGNAL", "reduced"]]
        step = [["AWAIT", "reduced"], STEP] if ordered else [STEP]
        return {"compute": [*compute, *step], "network": reduce}

    ranks = [rank(n, ordered=True) for n in (0, 1)]
    assert holds(*ranks, want=HALVES).summary == "2 updates as wanted"
    finding = broken(*ranks, want=UNITS)
    assert [step.text for step in finding.counterexample.steps] == [
        "X backward 0 adds g0 to w",
        "allreduce w takes the mean of w over world",
        "STEP w finds 1/2 g0 + 1/2 g1",
    ]
    assert is_open(*[rank(n, ordered=False) for n in (0, 1)], want=HALVES) == (
        "on rank 0 nothing orders STEP w and allreduce w, which both use w"
    )


def test_lanes_that_wait_for_each_other() -> None:
    made, await_made = ["SIGNAL", "made"], ["AWAIT", "made"]
    # Posted on one lane, waited for on the other.
    ranks: list[Lanes] = [
        {
            "a": [backward(0, {f"g{n}": 1}), reduced(req="q"), made],
            "b": [await_made, ["WAIT", "q"], STEP],
        }
        for n in (0, 1)
    ]
    holds(*ranks, want=UNITS)
    # Two lanes that only look, or use different things, need no order.
    looks: Lanes = {"a": [["REPORT", "w"]], "b": [["REPORT", "w"], backward(0, {"a": 1}, "v")]}
    holds(looks, want={"w": {}})
    never: Lanes = {"a": [reduced(req="q")], "b": [STEP]}
    assert "nothing orders allreduce w and STEP w" in is_open(never, want=UNITS)
    calls: Lanes = {"a": [reduced()], "b": [reduced()]}
    assert "what meets them is open" in is_open(calls, calls, want=UNITS)


def test_choice_asks_for_no_order() -> None:
    """Whether the check applies is known without an order of the events."""
    rank = {"a": [["RECV", "x", "any"], ["R", 0, 0, {"rng": 1}]], "b": [["F", 0, 0, {"rng": 1}]]}
    subject = Subject(value_program(rank, [["SEND", "x", 0]]))
    assert gradients.applies(subject) and undetermined(subject, "gradients") is not None


def test_recomputes_on_lanes() -> None:
    signal, wait = ["SIGNAL", "e"], ["AWAIT", "e"]
    forward, again = ["F", 0, 0, {"rng": 1}], ["R", 0, 0, {"rng": 2}]
    finding = broken({"a": [wait, again], "b": [forward, signal]})
    assert [place.op for place in finding.where] == ["0R0", "0F0"]
    assert "nothing orders 0F0 and 0R0" in is_open({"a": [forward], "b": [again]})
    before = is_open({"a": [again, signal], "b": [wait, forward]})
    assert before == "no recompute follows a forward that states its random state"


# --- nothing to compare -----------------------------------------------------------


def test_nothing_is_demanded() -> None:
    assert asked_gradients(value_program(accumulated(STEP))) is None
    assert asked_gradients(value_program([["F", 0, 0, {"rng": 1}], ["R", 0, 0]])) is None
    assert asked_gradients(value_program([["F", 0, 0], ["R", 0, 0, {"rng": 1}]])) is None


def test_a_demand_that_nothing_meets() -> None:
    assert is_open(accumulated(STEP), want={"v": {}, "u": {}}) == (
        "nothing compares v and u with what is wanted: they are never stepped or reported"
    )
    assert is_open(accumulated(STEP), replicas={"v": [0]}) == (
        "v is to agree on its replicas, but is never updated"
    )


def test_what_is_stuck() -> None:
    blocked = [*accumulated(STEP), ["RECV", "x", 1]]
    assert is_open(blocked, [], want=UNITS).startswith("the program gets stuck")
    finding = broken([backward(0, {"g0": 1}), STEP, ["RECV", "x", 1]], [], want=UNITS)
    assert finding.message.endswith("g1 is missing")
    # What stands behind does not happen, so it is not wrong.
    assert is_open([["RECV", "x", 1], STEP], [], want=UNITS).startswith("the program gets stuck")


# --- replicas ---------------------------------------------------------------------


def test_replicas() -> None:
    replicas = {"w": [0, 1]}
    result = holds(*pair(reduced(), STEP), replicas=replicas)
    assert result.summary == "1 replicated parameter in step"
    assert result.evidence["replicas"] == {"w": [0, 1]}

    finding = broken(*pair(STEP), replicas=replicas)
    assert finding.message == (
        "the replicas of w on ranks 0 and 1 part at update 1: rank 0 steps on g0, rank 1 steps "
        "on g1"
    )
    assert finding.cures == ("All-reduce w over its replicas before it is stepped.",)

    adam, muon = ["STEP", "w", {"opt": "adam"}], ["STEP", "w", {"opt": "muon"}]
    ranks = pair(reduced())
    finding = broken([*ranks[0], adam], [*ranks[1], muon], replicas=replicas)
    assert finding.message.endswith("rank 0 steps by adam, rank 1 steps by muon")
    assert "optimizers do not" in finding.cause
    finding = broken([*ranks[0], STEP], [*ranks[1], muon], replicas=replicas)
    assert "rank 0 steps by a rule that is not named" in finding.message

    finding = broken([*ranks[0], STEP, STEP], [*ranks[1], STEP], replicas=replicas)
    assert finding.message.endswith("part at update 2: rank 0 steps on nothing, rank 1 makes none")
    finding = broken([*ranks[0], STEP], ranks[1], replicas=replicas)
    assert finding.message.endswith("rank 0 steps on g0 + g1, rank 1 makes none")
    finding = broken(ranks[0], [*ranks[1], STEP], replicas=replicas)
    assert finding.message.endswith("rank 0 makes none, rank 1 steps on g0 + g1")


def test_replicas_that_are_rolled_back() -> None:
    ranks = pair(reduced(), STEP)
    back = ["ROLLBACK", "w", 0]
    holds([*ranks[0], back], [*ranks[1], back], replicas={"w": [0, 1]})
    finding = broken([*ranks[0], back], ranks[1], replicas={"w": [0, 1]})
    assert finding.message.endswith("rank 0 goes back to version 0, rank 1 makes none")


def test_replicas_under_two_names() -> None:
    ranks = pair(reduced())
    document: dict[str, Any] = {"replicas": {"w": [0, 1]}, "alias": {"head": "w"}}
    holds([*ranks[0], STEP], [*ranks[1], ["STEP", "head"]], **document)
    assert broken([*ranks[0], STEP], [*ranks[1], ["STEP", "x"]], **document)


def test_replicas_of_more_than_two() -> None:
    step = [backward(0, {"g": 1}), STEP]
    result = judged(step, step, [STEP], [STEP], replicas={"w": [0, 1, 2, 3], "v": [0]})
    (finding,) = result.findings
    assert "on ranks 0 and 2" in finding.message
    assert is_open(
        *pair(reduced(req="q"), STEP, ["WAIT", "q"]), replicas={"w": [0, 1]}
    ).startswith("the updates of w are open")


# --- side effects -----------------------------------------------------------------


def test_an_effect_that_is_repeated() -> None:
    effect = {"effects": ["bn"]}
    forward, again = ["F", 0, 0, effect], ["R", 0, 0]
    want = {"0:bn": 1, "1:bn": 0}
    result = holds([forward, again, ["B", 0, 0]], [], want_effects=want)
    assert result.summary == "2 side effects as often as due"
    finding = broken([forward, [*again, effect], ["B", 0, 0]], [], want_effects=want)
    assert finding.message == "rank 0 runs the side effect bn twice instead of once"
    assert "recomputing (0R0) runs it again" in finding.cause
    assert [place.op for place in finding.where] == ["0R0"]
    finding = broken([forward, ["X", "x", effect]], [["X", "x", effect]], want_effects=want)
    assert finding.cause == "Ops that have it run too often." and finding.count == 2
    finding = broken([again], [], want_effects=want)
    assert finding.message == "rank 0 runs the side effect bn 0 times instead of once"
    assert not finding.where


# --- random states ----------------------------------------------------------------


def test_a_recompute_with_another_random_state() -> None:
    def rank(*states: Any) -> Rank:
        kinds = ["F", "R", "F", "R"]
        given = [{} if s is None else {"rng": s} for s in states]
        return [[k, 0, 0, g] for k, g in zip(kinds, given, strict=False)]

    assert holds(rank("s0", "s0")).summary == "1 recompute with the forward's random state"
    finding = broken(rank("s0", "s1"))
    assert finding.message == (
        "rank 0 recomputes 0R0 with the random state s1; its forward 0F0 had s0"
    )
    assert [place.op for place in finding.where] == ["0R0", "0F0"]
    holds(rank(0, 0, 1, 1))  # the last forward counts
    broken(rank(0, 0, 1, 0))
    assert asked_gradients(value_program(rank(0, None, None, 1))) is None
    # Another microbatch, or another rank, is another forward.
    assert asked_gradients(
        value_program([["F", 0, 0, {"rng": 1}]], [["R", 0, 0, {"rng": 2}]])
    ) is (None)


# --- words ------------------------------------------------------------------------


def test_forms_in_words() -> None:
    third = Fraction(1, 3)
    assert told({}) == "nothing"
    assert told({"a": -third, "b": Fraction(1), "c": Fraction(-2)}) == "-1/3 a + b - 2 c"
    many = {f"g{n}": Fraction(1) for n in range(9)}
    assert told(many) == "g0 + g1 + g2 + g3 + g4 + g5 + 3 more terms"
    assert listed("a") == "a" and listed("abc") == "a, b and c"
    assert listed(many) == "g0, g1, g2, g3 and 5 more"


def test_long_forms_are_told_by_what_differs() -> None:
    wanted = {f"g{n}": Fraction(1) for n in range(40)}
    found = dict(wanted, g7=Fraction(2))
    by = difference(found, wanted)
    assert by is not None and by.kind == "repeated"
    assert compared(found, wanted, by) == "2 g7 beside 39 terms that agree; wanted g7"
    assert difference(wanted, {**wanted, "x": Fraction(0)}) is None


def test_storages() -> None:
    assert storages({}) == {}
    one = storages({"a": "b", "b": "c", "d": "a", "x": "x", "p": "q", "q": "p"})
    assert one["a"] == one["b"] == one["c"] == one["d"]
    assert one["p"] == one["q"] != one["a"] and one["x"] == "x"


# --- against the other reading, and the cases -------------------------------------


@given(sums())
def test_forms_are_those_of_the_other_reading(drawn: Sum) -> None:
    program = drawn.program()
    values = Values(program, program.transport)
    subject = Subject(program)
    assert len(subject.sequence) == 2 * program.ops
    for reading in readings(program, subject.sequence):
        if isinstance(reading.value, Unknown):
            assert drawn.asynchronous
        else:
            assert reading.value == values.form(reading.op, reading.name)


@given(sums(asynchronous=False))
def test_without_asynchronous_calls_everything_is_known(drawn: Sum) -> None:
    program = drawn.program()
    expected = drawn.values()
    for reading in readings(program, Subject(program).sequence):
        place = reading.op - program.lanes[reading.rank].first
        assert reading.value == expected[reading.rank, place]


@settings(max_examples=50)
@given(sums(), st.data())
def test_lanes_that_keep_the_order_change_nothing(drawn: Sum, data: st.DataObject) -> None:
    ranks = [data.draw(on_lanes(ops)) for ops in drawn.programs]
    want = {name: {"a": 1} for name in NAMES}
    program = value_program(*ranks, groups=GROUPS, alias=ALIAS, want=want)
    subject = Subject(program)
    if left_to_chance(subject, accumulator_uses(program)) is not None:
        assert drawn.asynchronous  # a lane touches what another one has in flight
        return
    values = Values(program, program.transport)
    found: dict[int, list[Any]] = {rank: [] for rank in range(len(ranks))}
    for reading in readings(program, subject.sequence):
        found[reading.rank].append(reading.value)
        if not isinstance(reading.value, Unknown):
            assert reading.value == values.form(reading.op, reading.name)
    expected: dict[int, list[Any]] = {rank: [] for rank in range(len(ranks))}
    for (rank, _), value in sorted(drawn.values().items(), key=lambda item: item[0]):
        expected[rank].append(value)
    for rank, own in found.items():
        known = [isinstance(value, Unknown) or value for value in own]
        wanted = [value is True or e for value, e in zip(known, expected[rank], strict=True)]
        assert known == wanted
    asked_gradients(program)


@given(sums(), st.dictionaries(st.sampled_from(NAMES), st.just({"a": 1, "b": 1})))
def test_every_finding_is_confirmed(drawn: Sum, want: dict[str, Any]) -> None:
    asked_gradients(drawn.program(want=want, replicas={"w": [0, 1], "v": [1, 0]}))


@pytest.mark.parametrize("number", [41, 48, 50, 51, 52, 54, 56, 65, 66, 67])
def test_cases(number: int) -> None:
    (path,) = CASES.glob(f"{number}_*.json")
    text = path.read_text()
    result = asked_gradients(read_program(text, path.stem, fixed=True))
    assert result is not None and result.status is Status.HOLDS
    result = asked_gradients(read_program(text, path.stem))
    if number == 41:  # it demands nothing, and is a race
        assert result is None
        return
    assert result is not None and result.status is Status.VIOLATED
    assert {f.verdict for f in result.findings} == {Verdict.NUMERIC}
