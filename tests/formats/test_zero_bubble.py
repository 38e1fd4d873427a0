"""The zero-bubble code's schedules: what they say, what is refused, and what is found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.errors import InputError
from pipeproof.formats.zero_bubble import read_zero_bubble
from pipeproof.program.builder import ProgramBuilder
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.verdict import Status
from tests.formats import trace_files
from tests.formats.trace_files import HOLDS_EVERYWHERE, damaged, found, judged, peaks, rows

ALL = trace_files.names("zero_bubble")
VPP2 = "vpp2_p4_m8_f1000b1000w1000c1.json"
PV = "zb_p4_m8_f1000b1000w1000c1_H1_pv.json"


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(trace_files.text("zero_bubble", name))
    return found


def program(name: str) -> Program:
    return read_zero_bubble(trace_files.text("zero_bubble", name), name)


# --- what the recordings show --------------------------------------------------------


def test_all_recordings_are_there() -> None:
    assert len(ALL) == 8


@pytest.mark.parametrize("name", ALL)
def test_free_of_deadlock(name: str) -> None:
    report = judged(program(name))
    assert found(report) == [] and rows(report) == HOLDS_EVERYWHERE


def unbatched(program: Program) -> Program:
    """The same program with every message of a batch posted on its own."""
    builder, messages, parts = ProgramBuilder(), program.messages, dict[int, list[str]]()
    for lane in program.lanes:
        builder.lane(lane.rank)
        for op in range(lane.first, lane.stop):
            request = int(program.request[op])
            if request >= 0:
                parts[request] = [f"row{row}" for row in program.rows_of(op)]
                for row in program.rows_of(op):
                    send = bool(messages.send[row])
                    builder.op(Kind.SEND if send else Kind.RECV, request=f"row{row}")
                    builder.message(send, int(messages.peer[row]), int(messages.payload[row]))
            else:
                waits = [name for r in program.requests_of(op) for name in parts[r]]
                place = int(program.stage[op]), int(program.microbatch[op])
                builder.op(Kind(int(program.kind[op])), *place, waits=waits)
    return builder.build(
        "unbatched",
        stages=program.stages,
        microbatches=program.microbatches,
        hosts=program.hosts,
        transport=program.transport,
        complete=True,
    )


@pytest.mark.parametrize("name", [name for name in ALL if name != PV])
def test_unbatched_on_one_stream(name: str) -> None:
    report = judged(unbatched(program(name)), "nccl-eager")
    if name == VPP2:
        assert found(report) == [("deadlock", "deadlock", 1)]
        assert rows(report) == HOLDS_EVERYWHERE | {"nccl-eager": Status.VIOLATED}
    else:
        assert found(report) == []


@pytest.mark.parametrize("name", ALL)
def test_what_the_producer_reported_is_a_note(name: str) -> None:
    stated, report = document(name), judged(program(name))
    makespan, peak = report.notes
    assert f" {stated['makespan']:.0f}." in makespan
    assert ", ".join(f"{units:.0f}" for units in stated["peak_mem_units"]) in peak
    # What it calls the makespan is the longest span of a stage, a node's time being 1000;
    # and BW takes no longer than B in it, so where BW is used it is too small.
    computes = [[n for n in own if n["type"] in ("F", "B", "W", "BW")] for own in stated["stages"]]
    assert stated["makespan"] == max(own[-1]["end"] - own[0]["start"] for own in computes)
    end = max(own[-1]["end"] for own in computes)
    if stated["sched"] in ("1f1b", "vpp2"):
        assert report.metrics["makespan"] * 1000 > 1.4 * end
    else:
        assert report.metrics["makespan"] == end // 1000


@pytest.mark.parametrize("name", ALL)
def test_peaks(name: str) -> None:
    stated, own = document(name), program(name)
    units = {Kind.F: 2, Kind.B: -2, Kind.I: -1, Kind.W: -1}
    counted = []
    for lane in own.lanes:
        held = [0]
        for kind in own.kind[lane.first : lane.stop].tolist():
            held.append(held[-1] + units.get(Kind(kind), 0))
        counted.append(max(held))
    assert counted == stated["peak_mem_units"]
    # An activation lives until its weight gradient: never less than half the units.
    live = peaks(judged(own))
    assert all(2 * ours >= theirs for ours, theirs in zip(live, counted, strict=True))


# --- reading -------------------------------------------------------------------------


def node(type_: str, mb: int, lg: int, **more: Any) -> dict[str, Any]:
    return {"type": type_, "mb": mb, "chunk": 0, "lg": lg, "start": 0.0, "end": 1, **more}


def end(type_: str, mb: int, lg: int, peer: int, dir_: str | None, pair: int) -> dict[str, Any]:
    return node(type_, mb, lg, peer=peer, dir=dir_, pair=pair)


RANK0 = [
    node("F", 0, 0),
    end("SEND_FORWARD", 0, 0, 1, "NEXT", 0),
    node("F", 1, 0),
    end("RECV_BACKWARD", 0, 0, 1, "NEXT", 2),
    end("SEND_FORWARD", 1, 0, 1, "NEXT", 1),
    end("RECV_POST_VALIDATION", 0, 0, 1, None, -1),
    node("POST_VALIDATION", 0, 0),
    node("B", 0, 0),
    node("W", 0, 0),
    end("RECV_BACKWARD", 1, 0, 1, "NEXT", 3),
    node("BW", 1, 0),
]
RANK1 = [
    end("RECV_FORWARD", 0, 1, 0, "PREV", 0) | {"rollback": True},
    node("F", 0, 1),
    node("B", 0, 1),
    end("RECV_FORWARD", 1, 1, 0, "PREV", 1),
    end("SEND_BACKWARD", 0, 1, 0, "PREV", 2),
    end("SEND_POST_VALIDATION", 0, -1, 0, None, -1),
    node("POST_VALIDATION", 0, -1),
    node("W", 0, 1),
    node("F", 1, 1),
    node("BW", 1, 1),
    end("SEND_BACKWARD", 1, 1, 0, "PREV", 3),
]
SMALL: dict[str, Any] = {
    "producer": "zero-bubble",
    "sched": "zb",
    "p": 2,
    "m": 2,
    "err": None,
    "makespan": 22016.0,
    "peak_mem_units": [4.0, 3.5],
    "stages": [RANK0, RANK1],
}


def read(value: Any) -> Program:
    return read_zero_bubble(json.dumps(value), "small")


def texts(program: Program) -> list[list[str]]:
    return [[op_text(program, op) for op in range(x.first, x.stop)] for x in program.lanes]


def test_a_small_schedule() -> None:
    small = read(SMALL)
    report = judged(small)
    assert found(report) == []
    assert texts(small) == [
        [
            *("0F0", "(0SEND_F0)GROUP", "0F1", "(0RECV_B0)GROUP", "(0SEND_F1)GROUP"),
            *("RECV pv:1 from 1", "X post-validation", "0I0", "0W0"),
            *("(0RECV_B1)GROUP", "0B1", "WAIT batch0, batch2"),
        ],
        [
            *("(1RECV_F0)GROUP", "1F0", "1I0", "(1SEND_B0;1RECV_F1)GROUP"),
            *("SEND pv:1 to 0", "X post-validation", "1W0", "1F1", "1B1"),
            *("(1SEND_B1)GROUP", "WAIT batch2"),
        ],
    ]
    assert report.notes == (
        "Its producer reported a makespan of 22016.",
        "Its producer reported peaks of 4, 3.5 memory units, rank by rank (F takes 2, B and W "
        "give back 1 each).",
    )
    assert small.origin.path[:4] == (
        *("stages[0][0]", "stages[0][1]", "stages[0][2]", "stages[0][3]"),
    )
    assert small.details.comms == ("", "post-validation")
    assert small.hosts == ((0,), (1,)) and small.complete and not small.forward_only


def test_computes_wait_for_the_batch_that_brings_their_input() -> None:
    small = read(SMALL)
    waits = {
        op_text(small, op): [small.details.requests[r] for r in small.requests_of(op)]
        for op in range(small.ops)
        if small.requests_of(op) and small.kind[op] != Kind.WAIT
    }
    assert waits == {"0I0": ["batch1"], "0B1": ["batch3"], "1F0": ["batch0"], "1F1": ["batch1"]}


def test_the_queue_leaves_when_the_next_compute_needs_what_comes() -> None:
    # The receive is queued before the send, and the compute behind both needs it.
    rank1 = [*RANK1[:3], *RANK1[3:5], *RANK1[8:9], *RANK1[5:8], *RANK1[9:]]
    assert texts(read(SMALL | {"stages": [RANK0, rank1]}))[1][3:6] == [
        *("(1RECV_F1)GROUP", "(1SEND_B0)GROUP", "1F1")
    ]
    # The other way round nothing leaves before the receive.
    rank1[3], rank1[4] = rank1[4], rank1[3]
    assert texts(read(SMALL | {"stages": [RANK0, rank1]}))[1][3:5] == [
        *("(1SEND_B0;1RECV_F1)GROUP", "1F1")
    ]


def test_stages_in_a_v_hand_over_locally() -> None:
    v = program("zbv_p4_m8_f1000b1000w1000c1.json")
    assert v.hosts == ((0,), (1,), (2,), (3,), (3,), (2,), (1,), (0,))
    assert int(v.messages.send.sum()) == 2 * 6 * 8


def test_forwards_alone_are_an_inference() -> None:
    report = read(SMALL | {"m": 1, "stages": [RANK0[:2], RANK1[:2]]})
    assert report.forward_only and found(judged(report)) == []


def test_an_error_is_a_note() -> None:
    assert read(SMALL | {"err": "infeasible"}).notes[0].endswith("an error: infeasible")


# --- refusals ------------------------------------------------------------------------


def refused(value: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(value)
    return caught.value


def changed(rank: int, at: int, **changes: Any) -> dict[str, Any]:
    """The small schedule with other values in one of its nodes."""
    stages = [list(RANK0), list(RANK1)]
    stages[rank][at] = stages[rank][at] | changes
    return SMALL | {"stages": stages}


def without(rank: int, at: int, key: str) -> dict[str, Any]:
    stages = [list(RANK0), list(RANK1)]
    stages[rank][at] = {k: v for k, v in stages[rank][at].items() if k != key}
    return SMALL | {"stages": stages}


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ([], "$", "found an empty list, expected a zero-bubble schedule"),
        ({"producer": "zero-bubble"}, "$", '"sched" is missing'),
        (SMALL | {"producer": "dualpipe"}, "producer", 'expected "zero-bubble"'),
        (SMALL | {"ranks": 2}, "ranks", 'unknown key "ranks"'),
        (SMALL | {"p": 3}, "stages", "found a list of 2, expected a list of 3"),
        (SMALL | {"p": 23}, "p", "no more ranks than events, of which there are 22"),
        (SMALL | {"m": True}, "m", "expected a number of microbatches"),
        (SMALL | {"makespan": "long"}, "makespan", "expected a number"),
        (SMALL | {"makespan": 10**400}, "makespan", "found a number of 401 digits"),
        (SMALL | {"peak_mem_units": [4, None]}, "peak_mem_units[1]", "expected a number"),
        (SMALL | {"validator": 1}, "validator", "expected true or false"),
        (SMALL | {"err": 1}, "err", "expected a name"),
        (SMALL | {"stages": [RANK0, {}]}, "stages[1]", "expected a list of nodes"),
        (SMALL | {"stages": [RANK0, [1]]}, "stages[1][0]", "expected a node"),
        (changed(0, 0, type="R"), "stages[0][0].type", 'found the text "R"'),
        (changed(0, 0, peer=1), "stages[0][0].peer", 'unknown key "peer" in a node F'),
        (changed(0, 0, colour=1), "stages[0][0].colour", 'unknown key "colour"'),
        (without(0, 0, "lg"), "stages[0][0]", '"lg" is missing'),
        (without(0, 1, "pair"), "stages[0][1]", '"pair" is missing'),
        (changed(0, 0, start=None), "stages[0][0].start", "expected a time"),
        (changed(0, 0, mb=2), "stages[0][0].mb", "expected a microbatch, 0 to 1"),
        (changed(0, 0, chunk=11), "stages[0][0].chunk", "expected a chunk, 0 to 10"),
        (changed(0, 0, lg=2), "stages[0][0].lg", "expected a stage, 0 to 1"),
        (changed(1, 1, lg=0), "stages[1][1].lg", "stage 0 computes on rank 0"),
        (changed(0, 1, peer=0), "stages[0][1].peer", "other than its own (0)"),
        (changed(0, 1, dir="UP"), "stages[0][1].dir", 'expected "PREV" or "NEXT"'),
        (changed(0, 1, pair=None), "stages[0][1].pair", "expected the number of a pair"),
        (changed(0, 5, dir="NEXT"), "stages[0][5].dir", "expected null"),
        (changed(1, 0, rollback=1), "stages[1][0].rollback", "expected true or false"),
        (
            changed(0, 1, type="RECV_FORWARD"),
            "stages[0][1].lg",
            "found a RECV_FORWARD of stage 0, the first one; expected none",
        ),
        (
            changed(1, 4, type="RECV_BACKWARD"),
            "stages[1][4].lg",
            "found a RECV_BACKWARD of stage 1, the last one; expected none",
        ),
    ],
)
def test_refused(value: Any, path: str, message: str) -> None:
    error = refused(value)
    assert error.path == path
    assert message in error.message


def test_a_peer_that_is_no_neighbour() -> None:
    stages = document(VPP2)["stages"]
    stages[0][1]["peer"] = 2
    error = refused(document(VPP2) | {"stages": stages})
    assert error.path == "stages[0][1].peer"
    assert error.message == "found the number 2, expected rank 1, which is NEXT of rank 0"


def test_text_that_is_no_json() -> None:
    with pytest.raises(InputError) as caught:
        read_zero_bubble('{"producer": "zero-bubble",}', "cut")
    assert (caught.value.line, caught.value.column) == (1, 27)


@given(st.data())
def test_damage_is_refused_or_read(data: st.DataObject) -> None:
    value = data.draw(damaged(SMALL))
    try:
        assert read(value).ops > 0
    except InputError as error:
        assert error.path is not None and error.message
