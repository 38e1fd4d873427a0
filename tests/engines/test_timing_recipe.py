"""Timing in which communication counts: against simulators of blocking and posting."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from pipeproof.engines.events.build import build as event_graph
from pipeproof.engines.timing import Timing, timing
from pipeproof.engines.timing_path import Explanation
from pipeproof.engines.timing_recipe import recipe_explain, recipe_timing
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.program.costs import Costs, Release
from pipeproof.program.notation import op_text
from pipeproof.program.programs import Program
from pipeproof.program.transports import Match, parse_transport
from pipeproof.recipes.issuing import build
from tests.programs import program, programs, transports
from tests.random_schedules import random_plan
from tests.sequential import COMPUTES, Action, Rows, write

UNIT = dict.fromkeys(COMPUTES, Fraction(1)) | {"B": Fraction(2)}


def built(rows: Rows, recipe: str, transport: str) -> Program:
    return build(read_schedule(write(rows), "plan"), recipe, parse_transport(transport))


def timed(own: Program, costs: Costs) -> Timing | None:
    return recipe_timing(own, costs, event_graph(own, own.transport))


def explained(own: Program, costs: Costs) -> Explanation | None:
    return recipe_explain(own, costs, event_graph(own, own.transport))


def ends_of(own: Program, found: Timing) -> dict[str, Fraction]:
    return {
        op_text(own, op): Fraction(end) / found.per_unit
        for op, end in zip(found.op.tolist(), found.end.tolist(), strict=True)
    }


# --- the simulators --------------------------------------------------------------


def channel(rank: int, a: Action, host: dict[int, int]) -> tuple[int, int]:
    """(sender, receiver) of a message."""
    send, down = a.word.startswith("SEND"), a.word.endswith("B")
    other = host[a.stage + (1 if send != down else -1)]
    return (rank, other) if send else (other, rank)


def blocking(rows: Rows, comm: Fraction) -> dict[str, Fraction] | None:
    """Every send and receive blocks until both ends are there, and then takes ``comm``."""
    host = {a.stage: rank for rank, row in enumerate(rows) for a in row}
    clock = [Fraction(0)] * len(rows)
    at = [0] * len(rows)
    ends: dict[str, Fraction] = {}
    moved = True
    while moved:
        moved = False
        waiting: dict[tuple[int, int], dict[bool, int]] = defaultdict(dict)
        for rank, row in enumerate(rows):
            while at[rank] < len(row) and row[at[rank]].word in UNIT:
                a = row[at[rank]]
                clock[rank] += UNIT[a.word]
                ends[str(a)] = clock[rank]
                at[rank] += 1
                moved = True
            if at[rank] < len(row):
                a = row[at[rank]]
                waiting[channel(rank, a, host)][a.word.startswith("SEND")] = rank
        for ends_there in waiting.values():
            if len(ends_there) == 2:
                both = list(ends_there.values())
                clock[both[0]] = clock[both[1]] = max(clock[r] for r in both) + comm
                for rank in both:
                    at[rank] += 1
                moved = True
    return ends if all(at[r] == len(row) for r, row in enumerate(rows)) else None


def posting(rows: Rows, comm: Fraction) -> dict[str, Fraction] | None:
    """Torch's runtime on free streams: both ends are posted and go on, a transfer takes
    ``comm`` from the later posting, and the op that consumes it waits for it."""
    host = {a.stage: rank for rank, row in enumerate(rows) for a in row}
    clock = [Fraction(0)] * len(rows)
    at = [0] * len(rows)
    ends: dict[str, Fraction] = {}
    posts: dict[tuple[int, int], dict[bool, deque[Any]]] = defaultdict(
        lambda: {True: deque(), False: deque()}
    )
    arrived: dict[Action, Fraction] = {}
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row):
                a = row[at[rank]]
                if a.word in UNIT:
                    needed = Action(a.stage, f"RECV_{'F' if a.word == 'F' else 'B'}", a.microbatch)
                    listed = a.word != "W" and needed in row[: at[rank]]
                    if listed and needed not in arrived:
                        break
                    begin = max(clock[rank], arrived[needed] if listed else Fraction(0))
                    clock[rank] = begin + UNIT[a.word]
                    ends[str(a)] = clock[rank]
                else:
                    queues = posts[channel(rank, a, host)]
                    send = a.word.startswith("SEND")
                    queues[send].append((a, clock[rank]))
                    while queues[True] and queues[False]:
                        _, sent = queues[True].popleft()
                        receive, posted = queues[False].popleft()
                        arrived[receive] = max(sent, posted) + comm
                at[rank] += 1
                moved = True
    return ends if all(at[r] == len(row) for r, row in enumerate(rows)) else None


times = st.one_of(st.integers(0, 5).map(Fraction), st.fractions(0, 5, max_denominator=6))


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), times)
def test_blocking(seed: int, comm: Fraction) -> None:
    rows = [row for row in random_plan(Random(seed)) if row]
    note(write(rows))
    own = built(rows, "naive", "gloo")
    expected, found = blocking(rows, comm), timed(own, Costs(comm=comm))
    assert (found is None) == (expected is None)
    if found is not None:
        assert ends_of(own, found) == expected


@settings(max_examples=150)
@given(st.integers(0, 2**32 - 1), times)
def test_posting(seed: int, comm: Fraction) -> None:
    rows = [row for row in random_plan(Random(seed)) if row]
    note(write(rows))
    own = built(rows, "torch", "gloo")
    expected, found = posting(rows, comm), timed(own, Costs(comm=comm))
    assert (found is None) == (expected is None)
    if found is not None:
        assert ends_of(own, found) == expected


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1), times)
def test_with_room_for_every_message_it_is_the_compute_order(seed: int, comm: Fraction) -> None:
    """Sent at once and received when needed: the message is a pure delay."""
    rows = [row for row in random_plan(Random(seed), communication=False) if row]
    note(write(rows))
    own = built(rows, "naive", "gloo:inf")
    # With tags: first in, first out a rank may get another microbatch than it needs.
    own = replace(own, transport=replace(own.transport, match=Match.TAG))
    costs = Costs(comm=comm)
    found, expected = timed(own, costs), timing(own, costs)
    if expected is None:  # an op stands before one on its own rank that it needs
        return
    assert found is not None and ends_of(own, found) == ends_of(own, expected)


TRANSPORTS = ("gloo:inf", "gloo:2", "gloo:1", "gloo", "nccl-directed", "nccl", "nccl-eager")


@settings(max_examples=60)
@example(36901439, Fraction(0), "torch")  # a stream must not run ahead of its lane
@given(st.integers(0, 2**32 - 1), times, st.sampled_from(("torch", "grouped", "naive")))
def test_stricter_transports_take_longer(seed: int, comm: Fraction, recipe: str) -> None:
    rows = [row for row in random_plan(Random(seed)) if row]
    note(write(rows))
    last: Fraction | None = Fraction(0)
    for transport in TRANSPORTS:
        found = timed(built(rows, recipe, transport), Costs(comm=comm))
        if last is None:
            assert found is None, transport
        else:
            now = None if found is None else Fraction(found.last) / found.per_unit
            assert now is None or now >= last, transport
            last = now


@settings(max_examples=150)
@given(st.data())
def test_any_program_that_ends_has_times(data: st.DataObject) -> None:
    """Whatever is grouped, posted and buffered: the path has no gap, and no slack on it."""
    own = data.draw(programs())
    transport = data.draw(transports())
    graph = event_graph(own, transport)
    costs = Costs(F=2, comm=Fraction(1, 2))
    found = recipe_timing(own, costs, graph)
    if found is None:
        return
    told = recipe_explain(own, costs, graph)
    assert told is not None and (found.end >= found.start).all()
    assert told.path[0].start == 0 and told.path[-1].end == found.last
    for hop, following in zip(told.path, told.path[1:], strict=False):
        assert hop.end == following.start
    assert (told.slack >= 0).all()


# --- by hand -------------------------------------------------------------------


def two(first: list[Any], second: list[Any], transport: str = "gloo") -> Program:
    return program(first, second, transport=parse_transport(transport))


def test_a_rendezvous_holds_the_sender_up() -> None:
    """Rank 1 takes the message at 3; it takes 1; rank 0 goes on at 4."""
    sends = [["F", 0, 0], ["SEND", "act", 0, 0, 1], ["F", 0, 1]]
    receives = [["F", 1, 7], ["F", 1, 8], ["F", 1, 9], ["RECV", "act", 0, 0, 0]]
    found = timed(two(sends, receives), Costs(comm=1))
    assert found is not None and found.makespan == 5 and found.idle == (3, 2)
    found = timed(two(sends, receives, "gloo:1"), Costs(comm=1))  # a slot: the send is done
    assert found is not None and found.makespan == 3


def test_the_path_names_the_message() -> None:
    send = ["SEND", "act", 0, 0, 1]
    own = two([["F", 0, 0], send, ["F", 0, 1]], [["RECV", "act", 0, 0, 0], ["F", 1, 0]])
    found = explained(own, Costs(comm=5))
    assert found is not None
    hops = [(op_text(own, hop.op), hop.start, hop.end) for hop in found.path]
    assert hops[0] == ("0F0", 0, 1)
    assert hops[1] in [("0SEND_F0", 1, 6), ("1RECV_F0", 1, 6)]
    assert found.path[-1].end == 7 and found.path[1].row is not None
    assert found.slack.tolist() == [0, 0, 0]


def test_one_stream_takes_one_message_at_a_time() -> None:
    """Two sends to two ranks: side by side on streams of their own, in turn on one."""
    posts = [["ISEND", "act", 0, b, b + 1, {"req": f"r{b}"}] for b in (0, 1)]
    receivers = [[["RECV", "act", 0, b, 0], ["F", 1, b]] for b in (0, 1)]
    for transport, makespan in (("gloo", 1 + 3 + 1), ("nccl", 5), ("nccl-eager", 1 + 3 + 3 + 1)):
        own = program(
            [["F", 0, 0], *posts, ["WAIT", "r0", "r1"]],
            *receivers,
            transport=parse_transport(transport),
        )
        found = timed(own, Costs(comm=3))
        assert found is not None and found.makespan == makespan, transport


def test_computation_overlaps_with_what_was_posted() -> None:
    """The transfer runs from 1 to 5; rank 0 computes meanwhile and waits at the end."""
    send = ["ISEND", "act", 0, 0, 1, {"req": "a"}]
    computes = [["F", 0, 5], ["F", 0, 6]]
    own = two(
        [["F", 0, 0], send, *computes, ["WAIT", "a"], ["F", 0, 8]],
        [["RECV", "act", 0, 0, 0], ["F", 1, 0]],
    )
    found = timed(own, Costs(comm=4))
    assert found is not None and ends_of(own, found)["0F8"] == 6 and found.makespan == 6


def test_what_gets_stuck_has_no_time() -> None:
    send, receive = ["SEND", "act", 0, 0, 1], ["RECV", "grad", 1, 0, 1]
    own = two([["F", 0, 0], send, receive], [["SEND", "grad", 1, 0, 0], ["RECV", "act", 0, 0, 0]])
    assert timed(own, Costs()) is None and explained(own, Costs()) is None
    assert timed(program([["X", "a"]]), Costs()) is None


def test_a_pair_is_one_block() -> None:
    """Both of its inputs are there at 3 (the message of rank 1, a unit late)."""
    plan = "0RECV_B0,(0F1;0B0)OVERLAP_F_B,0SEND_F1\n1F0,1B0,1SEND_B0,1RECV_F1\n"
    own = build(read_schedule(plan, "plan"), "torch", parse_transport("gloo"))
    found = timed(own, Costs(comm=1, pair=2, release=Release.BLOCK))
    assert found is not None
    assert found.start.tolist()[:2] == [4, 4] and found.end.tolist()[:2] == [6, 6]
    assert found.busy == (2, 3)
    one_by_one = timed(own, Costs(comm=1))
    assert one_by_one is not None and one_by_one.start.tolist()[:2] == [0, 4]


@pytest.mark.parametrize("transport", ["gloo", "nccl", "nccl-eager"])
def test_free_messages_cost_nothing_where_everything_is_posted(transport: str) -> None:
    rows = [
        [Action(0, w, b) for w, b in (("F", 0), ("F", 1), ("B", 0), ("B", 1))],
        [Action(1, w, b) for w, b in (("F", 0), ("B", 0), ("F", 1), ("B", 1))],
    ]
    own = built(rows, "torch", transport)
    found, expected = timed(own, Costs()), timing(own, Costs())
    assert found is not None and expected is not None and found.makespan == expected.makespan
