"""The explicit-state search against known counts, the event graph, and every
interleaving of the step-by-step model."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeproof.engines.events.build import build
from pipeproof.engines.events.run import run
from pipeproof.engines.explore.search import Decision, Exploration, Take, Turn, explore
from pipeproof.engines.explore.tables import objection
from pipeproof.program.programs import Program
from pipeproof.program.transports import Grouping, Match, Progress, Streams, Transport
from pipeproof.replay.model import Model, Unsupported
from tests.choices import random_choices
from tests.exhaustive import explore as every_interleaving
from tests.programs import ALL_TRANSPORTS, program, programs, transports
from tests.soup import soup

RENDEZVOUS = Transport()
FIFO = Transport(match=Match.FIFO)

Ends = set[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]


def ends(found: Exploration) -> Ends:
    """Every way to end: (ops completed a lane, where lanes are stuck, what met nothing)."""
    assert not found.truncated
    return {(e.completed, e.stuck, e.unmatched) for e in found.ends}


def oracle(tested: Program, transport: Transport, limit: int = 20_000) -> Ends | None:
    """The same from every interleaving of the model; None where there are too many."""
    explored = every_interleaving(tested, transport, limit)
    if explored.truncated:
        return None
    return {(o.completed, o.stuck, o.unmatched) for o in explored.outcomes}


def takes(found: Exploration) -> dict[int, set[int]]:
    """Which sends each receive takes."""
    return {receive: set(sends) for receive, sends in found.takes.items()}


def script(decisions: tuple[Decision, ...]) -> list[tuple[int, int]]:
    return [(d.receive, d.send) for d in decisions if isinstance(d, Take)]


# --- pinned counts ---------------------------------------------------------------


def blocking_1f1b(ranks: int, microbatches: int) -> Program:
    """One forward, one backward, each message a blocking send and receive."""
    lanes: list[list[Any]] = []
    for s in range(ranks):
        forward = [
            [
                *([["RECV", "act", s - 1, b, s - 1]] if s else []),
                ["F", s, b],
                *([["SEND", "act", s, b, s + 1]] if s < ranks - 1 else []),
            ]
            for b in range(microbatches)
        ]
        backward = [
            [
                *([["RECV", "grad", s + 1, b, s + 1]] if s < ranks - 1 else []),
                ["B", s, b],
                *([["SEND", "grad", s, b, s - 1]] if s else []),
            ]
            for b in range(microbatches)
        ]
        warm = min(ranks - 1 - s, microbatches)
        order = forward[:warm]
        for b in range(microbatches - warm):
            order += [forward[warm + b], backward[b]]
        order += backward[microbatches - warm :]
        lanes.append([op for step in order for op in step])
    return program(*lanes)


@pytest.mark.parametrize(
    ("ranks", "microbatches", "unbounded", "one_slot"),
    [(2, 2, 33, 31), (3, 4, 473, 421), (4, 4, 2361, 1979)],
)
def test_states_of_blocking_1f1b(
    ranks: int, microbatches: int, unbounded: int, one_slot: int
) -> None:
    """Counts of an exhaustive search by other means, published with this project's
    claims: every interleaving of single compute, send and receive steps."""
    tested = blocking_1f1b(ranks, microbatches)
    for match in Match:
        for capacity, states in ((None, unbounded), (1, one_slot)):
            transport = Transport(capacity=capacity, match=match)
            found = explore(tested, transport, reduced=False)
            assert (found.states, found.stuck) == (states, None)
            assert explore(tested, transport).states == 1
    assert explore(tested, RENDEZVOUS).stuck is not None


# --- receives from any sender ----------------------------------------------------

CLASSIC = program(
    [["RECV", "x", "any"], ["RECV", "x", 1]],
    [["SEND", "x", 0]],
    [["SEND", "x", 0]],
)


def test_the_message_of_the_named_sender_may_be_gone() -> None:
    found = explore(CLASSIC, RENDEZVOUS)
    assert ends(found) == {((2, 1, 1), (), ()), ((1, 1, 0), (1, 3), ())}
    assert takes(found) == {0: {2, 3}, 1: {2}}
    assert found.stuck is not None and found.stuck.decisions == (Take(0, 2),)
    assert found.states == 3  # undecided, and both ends
    assert explore(CLASSIC, RENDEZVOUS, reduced=False).states == 4


def test_what_a_receive_can_take_may_come_later() -> None:
    """Rank 2 sends once rank 0 has let it, so the first receive has one sender only."""
    ordered = program(
        [["RECV", "x", "any"], ["SEND", "go", 2], ["RECV", "x", "any"]],
        [["SEND", "x", 0]],
        [["RECV", "go", 0], ["SEND", "x", 0]],
    )
    found = explore(ordered, RENDEZVOUS)
    assert takes(found) == {0: {3}, 2: {5}} and found.stuck is None
    hasty = program(
        [["RECV", "x", "any"], ["RECV", "x", "any"]],
        [["SEND", "x", 0], ["SEND", "go", 2]],
        [["RECV", "go", 1], ["SEND", "x", 0]],
    )
    assert takes(explore(hasty, RENDEZVOUS)) == {0: {2}, 1: {5}}
    assert takes(explore(hasty, RENDEZVOUS.with_capacity(1))) == {0: {2, 5}, 1: {2, 5}}


def test_tags_and_communicators_keep_messages_apart() -> None:
    tagged = program(
        [["RECV", "x", "any"], ["RECV", "y", "any"]], [["SEND", "x", 0]], [["SEND", "y", 0]]
    )
    assert takes(explore(tagged, RENDEZVOUS)) == {0: {2}, 1: {3}}
    assert takes(explore(tagged, FIFO)) == {0: {2, 3}, 1: {2, 3}}
    apart = program(
        [["RECV", "x", "any"], ["RECV", "x", "any", {"comm": "c"}]],
        [["SEND", "x", 0]],
        [["SEND", "x", 0, {"comm": "c"}]],
    )
    assert takes(explore(apart, FIFO)) == {0: {2}, 1: {3}}


def test_an_earlier_receive_comes_first() -> None:
    """A posted receive from any is not passed over by a later one with a name."""
    posted = program(
        [["IRECV", "x", "any", {"req": "a"}], ["RECV", "x", 1], ["WAIT", "a"]],
        [["SEND", "x", 0]],
        [["SEND", "x", 0]],
    )
    found = explore(posted, RENDEZVOUS)
    assert takes(found) == {0: {2, 3}, 1: {2}} and found.stuck is not None
    named = program(
        [["IRECV", "x", 1, {"req": "a"}], ["RECV", "x", "any"], ["WAIT", "a"]],
        [["SEND", "x", 0]],
        [["SEND", "x", 0]],
    )
    found = explore(named, RENDEZVOUS)
    assert takes(found) == {0: {2}, 1: {3}} and found.stuck is None


def test_the_shortest_way_to_get_stuck_is_told() -> None:
    """Three receives from any, of which the last may take what a named one needs."""
    late = program(
        [["RECV", "x", "any"], ["RECV", "y", "any"], ["RECV", "y", 1]],
        [["SEND", "x", 0], ["SEND", "y", 0]],
        [["SEND", "x", 0], ["SEND", "y", 0]],
    )
    found = explore(late, RENDEZVOUS.with_capacity(None))
    assert found.stuck is not None
    assert [d for d in found.stuck.decisions if d == Take(1, 4)]
    assert len(found.stuck.decisions) == 2


# --- WAITANY ---------------------------------------------------------------------


@pytest.mark.parametrize("sent", ["x", "y"])
def test_waitany_goes_on_with_either(sent: str) -> None:
    posts = [["IRECV", "x", 1, {"req": "a"}], ["IRECV", "y", 1, {"req": "b"}]]
    either = program([*posts, ["WAITANY", "a", "b"]], [["SEND", sent, 0]])
    (end,) = explore(either, RENDEZVOUS).ends
    assert end.stuck == () and end.unmatched == ((1,) if sent == "x" else (0,))
    both = program([*posts, ["WAIT", "a", "b"]], [["SEND", sent, 0]])
    assert ends(explore(both, RENDEZVOUS)) == {((2, 1), (2,), ())}


def test_waitany_of_nothing_that_comes_is_stuck() -> None:
    never = program([["IRECV", "x", 1, {"req": "a"}], ["WAITANY", "a"]], [["X", "idle"]])
    assert ends(explore(never, RENDEZVOUS)) == {((1, 1), (1,), ())}


# --- lanes that take turns -------------------------------------------------------


def test_lanes_that_share_a_channel_take_turns() -> None:
    """In which order two lanes post decides who meets whom."""
    racing = program(
        {"a": [["SEND", "x", 1]], "b": [["SEND", "x", 1], ["SIGNAL", "e"]], "c": [["AWAIT", "e"]]},
        [["RECV", "x", 0], ["RECV", "x", 0]],
    )
    found = explore(racing, RENDEZVOUS)
    assert found.stuck is None and found.takes_turns
    crossed = program(
        {"a": [["COLL", "barrier", "world", "p"]], "b": [["SEND", "x", 1], ["SEND", "x", 1]]},
        {"a": [["RECV", "x", 0], ["COLL", "barrier", "world", "p"], ["RECV", "x", 0]]},
    )
    assert explore(crossed, RENDEZVOUS).stuck is None


def test_turns_on_a_stream_may_cross() -> None:
    """On a stream a pair, what rank 0 queues first decides; a stream a direction is fine."""
    racing = program(
        {
            "out": [["ISEND", "x", 1, {"req": "s"}], ["WAIT", "s"]],
            "in": [["IRECV", "y", 1, {"req": "r"}], ["WAIT", "r"]],
        },
        [["SEND", "y", 0], ["RECV", "x", 0]],
    )
    assert explore(racing, Transport(streams=Streams.DIRECTED)).stuck is None
    found = explore(racing, Transport(streams=Streams.PAIR))
    assert found.stuck is not None and found.stuck.decisions == (Turn(0), Turn(2))
    assert {bool(e.stuck) for e in found.ends} == {True, False}


# --- limits ----------------------------------------------------------------------


def test_a_search_stops_at_its_limit() -> None:
    many = program([["RECV", "x", "any"]] * 4, *([["SEND", "x", 0]] for _ in range(4)))
    whole = explore(many, RENDEZVOUS)
    assert not whole.truncated and len(whole.takes[0]) == 4
    cut = explore(many, RENDEZVOUS, limit=whole.states - 1)
    assert cut.truncated and cut.states == whole.states - 1
    assert not explore(many, RENDEZVOUS, limit=whole.states).truncated


@pytest.mark.parametrize(
    ("transport", "ops", "words"),
    [
        (Transport(streams=Streams.PAIR), [["IRECV", "x", "any", {"req": "r"}]], "stream"),
        (Transport(group=Grouping.ATOMIC), [["GROUP", [["RECV", "x", "any"]]]], "batch"),
        (
            Transport(isend_progress=Progress.AT_WAIT),
            [["ISEND", "x", 0, {"req": "s"}], ["RECV", "x", "any"]],
            "only at its wait",
        ),
        (
            Transport(isend_progress=Progress.AT_WAIT),
            [
                ["ISEND", "x", 0, {"req": "s"}],
                ["ICOPY", "a", "b", {"req": "c"}],
                ["WAITANY", "s", "c"],
            ],
            "WAITANY",
        ),
    ],
)
def test_what_the_format_leaves_open_is_named(
    transport: Transport, ops: list[Any], words: str
) -> None:
    reason = objection(program(ops), transport)
    assert reason is not None and words in reason
    assert objection(program(ops), RENDEZVOUS) is None


# --- against the other readings --------------------------------------------------


@settings(max_examples=300)
@given(programs(), transports())
def test_without_choice_it_ends_where_the_event_graph_does(
    tested: Program, transport: Transport
) -> None:
    graph = build(tested, transport)
    progress = run(graph).progress
    done = tuple(progress[c] // 2 for c in range(1, graph.lanes + 1))
    (end,) = explore(tested, transport).ends
    assert end.completed == done


@settings(max_examples=100)
@given(programs(messages=3, ends=3), transports())
def test_without_choice_every_interleaving_ends_there(
    tested: Program, transport: Transport
) -> None:
    found = oracle(tested, transport)
    assert found is None or found == ends(explore(tested, transport))
    assert ends(explore(tested, transport, reduced=False)) == ends(explore(tested, transport))


def test_programs_of_everything_end_where_the_model_does() -> None:
    for seed in range(300):
        tested = soup(Random(seed))
        outcome = Model(tested, tested.transport).run()
        expected = {(outcome.completed, outcome.stuck, outcome.unmatched)}
        assert ends(explore(tested, tested.transport)) == expected


@settings(max_examples=250)
@given(st.integers(0, 1 << 32))
def test_with_choice_the_model_has_the_same_ends(seed: int) -> None:
    """With and without reduction; every execution told is one that the model follows."""
    random = Random(seed)
    tested, transport = random_choices(random, messages=4), random.choice(ALL_TRANSPORTS)
    if objection(tested, transport) is not None:
        with pytest.raises(Unsupported):
            Model(tested, transport)
        return
    model = Model(tested, transport)
    found = explore(tested, transport)
    whole = explore(tested, transport, reduced=False)
    expected = oracle(tested, transport, 4_000)
    assert expected is None or expected == ends(found)
    assert ends(found) == ends(whole) and takes(found) == takes(whole)
    assert found.states <= whole.states
    for end in (*found.ends, *whole.ends):
        state = model.follow(script(end.decisions))
        assert state is not None and not model.takes(state)
        outcome = model.outcome(state)
        assert (outcome.completed, outcome.stuck, outcome.unmatched) == (
            end.completed,
            end.stuck,
            end.unmatched,
        )
    for receive, sends in found.takes.items():
        for send, decisions in sends.items():
            assert decisions[-1] == Take(receive, send)
            assert model.follow(script(decisions)) is not None
