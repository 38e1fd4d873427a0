"""The model executor against hand-written outcomes, itself, and every interleaving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import Grouping, Match, Progress, Streams, Transport
from pipeproof.replay.layout import NOBODY, pairing
from pipeproof.replay.model import Model, Unsupported
from pipeproof.replay.state import Move, Outcome, State
from tests.exhaustive import explore
from tests.programs import ALL_TRANSPORTS, program, programs, transports

RENDEZVOUS = Transport()
FIFO = Transport(match=Match.FIFO)
ATOMIC = Transport(group=Grouping.ATOMIC)
AT_WAIT = Transport(isend_progress=Progress.AT_WAIT)
PAIR = Transport(streams=Streams.PAIR)
DIRECTED = Transport(streams=Streams.DIRECTED)
RANK = Transport(streams=Streams.RANK)


def examples(count: int) -> settings:
    """That many random programs, each as slow as it needs to be."""
    return settings(
        max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )


def end(tested: Program, transport: Transport = RENDEZVOUS) -> Outcome:
    """The one way in which the program ends, whatever the order of moves."""
    explored = explore(tested, transport)
    outcome = Model(tested, transport).run()
    assert not explored.truncated
    assert explored.outcomes == {outcome}
    return outcome


def finishes(tested: Program, transport: Transport = RENDEZVOUS) -> bool:
    """Whether every lane is done in the end."""
    return not end(tested, transport).stuck


# --- blocking messages and buffers --------------------------------------------

CROSS = program(
    [["SEND", "x0", 1], ["RECV", "x1", 1]],
    [["SEND", "x1", 0], ["RECV", "x0", 0]],
)


def test_blocking_sends_that_cross_need_a_slot() -> None:
    assert end(CROSS) == Outcome(completed=(0, 0), stuck=(0, 2), unmatched=())
    assert end(CROSS, RENDEZVOUS.with_capacity(1)) == Outcome((2, 2), (), ())
    assert finishes(CROSS, RENDEZVOUS.with_capacity(None))


def test_state_counts_are_pinned() -> None:
    # Two lanes, each between ops or inside its send.
    assert explore(CROSS, RENDEZVOUS).states == 4
    # Seven a lane: before, in and after moving each message, and the end; but a message
    # cannot have arrived (two of the seven) while the other lane has not begun.
    assert explore(CROSS, RENDEZVOUS.with_capacity(1)).states == 7 * 7 - 2 * 2
    assert explore(program([["F", 0, 0]] * 2, [["F", 1, 0]]), RENDEZVOUS).states == 5 * 3


def test_grouped_they_meet() -> None:
    grouped = program(
        [["GROUP", [["SEND", "x0", 1], ["RECV", "x1", 1]]]],
        [["GROUP", [["SEND", "x1", 0], ["RECV", "x0", 0]]]],
    )
    assert finishes(grouped)
    assert finishes(grouped, ATOMIC)


@pytest.mark.parametrize(("capacity", "completed"), [(0, 0), (1, 1), (2, 2), (3, 5), (None, 5)])
def test_a_send_completes_while_fewer_than_capacity_are_unread(
    capacity: int | None, completed: int
) -> None:
    late = program(
        [*(["SEND", name, 1] for name in "abc"), ["SEND", "go", 1, {"comm": "c"}], ["X", "end"]],
        [["RECV", "go", 0, {"comm": "c"}], *(["RECV", name, 0] for name in "abc")],
    )
    assert end(late, RENDEZVOUS.with_capacity(capacity)).completed[0] == completed


def test_slots_are_freed_by_reading_in_any_order() -> None:
    # b is read first; a stays unread, so c is the second unread one.
    late = program(
        [["SEND", name, 1] for name in "abc"] + [["SEND", "go", 1, {"comm": "c"}]],
        [["RECV", "b", 0], ["RECV", "go", 0, {"comm": "c"}], ["RECV", "a", 0], ["RECV", "c", 0]],
    )
    assert end(late, RENDEZVOUS.with_capacity(1)).stuck == (2, 5)
    assert finishes(late, RENDEZVOUS.with_capacity(2))


def test_slots_are_not_held_by_what_was_read_out_of_turn() -> None:
    # b is read while a lies in the slot; after a, too, is read, c takes the slot.
    late = program(
        [
            ["ISEND", "a", 1, {"req": "a"}],
            ["SEND", "b", 1],
            ["WAIT", "a"],
            ["SEND", "c", 1],
            ["SEND", "go", 1, {"comm": "c"}],
        ],
        [["RECV", "b", 0], ["RECV", "a", 0], ["RECV", "go", 0, {"comm": "c"}], ["RECV", "c", 0]],
    )
    assert end(late).stuck == (3, 7)
    assert finishes(late, RENDEZVOUS.with_capacity(1))


def test_tags_find_their_message_and_fifo_takes_the_next() -> None:
    swapped = program(
        [["SEND", "x", 1], ["SEND", "y", 1]],
        [["RECV", "y", 0], ["RECV", "x", 0]],
    )
    assert end(swapped).stuck == (0, 2)
    assert finishes(swapped, RENDEZVOUS.with_capacity(1))
    assert finishes(swapped, FIFO)
    assert pairing(swapped, Match.FIFO) == [2, 3, 0, 1]
    assert pairing(swapped, Match.TAG) == [3, 2, 1, 0]


def test_channels_of_two_communicators_do_not_see_each_other() -> None:
    crossed = program(
        [["SEND", "x", 1, {"comm": "c"}]],
        [["RECV", "x", 0]],
    )
    assert end(crossed, FIFO).stuck == (0, 1)
    assert end(crossed, FIFO.with_capacity(1)).stuck == (1,)


def test_a_rank_that_sends_to_itself() -> None:
    alone = program([["SEND", "x", 0], ["RECV", "x", 0]])
    grouped = program([["GROUP", [["SEND", "x", 0], ["RECV", "x", 0]]]])
    posted = program(
        [["GROUP", [["SEND", "x", 0], ["RECV", "x", 0]], {"req": "g"}], ["WAIT", "g"]]
    )
    assert end(alone).stuck == (0,)
    assert finishes(alone, RENDEZVOUS.with_capacity(1))
    for transport in ALL_TRANSPORTS:
        assert finishes(grouped, transport)
        assert finishes(posted, transport)


# --- requests and waits -------------------------------------------------------


def test_posting_never_blocks_and_a_wait_does() -> None:
    posted = program(
        [["ISEND", "x", 1, {"req": "a"}], ["F", 0, 0], ["WAIT", "a"], ["F", 0, 1]],
        [],
    )
    assert end(posted).completed == (2, 0)
    assert end(posted, RENDEZVOUS.with_capacity(1)) == Outcome((4, 0), (), (0,))


def test_a_compute_waits_before_it_runs() -> None:
    consumer = program(
        [["F", 0, 0], ["SEND", "act", 0, 0, 1]],
        [["IRECV", "act", 0, 0, 0, {"req": "r"}], ["F", 1, 0, {"wait": ["r"]}], ["F", 1, 1]],
    )
    assert finishes(consumer)
    assert end(program([], [["IRECV", "x", 0, {"req": "r"}], ["X", "use", {"wait": ["r"]}]])) == (
        Outcome((0, 1), (1,), ())
    )


def test_an_op_with_waits_posts_only_after_them() -> None:
    relay = program(
        [["SEND", "x", 1], ["RECV", "y", 1]],
        [["IRECV", "x", 0, {"req": "r"}], ["SEND", "y", 0, {"wait": ["r"]}]],
    )
    assert finishes(relay)
    # Posted at once, y would meet its receive; it waits for x, which comes after.
    swapped = program(
        [["RECV", "y", 1], ["SEND", "x", 1]],
        [["IRECV", "x", 0, {"req": "r"}], ["SEND", "y", 0, {"wait": ["r"]}]],
    )
    assert end(swapped).stuck == (0, 3)


def test_a_copy_completes_when_waited_for() -> None:
    copy = program([["ICOPY", "a", "b", {"req": "c"}], ["COPY", "b", "d"], ["WAIT", "c"]])
    assert end(copy) == Outcome((3,), (), ())


def test_a_request_that_nobody_posts_never_completes() -> None:
    waiting = program([["ICOPY", "a", "b", {"req": "c"}], ["WAIT", "c"]])
    waiting.request[0] = -1
    assert end(waiting) == Outcome((1,), (1,), ())


def test_a_request_number_belongs_to_one_op() -> None:
    twice = program([["ICOPY", "a", "b", {"req": "c"}], ["ICOPY", "a", "b", {"req": "d"}]])
    twice.request[1] = 0
    with pytest.raises(ValueError, match="posted twice"):
        Model(twice, RENDEZVOUS)


def test_an_id_may_be_reused_after_its_wait() -> None:
    reused = program(
        [["ISEND", n, 1, {"req": "a"}] if n else ["WAIT", "a"] for n in ("x", "", "y", "")],
        [["RECV", "x", 0], ["RECV", "y", 0]],
    )
    assert reused.details.requests == ("a", "a")
    assert finishes(reused)


def test_what_met_nothing_is_told_where_nothing_is_stuck() -> None:
    unread = program([["SEND", "x", 1], ["IRECV", "y", 1, {"req": "r"}]], [["F", 1, 0]])
    assert end(unread).unmatched == ()
    assert end(unread, RENDEZVOUS.with_capacity(1)).unmatched == (0, 1)


def test_an_empty_lane_is_done() -> None:
    assert end(program([], [])) == Outcome((0, 0), (), ())
    assert end(program([], [["RECV", "act", 0, 0, 0], ["F", 1, 0]])) == Outcome((0, 0), (0,), ())


# --- progress only inside the wait --------------------------------------------

UNPROGRESSED = program(  # case 07
    [
        ["F", 0, 0],
        ["ISEND", "req.1", 1, {"req": "h", "comm": "mpi"}],
        ["SEND", "act", 0, 0, 1, {"comm": "nccl"}],
        ["WAIT", "h"],
    ],
    [["RECV", "req.1", 0, {"comm": "mpi"}], ["RECV", "act", 0, 0, 0, {"comm": "nccl"}]],
)


def test_a_send_that_moves_only_inside_its_wait() -> None:
    assert end(UNPROGRESSED, AT_WAIT) == Outcome((2, 0), (2, 4), ())
    assert finishes(UNPROGRESSED)
    # A slot does not help: nothing moves the send there either. (The other send has one.)
    assert finishes(UNPROGRESSED, AT_WAIT.with_capacity(1))


def test_what_was_moved_into_a_slot_stays_readable_after_the_wait() -> None:
    late = program(
        [["ISEND", "x", 1, {"req": "a"}], ["WAIT", "a"], ["SEND", "go", 1, {"comm": "c"}]],
        [["RECV", "go", 0, {"comm": "c"}], ["RECV", "x", 0]],
    )
    assert end(late, AT_WAIT).stuck == (1, 3)
    assert finishes(late, AT_WAIT.with_capacity(1))


def test_a_send_never_waited_for_never_moves() -> None:
    dropped = program([["ISEND", "x", 1, {"req": "a"}]], [["RECV", "x", 0]])
    assert end(dropped, AT_WAIT).stuck == (1,)
    assert finishes(dropped)


def test_groups_and_receives_move_on_their_own() -> None:
    grouped = program(
        [["GROUP", [["SEND", "x", 1]], {"req": "g"}], ["RECV", "y", 1], ["WAIT", "g"]],
        [["IRECV", "x", 0, {"req": "r"}], ["WAIT", "r"], ["SEND", "y", 0]],
    )
    assert finishes(grouped, AT_WAIT)


# --- atomic groups ------------------------------------------------------------

SKIP = program(  # case 11
    [["F", 0, 0], ["GROUP", [["SEND", "act", 0, 0, 1], ["SEND", "skip.0", 2]]]],
    [["RECV", "act", 0, 0, 0], ["F", 1, 0], ["SEND", "act", 1, 0, 2]],
    [["GROUP", [["RECV", "skip.0", 0], ["RECV", "act", 1, 0, 1]]], ["F", 2, 0]],
)
SKIP_SPLIT = program(
    [["F", 0, 0], ["GROUP", [["SEND", "act", 0, 0, 1]]], ["GROUP", [["SEND", "skip.0", 2]]]],
    [["RECV", "act", 0, 0, 0], ["F", 1, 0], ["SEND", "act", 1, 0, 2]],
    [["GROUP", [["RECV", "skip.0", 0]]], ["GROUP", [["RECV", "act", 1, 0, 1]]], ["F", 2, 0]],
)
WARMUP = program(  # case 13
    [
        ["F", 0, 0],
        ["SEND", "act", 0, 0, 1],
        ["F", 0, 1],
        ["SEND", "act", 0, 1, 1],
        ["GROUP", [["RECV", "act", 1, 0, 1]]],
        ["F", 2, 0],
    ],
    [
        ["RECV", "act", 0, 0, 0],
        ["F", 1, 0],
        ["GROUP", [["SEND", "act", 1, 0, 0], ["RECV", "act", 0, 1, 0]]],
        ["F", 1, 1],
    ],
)
WARMUP_FUSED = program(
    [
        ["F", 0, 0],
        ["SEND", "act", 0, 0, 1],
        ["F", 0, 1],
        ["GROUP", [["SEND", "act", 0, 1, 1], ["RECV", "act", 1, 0, 1]]],
        ["F", 2, 0],
    ],
    [
        ["RECV", "act", 0, 0, 0],
        ["F", 1, 0],
        ["GROUP", [["SEND", "act", 1, 0, 0], ["RECV", "act", 0, 1, 0]]],
        ["F", 1, 1],
    ],
)


def test_batches_over_different_peers_wait_for_each_other() -> None:
    assert end(SKIP, ATOMIC) == Outcome((1, 0, 0), (1, 2, 5), ())
    assert finishes(SKIP)
    assert finishes(SKIP_SPLIT, ATOMIC)


def test_a_plain_send_meets_a_member_only_when_its_whole_group_can_start() -> None:
    assert end(WARMUP, ATOMIC).stuck == (3, 8)
    assert finishes(WARMUP)
    assert finishes(WARMUP_FUSED, ATOMIC)


def test_a_plain_send_may_wait_for_the_group_in_a_slot() -> None:
    assert finishes(WARMUP, ATOMIC.with_capacity(1))


def test_members_of_an_atomic_group_use_no_slots() -> None:
    late = program(
        [["GROUP", [["SEND", "a", 1]]], ["SEND", "go", 1, {"comm": "c"}]],
        [["RECV", "go", 0, {"comm": "c"}], ["RECV", "a", 0]],
    )
    assert end(late, ATOMIC.with_capacity(None)).stuck == (0, 2)
    assert finishes(late, RENDEZVOUS.with_capacity(1))


@pytest.mark.parametrize("group", list(Grouping))
def test_unread_members_of_groups_count_as_earlier_sends(group: Grouping) -> None:
    late = program(
        [
            ["GROUP", [["SEND", "a", 1]], {"req": "g"}],
            ["SEND", "b", 1],
            ["SEND", "go", 1, {"comm": "c"}],
            ["WAIT", "g"],
        ],
        [["RECV", "go", 0, {"comm": "c"}], ["RECV", "a", 0], ["RECV", "b", 0]],
    )
    transport = Transport(group=group)
    assert end(late, transport.with_capacity(1)).stuck == (1, 4)
    assert finishes(late, transport.with_capacity(2))


def test_a_group_with_a_member_that_nobody_answers_never_starts() -> None:
    odd = program(
        [["GROUP", [["SEND", "x", 1], ["SEND", "y", 1]]]],
        [["RECV", "x", 0]],
    )
    assert end(odd, ATOMIC).stuck == (0, 1)
    assert end(odd).stuck == (0,)
    assert end(odd, RENDEZVOUS.with_capacity(2)).unmatched == (1,)


def test_groups_that_need_each_other_start_together() -> None:
    ring = program(
        *(
            [["GROUP", [["SEND", f"x{r}", (r + 1) % 3], ["RECV", f"x{(r - 1) % 3}", (r - 1) % 3]]]]
            for r in range(3)
        )
    )
    assert finishes(ring, ATOMIC)


# --- streams ------------------------------------------------------------------

BOTH_WAYS = program(
    [["ISEND", "x", 1, {"req": "s"}], ["IRECV", "y", 1, {"req": "r"}], ["WAIT", "s", "r"]],
    [["ISEND", "y", 0, {"req": "s"}], ["IRECV", "x", 0, {"req": "r"}], ["WAIT", "s", "r"]],
)
TRIANGLE = program(
    [["IRECV", "y", 1, {"req": "r"}], ["ISEND", "x", 2, {"req": "s"}], ["WAIT", "s", "r"]],
    [["RECV", "z", 2], ["SEND", "y", 0]],
    [["RECV", "x", 0], ["SEND", "z", 1]],
)


def test_both_directions_on_one_stream_of_a_pair_cross() -> None:
    assert finishes(BOTH_WAYS)
    assert finishes(BOTH_WAYS, DIRECTED)
    assert end(BOTH_WAYS, PAIR) == Outcome((2, 2), (2, 5), ())
    assert finishes(BOTH_WAYS, PAIR.with_capacity(1))


def test_one_stream_a_rank_holds_up_other_peers() -> None:
    assert finishes(TRIANGLE)
    assert finishes(TRIANGLE, PAIR)
    assert end(TRIANGLE, RANK).stuck == (2, 3, 5)


def test_communicators_do_not_split_streams() -> None:
    crossing = program(
        [["ISEND", "x", 1, {"req": "a"}], ["ISEND", "y", 1, {"req": "b", "comm": "c"}]],
        [["RECV", "y", 0, {"comm": "c"}], ["RECV", "x", 0]],
    )
    assert finishes(crossing)
    assert end(crossing, DIRECTED).stuck == (2,)


def test_blocking_operations_use_no_stream() -> None:
    mixed = program(
        [["ISEND", "x", 1, {"req": "a"}], ["SEND", "y", 1]],
        [["RECV", "y", 0], ["RECV", "x", 0]],
    )
    assert finishes(mixed, RANK)


def test_a_group_starts_when_it_heads_the_streams_of_all_its_pairs() -> None:
    blocked = program(
        [
            ["IRECV", "y", 1, {"req": "r"}],
            ["GROUP", [["SEND", "x", 1], ["SEND", "x", 2]], {"req": "g"}],
            ["WAIT", "r", "g"],
        ],
        [["RECV", "x", 0], ["SEND", "y", 0]],
        [["RECV", "x", 0]],
    )
    assert finishes(blocked, DIRECTED)
    # The receive from rank 1 holds the whole group up, its message to rank 2 too.
    assert end(blocked, PAIR) == Outcome((2, 0, 0), (2, 3, 5), ())


def test_messages_that_wait_behind_others_are_unmatched_where_nobody_waits() -> None:
    crossing = program(
        [["ISEND", "x", 1, {"req": "s"}], ["IRECV", "y", 1, {"req": "r"}]],
        [["ISEND", "y", 0, {"req": "s"}], ["IRECV", "x", 0, {"req": "r"}]],
    )
    assert end(crossing, PAIR) == Outcome((2, 2), (), (0, 1, 2, 3))


# --- several lanes ------------------------------------------------------------


def test_lanes_of_a_rank_run_concurrently() -> None:
    lanes = program(
        {"send": [["SEND", "x", 1]], "receive": [["RECV", "y", 1]]},
        [["SEND", "y", 0], ["RECV", "x", 0]],
    )
    assert end(lanes) == Outcome((1, 1, 2), (), ())


def test_a_lane_may_wait_for_what_another_posts() -> None:
    lanes = program(
        {"first": [["WAIT", "a"]], "second": [["RECV", "x", 1], ["ISEND", "y", 1, {"req": "a"}]]},
        [["SEND", "x", 0], ["RECV", "y", 0]],
    )
    assert finishes(lanes)
    assert finishes(lanes, AT_WAIT)


def test_lanes_that_share_a_stream_race_for_it() -> None:
    racing = program(
        {
            "out": [["ISEND", "x", 1, {"req": "s"}], ["WAIT", "s"]],
            "in": [["IRECV", "y", 1, {"req": "r"}], ["WAIT", "r"]],
        },
        [["SEND", "y", 0], ["RECV", "x", 0]],
    )
    assert finishes(racing, DIRECTED)
    assert {bool(outcome.stuck) for outcome in explore(racing, PAIR).outcomes} == {True, False}


# --- what has no meaning here -------------------------------------------------


def test_every_kind_has_a_meaning() -> None:
    ops: dict[Kind, Sequence[Any]] = {
        Kind.F: ["F", 0, 0],
        Kind.B: ["B", 0, 0],
        Kind.I: ["BI", 0, 0],
        Kind.W: ["W", 0, 0],
        Kind.R: ["R", 0, 0],
        Kind.SEND: ["ISEND", "x", 0, {"req": "s"}],
        Kind.RECV: ["RECV", "x", 0],
        Kind.GROUP: ["GROUP", []],
        Kind.WAIT: ["WAIT", "s"],
        Kind.UNSHARD: ["UNSHARD", 0],
        Kind.RESHARD: ["RESHARD", 0],
        Kind.REDUCE_GRAD: ["REDUCE_GRAD", 0],
        Kind.X: ["X", "label"],
        Kind.ALLOC: ["ALLOC", "a", 1],
        Kind.FREE: ["FREE", "a"],
        Kind.MAKE: ["MAKE", "r"],
        Kind.DROP: ["DROP", "r"],
        Kind.COPY: ["COPY", "a", "b"],
        Kind.ICOPY: ["ICOPY", "a", "b", {"req": "c"}],
        Kind.COLL: ["COLL", "barrier", "world", "b"],
        Kind.ZERO: ["ZERO", "w"],
        Kind.SCALE: ["SCALE", "w", 2],
        Kind.STEP: ["STEP", "w"],
        Kind.ROLLBACK: ["ROLLBACK", "w", 0],
        Kind.REPORT: ["REPORT", "w"],
        Kind.SIGNAL: ["SIGNAL", "e"],
        Kind.AWAIT: ["AWAIT", "e"],
        Kind.WAITANY: ["WAITANY", "s", "c"],
    }
    assert set(ops) == set(Kind)
    assert end(program(list(ops.values()))) == Outcome((len(ops),), (), ())


# --- choice --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transport", "tested"),
    [
        (PAIR, [["IRECV", "x", "any", {"req": "r"}]]),
        (RANK, [["IRECV", "x", "any", {"req": "r"}]]),
        (ATOMIC, [["GROUP", [["RECV", "x", "any"]]]]),
        (AT_WAIT, [["ISEND", "x", 0, {"req": "s"}], ["RECV", "x", "any"]]),
        (AT_WAIT, [["ISEND", "x", 0, {"req": "s"}], ["ICOPY", "a", "b", {"req": "c"}]]),
    ],
)
def test_what_the_format_does_not_say_is_refused(transport: Transport, tested: Any) -> None:
    ops = [*tested, ["WAITANY", "s", "c"]] if tested[-1][0] == "ICOPY" else tested
    with pytest.raises(Unsupported):
        Model(program(ops), transport)


CLASSIC = program(
    [["RECV", "x", "any"], ["RECV", "x", 1]],
    [["SEND", "x", 0]],
    [["SEND", "x", 0]],
)


def test_a_receive_from_any_takes_the_first_of_any_sender() -> None:
    assert {o.stuck for o in explore(CLASSIC, RENDEZVOUS).outcomes} == {(), (1, 3)}
    model = Model(CLASSIC, RENDEZVOUS)
    good, bad = model.follow([(0, 3), (1, 2)]), model.follow([(0, 2)])
    assert good is not None and model.outcome(good).stuck == ()
    assert bad is not None and model.outcome(bad).stuck == (1, 3) and not model.takes(bad)
    assert model.follow([(1, 2)]) is None  # the first receive could take it, too
    assert model.follow([(0, 2), (1, 3)]) is None  # the second names another sender
    assert {bool(model.run(Random(seed)).stuck) for seed in range(20)} == {True, False}


def test_order_is_no_question_to_one_run_where_messages_are_taken() -> None:
    with pytest.raises(Unsupported):
        Model(CLASSIC, RENDEZVOUS).reaches(1, without=0)


def test_messages_of_one_sender_are_taken_in_order() -> None:
    tested = program(
        [["RECV", "x", "any"], ["RECV", "x", "any"]], [["SEND", "x", 0], ["SEND", "x", 0]]
    )
    model = Model(tested, RENDEZVOUS.with_capacity(None))
    assert model.follow([(0, 3)]) is None
    assert model.follow([(0, 2), (1, 3)]) is not None


def test_waitany_needs_one() -> None:
    for sent in ("x", "y"):
        one = program(
            [
                ["IRECV", "x", 1, {"req": "a"}],
                ["IRECV", "y", 1, {"req": "b"}],
                ["WAITANY", "a", "b"],
                ["X", "on"],
                ["WAIT", "a", "b"],
            ],
            [["SEND", sent, 0]],
        )
        assert end(one).completed == (4, 1)


# --- states -------------------------------------------------------------------


def test_moves_are_made_one_at_a_time() -> None:
    model = Model(CROSS, RENDEZVOUS.with_capacity(1))
    state = model.initial()
    assert model.moves(state) == [Move("enter", 0), Move("enter", 1)]
    before, key = state.copy(), state.key()
    model.apply(state, Move("enter", 0))
    assert model.moves(state) == [Move("enter", 1), Move("finish", 0)]
    assert model.stuck(state) == ()
    assert before.key() == key != state.key()


def test_stuck_names_the_ops_once_no_move_is_left() -> None:
    model = Model(CROSS, RENDEZVOUS)
    state = model.initial()
    for lane in (0, 1):
        model.apply(state, Move("enter", lane))
    assert model.moves(state) == []
    assert model.stuck(state) == (0, 2)


# --- properties ---------------------------------------------------------------


def one_by_one(model: Model, choose: Random) -> Outcome:
    """A maximal run that looks at all moves every time."""
    state = model.initial()
    while moves := model.moves(state):
        model.apply(state, choose.choice(moves))
    return model.outcome(state)


@examples(150)
@given(programs(), transports())
def test_a_run_ends_as_every_interleaving_does(tested: Program, transport: Transport) -> None:
    explored = explore(tested, transport, limit=10_000)
    if not explored.truncated:
        assert explored.outcomes == {Model(tested, transport).run()}
    else:
        assert explored.outcomes <= {Model(tested, transport).run()}


@examples(150)
@given(programs(ranks=4, messages=14, ends=8), transports(), st.integers(0, 99))
def test_a_worklist_forgets_nothing(tested: Program, transport: Transport, seed: int) -> None:
    model = Model(tested, transport)
    outcome = model.run()
    assert outcome == one_by_one(model, Random(seed))
    assert outcome == model.run(choose=Random(seed))


@examples(100)
@given(programs(messages=6, lanes=2), transports(), st.integers(0, 99))
def test_lanes_without_common_streams_do_not_race(
    tested: Program, transport: Transport, seed: int
) -> None:
    model = Model(tested, replace(transport, streams=Streams.FREE))
    assert model.run() == one_by_one(model, Random(seed)) == model.run(choose=Random(seed))


@examples(50)
@given(programs(messages=4, lanes=2), transports(), st.integers(0, 99))
def test_a_race_for_a_stream_ends_in_one_of_its_ways(
    tested: Program, transport: Transport, seed: int
) -> None:
    explored = explore(tested, transport, limit=5_000)
    if not explored.truncated:
        assert Model(tested, transport).run(choose=Random(seed)) in explored.outcomes


@examples(100)
@given(programs(ranks=4, messages=10, ends=6), transports())
def test_whatever_finishes_finishes_on_weaker_transports(
    tested: Program, transport: Transport
) -> None:
    if not Model(tested, transport).run().stuck:
        weaker: list[Transport] = [replace(transport, streams=s) for s in weaker_than(transport)]
        weaker += [transport.with_capacity(None), replace(transport, group=Grouping.INDEPENDENT)]
        weaker += [replace(transport, isend_progress=Progress.ASYNC)]
        assert not [t for t in weaker if Model(tested, t).run().stuck]


def weaker_than(transport: Transport) -> list[Streams]:
    """Streams that order less; ``Streams`` lists them from the weakest."""
    order = list(Streams)
    return order[: order.index(transport.streams)]


@examples(100)
@given(programs(ranks=4, messages=8, ends=6), transports(), st.integers(0, 99))
def test_rows_finish_when_the_format_says_so(
    tested: Program, transport: Transport, seed: int
) -> None:
    choose, model = Random(seed), Model(tested, transport)
    state = model.initial()
    while moves := model.moves(state):
        expected = finishable(tested, transport, state)
        assert {move.number for move in moves if move.what == "finish"} == expected
        model.apply(state, choose.choice(moves))


def finishable(tested: Program, transport: Transport, state: State) -> set[int]:
    """The rows that may complete, by the words of the format and nothing kept in the state
    but what was posted, started and finished."""
    m, mates = tested.messages, pairing(tested, transport.match)
    groups = {op for op in range(tested.ops) if tested.kind[op] == Kind.GROUP}

    def answered(row: int, able: set[int]) -> bool:
        if mates[row] == NOBODY:
            return False
        other = int(m.op[mates[row]])
        return bool(state.started[other]) and (other not in groups or other in able)

    able = {op for op in groups if state.started[op]}  # greatest fixpoint: take away
    while lost := {op for op in able if not all(answered(r, able) for r in tested.rows_of(op))}:
        able -= lost
    atomic = transport.group is Grouping.ATOMIC

    def together(row: int) -> bool:
        if mates[row] == NOBODY:
            return False
        ops = {int(m.op[row]), int(m.op[mates[row]])}
        started = all(state.started[op] for op in ops)
        return started and (not atomic or ops & groups <= able)

    def slot(send: int) -> bool:
        same = [r for r in range(send) if m.send[r] and channel(r) == channel(send)]
        unread = [r for r in same if mates[r] == NOBODY or not state.finished[mates[r]]]
        if atomic and int(m.op[send]) in groups:
            return False
        return transport.capacity is None or len(unread) < transport.capacity

    def channel(row: int) -> tuple[int, ...]:
        return int(m.rank[row]), int(m.peer[row]), int(m.comm[row])

    def moving(send: int) -> bool:
        op = int(m.op[send])
        if transport.isend_progress is Progress.ASYNC or op in groups or tested.request[op] < 0:
            return True
        inside = [at for at, entered in zip(state.at, state.entered, strict=True) if entered]
        return any(int(tested.request[op]) in tested.requests_of(at) for at in inside)

    found = set()
    for row in range(len(m.op)):
        if state.finished[row] or not state.started[m.op[row]]:
            continue
        if m.send[row]:
            ready = moving(row) and (together(row) or slot(row))
        else:
            mate = mates[row]
            ready = together(row) and (bool(state.finished[mate]) or moving(mate))
        if ready:
            found.add(row)
    return found


# --- speed --------------------------------------------------------------------


class Counting(Model):
    """Counts how often a move is looked at."""

    looks = 0

    def enabled(self, state: State, move: Move) -> bool:
        """As the model says."""
        self.looks += 1
        return super().enabled(state, move)


@pytest.mark.parametrize("transport", [FIFO, PAIR, RANK, ATOMIC, FIFO.with_capacity(3)])
def test_a_run_is_linear(transport: Transport) -> None:
    def looks(count: int) -> int:
        requests = [f"s{n}" for n in range(count)]
        model = Counting(
            program(
                [*(["ISEND", "x", 1, {"req": r}] for r in requests), ["WAIT", *requests]],
                [op for n in range(count) for op in (["RECV", "x", 0], ["F", 1, n])],
            ),
            transport,
        )
        assert not model.run().stuck
        return model.looks

    assert looks(2_000) < 2.1 * looks(1_000) < 2.1 * 15 * 3_000
