"""deadlock: every execution runs to its end, or the shortest wait cycle is told."""

from __future__ import annotations

from typing import Any

import pytest

from pipeproof.program.transports import PRESETS
from pipeproof.verdict import Finding, Report, Status, Stuck
from tests.checks.faults import judge, places
from tests.checks.plans import CHAIN, GPIPE, changed

Ops = list[Any]
HOLDS, VIOLATED = Status.HOLDS, Status.VIOLATED


def ranks(*programs: Ops, **semantics: Any) -> dict[str, Any]:
    listed = {str(rank): ops for rank, ops in enumerate(programs)}
    return {"programs": listed, "semantics": semantics}


def send(name: str, peer: int, **attributes: Any) -> Ops:
    return ["SEND", name, peer, attributes]


def recv(name: str, peer: int, **attributes: Any) -> Ops:
    return ["RECV", name, peer, attributes]


def isend(name: str, peer: int, **attributes: Any) -> Ops:
    return ["ISEND", name, peer, {"req": f"s{name}", **attributes}]


def irecv(name: str, peer: int, **attributes: Any) -> Ops:
    return ["IRECV", name, peer, {"req": f"r{name}", **attributes}]


def deadlock(report: Report) -> Finding:
    """The one finding of a report, a deadlock, re-enacted."""
    (found,) = report.findings
    assert (found.check, found.verdict.value) == ("deadlock", "deadlock")
    assert found.replayed and report.status is VIOLATED
    assert isinstance(found.counterexample.claim, Stuck)
    return found


def ranks_of(found: Finding) -> list[int]:
    return sorted({place.rank for place in found.where})


def rows(report: Report) -> dict[str, tuple[bool, int | None]]:
    return {r.name: (r.status is HOLDS, r.capacity) for r in report.transports}


# --- blocking ------------------------------------------------------------------


def ring(count: int, first: str = "SEND") -> list[Ops]:
    """Every rank sends to the next and receives from the one before."""
    programs = []
    for rank in range(count):
        ops = [
            send(f"x{rank}", (rank + 1) % count),
            recv(f"x{(rank - 1) % count}", (rank - 1) % count),
        ]
        programs.append(ops if first == "SEND" else ops[::-1])
    return programs  # fmt: skip


STREAMS = ["free", "directed", "pair", "rank"]


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_ring_of_blocking_sends(count: int, streams: str) -> None:
    found = deadlock(judge(ranks(*ring(count), streams=streams)))
    assert found.counterexample.cyclic
    assert len(found.counterexample.steps) == count
    assert ranks_of(found) == list(range(count))
    assert {op for _, op, _ in places(found)} == {
        f"SEND x{rank} to {(rank + 1) % count}" for rank in range(count)
    }
    assert found.counterexample.moves == (0,) * count
    assert "wait for each other" in found.message


@pytest.mark.parametrize("count", [2, 3, 5])
def test_one_rank_that_receives_first_breaks_the_ring(count: int) -> None:
    programs = ring(count)
    programs[-1].reverse()
    assert judge(ranks(*programs)).status is HOLDS
    assert judge(ranks(*ring(count), p2p={"buffered": 1})).status is HOLDS
    # If all receive first, no number of slots helps.
    found = deadlock(judge(ranks(*ring(count, "RECV"), p2p={"buffered": 9})))
    assert found.counterexample.cyclic and ranks_of(found) == list(range(count))


def test_a_ring_in_batches_holds() -> None:
    for group in ("independent", "atomic"):
        batches = [[["GROUP", own]] for own in ring(3)]
        assert judge(ranks(*batches, group=group)).status is HOLDS


def test_batches_that_start_whole_wait_in_a_circle() -> None:
    """Rank 0 batches what rank 2 takes apart."""
    programs = [
        [["GROUP", [send("a", 1), send("b", 2)]]],
        [recv("a", 0), send("c", 2)],
        [["GROUP", [recv("b", 0), recv("c", 1)]]],
    ]
    assert judge(ranks(*programs)).status is HOLDS
    found = deadlock(judge(ranks(*programs, group="atomic")))
    assert found.counterexample.cyclic
    assert set(ranks_of(found)) <= {0, 1, 2} and 1 in ranks_of(found)


def test_a_rank_that_waits_for_itself() -> None:
    found = deadlock(judge(ranks([send("x", 0), recv("x", 0)])))
    assert found.counterexample.cyclic and ranks_of(found) == [0]
    assert "rank 0 waits for itself" in found.message
    assert judge(ranks([isend("x", 0), recv("x", 0)])).status is HOLDS


# --- streams -------------------------------------------------------------------

# Each holds with free streams and is stuck from the streams on that are named.
DIRECTED = [
    [isend("x", 1, comm="a"), isend("y", 1, comm="b"), ["WAIT", "sx", "sy"]],
    [irecv("y", 0, comm="b"), ["WAIT", "ry"], irecv("x", 0, comm="a"), ["WAIT", "rx"]],
]
PAIR = [
    [isend("x", 1), irecv("y", 1), ["WAIT", "sx", "ry"]],
    [isend("y", 0), irecv("x", 0), ["WAIT", "sy", "rx"]],
]
RANK = [
    [isend(f"x{r}", after), irecv(f"x{before}", before), ["WAIT", f"sx{r}", f"rx{before}"]]
    for before, r, after in ((2, 0, 1), (0, 1, 2), (1, 2, 0))
]


@pytest.mark.parametrize(
    ("programs", "first"), [(DIRECTED, "directed"), (PAIR, "pair"), (RANK, "rank")]
)
def test_cycles_through_streams(programs: list[Ops], first: str) -> None:
    for streams in STREAMS:
        report = judge(ranks(*programs, streams=streams))
        if STREAMS.index(streams) < STREAMS.index(first):
            assert report.status is HOLDS
            continue
        found = deadlock(report)
        assert found.counterexample.cyclic
        assert ranks_of(found) == list(range(len(programs)))
        assert "stream" in " ".join(step.text for step in found.counterexample.steps)
        # What the program does not name shows in its rows.
        for name, preset in PRESETS.items():
            holds, _ = rows(report)[name]
            assert holds == (STREAMS.index(preset.streams.value) < STREAMS.index(first))


# --- plans, as torch issues them -----------------------------------------------

COMPUTES_IN_A_CIRCLE = """
0F0, 0SEND_F0, 0RECV_B0, 0B0, 0F1, 0SEND_F1, 0RECV_B1, 0B1
1RECV_F0, 1F0, 1RECV_F1, 1F1, 1B0, 1SEND_B0, 1B1, 1SEND_B1
"""
PAIR_STREAM = """
0F0, 0SEND_F0, 0F1, 0SEND_F1, 0RECV_B0, 0B0, 0RECV_B1, 0B1
1RECV_F0, 1F0, 1B0, 1SEND_B0, 1RECV_F1, 1F1, 1B1, 1SEND_B1
"""


@pytest.mark.parametrize("transport", list(PRESETS))
def test_a_plan_whose_computes_wait_for_each_other(transport: str) -> None:
    found = deadlock(judge(COMPUTES_IN_A_CIRCLE, transport=transport))
    assert found.counterexample.cyclic and ranks_of(found) == [0, 1]
    # Where the streams of the two ranks are stuck as well, that is the shorter story.
    free = transport in ("gloo", "nccl-directed")
    waiting = {(0, "0B0", 1, 4), (1, "1F1", 2, 4)}
    queued = {(0, "0RECV_B0", 1, 3), (1, "1RECV_F1", 2, 3)}
    assert (waiting if free else queued) <= set(places(found))
    forward, backward = "1RECV_F1, 1F1", "1B0, 1SEND_B0"
    right = COMPUTES_IN_A_CIRCLE.replace(f"{forward}, {backward}", f"{backward}, {forward}")
    assert judge(right, transport=transport).status is HOLDS


def test_a_plan_that_only_hangs_on_one_stream_a_pair() -> None:
    report = judge(PAIR_STREAM)
    found = deadlock(report)
    assert {(0, "0SEND_F1", 1, 4), (1, "1SEND_B0", 2, 4)} <= set(places(found))
    holding = {name for name, (holds, _) in rows(report).items() if holds}
    assert holding == {"gloo", "nccl-directed", "grouped"}
    assert judge(PAIR_STREAM, transport="gloo").status is HOLDS
    # One slot is enough, and the cure says so.
    assert rows(report)["nccl"] == (False, 1)
    assert report.metrics["smallest_safe_capacity"] == 1
    assert any("nccl:1" in cure for cure in found.cures)
    assert any("gloo" in cure and "nccl-directed" in cure for cure in found.cures)
    assert judge(PAIR_STREAM, transport="nccl:1").status is HOLDS
    assert judge(GPIPE).status is HOLDS


def test_a_receive_that_nobody_sends() -> None:
    wrong = changed(GPIPE, "0SEND_F1, ", "")
    found = deadlock(judge(wrong, transport="gloo"))
    assert not found.counterexample.cyclic
    assert places(found)[0] == (1, "1F1", 2, 4)
    assert "waits for what never comes" in found.message
    assert found.cures == ("Give it the counterpart that is missing, or leave it out.",)


def test_a_send_that_nobody_receives() -> None:
    wrong = changed(GPIPE, "0RECV_B1, ", "").replace(", 0B1", "")
    for transport in PRESETS:
        report = judge(wrong, transport=transport)
        found = [f for f in report.findings if f.check == "deadlock"]
        assert [f.counterexample.cyclic for f in found] == [False]
        assert found[0].where[0].rank == 1
    # Unbounded buffers swallow it: then it is left over.
    report = judge(wrong, transport="gloo:inf")
    assert {f.check for f in report.findings} == {"coverage", "matching"}


def test_the_chain_holds_everywhere() -> None:
    for transport in PRESETS:
        report = judge(CHAIN, transport=transport)
        assert report.status is HOLDS
        assert report.metrics["smallest_safe_capacity"] == 0


# --- what is told --------------------------------------------------------------


def test_the_shortest_of_several_cycles() -> None:
    three = ring(3)
    two = [[send("p", 4), recv("q", 4)], [send("q", 3), recv("p", 3)]]
    found = deadlock(judge(ranks(*three, *two)))
    assert ranks_of(found) == [3, 4]
    # The claim is about all that are stuck.
    claim = found.counterexample.claim
    assert isinstance(claim, Stuck) and len(claim.ops) == 5


def test_who_waits_behind_the_cycle_is_not_told() -> None:
    two = [[send("p", 1), recv("q", 1), send("r", 2)], [send("q", 0), recv("p", 0)]]
    found = deadlock(judge(ranks(*two, [recv("r", 0)])))
    assert ranks_of(found) == [0, 1]


def test_what_was_done_before() -> None:
    before = [["X", "a"], ["X", "b"]]
    found = deadlock(judge(ranks(before + ring(2)[0], ring(2)[1])))
    assert found.counterexample.moves == (2, 0)
    assert [excerpt.marks for excerpt in found.excerpts] == [
        ("done", "done", "stuck", ""),
        ("stuck", ""),
    ]


def test_wait_for_a_batch() -> None:
    batch = [["GROUP", [send("x", 1), recv("y", 1)], {"req": "g"}], ["WAIT", "g"]]
    assert judge(ranks(batch, [recv("x", 0), send("y", 0)])).status is HOLDS
    found = deadlock(judge(ranks(batch, [recv("x", 0), recv("z", 0)])))
    assert not found.counterexample.cyclic


def test_capacity_counts_unread_sends_of_a_channel() -> None:
    programs = [
        [send("a", 1), send("b", 1), send("c", 1), send("go", 1, comm="2")],
        [recv("go", 0, comm="2"), recv("a", 0), recv("b", 0), recv("c", 0)],
    ]
    for slots, holds in ((0, False), (1, False), (2, False), (3, True)):
        report = judge(ranks(*programs, p2p={"buffered": slots}))
        assert (report.status is HOLDS) == holds
        assert report.metrics["smallest_safe_capacity"] == 3
