"""memory: what is held at once, what is left over, and what is given back."""

from __future__ import annotations

from typing import Any

import pytest

from pipeproof.verdict import Report, Status
from tests.checks.faults import Fault, judge
from tests.checks.plans import GPIPE, SHARDED, SPLIT, changed

EXCEEDED, LEAK, ORDER = "memory-exceeded", "leak", "order-violation"

ONE_F_ONE_B = """
0F0, 0SEND_F0, 0F1, 0SEND_F1, 0RECV_B0, 0B0, 0F2, 0SEND_F2, 0RECV_B1, 0B1, 0RECV_B2, 0B2
1RECV_F0, 1F0, 1B0, 1RECV_F1, 1SEND_B0, 1F1, 1B1, 1RECV_F2, 1SEND_B1, 1F2, 1B2, 1SEND_B2
"""


def rank(*ops: Any, **stated: Any) -> dict[str, Any]:
    return {"programs": {"0": list(ops)}, **stated}


def peaks(report: Report) -> dict[str, int]:
    return dict(report.metrics["peak_memory"])


A, B = ["ALLOC", "a", 2], ["ALLOC", "b", 3]
FREE_A, FREE_B = ["FREE", "a"], ["FREE", "b"]
RECEIVER = [["RECV", "x", 0]]


def posted(*ops: Any, **stated: Any) -> dict[str, Any]:
    """Rank 0 runs these ops, and rank 1 receives x."""
    return {"programs": {"0": list(ops), "1": RECEIVER}, **stated}


FREEING = ["ISEND", "x", 1, {"req": "s", "free": ["a"]}]
FREED = ["SEND", "x", 1, {"free": ["a"]}]

FAULTS = [
    Fault(
        "one forward too many at once",
        "memory",
        changed(GPIPE, "1F1, 1B0, 1SEND_B0,", "1B0, 1SEND_B0, 1F1,"),
        GPIPE,
        EXCEEDED,
        [(1, "1F1", 2, 4)],
        "rank 1 holds 2 live activations at 1F1, over its budget of 1; its peak is 2",
        options={"budget": {1: 1}, "transport": "gloo"},
    ),
    Fault(
        "a weight gradient put off",
        "memory",
        "0F0, 0I0, 0W0, 0F1, 0I1, 0W1",
        "0F0, 0I0, 0F1, 0W0, 0I1, 0W1",
        EXCEEDED,
        [(0, "0F1", 1, 3)],
        "rank 0 holds 2 live activations at 0F1, over its budget of 1",
        options={"budget": {None: 1}},
    ),
    Fault(
        "one unit too many",
        "memory",
        rank(A, FREE_A, B, FREE_B, budget={"0": 4}),
        rank(A, B, FREE_A, FREE_B, budget={"0": 4}),
        EXCEEDED,
        [(0, "ALLOC b", "programs.0[1]")],
        "rank 0 holds 5 units at ALLOC b, over its budget of 4; its peak is 5",
    ),
    Fault(
        "what an op allocates lives while it runs",
        "memory",
        rank(A, ["X", "t", {"alloc": {"b": 3}, "free": ["b"]}], budget={"0": 5}),
        rank(A, ["X", "t", {"alloc": {"b": 4}, "free": ["a", "b"]}], budget={"0": 5}),
        EXCEEDED,
        [(0, "X t", "programs.0[1]")],
        "rank 0 holds 6 units at X t",
    ),
    Fault(
        "what a posted op frees stays until it is waited for",
        "memory",
        posted(A, FREEING, ["WAIT", "s"], B, budget={"0": 4}),
        posted(A, FREEING, B, ["WAIT", "s"], budget={"0": 4}),
        EXCEEDED,
        [(0, "ALLOC b", "programs.0[2]")],
        "rank 0 holds 5 units at ALLOC b",
    ),
    Fault(
        "what a posted op frees stays where nothing waits for it",
        "memory",
        posted(A, FREED, B, budget={"0": 4}),
        posted(A, FREEING, B, budget={"0": 4}),
        EXCEEDED,
        [(0, "ALLOC b", "programs.0[2]")],
        "rank 0 holds 5 units at ALLOC b",
    ),
    Fault(
        "a wait that allocates does so before it waits",
        "memory",
        posted(A, FREEING, ["WAIT", "s"], ["X", "", {"alloc": {"b": 3}}], budget={"0": 4}),
        posted(A, FREEING, ["WAIT", "s", {"alloc": {"b": 3}}], budget={"0": 4}),
        EXCEEDED,
        [(0, "WAIT s", "programs.0[2]")],
        "rank 0 holds 5 units at WAIT s",
    ),
    Fault(
        "two ranks over their budgets",
        "memory",
        {"programs": {"0": [A, FREE_A], "1": [A, FREE_A]}, "budget": {"0": 2, "1": 2}},
        {"programs": {"0": [A, A, FREE_A], "1": [A, B]}, "budget": {"0": 2, "1": 2}},
        EXCEEDED,
        [(0, "ALLOC a", "programs.0[1]"), (1, "ALLOC b", "programs.1[1]")],
        "rank 0 holds 4 units at ALLOC a",
        count=2,
    ),
    Fault(
        "freed twice",
        "memory",
        rank(A, FREE_A),
        rank(A, FREE_A, FREE_A),
        ORDER,
        [(0, "FREE a", "programs.0[2]")],
        "rank 0 frees a at FREE a, but it is not live",
    ),
    Fault(
        "freed before it is allocated",
        "memory",
        rank(A, FREE_A),
        rank(FREE_A, A),
        ORDER,
        [(0, "FREE a", "programs.0[0]")],
        "rank 0 frees a at FREE a, but it is not live",
    ),
    Fault(
        "freed on another rank",
        "memory",
        {"programs": {"0": [A, FREE_A], "1": []}},
        {"programs": {"0": [A], "1": [FREE_A]}},
        ORDER,
        [(1, "FREE a", "programs.1[0]")],
        "rank 1 frees a at FREE a, but it is not live",
    ),
    Fault(
        "freed although a pending op frees it",
        "memory",
        posted(A, FREEING, ["WAIT", "s"]),
        posted(A, FREEING, FREE_A, ["WAIT", "s"]),
        ORDER,
        [(0, "FREE a", "programs.0[2]")],
        "rank 0 frees a at FREE a, but it is not live",
        beside=frozenset({"race"}),
    ),
    Fault(
        "freed twice by one op",
        "memory",
        rank(A, ["X", "x", {"free": ["a"]}]),
        rank(A, ["X", "x", {"free": ["a", "a"]}]),
        ORDER,
        [(0, "X x", "programs.0[1]")],
        "rank 0 frees a at X x, but it is not live",
    ),
    Fault(
        "left over",
        "memory",
        rank(A, B, FREE_B, leak_check=True, may_remain=["a"]),
        rank(A, B, FREE_B, leak_check=True),
        LEAK,
        [(0, "ALLOC a", "programs.0[0]")],
        "rank 0 ends the step still holding a, allocated at ALLOC a",
    ),
    Fault(
        "allocated again and left over",
        "memory",
        posted(A, FREEING, ["WAIT", "s"], B, FREE_B, leak_check=True),
        posted(A, FREEING, ["WAIT", "s"], A, B, leak_check=True),
        LEAK,
        [(0, "ALLOC a", "programs.0[3]"), (0, "ALLOC b", "programs.0[4]")],
        "rank 0 ends the step still holding a, allocated at ALLOC a",
        count=2,
    ),
    Fault(
        "parameters gathered and never given up",
        "memory",
        SHARDED,
        changed(SHARDED, ", 1RESHARD", ""),
        LEAK,
        [(1, "1UNSHARD", 2, 1)],
        "rank 1 ends the step with the parameters of stage 1 gathered since 1UNSHARD",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults(fault: Fault) -> None:
    fault.verify()


@pytest.mark.parametrize("plan", [GPIPE, SPLIT, ONE_F_ONE_B])
def test_the_peak_is_a_budget_that_holds_and_one_less_is_not(plan: str) -> None:
    report = judge(plan)
    peak = peaks(report)
    exact = {int(r): p for r, p in peak.items()}
    assert judge(plan, budget=exact).status is Status.HOLDS
    for r, units in exact.items():
        (found,) = judge(plan, budget={**exact, r: units - 1}).findings
        assert found.verdict.value == EXCEEDED and found.where[0].rank == r
        assert f"is {units}" in found.message


def test_peaks() -> None:
    assert peaks(judge(GPIPE)) == {"0": 2, "1": 2}
    assert peaks(judge(ONE_F_ONE_B)) == {"0": 2, "1": 1}
    assert peaks(judge(rank(A, B, FREE_A, A, FREE_A, FREE_B))) == {"0": 5}
    assert peaks(judge(posted(A, FREEING, B, ["WAIT", "s"], A))) == {"0": 5, "1": 0}


def test_the_smaller_budget_counts() -> None:
    program = rank(A, FREE_A, budget={"0": 2})
    assert judge(program, budget={None: 3}).status is Status.HOLDS
    assert judge(program, budget={None: 1}).status is Status.VIOLATED
    assert judge({**program, "budget": {"0": 1}}, budget={None: 3}).status is Status.VIOLATED


def test_an_activation_is_counted_once_however_often_its_forward_runs() -> None:
    report = judge("0F0, 0F0, 0F1, 0B0, 0B1", budget={None: 2})
    assert {f.check for f in report.findings} == {"coverage"}
    assert peaks(report) == {"0": 2}
    report = judge("0F0, 0F0, 0F1, 0B0, 0B1", budget={None: 1})
    assert {f.check for f in report.findings} == {"coverage", "memory"}


def test_whichever_of_two_backwards_comes_first_gives_it_back() -> None:
    for plan in ("0F0,0I0,0W0,0F1,0B0,0B1", "0F0,0B0,0F1,0I0,0W0,0B1", "0B0,0F0,0F1,0B1"):
        report = judge(plan, budget={None: 1})
        assert {f.check for f in report.findings} >= {"coverage"} or "0B0,0F0" in plan
        assert all(f.replayed for f in report.findings)


def test_memory_of_a_long_program_is_linear() -> None:
    ops = [op for i in range(3000) for op in (["ALLOC", f"a{i}", 1], ["FREE", f"a{i}"])]
    report = judge(rank(*ops, budget={"0": 0}))
    assert report.findings[0].count == 1 and report.findings[0].replayed
