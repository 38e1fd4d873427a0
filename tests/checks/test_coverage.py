"""coverage: everything runs, once, where it belongs."""

from __future__ import annotations

from typing import Any

import pytest

from pipeproof.verdict import Status
from tests.checks.faults import Fault, judge, places
from tests.checks.plans import GPIPE, REDUCED, SPLIT, changed


def one_rank(*ops: Any, **stated: Any) -> dict[str, Any]:
    """A program of one rank that hosts every stage."""
    return {"programs": {"0": list(ops)}, **stated}


WHOLE = {"complete": True, "stages": 1, "m": 2}
BOTH = [["F", 0, 0], ["F", 0, 1], ["B", 0, 0], ["B", 0, 1]]

FAULTS = [
    Fault(
        "a forward runs twice",
        "coverage",
        GPIPE,
        changed(GPIPE, "0F1,", "0F1, 0F1,"),
        "order-violation",
        [(0, "0F1", 1, 3), (0, "0F1", 1, 4)],
        "0F1 runs 2 times",
    ),
    Fault(
        "two backwards run twice, one of them three times",
        "coverage",
        GPIPE,
        changed(changed(GPIPE, "0B0,", "0B0, 0B0, 0B0,"), "1B1,", "1B1, 1B1,"),
        "order-violation",
        [(0, "0B0", 1, 6), (0, "0B0", 1, 7), (0, "0B0", 1, 8)],
        "0B0 runs 3 times",
        count=2,
    ),
    Fault(
        "a weight gradient runs twice",
        "coverage",
        SPLIT,
        changed(SPLIT, "0W1", "0W1, 0W1"),
        "order-violation",
        [(0, "0W1", 1, 10), (0, "0W1", 1, 11)],
        "0W1 runs 2 times",
    ),
    Fault(
        "the backward of a microbatch is missing",
        "coverage",
        GPIPE,
        changed(GPIPE, ", 0B1\n", "\n"),
        "order-violation",
        [(0, "0B0", 1, 6)],
        "0B1 never runs (or I and W): stage 0, on rank 0, leaves out microbatch 1",
    ),
    Fault(
        "a whole microbatch is missing on the last stage",
        "coverage",
        GPIPE,
        changed(GPIPE, "1F1, ", ""),
        "order-violation",
        [(1, "1B1", 2, 6)],
        "1F1 never runs",
        beside=frozenset({"order"}),
    ),
    Fault(
        "a weight gradient is missing",
        "coverage",
        SPLIT,
        changed(SPLIT, "1W0, ", ""),
        "order-violation",
        [(1, "1W1", 2, 9)],
        "1W0 never runs",
    ),
    Fault(
        "an input gradient is missing",
        "coverage",
        SPLIT,
        changed(SPLIT, "0I1, ", ""),
        "order-violation",
        [(0, "0W1", 1, 9)],
        "0I1 never runs",
        beside=frozenset({"order"}),
    ),
    Fault(
        "the backward runs whole and in parts",
        "coverage",
        GPIPE,
        changed(GPIPE, "0B1\n", "0B1, 0I1, 0W1\n"),
        "order-violation",
        [(0, "0B1", 1, 8), (0, "0I1", 1, 9), (0, "0W1", 1, 10)],
        "the backward of microbatch 1 whole and in parts: 0B1, 0I1 and 0W1",
    ),
    Fault(
        "a whole backward beside a weight gradient",
        "coverage",
        SPLIT,
        changed(SPLIT, "0I1,", "0B1, 0I1,"),
        "order-violation",
        [(0, "0B1", 1, 9), (0, "0I1", 1, 10), (0, "0W1", 1, 11)],
        "0B1, 0I1 and 0W1",
    ),
    Fault(
        "one stage is never reduced",
        "coverage",
        REDUCED,
        changed(REDUCED, ", 1REDUCE_GRAD", ""),
        "order-violation",
        [(1, "1B1", 2, 7)],
        "1REDUCE_GRAD never runs",
    ),
    Fault(
        "a microbatch too many",
        "coverage",
        GPIPE,
        changed(GPIPE, "1RECV_F0,", "1RECV_F0, 1F2, 1B2,"),
        "order-violation",
        [(1, "1F2", 2, 2), (1, "1B2", 2, 3)],
        "rank 1 runs 1F2, but the step has no microbatch 2: it has 2",
        count=2,
        options={"microbatches": 2},
    ),
    Fault(
        "a message is sent twice and received twice",
        "coverage",
        GPIPE,
        changed(changed(GPIPE, "0SEND_F1,", "0SEND_F1, 0SEND_F1,"), "1RECV_F1,", "1RECV_F1," * 2),
        "order-violation",
        [(1, "1RECV_F1", 2, 3), (1, "1RECV_F1", 2, 4)],
        "the output of stage 0, microbatch 1, is received 2 times",
        count=2,
    ),
    Fault(
        "a gradient is sent twice and received twice",
        "coverage",
        GPIPE,
        changed(changed(GPIPE, "0RECV_B1,", "0RECV_B1," * 2), "1SEND_B1", "1SEND_B1, 1SEND_B1"),
        "order-violation",
        [(0, "0RECV_B1", 1, 7), (0, "0RECV_B1", 1, 8)],
        "the gradient of stage 1, microbatch 1, is received 2 times",
        count=2,
    ),
    Fault(
        "an op runs where its stage does not live",
        "coverage",
        {
            "programs": {"0": [["F", 0, 0]], "1": [["F", 1, 0, {"nodeps": True}]]},
            "placement": {"0": 0, "1": 1},
        },
        {
            "programs": {"0": [["F", 0, 0], ["F", 1, 0, {"nodeps": True}]], "1": []},
            "placement": {"0": 0, "1": 1},
        },
        "order-violation",
        [(0, "1F0", "programs.0[1]")],
        "rank 0 runs 1F0, but stage 1 lives on rank 1",
    ),
    Fault(
        "a stage that the step does not have",
        "coverage",
        one_rank(*BOTH, **WHOLE),
        one_rank(*BOTH, ["B", 1, 0], **WHOLE),
        "order-violation",
        [(0, "1B0", "programs.0[4]")],
        "the step has no stage 1: it has 1",
    ),
    Fault(
        "a complete program without a backward of one microbatch",
        "coverage",
        one_rank(*BOTH, **WHOLE),
        one_rank(*BOTH[:3], **WHOLE),
        "order-violation",
        [(0, "0B0", "programs.0[2]")],
        "0B1 never runs",
    ),
    Fault(
        "a fragment that runs an op twice on one rank",
        "coverage",
        {"programs": {"0": BOTH, "1": BOTH}, "placement": {"0": [0, 1]}},
        {"programs": {"0": [BOTH[0], *BOTH], "1": BOTH}, "placement": {"0": [0, 1]}},
        "order-violation",
        [(0, "0F0", "programs.0[0]"), (0, "0F0", "programs.0[1]")],
        "0F0 runs 2 times: on rank 0",
    ),
    Fault(
        "a complete step that two ranks run",
        "coverage",
        {"programs": {"0": BOTH, "1": []}, "placement": {"0": [0, 1]}, **WHOLE},
        {"programs": {"0": BOTH, "1": BOTH[:1]}, "placement": {"0": [0, 1]}, **WHOLE},
        "order-violation",
        [(0, "0F0", "programs.0[0]"), (1, "0F0", "programs.1[0]")],
        "0F0 runs 2 times: on rank 0 and 1",
    ),
    Fault(
        "what may repeat is still out of range",
        "coverage",
        one_rank(*BOTH, ["F", 0, 1, {"redo": True}], **WHOLE),
        one_rank(*BOTH, ["F", 0, 2, {"redo": True}], **WHOLE),
        "order-violation",
        [(0, "0F2", "programs.0[4]")],
        "the step has no microbatch 2",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults(fault: Fault) -> None:
    fault.verify()


def test_every_missing_letter_is_one_finding() -> None:
    report = judge(changed(SPLIT, "0I0, 0W0, ", ""))
    found = [f for f in report.findings if f.check == "coverage"]
    # Neither whole nor in parts: it is the backward that is missing.
    assert [f.message.partition(" ")[0] for f in found] == ["0B0"]
    assert [f.count for f in found] == [1]


def test_all_gaps_of_a_letter_are_counted() -> None:
    rows = "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1"
    found, unreduced = [f for f in judge(rows).findings if f.check == "coverage"]
    assert (found.count, places(found)) == (2, [(1, "1B1", 2, 6)])
    assert found.message.startswith("1B2 never runs")
    # Torch reduces a stage after its last backward, so this one it never would.
    assert unreduced.message.startswith("1REDUCE_GRAD never runs")


def test_a_file_without_any_backward_is_an_inference_schedule() -> None:
    report = judge("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1F0,1RECV_F1,1F1")
    assert report.status is Status.HOLDS
    assert any("forward-only" in note for note in report.notes)
    # One backward, and all are owed.
    report = judge("0F0,0F1,0B0")
    assert [(f.check, f.count) for f in report.findings] == [("coverage", 1)]


def test_no_stage_is_reduced_or_all_are() -> None:
    assert judge(GPIPE).status is Status.HOLDS
    assert any("REDUCE_GRAD" in note for note in judge(GPIPE).notes)
    assert judge(REDUCED).status is Status.HOLDS
    assert not judge(REDUCED).notes


def test_far_more_missing_than_there() -> None:
    sparse = {"programs": {"0": [["F", 3, 7]]}, "stages": 1 << 18, "m": 1 << 18, "complete": True}
    (found, *_) = judge(sparse, only=("coverage",)).findings
    assert found.message.startswith("0F0 never runs")
    assert found.count == (1 << 36) - 1 and found.replayed


def test_lifted_rules() -> None:
    away = ["F", 1, 0, {"anywhere": True, "nodeps": True}]
    program = {"programs": {"0": [["F", 0, 0], away], "1": []}, "placement": {"0": 0, "1": 1}}
    assert judge(program).status is Status.HOLDS
    assert judge(one_rank(*BOTH, ["B", 0, 1, {"redo": True}], **WHOLE)).status is Status.HOLDS
    # An op that may repeat has run where it runs once.
    once = [BOTH[0], ["F", 0, 1, {"redo": True}], *BOTH[2:]]
    assert judge(one_rank(*once, **WHOLE)).status is Status.HOLDS


def test_a_fragment_owes_nothing() -> None:
    assert judge(one_rank(["F", 0, 0], stages=4, m=9)).status is Status.HOLDS
