"""Issuing: what blocks, what is posted together, and which op waits for which message."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import build
from pipeproof.recipes.lowering import lower_as_torch, lower_naively
from tests import torch_files
from tests.formats import torch_tables
from tests.telling import check_columns, messages, told, unanswered

NCCL = PRESETS["nccl"]

GENERAL = ("torch", "naive", "grouped")
"""The recipes that place every message where lowering puts it."""
PAIR = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n" + (
    "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"
)


def issued(text: str, recipe: str) -> Program:
    return build(read_schedule(text, "x"), recipe, NCCL)


# --- goldens -----------------------------------------------------------------------


def test_torch() -> None:
    """Sends are waited for after the row, receives by the op that consumes them."""
    program = issued(PAIR, "torch")
    assert told(program) == [
        [
            "0F0",
            "0SEND_F0 =#0",
            "0F1",
            "0SEND_F1 =#1",
            "0RECV_B0 =#2",
            "0B0 <#2",
            "0RECV_B1 =#3",
            "0B1 <#3",
            "WAIT <#0 <#1",
        ],
        [
            "1RECV_F0 =#4",
            "1RECV_F1 =#5",
            "1F0 <#4",
            "1F1 <#5",
            "1B0",
            "1SEND_B0 =#6",
            "1B1",
            "1SEND_B1 =#7",
            "WAIT <#6 <#7",
        ],
    ]
    assert messages(program) == [
        *("0SEND_F0 0>1", "0SEND_F1 0>1", "0RECV_B0 1>0", "0RECV_B1 1>0"),
        *("1RECV_F0 0>1", "1RECV_F1 0>1", "1SEND_B0 1>0", "1SEND_B1 1>0"),
    ]
    # The waits after the rows are of no stage, and stand in no cell.
    assert program.stage[program.kind == Kind.WAIT].tolist() == [-1, -1]
    assert program.microbatch[program.kind == Kind.WAIT].tolist() == [-1, -1]
    assert program.origin.line.tolist() == [1] * 8 + [0] + [2] * 8 + [0]
    assert program.origin.column.tolist() == [*range(1, 9), 0, *range(1, 9), 0]


def test_naive() -> None:
    program = issued(PAIR, "naive")
    assert told(program) == [row.split(",") for row in PAIR.splitlines()]
    assert messages(program) == messages(issued(PAIR, "torch"))


def test_grouped() -> None:
    text = "0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1\n"
    program = issued(text, "grouped")
    assert told(program) == [
        ["0F0", "(0SEND_F0;0RECV_B0)GROUP", "0F1", "0SEND_F1", "0B0"],
        ["1RECV_F0", "1F0", "1B0", "(1SEND_B0;1RECV_F1)GROUP", "1F1"],
    ]
    assert program.messages.op.tolist() == [1, 1, 3, 5, 8, 8]
    assert program.stage.tolist() == [0, -1, 0, 0, 0, 1, 1, 1, -1, 1]
    assert program.microbatch.tolist() == [0, -1, 1, 1, 0, 0, 0, 0, -1, 1]
    assert program.origin.column.tolist() == [1, 2, 4, 5, 6, 1, 2, 3, 4, 6]


def test_groups_end_with_their_row() -> None:
    program = issued("0F0,0SEND_F0\n1RECV_F0,1F0\n", "grouped")
    assert told(program) == [["0F0", "0SEND_F0"], ["1RECV_F0", "1F0"]]


def test_torch_waits_once_for_what_an_op_consumes() -> None:
    """A second run of an op does not wait again, W never does, and B and I do."""
    text = "0F0,0F0,0I0,0W0,0SEND_F0\n1RECV_F0,1F0,1F0,1W0,1B0\n"
    assert told(issued(text, "torch")) == [
        ["0F0", "0F0", "0I0", "0W0", "0SEND_F0 =#0", "WAIT <#0"],
        ["1RECV_F0 =#1", "1F0 <#1", "1F0", "1W0", "1B0"],
    ]
    text = "0F0,0RECV_B0,0W0,0I0,0B0\n1F0,1SEND_B0\n"
    assert told(issued(text, "torch"))[0] == ["0F0", "0RECV_B0 =#0", "0W0", "0I0 <#0", "0B0"]


def test_torch_never_waits_for_what_is_received_too_late() -> None:
    text = "0F0,0SEND_F0\n1F0,1RECV_F0\n"
    assert told(issued(text, "torch"))[1] == ["1F0", "1RECV_F0 =#1"]


def test_torch_hands_over_locally_between_stages_of_a_rank() -> None:
    text = "0F0,0SEND_F0,1RECV_F0,1F0\n"
    program = issued(text, "torch")
    assert told(program) == [["0F0", "0SEND_F0 =#0", "1RECV_F0 =#1", "1F0", "WAIT <#0"]]
    assert messages(program) == ["0SEND_F0 0>0", "1RECV_F0 0>0"]


def test_torch_and_overlapped_ops() -> None:
    text = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0\n" + (
        "1RECV_F0,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0\n"
    )
    assert told(issued(text, "torch"))[1] == [
        *("1RECV_F0 =#3", "1F0 <#3", "1RECV_F1 =#4", "1F1 <#4", "1B0", "1SEND_B0 =#5"),
        "WAIT <#5",
    ]


def test_sharding_actions_are_ops() -> None:
    for recipe in GENERAL:
        program = issued("0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD", recipe)
        assert told(program) == [["0UNSHARD", "0F0", "0B0", "0REDUCE_GRAD", "0RESHARD"]]
        assert program.microbatch.tolist() == [-1, 0, 0, -1, -1]


# --- the program beside its arrays -------------------------------------------------


def test_the_program_says_what_it_is() -> None:
    for recipe in GENERAL:
        transport = PRESETS["gloo"].with_capacity(2)
        schedule = read_schedule("0F0,0F1\n\n2F0\n", "name")
        program = build(schedule, recipe, transport)
        assert (program.name, program.recipe, program.transport) == ("name", recipe, transport)
        assert (program.ranks, program.stages, program.microbatches) == (2, 3, 2)
        assert program.hosts == ((0,), (), (1,))
        assert [(lane.rank, lane.name) for lane in program.lanes] == [(0, "main"), (1, "main")]
        assert program.complete and program.forward_only
        assert program.notes == schedule.notes != ()
        assert not issued(PAIR, recipe).forward_only


def test_schedules_without_communication_are_lowered_first() -> None:
    compute = read_schedule("0F0,0B0\n1F0,1B0\n", "x")
    for recipe, lower in (
        ("torch", lower_as_torch),
        ("naive", lower_naively),
        ("grouped", lower_naively),
    ):
        assert told(build(compute, recipe, NCCL)) == told(build(lower(compute), recipe, NCCL))


def test_one_rank_has_nothing_to_lower() -> None:
    for recipe in GENERAL:
        assert told(issued("0F0,1F0,1B0,0B0", recipe)) == [["0F0", "1F0", "1B0", "0B0"]]


def test_unknown_recipes_are_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match=r"unknown recipe 'mpi'; known: torch, naive"):
        issued(PAIR, "mpi")


# --- real files and any schedule ---------------------------------------------------


@pytest.mark.parametrize("name", [*torch_files.COMMS[::6], *torch_files.COMPUTE_ONLY[::6]])
@pytest.mark.parametrize("recipe", GENERAL)
def test_real_files(name: str, recipe: str) -> None:
    schedule = torch_files.schedule(name)
    program = build(schedule, recipe, NCCL)
    check_columns(program)
    if not name.startswith("1F1B"):  # torch's faulty exports receive what nobody sends
        assert not unanswered(program)
        # In these plans every receive is consumed, and every send waited for.
        waited = len(program.messages.op) if recipe == "torch" else 0
        assert len(program.waits.op) == waited


def listed(schedule: Schedule) -> list[list[str]]:
    """The actions of every rank."""
    names = {Kind.SEND: "SEND", Kind.RECV: "RECV"}
    rows: list[list[str]] = [[] for _ in range(schedule.ranks)]
    for rank in range(schedule.ranks):
        for i in range(schedule.first[rank], schedule.first[rank + 1]):
            kind = Kind(int(schedule.kind[i]))
            word = (
                f"{names[kind]}_{'FB'[int(schedule.backward[i])]}" if kind in names else kind.name
            )
            number = "" if schedule.microbatch[i] < 0 else str(schedule.microbatch[i])
            rows[rank].append(f"{schedule.stage[i]}{word}{number}")
    return rows


def issued_slowly(rows: Sequence[Sequence[str]], host: Sequence[int]) -> list[list[str]]:
    """The torch recipe once more, an action at a time."""
    lanes, request = [], 0
    for rank, row in enumerate(rows):
        lane: list[str] = []
        sent: list[int] = []
        received: dict[tuple[str, str, str], int] = {}
        ran: set[tuple[str, str, str]] = set()
        for action in row:
            message = re.fullmatch(r"(\d+)(SEND|RECV)_([FB])(\d+)", action)
            compute = re.fullmatch(r"(\d+)([FBI])(\d+)", action)
            text = action
            if message:
                stage, verb, word, microbatch = message.groups()
                text += f" =#{request}"
                if verb == "SEND":
                    sent.append(request)
                elif host[int(stage) + (-1 if word == "F" else 1)] != rank:
                    received[stage, word, microbatch] = request
                request += 1
            elif compute:
                stage, letter, microbatch = compute.groups()
                key = (stage, "F" if letter == "F" else "B", microbatch)
                if key in received and key not in ran:
                    text += f" <#{received[key]}"
                ran.add(key)
            lane.append(text)
        if sent:
            lane.append("WAIT" + "".join(f" <#{r}" for r in sent))
        lanes.append(lane)
    return lanes


@given(torch_tables.schedule_texts(communication=True))
def test_torch_against_a_slow_reading(text: str) -> None:
    schedule = read_schedule(text, "x")
    if not schedule.lists_communication:
        return
    program = build(schedule, "torch", NCCL)
    check_columns(program)
    assert told(program) == issued_slowly(listed(schedule), schedule.host.tolist())


@given(torch_tables.schedule_texts(), st.sampled_from(GENERAL))
def test_any_schedule(text: str, recipe: str) -> None:
    schedule = read_schedule(text, "x")
    program = build(schedule, recipe, NCCL)
    check_columns(program)
    if not schedule.lists_communication and schedule.ranks > 1:
        schedule = (lower_as_torch if recipe == "torch" else lower_naively)(schedule)
    rows = listed(schedule)
    sends = sum(any("SEND" in action for action in row) for row in rows)
    counts = {"torch": len(schedule.kind) + sends, "naive": len(schedule.kind)}
    if recipe in counts:
        assert program.ops == counts[recipe]
    else:
        ungrouped = [
            [m for op in lane for m in re.sub(r"\(|\)GROUP", "", op).split(";")]
            for lane in told(program)
        ]
        assert ungrouped == rows
        for lane in told(program):  # no two messages are left side by side
            assert not re.search(r"(SEND|RECV|GROUP)\S* \S*(SEND|RECV)", " ".join(lane))
    if recipe == "naive":
        assert told(program) == rows
    if recipe != "torch":
        assert (program.request == -1).all() and not len(program.waits.op)
    # Both ends of a message agree on who sends what to whom.
    host = schedule.host.tolist()
    for message in messages(program):
        stage, verb, word, source, target = re.fullmatch(
            r"(\d+)(SEND|RECV)_([FB])\d+ (\d+)>(\d+)", message
        ).groups()  # type: ignore[union-attr]
        other = int(stage) + (1 if (verb == "SEND") == (word == "F") else -1)
        ends = (host[int(stage)], host[other])
        assert (int(source), int(target)) == (ends if verb == "SEND" else ends[::-1])
