"""DeepSpeed's schedules: what they say, what is refused, and what is found in them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.errors import InputError
from pipeproof.formats.deepspeed import read_deepspeed
from pipeproof.formats.program_json import read_program
from pipeproof.formats.program_print import print_program
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from tests.formats import trace_files
from tests.formats.trace_files import damaged, found, judged, peaks

ALL = trace_files.names("deepspeed")
TRAIN, SMALL = "train_p4_m8.json", "train_p2_m1.json"
INFERENCE, DUAL = "inference_p4_m8.json", "dualpipev_p4_m8.json"

Document = dict[str, Any]


def document(name: str) -> Document:
    stated: Document = json.loads(trace_files.text("deepspeed", name))
    return stated


def instructions(stated: Document, rank: int) -> list[Document]:
    return [each for step in stated["stages"][rank]["steps"] for each in step]


def program(name: str) -> Program:
    return read_deepspeed(trace_files.text("deepspeed", name), name)


def read(stated: Document) -> Program:
    return read_deepspeed(json.dumps(stated), "x")


def step_of(own: Program, op: int) -> int:
    match = re.fullmatch(r"stages\[[0-9]+\]\.steps\[([0-9]+)\]\[[0-9]+\]", own.origin.path[op])
    assert match is not None
    return int(match[1])


# --- what the recordings show --------------------------------------------------------


def test_all_recordings_are_there() -> None:
    assert set(ALL) == {TRAIN, SMALL, INFERENCE, DUAL}


@pytest.mark.parametrize("name", ALL)
def test_free_of_deadlock_mismatch_and_overwrites(name: str) -> None:
    report = judged(program(name))
    assert found(report) == []
    assert {c.check for c in report.checks} >= {"matching", "deadlock", "race", "memory"}


@pytest.mark.parametrize("name", ALL)
def test_every_instruction_is_there(name: str) -> None:
    own, stated = program(name), document(name)
    for lane in own.lanes:
        listed = instructions(stated, lane.rank)
        ops = range(lane.first, lane.stop)
        kinds = [Kind(int(own.kind[op])) for op in ops]
        for letter, instr in (("F", "ForwardPass"), ("B", "BackwardPass")):
            wanted = [i["micro_batch"] for i in listed if i["instr"] == instr]
            computed = [int(own.microbatch[op]) for op in ops if own.kind[op] == Kind[letter]]
            assert computed == wanted
        messages = sum(i["instr"].startswith(("Send", "Recv")) for i in listed)
        assert sum(len(own.rows_of(op)) for op in ops) == messages
        others = [i for i in listed if i["instr"] in ("LoadMicroBatch", "OptimizerStep")]
        assert kinds.count(Kind.X) >= len(others)
        steps = [step_of(own, op) for op in ops]
        assert steps == sorted(steps)


def test_train_blocks_at_every_message() -> None:
    own = program(TRAIN)
    assert not (own.kind == Kind.GROUP).any() and (own.request < 0).all()
    assert [op_text(own, op) for op in range(6)] == [
        "X LoadMicroBatch 0",
        "0F0",
        "0SEND_F0",
        "X LoadMicroBatch 1",
        "0F1",
        "0SEND_F1",
    ]
    assert own.hosts == ((0,), (1,), (2,), (3,))
    assert own.complete and not own.forward_only


def test_inference_has_forwards_only() -> None:
    own = program(INFERENCE)
    assert own.complete and own.forward_only and own.details.budget == {}
    assert set(own.kind.tolist()) == {Kind.F, Kind.SEND, Kind.RECV, Kind.X}


def test_dualpipev_folds_the_stages_over_the_ranks() -> None:
    own = program(DUAL)
    assert own.stages == 8 and own.microbatches == 8
    assert own.hosts == ((0,), (1,), (2,), (3,), (3,), (2,), (1,), (0,))
    assert (own.kind == Kind.F).sum() == (own.kind == Kind.B).sum() == 64
    # Rank 3 hands over from stage 3 to 4 by itself: it talks to rank 2 alone.
    m = own.messages
    assert set(m.peer[m.rank == 3].tolist()) == {2}
    groups = [op for op in range(own.ops) if own.kind[op] == Kind.GROUP]
    assert op_text(own, groups[0]) == "(7SEND_B0;7RECV_F1)GROUP"
    assert own.origin.path[groups[0]] == "stages[0].steps[8][4]"
    assert all(len(own.rows_of(op)) > 1 for op in groups)


# --- a barrier between steps -----------------------------------------------------------


def with_barriers(name: str) -> Program:
    """The schedule with a barrier of all ranks after every step."""
    own, stated = program(name), document(name)
    printed = print_program(own)
    for lane in own.lanes:
        listed = printed["programs"][str(lane.rank)]
        assert len(listed) == lane.stop - lane.first
        ops = []
        for t in range(len(stated["stages"][lane.rank]["steps"])):
            ops += [
                op for number, op in enumerate(listed) if step_of(own, lane.first + number) == t
            ]
            ops.append(["COLL", "barrier", "world", f"step {t}"])
        printed["programs"][str(lane.rank)] = ops
    return read_program(json.dumps(printed), name)


@pytest.mark.parametrize("name", [TRAIN, SMALL, INFERENCE])
def test_a_barrier_between_steps_may_stand(name: str) -> None:
    own = with_barriers(name)
    assert (own.kind == Kind.COLL).sum() == sum(len(s["steps"]) for s in document(name)["stages"])
    assert found(judged(own)) == []


def test_a_barrier_between_steps_hangs_dualpipev() -> None:
    assert [len(s["steps"]) for s in document(DUAL)["stages"]] == [21, 20, 19, 18]
    checks = [check for check, _, _ in found(judged(with_barriers(DUAL)))]
    assert "deadlock" in checks


# --- buffers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "declared", "peak"),
    [(TRAIN, [4, 3, 2, 2], [4, 3, 2, 1]), (SMALL, [2, 2], [1, 1]), (DUAL, [16] * 4, [9] * 4)],
)
def test_more_buffers_are_declared_than_live(
    name: str, declared: list[int], peak: list[int]
) -> None:
    own = program(name)
    report = judged(own)
    assert list(own.details.budget.values()) == declared
    assert peaks(report) == peak
    (note,) = report.notes
    spare = [r for r in range(len(peak)) if declared[r] > peak[r]]
    wanted = ", ".join(f"{declared[r]} for {peak[r]} on rank {r}" for r in spare)
    assert note.endswith(f"forward and their backward: {wanted}.")


def test_the_last_stage_of_train_has_a_buffer_to_spare() -> None:
    assert program(TRAIN).notes[0].endswith(": 2 for 1 on rank 3.")


def rename(stated: Document, rank: int, old: int, new: int) -> None:
    for each in instructions(stated, rank):
        if each.get("buffer_id") == old:
            each["buffer_id"] = new


@pytest.mark.parametrize(
    ("name", "rank", "old", "new"), [(TRAIN, 0, 3, 2), (TRAIN, 2, 1, 0), (DUAL, 1, 9, 8)]
)
def test_a_buffer_too_few_is_overwritten(name: str, rank: int, old: int, new: int) -> None:
    stated = document(name)
    rename(stated, rank, old, new)
    report = judged(read(stated))
    assert [(check, word) for check, word, _ in found(report)] == [("matching", "mismatch")]
    assert f"rank {rank} runs" in report.findings[0].message
    assert "[" in report.findings[0].message


def test_the_declared_buffers_are_a_budget() -> None:
    stated = document(TRAIN)
    stated["stages"][1]["num_pipe_buffers"] = 2
    with pytest.raises(InputError, match="expected a buffer, 0 to 1"):
        read(stated)
    own = program(TRAIN)
    assert judged(own).checks[5].evidence["tightest_budget"] == {"0": 4, "1": 3, "2": 2, "3": 1}


def test_a_label_that_is_not_loaded_shows() -> None:
    stated = document(SMALL)
    del stated["stages"][1]["steps"][1][1]
    report = judged(read(stated))
    assert [(c, w) for c, w, _ in found(report)] == [("matching", "mismatch")]
    assert "expects microbatch 0 in loaded[0], but that holds nothing yet" in (
        report.findings[0].message
    )


# --- other defects ------------------------------------------------------------------------


def test_two_messages_the_wrong_way_round_hang() -> None:
    stated = document(TRAIN)
    step = stated["stages"][0]["steps"][7]
    assert [i["instr"] for i in step] == ["RecvGrad", "SendActivation", "BackwardPass"]
    step[0], step[1] = step[1], step[0]
    assert ("deadlock", "deadlock", 1) in found(judged(read(stated)))


def test_a_queue_that_is_never_committed() -> None:
    stated = document(DUAL)
    for step in stated["stages"][3]["steps"][13:]:
        step[:] = [each for each in step if each["instr"] != "CommitP2P"]
    own = read(stated)
    assert own.notes[0] == ("Rank 3 queues messages behind its last CommitP2P: they never leave.")
    assert "deadlock" in [check for check, _, _ in found(judged(own))]


# --- microbatches that are not stated -------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_microbatches_are_derived(name: str) -> None:
    stated, own = document(name), program(name)
    for rank in range(len(stated["stages"])):
        for each in instructions(stated, rank):
            each.pop("micro_batch", None)
    derived = read(stated)
    for column in ("kind", "stage", "microbatch"):
        assert np.array_equal(getattr(derived, column), getattr(own, column))
    assert np.array_equal(derived.messages.payload, own.messages.payload)
    assert derived.details.attributes == own.details.attributes
    assert derived.details.traits == own.details.traits
    assert derived.notes == (
        "Microbatches that the instructions do not state are counted in the order of the "
        "forwards.",
        *own.notes,
    )


def test_a_microbatch_without_a_forward_is_refused() -> None:
    stated = document(SMALL)
    del stated["stages"][0]["steps"][1][0]["micro_batch"]
    send = stated["stages"][0]["steps"].pop(1)
    stated["stages"][0]["steps"].insert(0, send)
    with pytest.raises(InputError, match="no ForwardPass of buffer 0 stands before it") as caught:
        read(stated)
    assert caught.value.path == "stages[0].steps[0][0]"
    stated = document(SMALL)
    load = stated["stages"][0]["steps"][0].pop(0)
    del load["micro_batch"]
    stated["stages"][0]["steps"][3].append(load)
    with pytest.raises(InputError, match="no ForwardPass of buffer 0 follows it"):
        read(stated)


# --- what is refused ------------------------------------------------------------------------


def _set(*keys: Any) -> Callable[[Document], None]:
    """Set the entry at a path to the last of the values."""

    def change(stated: Any) -> None:
        *path, key, value = keys
        for step in path:
            stated = stated[step]
        stated[key] = value

    return change


FIRST = ("stages", 0, "steps", 0, 0)


@pytest.mark.parametrize(
    ("name", "change", "path", "words"),
    [
        (TRAIN, _set("producer", "nobody"), "producer", 'expected "deepspeed"'),
        (TRAIN, _set("class", "trainSchedule"), "class", 'did you mean "TrainSchedule"?'),
        (TRAIN, _set("class", "InferenceSchedule"), None, 'expected "LoadMicroBatch"'),
        (TRAIN, _set("p", 3), "stages", "expected a list of 3, one a rank"),
        (TRAIN, _set("p", 0), "p", "1 or more"),
        (TRAIN, _set("m", 10**6), "m", "no more microbatches than events"),
        (TRAIN, _set("unheard", 1), "unheard", "unknown key"),
        (TRAIN, _set("stages", 1, "stage", 2), "stages[1].stage", "expected stage 1"),
        (TRAIN, _set("stages", 1, "num_pipe_buffers", 0), None, "a number of buffers, 1 to"),
        (TRAIN, _set("stages", 0, "steps", 0, None), "stages[0].steps[0]", "expected a step"),
        (TRAIN, _set(*FIRST, "instr", "Load"), "stages[0].steps[0][0].instr", "the text"),
        (TRAIN, _set(*FIRST, "instr", "CommitP2P"), None, "the text"),
        (TRAIN, _set(*FIRST, "buffer_id", 4), None, "expected a buffer, 0 to 3"),
        (TRAIN, _set(*FIRST, "micro_batch", 8), None, "expected a microbatch, 0 to 7"),
        (TRAIN, _set(*FIRST, "phase", 0), "stages[0].steps[0][0].phase", "unknown key"),
        (DUAL, _set("stages", 0, "steps", 0, 2, "phase", 2), None, "a phase, 0 or 1"),
        (DUAL, _set("stages", 0, "steps", 0, 0, "buffer_id", 0), None, "unknown key"),
        # A message that would go nowhere, or stay on its rank.
        (TRAIN, _set("stages", 0, "steps", 1, 0, "instr", "SendGrad"), None, "the first one"),
        (
            DUAL,
            _set("stages", 3, "steps", 1, 5, "phase", 0),
            "stages[3].steps[1][5]",
            "found SendActivation of stage 3, but stage 4 is on rank 3 too",
        ),
    ],
)
def test_refusals(
    name: str, change: Callable[[Document], None], path: str | None, words: str
) -> None:
    stated = document(name)
    change(stated)
    with pytest.raises(InputError) as caught:
        read(stated)
    assert words in f"{caught.value.message} {caught.value.cause}"
    if path is not None:
        assert caught.value.path == path


@pytest.mark.parametrize("text", ["", "[]", "{", '{"producer": "deepspeed"}', "null"])
def test_no_schedule_at_all(text: str) -> None:
    with pytest.raises(InputError):
        read_deepspeed(text, "x")


SMALLEST = document(SMALL)


@given(damaged(SMALLEST))
def test_damaged_schedules_are_read_or_refused(stated: Document) -> None:
    try:
        own = read(stated)
    except InputError as error:
        assert error.message and (error.path or error.line)
        return
    judged(own)


@given(st.sampled_from([TRAIN, DUAL]), st.data())
def test_payloads_are_those_of_the_instructions(name: str, data: st.DataObject) -> None:
    own = program(name)
    row = data.draw(st.integers(0, len(own.messages.op) - 1))
    traits = own.details.traits[row]
    assert traits.buf is not None
    kind = "act" if traits.buf.startswith(("inputs", "outputs")) else "grad"
    assert payload_name(own, int(own.messages.payload[row])).startswith(kind)
