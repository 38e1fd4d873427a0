"""From actions to a schedule: rows are ranks, stages live on rows, and back to text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.errors import InputError
from pipeproof.formats.torch_schedule import print_schedule, read_schedule
from pipeproof.program.ops import Kind
from pipeproof.program.schedules import Schedule
from tests import torch_files
from tests.formats import torch_tables

FILES = [
    *torch_files.COMMS,
    *torch_files.COMPUTE_ONLY,
    *sorted(path.name for path in torch_files.DEFERRED.glob("*.csv")),
]


def refused(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read_schedule(text, "x")
    return caught.value


def microbatches(text: str) -> int:
    return read_schedule(text, "x").microbatches


def actions(schedule: Schedule) -> list[list[tuple[int, int, int, bool]]]:
    """The actions of every rank."""
    columns = (schedule.kind, schedule.stage, schedule.microbatch, schedule.backward)
    rows = list(zip(*(c.tolist() for c in columns), strict=True))
    return [
        rows[start:stop] for start, stop in zip(schedule.first, schedule.first[1:], strict=False)
    ]


def cells(schedule: Schedule) -> list[list[int]]:
    """How many actions stand in each cell of every rank."""
    found: list[list[int]] = []
    for start, stop in zip(schedule.first, schedule.first[1:], strict=False):
        columns = schedule.column[start:stop].tolist()
        found.append([columns.count(c) for c in dict.fromkeys(columns)])
    return found


# --- rows, stages, microbatches ----------------------------------------------------


def test_a_row_is_a_rank() -> None:
    schedule = read_schedule("1F0,1SEND_F0\n\n0F0,,2F0\n2F1,2RECV_F1\n".replace("2F0", "0B0"), "n")
    assert schedule.name == "n"
    assert schedule.ranks == 3 and schedule.stages == 3
    assert schedule.first == (0, 2, 4, 6)
    assert schedule.host.tolist() == [1, 0, 2]
    assert schedule.line.tolist() == [1, 1, 3, 3, 4, 4]
    assert schedule.column.tolist() == [1, 2, 1, 3, 1, 2]
    assert schedule.lists_communication
    assert schedule.notes == ("1 blank row(s) skipped; a row with actions is a rank",)


def test_blank_rows_at_the_end_are_no_rows() -> None:
    assert read_schedule("0F0\n,,\n\n", "x").notes == ()


def test_stages_that_no_row_names() -> None:
    schedule = read_schedule("0F0,0F1,0F2,0F3\n2F0\n", "x")
    assert schedule.stages == 3
    assert schedule.host.tolist() == [0, -1, 1]
    assert not schedule.lists_communication


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0F0,0F1,0B0,0B1", 2),
        ("0F1,0F0", 2),
        ("0F0,0F1,0UNSHARD,0B0,0B1\n1F0,1F1,1B0,1B1", 2),
        ("0F0,0F1\n1F0,1F1\n2F0,2F1,2F2", 2),  # one wrong row does not decide
        ("0F0,0F1,0F2\n1F0,1F1", 3),  # of a tie, the largest
        ("(0F0;0B0)OVERLAP_F_B,(0F1;0B1)OVERLAP_F_B", 2),
        ("0F0,0RECV_B9,0F1,0B0,0B1,0B2\n1F0,1F1,1B0,1B1", 2),  # only compute counts
    ],
)
def test_the_number_of_microbatches_most_agree_on(text: str, count: int) -> None:
    assert microbatches(text) == count


def test_the_number_of_microbatches_may_be_given() -> None:
    assert read_schedule("0F0,0F1", "x", microbatches=5).microbatches == 5


def test_the_older_dialect() -> None:
    schedule = read_schedule("0F0,0B0,0W0,0BW1", "x", older=True)
    assert schedule.kind.tolist() == [Kind.F, Kind.I, Kind.W, Kind.B]


# --- what only the whole table can refuse ------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "words", "cause"),
    [
        ("", None, "found no action", "empty"),
        (" \n,,\n\n", None, "found no action", "empty"),
        ("0SEND_F0\n1RECV_F0", None, "found no compute action", "filtered"),
        ("0UNSHARD,0RESHARD", None, "found no compute action", "filtered"),
        ("0F0,0F1\n1F0,1F01", None, "", ""),
        ("0F0,0F1\n1F0,12F1", (2, 2), "stage 12 in a file of 4 actions", "separator missing"),
        ("0F0,0F100\n1F0,1F1", (1, 2), "microbatch 100 in a file of 4", "separator missing"),
        ("0F0,0SEND_F9\n1F0,1RECV_F0", (1, 2), "microbatch 9 in a file of 4", "separator"),
        ("4F0,1F0,2F0,3F0", (1, 1), "stage 4 in a file of 4 actions", "separator missing"),
        ("0F0,0F1\n1F0,0B1", (2, 2), "stage 0 on rank 1 and on rank 0", "digit"),
        ("1F0,0B1\n0F0,0F1", (1, 2), "stage 0 on rank 0 and on rank 1", "digit"),
        ("0F0\n0F1", (2, 1), "stage 0 on rank 1 and on rank 0", "digit"),
        ("0F0\n0F1\n0F2", (3, 1), "stage 0 on rank 2 and on rank 0, 1", "digit"),
        ("0F0\n1F0,(1F1;0B0)OVERLAP_F_B,0F1", (1, 1), "stage 0 on rank 0 and on rank 1", "digit"),
        ("0F0,0SEND_F0", (1, 2), "0SEND_F0, but stage 0 is the last", "Activations go to the"),
        ("0F0,0RECV_B0", (1, 2), "0RECV_B0, but stage 0 is the last", "gradients to the prev"),
        ("0F0,0RECV_F0", (1, 2), "0RECV_F0, but stage 0 is the first", "Activations"),
        ("0F0,0SEND_B0", (1, 2), "0SEND_B0, but stage 0 is the first", "Activations"),
        ("0F0,0SEND_F0\n2F0", (1, 2), "0SEND_F0, but stage 1 is on no row", "Activations"),
        ("0F0,0F1\n2F0,2SEND_B0", (2, 2), "2SEND_B0, but stage 1 is on no row", "Activations"),
    ],
)
def test_refusals(text: str, place: tuple[int, int] | None, words: str, cause: str) -> None:
    if not words:
        assert read_schedule(text, "x").stages == 2
        return
    error = refused(text)
    assert words in error.message and "; expected " in error.message
    assert cause in str(error.cause)
    assert (error.line, error.column) == (place or (None, None))


def test_bad_cells_are_refused_first() -> None:
    assert refused("0F0,0X0\n0F1").column == 2


# --- and back ----------------------------------------------------------------------


def test_print() -> None:
    text = (
        "0UNSHARD,0F0,0SEND_F0,(0F1;0B0)OVERLAP_F_B,0RECV_B0,0I1,0W1,0REDUCE_GRAD\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RESHARD\n"
    )
    assert print_schedule(read_schedule(text, "x")) == text
    idle = "\n,,0F00, ,(0B0)OVERLAP_F_B\r\n\r\n1F0,\r\n"
    assert print_schedule(read_schedule(idle, "x")) == "0F0,0B0\n1F0\n"


@pytest.mark.parametrize("name", FILES)
def test_real_files(name: str) -> None:
    """Their names say their sizes, ``Schedule_p_m_v``; and they survive printing."""
    schedule = torch_files.schedule(name)
    p, m, v = (int(n) for n in re.findall(r"_(\d+)", name.partition(".")[0]))
    assert (schedule.ranks, schedule.stages) == (p, p * v)
    assert schedule.microbatches == m
    assert schedule.lists_communication == (".comms." in name)
    assert schedule.notes == ()
    printed = print_schedule(schedule)
    if ".comms." in name:  # these have no idle cells
        assert printed == torch_files.text(name)
    again = read_schedule(printed, name)
    for column in ("kind", "stage", "microbatch", "backward", "line", "host"):
        assert (getattr(again, column) == getattr(schedule, column)).all()
    assert again.first == schedule.first
    assert print_schedule(again) == printed


@given(torch_tables.schedule_texts())
def test_schedules_survive_printing(text: str) -> None:
    schedule = read_schedule(text, "x")
    printed = print_schedule(schedule)
    again = read_schedule(printed, "x")
    assert actions(again) == actions(schedule)
    assert cells(again) == cells(schedule)
    assert (again.host == schedule.host).all()
    assert again.microbatches == schedule.microbatches
    assert print_schedule(again) == printed


# --- whatever the input ------------------------------------------------------------


def read_or_refused(text: str) -> None:
    try:
        schedule = read_schedule(text, "x")
    except InputError as error:
        assert error.message
        return
    assert schedule.first[0] == 0 and schedule.first[-1] == len(schedule.kind)
    assert len(schedule.first) == schedule.ranks + 1
    assert schedule.microbatches <= len(schedule.kind)
    assert actions(read_schedule(print_schedule(schedule), "x")) == actions(schedule)


@given(st.one_of(torch_tables.tables(), st.text(max_size=60)))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refused(text)


@given(st.sampled_from(["DualPipeV_2_4_2.comms.csv", "GPipe_4_4_1.compute_only.csv"]), st.data())
def test_damaged_real_files_are_read_or_refused(name: str, data: st.DataObject) -> None:
    text = torch_files.text(name)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 20))
        put = data.draw(
            st.one_of(
                st.text(max_size=3), st.sampled_from(["0F0", "\n", ",", "9", "0", "SEND", "0F0,"])
            )
        )
        text = text[:at] + put + text[at + gone :]
    read_or_refused(text)
