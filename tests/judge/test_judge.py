"""judge: whatever the program, a report comes out, and all in it was re-enacted."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from pipeproof.checks.table import CHECKS
from pipeproof.judge import judge as judging
from pipeproof.judge.judge import EnginesDisagree, judge_program, judge_schedule
from pipeproof.judge.options import Options
from pipeproof.program.costs import Costs
from pipeproof.program.programs import Program
from pipeproof.program.transports import PRESETS, Transport
from pipeproof.replay.model import Model
from pipeproof.verdict import Counterexample, Finding, Lacks, Report, Status, Stuck, Verdict
from tests.checks.faults import judge
from tests.checks.plans import GPIPE, REDUCED
from tests.programs import programs, transports
from tests.soup import soup
from tests.torch_files import schedule

WORDS = {verdict.value for verdict in Verdict}


def sound(report: Report) -> None:
    """What every report promises."""
    if not report.checks:  # a program without an op
        assert report.status is Status.UNDETERMINED and report.sizes["ops"] == 0
        return
    assert report.status is min(c.status for c in report.checks)
    assert report.findings == tuple(f for c in report.checks for f in c.findings)
    for check in report.checks:
        assert (check.status is Status.VIOLATED) == bool(check.findings)
        assert (check.status is Status.UNDETERMINED) == (check.reason is not None)
        assert all(f.check == check.check for f in check.findings)
        assert bool(check.evidence) == (check.status is Status.HOLDS)
    for finding in report.findings:
        assert finding.replayed and finding.count >= 1 and finding.message
        assert finding.verdict.value in WORDS
        assert len(finding.excerpts) <= 4


@settings(max_examples=100)
@given(programs(), transports())
def test_random_programs(tested: Program, transport: Transport) -> None:
    tested = replace(tested, transport=transport)
    report = judge_program("random", tested, Options())
    sound(report)
    outcome = Model(tested, transport).run()
    stuck = [f for f in report.findings if f.check == "deadlock"]
    assert bool(stuck) == bool(outcome.stuck)
    for finding in stuck:
        claim = finding.counterexample.claim
        assert isinstance(claim, Stuck)
        assert (claim.ops, finding.counterexample.moves) == (outcome.stuck, outcome.completed)
        assert finding.where and all(step.text for step in finding.counterexample.steps)


# --- programs of everything ----------------------------------------------------


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_programs_of_everything(seed: int) -> None:
    """Each finding on any nonsense is confirmed by the step-by-step run: nothing is
    raised, for under `judge` a finding that is not confirmed is an exception."""
    random = Random(seed)
    tested = soup(random)
    note(tested.transport)
    report = judge_program("soup", tested, Options(budget={None: random.randint(0, 3)}))
    sound(report)


def test_nothing_is_no_pass() -> None:
    nothing = {"programs": {"0": [], "1": []}, "stages": 2, "m": 2}
    report = judge(nothing)
    assert report.status is Status.UNDETERMINED
    # A complete step of nothing leaves everything out.
    report = judge({**nothing, "complete": True})
    sound(report)
    assert {f.check for f in report.findings} == {"coverage"}
    assert [f.count for f in report.findings] == [4, 4]


# --- what is asked for ---------------------------------------------------------


def test_only_the_checks_asked_for() -> None:
    report = judge(GPIPE, only=("order", "memory"))
    assert [c.check for c in report.checks] == ["order", "memory"]
    assert report.transports == () and "smallest_safe_capacity" not in report.metrics


def test_metrics() -> None:
    report = judge(GPIPE, activation_bytes=10, costs=Costs(F=2, I=3, W=1, comm=1))
    assert report.metrics["peak_bytes"] == {"0": 20, "1": 20}
    assert report.metrics["messages"] == 4
    # F0 F1 on rank 1 from 3 to 7; B0 until 11, at rank 0 by 12 to 16; B1 by 16 to 20.
    assert report.metrics["makespan"] == 20
    assert report.metrics["idle"] == {"0": 8, "1": 8}
    assert report.sizes == {"ranks": 2, "stages": 2, "microbatches": 2, "ops": 18}


def test_a_transport_asked_for_replaces_the_streams_and_keeps_the_rest() -> None:
    own = {"match": "tag", "group": "atomic", "streams": "pair"}
    document = {"programs": {"0": [["SEND", "x", 1]], "1": [["RECV", "x", 0]]}, "semantics": own}
    stated = judge(document).transport
    assert (stated["streams"], stated["match"], stated["group"]) == ("pair", "tag", "atomic")
    asked = judge(document, transport="gloo:2").transport
    assert (asked["name"], asked["streams"], asked["match"]) == ("gloo:2", "free", "tag")
    assert asked["p2p"] == {"buffered": 2} and asked["group"] == "atomic"


@pytest.mark.parametrize("name", list(PRESETS))
@pytest.mark.parametrize("slots", ["", ":0", ":1", ":inf"])
def test_the_verdict_is_for_the_transport_asked_for(name: str, slots: str) -> None:
    plan = schedule("Interleaved1F1B_2_4_2.deferred.comms.csv")
    transport = PRESETS[name]
    if slots:
        transport = transport.with_capacity(None if slots == ":inf" else int(slots[1:]))
    report = judge_schedule("plan", plan, Options(transport=transport))
    sound(report)
    deadlocked = any(f.check == "deadlock" for f in report.findings)
    assert deadlocked == (name in ("nccl", "nccl-eager") and slots in ("", ":0"))
    assert report.transport["name"] == name + slots.replace(":0", "")


def test_an_unreduced_plan_is_noted() -> None:
    assert any("REDUCE_GRAD" in note for note in judge(GPIPE).notes)
    assert not judge(REDUCED).notes
    assert not judge(GPIPE, recipe="naive").notes


# --- disagreement --------------------------------------------------------------


def test_a_finding_that_is_not_confirmed_is_our_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    lie = Finding(
        check="order",
        verdict=Verdict.ORDER,
        message="0F0 lacks something",
        where=(),
        counterexample=Counterexample(Lacks(0, kind=1), (0, 0), ()),
    )
    order = next(c for c in CHECKS if c.name == "order")

    def lying(subject: Any) -> Any:
        return replace(order.run(subject), status=Status.VIOLATED, findings=(lie,))

    monkeypatch.setattr(judging, "CHECKS", (replace(order, run=lying),))
    with pytest.raises(EnginesDisagree, match="0F0 lacks something"):
        judge(GPIPE)
