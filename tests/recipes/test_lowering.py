"""Lowering: torch's own order of communication to the byte, and plans torch refuses."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import example, given

from pipeproof.formats.torch_schedule import print_schedule, read_schedule
from pipeproof.program.ops import Kind
from pipeproof.program.schedules import Schedule
from pipeproof.recipes.lowering import lower_as_torch, lower_naively
from tests import torch_files
from tests.formats import torch_tables

PAIRED = sorted(
    {*torch_files.COMMS} & {n.replace("compute_only", "comms") for n in torch_files.COMPUTE_ONLY}
)
"""Plans with communication whose compute-only form is there too."""


def rows(schedule: Schedule) -> list[str]:
    return print_schedule(schedule).splitlines()


def torch(text: str) -> list[str]:
    return rows(lower_as_torch(read_schedule(text, "x")))


def naive(text: str) -> list[str]:
    return rows(lower_naively(read_schedule(text, "x")))


def computes(schedule: Schedule) -> list[list[str]]:
    """The compute actions of every rank, in order."""
    split = [re.split("[,;()]", row) for row in rows(schedule)]
    return [[a for a in row if re.fullmatch(r"\d+[FBIW]\d+", a)] for row in split]


def between(row: str, host: list[int], other: int) -> list[str]:
    """The messages of a row that go to or come from rank ``other``, by the sender's name."""
    found = []
    for stage, verb, word, microbatch in re.findall(r"(\d+)(SEND|RECV)_([FB])(\d+)", row):
        up = (verb == "SEND") == (word == "F")
        far = int(stage) + (1 if up else -1)
        if host[far] == other:
            sender = int(stage) if verb == "SEND" else far
            found.append(f"{sender}SEND_{word}{microbatch}")
    return found


# --- torch's own plans -------------------------------------------------------------


def test_every_plan_has_its_pair() -> None:
    assert len(PAIRED) == 105


@pytest.mark.parametrize("name", PAIRED)
def test_torchs_plans_to_the_byte(name: str) -> None:
    schedule = torch_files.schedule(name.replace("comms", "compute_only"))
    assert print_schedule(lower_as_torch(schedule)) == torch_files.text(name)


@pytest.mark.parametrize("name", PAIRED[::7])
def test_both_ends_list_their_messages_in_the_same_order(name: str) -> None:
    schedule = torch_files.schedule(name.replace("comms", "compute_only"))
    host = schedule.host.tolist()
    lowered = rows(lower_as_torch(schedule))
    for a, b in combinations(range(schedule.ranks), 2):
        assert between(lowered[a], host, b) == between(lowered[b], host, a)


# --- the parts ---------------------------------------------------------------------


def test_one_microbatch_through_two_ranks() -> None:
    assert torch("0F0,0B0\n1F0,1B0\n") == [
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD",
        "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD",
    ]
    assert naive("0F0,0B0\n1F0,1B0\n") == [
        "0F0,0SEND_F0,0RECV_B0,0B0",
        "1RECV_F0,1F0,1B0,1SEND_B0",
    ]


def test_inputs_that_are_received_early_stand_where_they_were_sent() -> None:
    assert torch("0UNSHARD,0F0,0F1,0REDUCE_GRAD\n1F0,1F1") == [
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0REDUCE_GRAD",
        "1RECV_F0,1F0,1RECV_F1,1F1",
    ]
    assert torch("1F0,1F1\n0UNSHARD,0F0,0F1,0REDUCE_GRAD")[0] == "1RECV_F0,1F0,1RECV_F1,1F1"
    assert naive("0F0,0F1\n1F0,1F1")[1] == "1RECV_F0,1F0,1RECV_F1,1F1"


def test_the_gradients_of_a_split_backward_leave_after_i() -> None:
    assert naive("0F0,0I0,0W0\n1F0,1I0,1W0") == [
        "0F0,0SEND_F0,0RECV_B0,0I0,0W0",
        "1RECV_F0,1F0,1I0,1SEND_B0,1W0",
    ]


def test_stages_of_one_rank_hand_over_locally() -> None:
    text = "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n"
    expected = [
        "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0",
        "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0",
    ]
    assert naive(text) == expected
    assert torch(text.replace("0F0", "0UNSHARD,0F0,0REDUCE_GRAD", 1)) == [
        row.replace("0F0,", "0UNSHARD,0F0,", 1).replace("SEND_F0,3", "SEND_F0,0REDUCE_GRAD,3")
        if number == 0
        else row
        for number, row in enumerate(expected)
    ]


def test_an_overlapped_pair_receives_first_and_sends_after() -> None:
    text = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n"
    assert naive(text) == [
        "0F0,0SEND_F0,0RECV_B0,(0F1;0B0)OVERLAP_F_B,0SEND_F1,0RECV_B1,0B1",
        "1RECV_F0,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1",
    ]


def test_what_is_listed_is_not_added_again() -> None:
    assert torch("0UNSHARD,0F0,0B0\n1F0,1B0") == [
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD",
        "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD",
    ]
    assert torch("0F0,0B0,0REDUCE_GRAD\n1F0,1B0") == [
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD",
        "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RESHARD",
    ]


def test_gradients_are_reduced_after_the_last_microbatch_that_is_due() -> None:
    text = "0F0,0F1,0I1,0I0,0W0,0W1\n1F0,1F1,1B0,1B1"
    assert torch(text)[0].endswith("0W0,0W1,0REDUCE_GRAD,0RESHARD")
    assert torch(text)[1].endswith("1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD")
    three = lower_as_torch(read_schedule(text, "x", microbatches=3))
    assert "REDUCE_GRAD" not in print_schedule(three)


def test_at_most_three_stages_are_gathered() -> None:
    row, other = torch("0F0,2F0,4F0,6F0,6B0,4B0,2B0,0B0\n1F0,3F0,5F0,5B0,3B0,1B0")
    actions = [a for a in row.split(",") if re.search(r"UNSHARD|RESHARD|\dF|\dB", a)]
    actions = [a for a in actions if "RECV" not in a and "SEND" not in a]
    assert actions[:9] == [
        *("0UNSHARD", "2UNSHARD", "4UNSHARD", "0F0"),
        *("0RESHARD", "6UNSHARD", "2F0", "4F0", "6F0"),
    ]
    active: set[str] = set()
    for action in [*row.split(","), *other.split(",")]:
        if action.endswith("UNSHARD"):
            active.add(action[0])
        elif action.endswith("RESHARD"):
            active.remove(action[0])
        assert len(active) <= 3
    assert not active


def test_added_actions_stand_at_the_cell_they_serve() -> None:
    lowered = lower_naively(read_schedule("\n0F0,,0B0\n1F0,1B0\n", "x"))
    assert rows(lowered)[0] == "0F0,0SEND_F0,0RECV_B0,0B0"
    assert lowered.line.tolist() == [2] * 4 + [3] * 4
    assert lowered.column.tolist() == [1, 1, 3, 3, 1, 1, 2, 2]
    assert lowered.lists_communication


def test_receives_stand_at_the_op_that_consumes_them() -> None:
    """Wherever torch puts them in the row."""
    lowered = lower_as_torch(read_schedule("0F0,0F1,0B0,0B1\n1F0,1B0,,1F1,1B1\n", "x"))
    receives = lowered.kind == Kind.RECV
    columns = (lowered.line, lowered.column, lowered.stage, lowered.microbatch, lowered.backward)
    assert sorted(zip(*(c[receives].tolist() for c in columns), strict=True)) == [
        (1, 3, 0, 0, True),
        (1, 4, 0, 1, True),
        (2, 1, 1, 0, False),
        (2, 4, 1, 1, False),
    ]


# --- plans that torch refuses ------------------------------------------------------


def test_a_cycle_lets_the_lowest_rank_through() -> None:
    """Torch says "malformed compute schedule"; here the receive stands before its op."""
    assert torch("0UNSHARD,0B0,0F0,0REDUCE_GRAD\n1F0,1B0") == [
        "0UNSHARD,0RECV_B0,0B0,0F0,0SEND_F0,0REDUCE_GRAD",
        "1RECV_F0,1F0,1B0,1SEND_B0",
    ]
    assert naive("0B0,0F0\n1F0,1B0") == [
        "0RECV_B0,0B0,0F0,0SEND_F0",
        "1RECV_F0,1F0,1B0,1SEND_B0",
    ]


def test_an_input_that_nobody_makes_is_not_received() -> None:
    text = "0UNSHARD,0F0,0F1,0REDUCE_GRAD\n1F0,1F2,1F1"
    assert torch(text)[1] == "1RECV_F0,1F0,1RECV_F1,1F2,1F1"  # rank 0 went on meanwhile
    assert naive(text)[1] == "1RECV_F0,1F0,1F2,1RECV_F1,1F1"


def test_an_output_that_nobody_takes_is_sent() -> None:
    text = "0UNSHARD,0F0,0F1,0REDUCE_GRAD\n1F0"
    assert torch(text) == [
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0REDUCE_GRAD",
        "1RECV_F0,1F0,1RECV_F1",
    ]
    assert naive(text) == ["0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0REDUCE_GRAD", "1RECV_F0,1F0"]


def test_a_repeated_op_sends_again() -> None:
    text = "0UNSHARD,0F0,0F0,0REDUCE_GRAD\n1F0,1F1"
    assert torch(text)[0] == "0UNSHARD,0F0,0SEND_F0,0F0,0SEND_F0,0REDUCE_GRAD"
    assert torch(text)[1].count("1RECV_F0") == 2


def test_a_stage_that_no_row_names() -> None:
    text = "0UNSHARD,0F0,0F1,0F2,0REDUCE_GRAD\n2F0"
    assert torch(text) == ["0UNSHARD,0F0,0F1,0F2,0REDUCE_GRAD", "2F0"]
    assert naive(text) == ["0UNSHARD,0F0,0F1,0F2,0REDUCE_GRAD", "2F0"]


def test_torchs_own_faulty_exports() -> None:
    """Its 1F1B files are off by one in the last row: some inputs are never made."""
    faulty = [n for n in torch_files.COMPUTE_ONLY if n.startswith("1F1B")]
    assert len(faulty) == 9
    for name in faulty:
        schedule = torch_files.schedule(name)
        lowered = rows(lower_as_torch(schedule))
        last, m = schedule.ranks - 1, schedule.microbatches
        assert f"{last}F{m}" in lowered[-1].split(",")
        assert f"{last}RECV_F{m}" not in lowered[-1]
        assert f"{last}RECV_F0" in lowered[-1]  # sent, although nobody takes it


@given(torch_tables.schedule_texts(communication=False))
@example("0F0,0F1,0F2\n2F0,2F1,2F2\n")
def test_any_schedule_is_lowered(text: str) -> None:
    """Nothing that computes is lost or moved, and what torch's way sends is received."""
    schedule = read_schedule(text, "x")
    for lowered in (lower_as_torch(schedule), lower_naively(schedule)):
        assert computes(lowered) == computes(schedule)
        assert lowered.ranks == schedule.ranks and lowered.stages == schedule.stages
        again = read_schedule(print_schedule(lowered), "x")
        assert print_schedule(again) == print_schedule(lowered)
    lowered = lower_as_torch(schedule)
    host = schedule.host.tolist()
    for a, b in combinations(range(schedule.ranks), 2):
        lists = rows(lowered)
        assert Counter(between(lists[a], host, b)) == Counter(between(lists[b], host, a))


@given(torch_tables.schedule_texts(communication=False))
def test_messages_stand_next_to_the_ops_they_join(text: str) -> None:
    schedule = read_schedule(text, "x")
    host = schedule.host.tolist()
    made = {a for row in computes(schedule) for a in row}
    for row in rows(lower_naively(schedule)):
        cells = row.split(",")
        for at, cell in enumerate(cells):
            for stage, word, microbatch in re.findall(r"(\d+)([FBI])(\d+)", cell):
                s, up = int(stage), word == "F"
                source, target = (s - 1, s + 1) if up else (s + 1, s - 1)
                letters = "F" if up else "BI"
                needed = any(f"{source}{x}{microbatch}" in made for x in letters)
                before = _run(cells[:at][::-1])
                after = _run(cells[at + 1 :])
                name = "F" if up else "B"
                remote = 0 <= source < len(host) and host[source] != host[s]
                assert (f"{s}RECV_{name}{microbatch}" in before) == (needed and remote)
                if 0 <= target < len(host) and host[target] != host[s]:
                    assert f"{s}SEND_{name}{microbatch}" in after


def _run(cells: list[str]) -> list[str]:
    """The messages that the list begins with."""
    found = []
    for cell in cells:
        if "SEND" not in cell and "RECV" not in cell:
            break
        found.append(cell)
    return found


def test_kinds_of_what_is_added() -> None:
    lowered = lower_as_torch(read_schedule("0F0,0B0\n1F0,1B0", "x"))
    added = Counter(Kind(k).name for k in lowered.kind.tolist())
    assert added == Counter(F=2, B=2, SEND=2, RECV=2, UNSHARD=2, RESHARD=2, REDUCE_GRAD=2)
    assert lowered.backward.sum() == 2
    assert (lowered.microbatch[lowered.kind >= Kind.UNSHARD] == -1).all()
