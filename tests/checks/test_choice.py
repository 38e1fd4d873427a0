"""Programs with choice: what each check says of them, over every execution."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pipeproof.engines.explore.tables import objection
from pipeproof.formats.program_json import read_program
from pipeproof.judge.judge import judge_program
from pipeproof.judge.options import Options
from pipeproof.program.programs import Program
from pipeproof.verdict import CheckResult, Finding, Report, Status, Verdict
from tests.choices import random_choices
from tests.exhaustive import explore as every_interleaving
from tests.programs import ALL_TRANSPORTS

HOLDS, VIOLATED, UNDETERMINED = Status.HOLDS, Status.VIOLATED, Status.UNDETERMINED


def report(*ranks: Any, states: int | None = None, **more: Any) -> Report:
    """The report on a program of the format."""
    text = json.dumps({"programs": {str(r): ops for r, ops in enumerate(ranks)}, **more})
    options = Options() if states is None else Options(states=states)
    return judge_program("p.json", read_program(text, "p"), options)


def statuses(found: Report) -> dict[str, Status]:
    return {c.check: c.status for c in found.checks}


def result(found: Report, check: str) -> CheckResult:
    return next(c for c in found.checks if c.check == check)


def one(found: Report, check: str) -> Finding:
    """The only finding of a check, replayed."""
    (finding,) = result(found, check).findings
    assert finding.replayed
    return finding


SEND = ["SEND", "x", 0]
ANY, COMMUTES = ["RECV", "x", "any"], ["RECV", "x", "any", {"commutes": True}]


# --- deadlock --------------------------------------------------------------------


def test_a_receive_from_any_takes_what_a_later_one_needs() -> None:
    found = report([ANY, ["RECV", "x", 1]], [SEND], [SEND])
    finding = one(found, "deadlock")
    assert finding.verdict is Verdict.DEADLOCK
    assert finding.message == (
        "when rank 0's RECV x from any takes the message of rank 1 first, rank 0 at RECV x "
        "from 1 and rank 2 at SEND x to 0 wait for what never comes"
    )
    assert [step.text for step in finding.counterexample.steps] == [
        "rank 0's RECV x from any takes the message of rank 1; it could take that of rank 2 "
        "instead.",
        "rank 0 is in RECV x from 1, but what rank 1 sent went to RECV x from any.",
        "rank 2 is in SEND x to 0, which no receive of rank 0 is left to take.",
    ]
    assert result(found, "deadlock").scope == "every execution of this program: 3 states explored"
    # The same with the named receive first.
    assert result(report([["RECV", "x", 1], ANY], [SEND], [SEND]), "deadlock").status is HOLDS


def test_stuck_whatever_is_taken() -> None:
    found = report([ANY, ANY], [SEND])
    assert one(found, "deadlock").message == (
        "rank 0 at RECV x from any waits for what never comes, in every execution"
    )
    assert one(report([ANY], [ANY]), "deadlock").count == 1


def test_what_is_posted_and_not_done_is_marked() -> None:
    posts = [["IRECV", "y", 1, {"req": "a"}], ANY, ["RECV", "x", 1], ["WAIT", "a"]]
    finding = one(report(posts, [SEND], [SEND]), "deadlock")
    marks = {e.rank: dict(zip(e.ops, e.marks, strict=True)) for e in finding.excerpts}
    assert marks[0]["RECV y from 1"] == "in flight" and marks[0]["RECV x from 1"] == "stuck"


def test_waitany_both_ways() -> None:
    posts = [["IRECV", "x", 1, {"req": "a"}], ["IRECV", "y", 1, {"req": "b"}]]
    waits = [["WAITANY", "a", "b"], ["SEND", "go", 1], ["WAIT", "a", "b"]]
    sends = [["SEND", "y", 0], ["RECV", "go", 0], ["SEND", "x", 0]]
    found = report([*posts, *waits], sends)
    assert set(statuses(found).values()) == {HOLDS}
    assert result(found, "deadlock").summary.endswith("in every execution (1 state explored)")
    every = [["WAIT", "a", "b"], ["SEND", "go", 1]]
    assert result(report([*posts, *every], sends), "deadlock").status is VIOLATED
    alone = report([*posts[:1], ["WAITANY", "a"]], [["X", "idle"]])
    assert "of whose requests none" in one(alone, "deadlock").counterexample.steps[0].text


def test_past_the_limit_nothing_is_said() -> None:
    ranks = [[COMMUTES] * 4, *([SEND] for _ in range(4))]
    found = report(*ranks, states=5)
    deadlock = result(found, "deadlock")
    assert deadlock.status is UNDETERMINED and deadlock.scope == "this program: 5 states explored"
    assert deadlock.reason == "5 states explored, the limit, and there are more"
    assert statuses(found)["race"] is statuses(found)["matching"] is UNDETERMINED
    assert set(statuses(report(*ranks)).values()) == {HOLDS}
    # What was found by then counts.
    stuck = report([ANY, ["RECV", "x", 1]], [SEND], [SEND], states=2)
    assert statuses(stuck)["deadlock"] in (VIOLATED, UNDETERMINED)


def test_what_the_format_leaves_open() -> None:
    posted = [["IRECV", "x", "any", {"req": "a"}], ["WAIT", "a"]]
    found = report(posted, [SEND], semantics={"streams": "pair"})
    for check in ("deadlock", "race", "matching"):
        assert result(found, check).status is UNDETERMINED
        assert result(found, check).reason == (
            "the program format does not say on which stream a posted receive from any sender "
            "waits its turn"
        )
    assert statuses(found)["coverage"] is HOLDS


def test_lanes_that_take_turns_are_searched() -> None:
    """Whatever lane posts first, it ends; where an order gets stuck, race says why."""
    racing = {"a": [["SEND", "x", 1]], "b": [["SEND", "x", 1]]}
    fine = report(racing, [["RECV", "x", 0], ["RECV", "x", 0]])
    assert statuses(fine)["deadlock"] is HOLDS and statuses(fine)["race"] is VIOLATED
    streams = {
        "out": [["ISEND", "x", 1, {"req": "s"}], ["WAIT", "s"]],
        "in": [["IRECV", "y", 1, {"req": "r"}], ["WAIT", "r"]],
    }
    open_ = report(streams, [["SEND", "y", 0], ["RECV", "x", 0]], semantics={"streams": "pair"})
    assert statuses(open_)["deadlock"] is UNDETERMINED and statuses(open_)["race"] is VIOLATED
    assert "takes turns" in str(result(open_, "deadlock").reason) or "take turns" in str(
        result(open_, "deadlock").reason
    )


# --- race ------------------------------------------------------------------------


def test_several_senders_are_a_race() -> None:
    found = report([ANY, ANY], [SEND], [SEND])
    finding = one(found, "race")
    assert finding.verdict is Verdict.RACE and finding.count == 2
    assert finding.message == (
        "rank 0's RECV x from any takes the message of rank 1 or 2, whichever comes first"
    )
    assert statuses(found)["deadlock"] is HOLDS
    assert set(statuses(report([COMMUTES, COMMUTES], [SEND], [SEND])).values()) == {HOLDS}
    half = report([COMMUTES, ANY], [SEND], [SEND])
    assert one(half, "race").count == 1
    member = ["GROUP", [["SEND", "y", 1], COMMUTES, ANY]]
    group = report([member], [["RECV", "y", 0], SEND], [SEND])
    assert one(group, "race").count == 1
    assert one(group, "race").counterexample.claim.receive == 2  # type: ignore[union-attr]


def test_one_sender_is_no_race() -> None:
    found = report(
        [ANY, ["SEND", "go", 2], ANY], [SEND], [["RECV", "go", 0], SEND], [["X", "idle"]]
    )
    assert set(statuses(found).values()) == {HOLDS}
    same = report([ANY, ANY], [SEND, SEND])
    assert set(statuses(same).values()) == {HOLDS}


def test_a_payload_is_in_flight_after_a_waitany() -> None:
    posts = [
        ["IRECV", "act", 0, 0, 1, {"req": "a"}],
        ["IRECV", "y", 1, {"req": "b"}],
    ]
    sender = [["F", 0, 0], ["SEND", "act", 0, 0, 0], ["SEND", "y", 0]]
    use = ["F", 1, 0]
    early = report([*posts, ["WAITANY", "a", "b"], use, ["WAIT", "a", "b"]], sender)
    assert statuses(early)["race"] is UNDETERMINED
    late = report([*posts, ["WAITANY", "a", "b"], ["WAIT", "a", "b"], use], sender)
    assert set(statuses(late).values()) == {HOLDS}
    never = report([*posts, use, ["WAITANY", "a", "b"], ["WAIT", "a", "b"]], sender)
    assert "while its receive is still in flight" in one(never, "race").message
    single = report([*posts[:1], ["WAITANY", "a"], use], sender[:2])
    assert set(statuses(single).values()) == {HOLDS}


# --- the other checks ------------------------------------------------------------


def test_matching_over_every_execution() -> None:
    fifo = {"semantics": {"match": "fifo", "p2p": {"buffered": 1}}}
    swapped = report(
        [COMMUTES, ["RECV", "y", "any", {"commutes": True}]], [SEND], [["SEND", "y", 0]], **fifo
    )
    assert one(swapped, "matching").verdict is Verdict.MISMATCH
    shapes = report(
        [["RECV", "x", "any", {"shape": [1], "commutes": True}]] * 2,
        [["SEND", "x", 0, {"shape": [1]}]],
        [["SEND", "x", 0, {"shape": [2]}]],
    )
    assert "shape" in one(shapes, "matching").message
    left = report([COMMUTES], [SEND], [["SEND", "x", 0]], semantics={"p2p": {"buffered": 1}})
    assert "meets no receive" in one(left, "matching").message
    crossing = report([COMMUTES, ["RECV", "z", 1]], [SEND, ["SEND", "y", 0]], **fifo)
    assert "y" in one(crossing, "matching").message


def test_order_and_memory_read_lanes() -> None:
    received = [["RECV", "act", 0, 0, "any"], ["F", 1, 0]]
    sender = [["F", 0, 0], ["SEND", "act", 0, 0, 0]]
    assert set(statuses(report(received, sender)).values()) == {HOLDS}
    swapped = report(received[::-1], sender)
    assert one(swapped, "order").verdict is Verdict.ORDER
    over = report([["ALLOC", "a", 2], *received], sender, budget={"0": 1})
    assert one(over, "memory").verdict is Verdict.MEMORY
    lanes = report({"a": received, "b": [["X", "x"]]}, sender)
    assert statuses(lanes)["order"] is statuses(lanes)["memory"] is UNDETERMINED
    assert statuses(lanes)["race"] is UNDETERMINED


def test_memory_freed_at_a_waitany_is_open() -> None:
    posts = [["ALLOC", "a", 1], ["ISEND", "x", 1, {"req": "s", "free": ["a"]}]]
    posts += [["IRECV", "y", 1, {"req": "r"}], ["WAITANY", "s", "r"], ["WAIT", "s", "r"]]
    found = report(posts, [["RECV", "x", 0], ["SEND", "y", 0]])
    assert statuses(found)["memory"] is UNDETERMINED


def test_values_stay_open() -> None:
    found = report([ANY, ["ZERO", "w"], ["REPORT", "w"]], [SEND], want={"w": {}})
    assert statuses(found)["gradients"] is UNDETERMINED


def test_nothing_holds_that_an_execution_breaks() -> None:
    """On random programs, deadlock and left-over messages as every interleaving has them."""
    compared = 0
    for seed in range(150):
        random = Random(seed)
        tested: Program = random_choices(random, messages=4)
        transport = random.choice(ALL_TRANSPORTS)
        tested = replace(tested, transport=transport)
        if not tested.chooses or objection(tested, transport) is not None:
            continue
        everything = every_interleaving(tested, transport, 4_000)
        if everything.truncated:
            continue
        compared += 1
        found = judge_program("p", tested, Options())
        assert all(f.replayed for f in found.findings)
        stuck = any(o.stuck for o in everything.outcomes)
        assert statuses(found)["deadlock"] is (VIOLATED if stuck else HOLDS)
        if any(o.unmatched for o in everything.outcomes):
            assert statuses(found)["matching"] is VIOLATED
    assert compared > 25


@pytest.mark.parametrize("streams", ["free", "rank"])
def test_a_blocking_receive_from_any_needs_no_stream(streams: str) -> None:
    found = report([ANY], [SEND], semantics={"streams": streams})
    assert set(statuses(found).values()) == {HOLDS}
