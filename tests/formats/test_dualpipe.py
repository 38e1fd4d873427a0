"""DualPipe's recordings: what they say, what is refused, and what is found in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.errors import InputError
from pipeproof.formats.dualpipe import read_dualpipe
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from tests.formats import trace_files
from tests.formats.trace_files import damaged, found, judged, peaks

ALL = trace_files.names("dualpipe")


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(trace_files.text("dualpipe", name))
    return found


def program(name: str) -> Program:
    return read_dualpipe(trace_files.text("dualpipe", name), name)


# --- what the recordings show --------------------------------------------------------


def test_all_recordings_are_there() -> None:
    assert len(ALL) == 4


@pytest.mark.parametrize("name", ALL)
def test_clean(name: str) -> None:
    assert found(judged(program(name))) == []


@pytest.mark.parametrize("name", ALL)
def test_peaks(name: str) -> None:
    stated, report = document(name), judged(program(name))
    p = stated["p"]
    each = 2 * p + 1 if stated["cls"] == "DualPipeV" else p + 1  # of half the size each
    assert peaks(report) == [each] * p == stated["peak_act"] == stated["peak_act_until_w"]
    assert report.notes == (
        f"Its producer reported peaks of {', '.join([str(each)] * p)} activations, rank by rank.",
    )


@pytest.mark.parametrize("name", ALL)
def test_weight_gradients_follow_first_in_first_out(name: str) -> None:
    own = program(name)
    for lane in own.lanes:
        ops = range(lane.first, lane.stop)
        split, weights = (
            [(int(own.stage[op]), int(own.microbatch[op])) for op in ops if own.kind[op] == kind]
            for kind in (Kind.I, Kind.W)
        )
        assert split == weights and split


def test_two_directions_host_every_stage_twice() -> None:
    own = program("dualpipe_p4_m10.json")
    assert (own.stages, own.microbatches) == (4, 10)
    assert own.hosts == ((0, 3), (1, 2), (2, 1), (3, 0))
    # Rank 0 begins the first half of the microbatches, the last rank the second.
    first = own.stage == 0
    for rank, expected in ((0, {0, 1, 2, 3, 4}), (3, {5, 6, 7, 8, 9})):
        lane = own.lanes[rank]
        here = slice(lane.first, lane.stop)
        assert set(own.microbatch[here][first[here]].tolist()) == expected


def test_a_v_hosts_two_stages_a_rank() -> None:
    own = program("dualpipev_p2_m4.json")
    assert (own.stages, own.microbatches) == (4, 4)
    assert own.hosts == ((0,), (1,), (1,), (0,))
    assert int(own.messages.send.sum()) == 2 * 2 * 4  # none where the V turns


# --- reading -------------------------------------------------------------------------


def compute(op: str, phase: int, mb: int, stage: int) -> dict[str, Any]:
    return {"step": 1, "op": op, "phase": phase, "mb": mb, "stage": stage}


def batch(*ops: tuple[str, int, list[Any]]) -> dict[str, Any]:
    listed = [{"op": op, "peer": peer, "what": what} for op, peer, what in ops]
    return {"step": 4, "op": "batch", "ops": listed}


def rank(own: int, mine: int, other: int) -> list[dict[str, Any]]:
    """Rank ``own`` of two begins direction ``mine`` and ends the other one."""
    peer = 1 - own
    return [
        compute("F", mine, 0, 0),
        batch(("send", peer, ["act", mine, 0, 0]), ("recv", peer, ["act", other, 0, 0])),
        {"step": 4, "op": "FB_begin"},
        compute("F", other, 0, 1),
        compute("B", other, 0, 1),
        {"step": 4, "op": "FB_end"},
        batch(("send", peer, ["grad", other, 0, 1]), ("recv", peer, ["grad", mine, 0, 1])),
        compute("W", other, 0, 1),
        compute("BW", mine, 0, 0),
    ]


RANKS = [rank(0, 0, 1), rank(1, 1, 0)]
SMALL: dict[str, Any] = {
    "producer": "deepseek-ai/DualPipe",
    "commit": "3da1bbea",
    "cls": "DualPipe",
    "p": 2,
    "m": 2,
    "note": "by hand",
    "step_counts": [{"1": 2}, {"1": 2}],
    "peak_act": [2, 2.5],
    "ranks": RANKS,
}


def read(value: Any) -> Program:
    return read_dualpipe(json.dumps(value), "small")


def test_a_small_recording() -> None:
    small = read(SMALL)
    report = judged(small)
    assert found(report) == []
    assert report.notes[0] == "Its producer reported peaks of 2, 2.5 activations, rank by rank."
    assert [op_text(small, op) for op in range(small.ops)] == [
        *("0F0", "(0SEND_F0;1RECV_F1)GROUP", "X FB_begin", "1F1", "1I1", "X FB_end"),
        *("(1SEND_B1;0RECV_B0)GROUP", "1W1", "0B0"),
        *("0F1", "(0SEND_F1;1RECV_F0)GROUP", "X FB_begin", "1F0", "1I0", "X FB_end"),
        *("(1SEND_B0;0RECV_B1)GROUP", "1W0", "0B1"),
    ]
    assert {payload_name(small, p) for p in small.messages.payload.tolist()} == {
        *("act:0:0", "act:0:1", "grad:1:0", "grad:1:1")
    }
    assert (small.request == -1).all()  # batches block
    assert small.origin.path[9:11] == ("ranks[1][0]", "ranks[1][1]")
    assert small.complete and not small.forward_only and small.transport.name == "nccl"


def test_forwards_alone_are_an_inference() -> None:
    own = read(SMALL | {"ranks": [[*events[:2], events[3]] for events in RANKS]})
    assert own.forward_only and found(judged(own)) == []


# --- refusals ------------------------------------------------------------------------


def changed(at: int, **changes: Any) -> dict[str, Any]:
    """The small recording with other values in one of rank 0's events."""
    events = list(RANKS[0])
    events[at] = events[at] | changes
    return SMALL | {"ranks": [events, RANKS[1]]}


def sending(*what: Any, **changes: Any) -> dict[str, Any]:
    """The small recording with another first message."""
    message = {"op": "send", "peer": 1, "what": list(what)} | changes
    return changed(1, ops=[message])


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({}, "$", '"producer" is missing'),
        (SMALL | {"producer": "DualPipe"}, "producer", 'expected "deepseek-ai/DualPipe"'),
        (SMALL | {"cls": "DualPipeX"}, "cls", 'expected "DualPipe" or "DualPipeV"'),
        (SMALL | {"v": 2}, "v", 'unknown key "v"'),
        (SMALL | {"m": 3}, "m", "expected an even number, half of it for each direction"),
        (SMALL | {"m": 20}, "m", "no more microbatches than events, of which there are 18"),
        (SMALL | {"p": 3}, "ranks", "found a list of 2, expected a list of 3"),
        (SMALL | {"note": 1}, "note", "expected a name"),
        (SMALL | {"step_counts": [[]]}, "step_counts[0]", "expected the count of each step"),
        (SMALL | {"step_counts": [{"1": "2"}]}, "step_counts[0].1", "expected a whole number"),
        (SMALL | {"peak_act_until_w": 5}, "peak_act_until_w", "expected a list of numbers"),
        (SMALL | {"ranks": [RANKS[0], 1]}, "ranks[1]", "expected a list of events"),
        (changed(0, op="R"), "ranks[0][0].op", 'found the text "R"'),
        (changed(0, ops=[]), "ranks[0][0].ops", 'unknown key "ops" in an event F'),
        (changed(2, mb=0), "ranks[0][2].mb", 'unknown key "mb" in an event FB_begin'),
        (changed(0, step=9), "ranks[0][0].step", "expected a step, 1 to 8"),
        (changed(0, phase=2), "ranks[0][0].phase", "expected a phase, 0 to 1"),
        (changed(0, mb=1), "ranks[0][0].mb", "expected a microbatch, 0 to 0"),
        (
            changed(0, stage=1),
            "ranks[0][0].stage",
            "found the number 1, expected stage 0, which rank 0 runs in phase 0",
        ),
        (changed(1, ops=[]), "ranks[0][1]", "found an empty batch"),
        (sending("act", 0, 0, 0, op="isend"), "ranks[0][1].ops[0].op", 'expected "send" or'),
        (sending("act", 0, 0, 0, peer=0), "ranks[0][1].ops[0].peer", "other than its own"),
        (sending("act", 0, 0, 0, tag=0), "ranks[0][1].ops[0].tag", 'unknown key "tag"'),
        (sending("act", 0, 0), "ranks[0][1].ops[0].what", "found a list of 3, expected"),
        (sending("loss", 0, 0, 0), "ranks[0][1].ops[0].what[0]", 'expected "act" or "grad"'),
        (sending("act", 0, 1, 0), "ranks[0][1].ops[0].what[2]", "expected a microbatch, 0 to 0"),
        (
            sending("act", 0, 0, 2),
            "ranks[0][1].ops[0].what[3]",
            "expected a stage of phase 0, 0 to 1",
        ),
    ],
)
def test_refused(value: Any, path: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(value)
    assert caught.value.path == path
    assert message in caught.value.message


def test_the_way_back_of_a_v_has_stages_of_its_own() -> None:
    value = document("dualpipev_p2_m4.json")
    message = value["ranks"][0][1]["ops"][0]
    assert message["what"] == ["act", 0, 0, 0]
    message["what"] = ["act", 1, 0, 0]
    with pytest.raises(InputError, match="expected a stage of phase 1, 2 to 3"):
        read(value)


@given(st.data())
def test_damage_is_refused_or_read(data: st.DataObject) -> None:
    value = data.draw(damaged(SMALL))
    try:
        assert read(value).ops > 0
    except InputError as error:
        assert error.path is not None and error.message
