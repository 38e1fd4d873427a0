"""Meetings: small plans by hand; random ones are in ``tests/judge/test_rows.py``."""

from __future__ import annotations

from pipeproof.engines.events.pairing import pair
from pipeproof.engines.meetings import all_meet
from pipeproof.program.programs import Program
from pipeproof.program.transports import Match
from tests.programs import program


def meet(tested: Program, match: Match = Match.FIFO) -> bool:
    return all_meet(tested.messages, pair(tested.messages, match).match, tested.ranks)


def test_nothing_to_meet() -> None:
    assert meet(program([], []))
    assert meet(program([["F", 0, 0]]))


def test_in_order() -> None:
    assert meet(
        program([["SEND", "x", 1], ["RECV", "y", 1]], [["RECV", "x", 0], ["SEND", "y", 0]])
    )
    # What is between the messages does not matter, nor how they are posted.
    assert meet(
        program(
            [["ISEND", "x", 1, {"req": "s"}], ["F", 0, 0], ["WAIT", "s"]],
            [["GROUP", [["RECV", "x", 0]]]],
        )
    )


def test_crossing_sends_do_not_meet() -> None:
    crossing = program([["SEND", "x", 1], ["RECV", "y", 1]], [["SEND", "y", 0], ["RECV", "x", 0]])
    assert not meet(crossing)
    # Nor if they are posted together: that is the strictest reading.
    together = program(
        [["GROUP", [["SEND", "x", 1], ["RECV", "y", 1]]]],
        [["GROUP", [["SEND", "y", 0], ["RECV", "x", 0]]]],
    )
    assert not meet(together)


def test_a_ring() -> None:
    ring = [[["SEND", "x", (r + 1) % 3], ["RECV", "x", (r - 1) % 3]] for r in range(3)]
    assert not meet(program(*ring))
    assert meet(program(*ring[:2], ring[2][::-1]))


def test_a_message_that_nothing_meets() -> None:
    assert not meet(program([["SEND", "x", 1]], []))
    assert not meet(program([["SEND", "x", 1]], [["RECV", "z", 0]]), Match.TAG)
    assert meet(program([["SEND", "x", 1]], [["RECV", "z", 0]]), Match.FIFO)


def test_a_rank_that_sends_to_itself() -> None:
    assert not meet(program([["SEND", "x", 0], ["RECV", "x", 0]]))


def test_tags_and_order_differ() -> None:
    swapped = program([["SEND", "x", 1], ["SEND", "y", 1]], [["RECV", "y", 0], ["RECV", "x", 0]])
    assert meet(swapped, Match.FIFO)
    assert not meet(swapped, Match.TAG)


def test_a_relay_of_many_ranks() -> None:
    count = 50
    ranks = [[["SEND", "x", 1]]]
    ranks += [[["RECV", "x", r - 1], ["SEND", "x", r + 1]] for r in range(1, count)]
    ranks += [[["RECV", "x", count - 1]]]
    assert meet(program(*ranks))
    ranks[20].reverse()
    assert not meet(program(*ranks[:20], ranks[20], *ranks[21:-1], []))
