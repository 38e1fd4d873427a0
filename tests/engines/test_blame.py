"""Blame: the cycle that is told is one, a shortest one, and the model is stuck there."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from pipeproof.checks.deadlock import check
from pipeproof.checks.subject import Subject
from pipeproof.engines.events.blame import Blame, blame
from pipeproof.engines.events.build import build
from pipeproof.engines.events.graph import NEVER, Event, EventGraph
from pipeproof.engines.events.run import Run, run
from pipeproof.program.programs import Program
from pipeproof.program.transports import Grouping, Match, Progress, Streams, Transport
from pipeproof.replay.confirm import confirm
from pipeproof.replay.model import Model
from pipeproof.verdict import Status
from tests.programs import ALL_TRANSPORTS, program, programs, transports
from tests.random_messages import random_messages

Ops = list[list[Any]]

# --- the wait graph, read off the edges one by one -------------------------------


def needs_of(graph: EventGraph, event: Event) -> set[Event]:
    """Every event that this one needs, beside the one before it on its chain."""
    found = {
        (int(graph.from_chain[i]), int(graph.from_position[i]))
        for i in range(int(graph.first[event[0]]), int(graph.first[event[0] + 1]))
        if int(graph.to_position[i]) == event[1]
    }
    for gate in graph.gates:
        if gate.chain == event[0]:
            found |= set(gate.sources)
    return found


def waits(graph: EventGraph, ran: Run) -> dict[int, dict[int, set[Event]]]:
    """For each chain that a stuck lane waits for, however indirectly: what the event
    it stands before needs and has not, by chain."""
    stuck = [c for c in range(1, graph.lanes + 1) if ran.progress[c] < graph.length[c]]
    found: dict[int, dict[int, set[Event]]] = {}
    while stuck:
        chain = stuck.pop()
        if chain in found or chain == 0:
            continue
        found[chain] = {}
        for source, position in needs_of(graph, (chain, ran.progress[chain])):
            if ran.progress[source] <= position:
                found[chain].setdefault(source, set()).add((source, position))
        stuck.extend(found[chain])
    return found


def girth(edges: dict[int, dict[int, set[Event]]]) -> int | None:
    """The length of a shortest cycle, by following all walks at once."""
    reached = {chain: {chain} for chain in edges}
    for length in range(1, len(edges) + 1):
        reached = {
            chain: {after for at in ends for after in edges.get(at, ())}
            for chain, ends in reached.items()
        }
        if any(chain in ends for chain, ends in reached.items()):
            return length
    return None


def distance(edges: dict[int, dict[int, set[Event]]], lanes: int) -> int | None:
    """How many waits it takes from a stuck lane to an event that never happens."""
    ends = {chain for chain in edges if chain <= lanes}
    for length in range(1, len(edges) + 1):
        ends = {after for at in ends for after in edges.get(at, ())}
        if 0 in ends:
            return length
    return None


def real(graph: EventGraph, ran: Run, told: Blame) -> None:
    """Every wait is one, and each is for the chain of the next."""
    assert told.waits
    for wait in told.waits:
        chain, position = wait.at
        assert ran.progress[chain] == position < graph.length[chain]
        assert ran.progress[wait.needs[0]] <= wait.needs[1]
        assert wait.needs in needs_of(graph, wait.at)
    chains = [wait.at[0] for wait in told.waits]
    assert len(set(chains)) == len(chains)
    following = [wait.needs[0] for wait in told.waits]
    if told.cyclic:
        assert following == chains[1:] + chains[:1]
    else:
        assert following[:-1] == chains[1:]
        assert told.waits[-1].needs == NEVER
        assert chains[0] <= graph.lanes


def explained(tested: Program, transport: Transport) -> Blame | None:
    """What is told of a program that is stuck, after every test of it; else None."""
    tested = replace(tested, transport=transport)
    graph = build(tested, transport)
    ran = run(graph)
    if ran.finished(graph):
        assert not Model(tested, transport).run().stuck
        return None
    told = blame(graph, ran)
    real(graph, ran, told)
    edges = waits(graph, ran)
    assert told.cyclic == (girth(edges) is not None)
    shortest = girth(edges) if told.cyclic else distance(edges, graph.lanes)
    assert len(told.waits) == shortest
    # The story of it is re-enacted, and points at ops.
    result = check(Subject(tested))
    (finding,) = result.findings
    assert result.status is Status.VIOLATED
    assert finding.counterexample.cyclic == told.cyclic
    assert confirm(tested, transport, finding.counterexample) is None
    assert finding.where and len(finding.counterexample.steps) >= 1
    for step in finding.counterexample.steps:
        assert step.text.endswith(".") and "  " not in step.text
    return told


@pytest.mark.parametrize("chunk", range(10))
def test_random_stuck_programs(chunk: int) -> None:
    random = Random(chunk)
    stuck, cyclic = 0, 0
    for _ in range(150):
        told = explained(random_messages(random), random.choice(ALL_TRANSPORTS))
        stuck += told is not None
        cyclic += told is not None and told.cyclic
    assert stuck > 20 and cyclic > 5


@settings(max_examples=100)
@given(programs(), transports())
def test_small_programs(tested: Program, transport: Transport) -> None:
    explained(tested, transport)


# --- by hand -----------------------------------------------------------------------


def test_a_circle_of_two_beside_one_of_three() -> None:
    three: list[Ops] = [[["SEND", "x", (r + 1) % 3], ["RECV", "x", (r - 1) % 3]] for r in range(3)]
    two: list[Ops] = [[["SEND", "x", 7 - r], ["RECV", "x", 7 - r]] for r in (3, 4)]
    told = explained(program(*three, *two), Transport())
    assert told is not None and told.cyclic
    assert [wait.at for wait in told.waits] == [(4, 1), (5, 1)]


def test_of_two_as_short_the_one_on_the_smaller_chains() -> None:
    pairs = [[["SEND", "x", r ^ 1], ["RECV", "x", r ^ 1]] for r in range(4)]
    told = explained(program(*pairs), Transport())
    assert told is not None
    assert [wait.at[0] for wait in told.waits] == [1, 2]


def test_a_circle_is_told_before_what_never_comes() -> None:
    circle: list[Ops] = [
        [["SEND", "x", 1], ["RECV", "y", 1]],
        [["SEND", "y", 0], ["RECV", "x", 0]],
    ]
    told = explained(program(*circle, [["RECV", "z", 0]]), Transport())
    assert told is not None and told.cyclic


def test_what_never_comes_is_told_from_where_it_is_missed() -> None:
    chain: list[Ops] = [
        [["RECV", "z", 1]],
        [["RECV", "y", 2], ["SEND", "z", 0]],
        [["RECV", "w", 0]],
    ]
    told = explained(program(*chain), Transport())
    # Rank 1 misses y, which rank 2 never sends, and rank 2 w: both are one wait away.
    assert told is not None and not told.cyclic
    assert [wait.at for wait in told.waits] == [(2, 1)]
    assert told.waits[0].needs == NEVER


@pytest.mark.parametrize("streams", [Streams.PAIR, Streams.RANK])
def test_streams_that_queue_in_opposite_orders(streams: Streams) -> None:
    posted: list[Ops] = [
        [["ISEND", "x", 1, {"req": "s"}], ["IRECV", "y", 1, {"req": "r"}], ["WAIT", "s", "r"]],
        [["ISEND", "y", 0, {"req": "s"}], ["IRECV", "x", 0, {"req": "r"}], ["WAIT", "s", "r"]],
    ]
    told = explained(program(*posted), Transport(streams=streams))
    assert told is not None and told.cyclic
    # Two streams, behind the two lanes, each at the end of its first send.
    assert [wait.at[1] for wait in told.waits] == [1, 1]
    assert min(wait.at[0] for wait in told.waits) > 2
    assert explained(program(*posted), Transport()) is None


LAZY = Transport(isend_progress=Progress.AT_WAIT)


@pytest.mark.parametrize("streams", list(Streams))
def test_a_send_that_nothing_waits_for_moves_never(streams: Streams) -> None:
    tested = program(
        [["ISEND", "x", 1, {"req": "s"}]], [["IRECV", "x", 0, {"req": "r"}], ["WAIT", "r"]]
    )
    told = explained(tested, replace(LAZY, streams=streams))
    assert told is not None and not told.cyclic
    subject = Subject(replace(tested, transport=replace(LAZY, streams=streams)))
    (finding,) = check(subject).findings
    assert "moves only while it is waited for" in finding.counterexample.steps[-1].text


def test_a_batch_that_never_starts_as_a_whole() -> None:
    tested = program(
        [["GROUP", [["SEND", "x", 1]]]],
        [["GROUP", [["RECV", "x", 0], ["RECV", "y", 0]], {"req": "g"}], ["WAIT", "g"]],
    )
    for transport in ALL_TRANSPORTS:
        if transport.group is Grouping.ATOMIC and transport.match is Match.TAG:
            told = explained(tested, transport)
            assert told is not None and not told.cyclic


def test_a_slot_that_is_never_freed() -> None:
    tested = program([["SEND", "a", 1], ["SEND", "b", 1]], [["RECV", "b", 1]])
    told = explained(tested, Transport(capacity=1))
    assert told is not None and not told.cyclic
    late = program(
        [["SEND", "a", 1], ["SEND", "b", 1], ["SEND", "go", 1, {"comm": "c"}]],
        [["RECV", "go", 0, {"comm": "c"}], ["RECV", "a", 0], ["RECV", "b", 0]],
    )
    for match in Match:
        told = explained(late, Transport(capacity=1, match=match))
        assert told is not None and told.cyclic
