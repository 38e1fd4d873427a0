"""Megatron-core's recordings: what they say, what is refused, and what is found in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.errors import InputError
from pipeproof.formats.megatron import read_megatron
from pipeproof.formats.program_json import read_program
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.verdict import Report, Status
from tests.formats import trace_files
from tests.formats.trace_files import HOLDS_EVERYWHERE, damaged, found, judged, peaks, rows


def program(name: str) -> Program:
    return read_megatron(trace_files.text("megatron", name + ".jsonl"), name)


def report(name: str, transport: str | None = None) -> Report:
    return judged(program(name), transport)


# --- what the recordings show --------------------------------------------------------

CLEAN = (
    "1f1b_nobatch_p4_m8",
    "1f1b_p4_m8",
    "interleaved_batch_p4_m8_v2",
    "main_interleaved_overlap_p2_m4_v2",
)
CROSSED = ("interleaved_batch_p2_m4_v2", "main_interleaved_batch_p2_m4_v2")
FREED_IN_FLIGHT = {
    "interleaved_a2a_p4_m8_v2": 25,
    "interleaved_overlap_p2_m4_v2": 6,
    "interleaved_overlap_p4_m8_v2": 28,
    "interleaved_overlap_wf_p4_m8_v2": 60,
}
ALL = (*CLEAN, *CROSSED, *FREED_IN_FLIGHT)


def test_all_recordings_are_there() -> None:
    assert [name + ".jsonl" for name in sorted(ALL)] == trace_files.names("megatron")


@pytest.mark.parametrize("name", CLEAN)
def test_clean(name: str) -> None:
    clean = report(name)
    assert found(clean) == [] and rows(clean) == HOLDS_EVERYWHERE


@pytest.mark.parametrize("name", CROSSED)
def test_batches_between_two_ranks_cross(name: str) -> None:
    crossed = report(name)
    assert found(crossed) == [("matching", "mismatch", 8)]
    # It runs to its end all the same: nobody notices.
    assert rows(crossed) == HOLDS_EVERYWHERE
    assert (
        "2SEND_B0 (message 5 from rank 0 to rank 1) is received as 1RECV_F2"
        in crossed.findings[0].message
    )


@pytest.mark.parametrize(("name", "count"), FREED_IN_FLIGHT.items())
def test_outputs_are_freed_before_their_sends_are_waited_for(name: str, count: int) -> None:
    freed = report(name)
    assert found(freed) == [("race", "race", count)]
    late, early = freed.findings[0].where
    assert late.op.startswith("X dealloc t") and "SEND_F" in early.op
    assert (late.rank, late.lane) == (early.rank, early.lane) and early.index < late.index


def test_one_stream_a_pair_or_one_a_group() -> None:
    name = "interleaved_overlap_wf_p4_m8_v2"
    assert rows(report(name)) == HOLDS_EVERYWHERE | {"nccl-eager": Status.VIOLATED}
    assert found(report(name, "nccl-eager")) == [("deadlock", "deadlock", 1), ("race", "race", 60)]
    for other in FREED_IN_FLIGHT:
        if other != name:
            assert rows(report(other)) == HOLDS_EVERYWHERE


@pytest.mark.parametrize("name", ALL)
def test_peaks_of_outstanding_chunk_forwards(name: str) -> None:
    judgement = report(name)
    p, m = judgement.sizes["ranks"], judgement.sizes["microbatches"]
    v = judgement.sizes["stages"] // p
    if name.startswith("1f1b"):
        expected = [min(m, p - r) for r in range(p)]
    else:
        combined = 1 if "a2a" in name else 0
        expected = [min(m * v, 2 * (p - 1 - r) + (v - 1) * p + 1 + combined) for r in range(p)]
    assert peaks(judgement) == expected


MUSEUM = Path(__file__).parents[2] / "counterexamples"


@pytest.mark.parametrize(
    ("case", "finding"),
    [
        ("matching/megatron-batched-crossing", ("matching", "mismatch", 2)),
        ("race/megatron-output-freed-in-flight", ("race", "race", 1)),
    ],
)
def test_what_is_left_of_them_when_cut_down(case: str, finding: tuple[str, str, int]) -> None:
    text = (MUSEUM / case / "case.json").read_text()
    assert found(judged(read_program(text, case))) == [finding]
    assert found(judged(read_program(text, case, fixed=True))) == []


# --- reading -------------------------------------------------------------------------

HEADER = {"producer": "megatron-core", "version": "1", "schedule": "s", "p": 2, "m": 1}
RANK0: list[dict[str, Any]] = [
    {"op": "no_sync_enter"},
    {"op": "F", "mb": 0, "chunk": 0, "in": None, "out": 1, "ckpt": None},
    {"op": "isend", "peer": 1, "t": 1, "req": 7, "group": "pp", "what": ["act", 0, 0]},
    {
        "op": "batch",
        "ops": [{"op": "irecv", "peer": 1, "t": 2, "req": 8, "what": ["grad", 0, 1]}],
    },
    {"op": "wait", "reqs": [7]},
    {"op": "dealloc", "t": 1},
    {"op": "wait", "reqs": [8]},
    {"op": "FB_begin"},
    {"op": "B", "mb": 0, "chunk": 0, "in": None, "out": 1, "grad_in": 2, "grad_out": None},
    {"op": "FB_end"},
    {"op": "grad_sync", "chunk": 0},
    {"op": "no_sync_exit"},
]
RANK1: list[dict[str, Any]] = [
    {"op": "irecv", "peer": 0, "t": 5, "req": 1, "group": "pp", "what": ["act", 0, 0]},
    {"op": "wait", "reqs": [1]},
    {"op": "F", "mb": 0, "chunk": 0, "in": 5, "out": 6},
    {"op": "B", "mb": 0, "chunk": 0, "in": 5, "out": 6, "grad_in": None, "grad_out": 9},
    {
        "op": "batch",
        "ops": [{"op": "isend", "peer": 0, "t": 9, "req": 2, "what": ["grad", 0, 1]}],
    },
    {"op": "wait", "reqs": [2]},
]
EVENTS = [
    {"rank": rank, "i": i, **event}
    for rank, events in enumerate((RANK0, RANK1))
    for i, event in enumerate(events)
]
SMALL: list[Any] = [HEADER, *EVENTS]


def lines(*documents: Any) -> str:
    return "\n".join(json.dumps(document) for document in documents) + "\n"


def read(*documents: Any) -> Program:
    return read_megatron(lines(*documents), "small")


def test_a_small_recording() -> None:
    small = read(*SMALL)
    assert found(judged(small)) == []
    assert [op_text(small, op) for op in range(small.ops)] == [
        *("X no_sync_enter", "0F0", "0SEND_F0", "(0RECV_B0)GROUP", "WAIT req7", "X dealloc t1"),
        *("WAIT req8", "X FB_begin", "0B0", "X FB_end", "X grad_sync of chunk 0"),
        *("X no_sync_exit", "1RECV_F0", "WAIT req1", "1F0", "1B0", "(1SEND_B0)GROUP", "WAIT req2"),
    ]
    messages = small.messages
    assert [payload_name(small, p) for p in messages.payload.tolist()] == [
        *("act:0:0", "grad:1:0", "act:0:0", "grad:1:0")
    ]
    assert [small.details.comms[c] for c in messages.comm.tolist()] == ["pp", "", "pp", ""]
    assert [t.buf for _, t in sorted(small.details.traits.items())] == ["t1", "t2", "t5", "t9"]
    assert small.origin.line.tolist() == list(range(2, 20))
    assert small.hosts == ((0,), (1,)) and small.complete and not small.forward_only
    assert (small.transport.name, small.notes) == ("nccl", ())


def test_the_chunk_and_the_rank_say_the_stage() -> None:
    own = program("interleaved_batch_p2_m4_v2")
    assert (own.stages, own.microbatches, own.hosts) == (4, 4, ((0,), (1,), (0,), (1,)))
    computes = own.kind <= Kind.B
    assert {int(s) for s in own.stage[computes][: computes.sum() // 2]} == {0, 2}


def test_a_batch_has_one_handle() -> None:
    batch = {
        "op": "batch",
        "ops": [
            {"op": "isend", "peer": 1, "t": 1, "req": 7, "what": ["act", 0, 0]},
            {"op": "irecv", "peer": 1, "t": 2, "req": 8, "what": ["grad", 0, 1]},
        ],
    }
    own = [*RANK0[:2], batch, {"op": "wait", "reqs": [8]}, {"op": "wait", "reqs": [8, 7]}]
    small = read(HEADER, *({"rank": 0, "i": i, **e} for i, e in enumerate(own)), *EVENTS[12:])
    assert op_text(small, 2) == "(0SEND_F0;0RECV_B0)GROUP"
    assert small.requests_of(3) == small.requests_of(4) == [0]
    assert small.details.requests[0] == "req7+8"


def test_a_freed_output_is_no_longer_there_to_be_sent() -> None:
    early = [RANK0[0], RANK0[1], RANK0[5], *RANK0[2:5], *RANK0[6:]]
    small = read(HEADER, *({"rank": 0, "i": i, **e} for i, e in enumerate(early)), *EVENTS[12:])
    assert found(judged(small)) == [("matching", "mismatch", 1)]


def test_a_tensor_that_holds_something_else_is_found() -> None:
    wrong = EVENTS[14] | {"in": 6}
    assert ("matching", "mismatch", 1) in found(judged(read(*SMALL[:15], wrong, *SMALL[16:])))


def test_ranks_may_alternate_and_lines_may_be_empty() -> None:
    mixed = read_megatron(
        lines(HEADER, *EVENTS[12:15]) + "\n  \r\n" + lines(*EVENTS[:12], *EVENTS[15:]), "mixed"
    )
    straight = read(*SMALL)
    assert mixed.kind.tolist() == straight.kind.tolist()
    assert mixed.origin.line.tolist() == [*range(7, 19), 2, 3, 4, *range(19, 22)]


def test_forwards_alone_are_an_inference() -> None:
    small = read(HEADER, *EVENTS[:3], EVENTS[4] | {"i": 3}, *EVENTS[12:15])
    assert small.forward_only and found(judged(small)) == []


def test_checkpoints_are_noted() -> None:
    small = read(HEADER, EVENTS[0], EVENTS[1] | {"ckpt": True}, *EVENTS[2:])
    assert "recompute inside their backward" in small.notes[0]
    assert read(HEADER, EVENTS[0], EVENTS[1] | {"ckpt": False}, *EVENTS[2:]).notes == ()


# --- refusals ------------------------------------------------------------------------


def refused(*documents: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(*documents)
    assert caught.value.cause != ""
    return caught.value


def changed(number: int, **changes: Any) -> list[Any]:
    """The small recording with other values in one of its lines, counted from 1."""
    return [*SMALL[: number - 1], SMALL[number - 1] | changes, *SMALL[number:]]


def without(number: int, key: str) -> list[Any]:
    kept = {k: v for k, v in SMALL[number - 1].items() if k != key}
    return [*SMALL[: number - 1], kept, *SMALL[number:]]


IRECV = RANK0[3]["ops"][0]


@pytest.mark.parametrize(
    ("documents", "line", "path", "message"),
    [
        (changed(1, producer="megatron"), 1, "producer", 'expected "megatron-core"'),
        (changed(1, m=0), 1, "m", "expected a number of microbatches"),
        (changed(1, m=19), 1, "m", "no more microbatches than events, of which there are 18"),
        (changed(1, p=3), 1, "p", "found no event of rank 2"),
        (changed(1, v=10), 1, "v", "no more chunks than events"),
        (changed(1, overlap=1), 1, "overlap", "expected true or false"),
        (changed(1, depth=1), 1, "depth", 'unknown key "depth"'),
        (without(1, "m"), 1, None, '"m" is missing'),
        (changed(2, op="no_sync"), 2, "op", 'found the text "no_sync"'),
        (changed(2, t=1), 2, "t", 'unknown key "t" in an event no_sync_enter'),
        (changed(2, tensor=1), 2, "tensor", 'unknown key "tensor" in an event'),
        (changed(2, rank=2), 2, "rank", "expected a rank, 0 to 1"),
        (changed(3, i=2), 3, "i", "found event 2 of rank 0, expected event 1"),
        (without(3, "mb"), 3, None, '"mb" is missing, expected an event F'),
        (changed(3, mb=1), 3, "mb", "expected a microbatch, 0 to 0"),
        (changed(3, chunk=1), 3, "chunk", "expected a chunk, 0 to 0"),
        (changed(3, out="t1"), 3, "out", "expected the number of a tensor, or null"),
        (changed(3, **{"in": 4}), 3, "in", "expected null, as this is the first stage"),
        (changed(3, ckpt="full"), 3, "ckpt", "expected true or false"),
        (changed(17, grad_in=4), 17, "grad_in", "expected null, as this is the last stage"),
        (changed(4, peer=0), 4, "peer", "other than its own (0)"),
        (changed(4, what=["act", 0]), 4, "what", "found a list of 2"),
        (changed(4, what=["acts", 0, 0]), 4, "what[0]", 'expected "act" or "grad"'),
        (changed(4, what=["act", 1, 0]), 4, "what[1]", "expected a microbatch, 0 to 0"),
        (changed(4, what=["act", 0, 2]), 4, "what[2]", "expected a stage, 0 to 1"),
        (changed(4, group=1), 4, "group", "expected the name of a group"),
        (changed(5, ops=[]), 5, "ops", "found an empty batch"),
        (changed(5, ops=[IRECV | {"req": 7}]), 5, "ops[0].req", "found request 7 a second time"),
        (changed(5, ops=[IRECV | {"op": "F"}]), 5, "ops[0].op", 'expected "isend" or "irecv"'),
        (changed(5, ops=[IRECV | {"group": "pp"}]), 5, "ops[0].group", 'unknown key "group"'),
        (changed(6, reqs=[]), 6, "reqs", "found an empty wait"),
        (changed(6, reqs=[9]), 6, "reqs[0]", "found request 9, but rank 0 has posted none"),
        (changed(7, t=None), 7, "t", "expected the number of a tensor"),
        ([HEADER, EVENTS[0], []], 3, None, "found an empty list, expected an event"),
        ([[]], 1, None, "found an empty list, expected the first line"),
    ],
)
def test_refused(documents: list[Any], line: int, path: str | None, message: str) -> None:
    error = refused(*documents)
    assert (error.line, error.path) == (line, path)
    assert message in error.message


def test_a_line_that_is_no_json() -> None:
    with pytest.raises(InputError) as caught:
        read_megatron(lines(*SMALL[:3]) + '{"rank": 0,}\n', "cut")
    assert (caught.value.line, caught.value.column) == (4, 11)


def test_an_empty_file() -> None:
    with pytest.raises(InputError, match="the file is empty"):
        read_megatron("\n \n", "empty")


@given(st.data())
def test_damage_is_refused_or_read(data: st.DataObject) -> None:
    documents = data.draw(damaged(SMALL))
    try:
        assert read(*documents).ops > 0
    except InputError as error:
        assert error.line is not None and error.message
