"""versions: right programs hold, with the update rule found; wrong ones are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from pipeproof.checks.subject import Subject
from pipeproof.checks.weights import Weight, history
from pipeproof.formats.program_json import read_program
from pipeproof.program.programs import Program
from pipeproof.replay.values import Values
from pipeproof.verdict import CheckResult, Finding, Status, Verdict
from tests.value_programs import asked_versions, value_program, weight_programs

CASES = Path(__file__).parent.parent / "data" / "cases"

Rank = list[list[Any]]


def judged(*ranks: Any, equal: bool = True, **document: Any) -> CheckResult:
    demand = {"versions": "fb-equal"} if equal else {}
    result = asked_versions(value_program(*ranks, **demand, **document))
    assert result is not None
    return result


def holds(*ranks: Any, **document: Any) -> CheckResult:
    result = judged(*ranks, **document)
    assert result.status is Status.HOLDS and not result.findings
    return result


def broken(*ranks: Any, **document: Any) -> Finding:
    """The only finding; its claim was confirmed."""
    result = judged(*ranks, **document)
    assert result.status is Status.VIOLATED
    (finding,) = result.findings
    assert finding.verdict is Verdict.VERSION
    return finding


def rule(result: CheckResult) -> tuple[str, list[int], list[int]]:
    """The rule found, and by stage its staleness and the versions kept."""
    e = result.evidence
    return e["rule"], [*e["staleness"].values()], [*e["versions_kept"].values()]


F0, B0, F1, B1, STEP = ["F", 0, 0], ["B", 0, 0], ["F", 0, 1], ["B", 0, 1], ["STEP", "w0"]

# --- forwards and backwards -----------------------------------------------------


def test_a_synchronous_step() -> None:
    result = holds([F0, F1, B0, B1, STEP])
    assert rule(result) == ("synchronous", [0], [1])
    assert result.summary == "2 ops read the version of their forward; update rule: synchronous"
    assert rule(holds([F0, B0, STEP, F1, B1, STEP])) == ("synchronous", [0], [1])
    assert rule(holds([F0, B0])) == ("no update", [0], [1])


def test_stale_weights() -> None:
    finding = broken([F0, F1, B0, STEP, B1, STEP])
    assert finding.message == (
        "rank 0 runs 0B1 on version 1 of w0; its forward 0F1 used version 0"
    )
    assert finding.cause.startswith("STEP w0 updates w0 while microbatch 1 is between")
    assert finding.cures[0] == "Keep version 0 until 0B1 has used it (wv: 0)."
    assert [place.op for place in finding.where] == ["0B1", "0F1", "STEP w0"]
    stashed = [F0, F1, B0, STEP, [*B1, {"wv": 0}], STEP]
    assert rule(holds(stashed)) == ("stashed, staleness 1 on every stage", [1], [2])


@pytest.mark.parametrize("late", ["BI", "W", "R", "B"])
def test_every_op_of_a_backward_counts(late: str) -> None:
    ops = [F0, *([k, 0, 0] for k in ("R", "BI", "W") if k != late)]
    assert broken([*ops, STEP, [late, 0, 0]]).count == 1
    holds([*ops, [late, 0, 0], STEP])
    # Only the stage's own weights count.
    holds([*ops, ["STEP", "w1"], ["STEP", "x"], [late, 0, 0], STEP])
    holds([*ops, [late, 0, 0]], [STEP, ["F", 0, 0], ["B", 0, 0]])


def test_ranks_and_microbatches_are_apart() -> None:
    finding = broken([F0, F1, STEP, B0, B1], [F0, STEP, B0])
    assert finding.count == 3
    holds([F0, STEP, B1, F1], [STEP, B0, F1, B1])  # without their forwards: for others to say


def test_a_rollback() -> None:
    speculative = [STEP, F0, ["ROLLBACK", "w0", 0], STEP]
    finding = broken([*speculative, B0])
    assert finding.message == (
        "rank 0 runs 0B0 on version 2 of w0; its forward 0F0 used version 1"
    )
    assert finding.cause.startswith("ROLLBACK w0 takes back the version that 0F0 used")
    assert [step.text for step in finding.counterexample.steps] == [
        "0F0 uses version 1 of w0",
        "ROLLBACK w0 sets version 0",
        "STEP w0 sets version 2",
        "0B0 uses version 2",
    ]
    assert rule(holds([*speculative, [*F0, {"redo": True}], B0, STEP])) == (
        "synchronous",
        [0],
        [2],
    )
    # Back to the version that the forward had: as if nothing had been.
    assert rule(holds([F0, STEP, ["ROLLBACK", "w0", 0], B0, STEP])) == ("synchronous", [0], [2])


def test_versions_that_were_never_made() -> None:
    finding = broken([F0, ["ROLLBACK", "w0", 1]], equal=False)
    assert finding.message == (
        "rank 0 at ROLLBACK w0 rolls back to version 1 of w0, which has not been made there"
    )
    finding = broken([F0, STEP, [*B0, {"wv": 2}]])
    assert finding.message == ("rank 0 at 0B0 uses version 2 of w0, which has not been made there")
    assert broken([[*F0, {"wv": 1}]], [STEP], equal=False).count == 1  # another rank made one
    result = holds([STEP, [*F0, {"wv": 0}]], equal=False)
    assert result.summary.startswith("every version that is named has been made")


def test_two_named_versions() -> None:
    finding = broken([STEP, [*F0, {"wv": 0}], [*B0, {"wv": 1}]])
    assert finding.cause == "The two name different versions (wv)."


def test_an_inconsistent_rule_that_nobody_forbids() -> None:
    result = holds([F0, STEP, B0, ["ROLLBACK", "w0", 0]], equal=False)
    assert rule(result)[0] == "inconsistent"
    result = holds([F0, ["ROLLBACK", "w0", 0]], equal=False)
    assert rule(result) == ("no microbatch is complete", [], [])


# --- published update rules -----------------------------------------------------


def _one_f_one_b(p: int, m: int, forward: Callable[[int], int] | None = None) -> list[Rank]:
    """Asynchronous 1F1B: a step after every backward, which uses its forward's version."""
    ranks: list[Rank] = []
    for stage in range(p):
        warm = p - 1 - stage
        order = [("F", n) for n in range(min(warm, m))]
        for n in range(m):
            order += [("F", n + warm)] if n + warm < m else []
            order += [("B", n)]
        ops: Rank = []
        used: dict[int, int] = {}
        steps = 0
        for kind, n in order:
            if kind == "F":
                used[n] = steps
                ops.append(["F", stage, n])
            else:
                ops += [["B", stage, n, {"wv": used[n]}], ["STEP", f"w{stage}"]]
                steps += 1
        ranks.append([[*op] for op in ops])
    return ranks


@pytest.mark.parametrize("p", [1, 2, 4])
def test_pipedream_keeps_p_minus_s_versions(p: int) -> None:
    name, staleness, kept = rule(holds(*_one_f_one_b(p, 3 * p)))
    assert staleness == [p - 1 - s for s in range(p)]
    assert kept == [p - s for s in range(p)]
    assert (
        name
        == {
            1: "synchronous",
            2: "stashed, staleness 1 and 0 on stages 0 and 1",
            4: "stashed, staleness 3, 2, 1 and 0 on stages 0, 1, 2 and 3",
        }[p]
    )


def test_pipedream_on_many_stages() -> None:
    assert rule(holds(*_one_f_one_b(9, 12)))[0] == "stashed, staleness 0 to 8"


def test_pipedream_2bw_keeps_two_versions() -> None:
    p = m = 4
    ranks: list[Rank] = []
    for stage in range(p):
        warm = p - 1 - stage
        count = 3 * m
        ops: Rank = []
        done = 0

        def version(n: int) -> dict[str, int]:
            return {"wv": max(0, n // m - 1)}

        order = [("F", n) for n in range(warm)]
        for n in range(count):
            order += [("F", n + warm)] if n + warm < count else []
            order += [("B", n)]
        for kind, n in order:
            ops.append([kind, stage, n, version(n)])
            if kind == "B":
                done += 1
                if done % m == 0:
                    ops.append(["STEP", f"w{stage}"])
        ranks.append(ops)
    name, staleness, kept = rule(holds(*ranks))
    assert name == "delayed by 1 on every stage"
    assert staleness == [1] * p and kept == [2] * p


# --- demands and bumps ----------------------------------------------------------


def test_demands() -> None:
    use = ["X", "read", {"uses": ["w0", "w1"], "it": 0}]
    result = holds([use, STEP], equal=False)
    assert result.summary.startswith("2 demands for a version are met")
    finding = broken([STEP, use], equal=False)
    assert finding.message == "rank 0 runs X read on version 1 of w0; it needs version 0"
    assert finding.cause == "STEP w0 has replaced it with version 1."
    later = ["X", "read", {"uses": ["w0"], "it": 1}]
    finding = broken([later, STEP], equal=False)
    assert finding.cause == "Version 1 is there only after STEP w0."
    assert [place.op for place in finding.where] == ["X read", "STEP w0"]
    assert broken([later], equal=False).cause == "Nothing on rank 0 makes version 1."
    holds([["STEP", "w0", {"uses": ["w0"], "it": 0}]], equal=False)  # before it steps


def bump(**given: Any) -> list[Any]:
    return ["COLL", "allgather", "world", "weights", {"bumps": "w0", **given}]


def test_bumps() -> None:
    use = ["X", "read", {"uses": ["w0"], "it": 1}]
    holds([bump(), use], equal=False)
    holds([bump(to=1), use], equal=False)
    holds([STEP, bump(to=1), use], equal=False)
    # Asynchronous: at the first wait.
    holds([bump(req="q"), ["WAIT", "q"], use], equal=False)
    holds([bump(req="q"), ["WAIT", "q", {"uses": ["w0"], "it": 1}]], equal=False)
    finding = broken([bump(req="q"), use, ["WAIT", "q"]], equal=False)
    assert finding.cause == "Version 1 is there only after WAIT q."
    assert rule(holds([F0, bump(req="q"), B0, ["WAIT", "q"]]))[0] == "synchronous"
    broken([F0, bump(req="q"), ["WAIT", "q"], B0])
    broken([F0, bump(), B0])


# --- lanes ----------------------------------------------------------------------


def test_lanes() -> None:
    done, wait = ["SIGNAL", "done"], ["AWAIT", "done"]
    holds({"a": [F0, B0, done], "b": [wait, STEP]})
    early: Any = {"b": [wait, STEP, ["SIGNAL", "new"]], "a": [F0, done, ["AWAIT", "new"], B0]}
    finding = broken(early)
    assert [place.op for place in finding.where] == ["0B0", "0F0", "STEP w0"]
    result = judged({"a": [F0, B0], "b": [STEP]})
    assert result.status is Status.UNDETERMINED
    assert result.reason == "on rank 0 nothing orders 0F0 and STEP w0, which both use w0"
    result = judged({"a": [F0], "b": [B0]})
    assert result.status is Status.UNDETERMINED
    assert "which both use the forward of stage 0 on microbatch 0" in result.summary


def test_demands_on_lanes() -> None:
    use = ["X", "read", {"uses": ["w0"], "it": 1}]
    posted: Any = {
        "a": [bump(req="q"), ["SIGNAL", "e"]],
        "b": [["AWAIT", "e"], ["WAIT", "q"], use],
    }
    holds(posted, equal=False)
    open_: Any = {"a": [bump(), ["ROLLBACK", "w0", 0]], "b": [use]}
    assert judged(open_, equal=False).status is Status.UNDETERMINED


# --- nothing to compare ---------------------------------------------------------


def test_nothing_is_demanded() -> None:
    for ranks in ([F0, STEP, B0], [bump(), F0]):
        assert asked_versions(value_program(ranks)) is None
    assert asked_versions(value_program([F0, STEP], versions="fb-equal")) is None
    assert asked_versions(value_program([B0, STEP], versions="fb-equal")) is None
    result = judged([F0], [B0])
    assert result.status is Status.UNDETERMINED
    assert result.reason == (
        "no backward has its forward on its rank, so there is nothing to compare"
    )


def test_what_is_stuck() -> None:
    stuck = ["RECV", "x", 1]
    result = judged([F0, stuck, STEP, B0], [])
    assert result.status is Status.UNDETERMINED
    assert result.summary.startswith("the program gets stuck")
    broken([F0, STEP, B0, stuck], [])


# --- one weight -----------------------------------------------------------------


def test_numbers_are_never_used_twice() -> None:
    weight = Weight()
    numbers = []
    for back in (None, None, 0, None, 1, None):
        weight.replace(weight.unused() if back is None else back, 0)
        numbers.append(weight.version)
    assert numbers == [1, 2, 0, 3, 1, 4]
    assert weight.depth == {0: 0, 1: 1, 2: 2, 3: 1, 4: 2}


# --- against the other reading, and the cases -----------------------------------


@given(weight_programs())
def test_versions_are_those_of_the_other_reading(program: Program) -> None:
    values = Values(program, program.transport)
    subject = Subject(program)
    assert len(subject.sequence) == 2 * program.ops
    tale = history(program, subject.sequence)
    for read in tale.reads:
        assert read.version == values.version_used(read.op)
    for read in tale.demands:
        assert read.version == values.versions(read.op, read.parameter)[-1]
    for op, parameter, version in tale.absent:
        assert version not in values.versions(op, parameter)
    # Every finding is confirmed.
    asked_versions(program)


@pytest.mark.parametrize("number", [58, 59])
def test_cases(number: int) -> None:
    (path,) = CASES.glob(f"{number}_*.json")
    text = path.read_text()
    result = asked_versions(read_program(text, path.stem, fixed=True))
    assert result is not None and result.status is Status.HOLDS
    result = asked_versions(read_program(text, path.stem))
    assert result is not None and result.status is Status.VIOLATED
    (finding,) = result.findings
    assert finding.verdict is Verdict.VERSION
    assert finding.where[0].op == {58: "0B0", 59: "0B1"}[number] and finding.where[0].rank == 0
