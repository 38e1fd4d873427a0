"""Happens-before: which events every execution puts in order.

Event a happens before event b when no execution has b without a. Everything is
monotone, so that is a question to one run: keep a from happening, and see
whether b still does. With gates ("a slot is free, or the receive is posted")
this is exact where following edges would not be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.events.collectives import meetings
from pipeproof.engines.events.graph import Event, EventGraph
from pipeproof.engines.events.run import Run, run
from pipeproof.engines.events.turns import turns
from pipeproof.program.programs import Program
from pipeproof.program.transports import Streams

if TYPE_CHECKING:
    from pipeproof.program.programs import Longs


class Before:
    """Answers happens-before questions about one graph; a run each first event."""

    def __init__(self, graph: EventGraph, full: Run) -> None:
        self.graph, self.full = graph, full
        self._without: dict[Event, Run] = {}

    def happens(self, event: Event) -> bool:
        """Whether the event happens at all."""
        return self.full.progress[event[0]] > event[1]

    def __call__(self, first: Event, second: Event) -> bool:
        """Whether no execution has ``second`` without ``first`` before it."""
        if first[0] == second[0]:
            return first[1] <= second[1] or not self.happens(second)
        known = self._without.get(first)
        if known is None:
            known = self._without[first] = run(self.graph, without=first)
        return known.progress[second[0]] <= second[1]


def start_of(program: Program, op: int) -> Event:
    """The event at which op's lane reaches it, and posts what it posts."""
    lane = program.lane_of(op)
    return lane + 1, 2 * (op - program.lanes[lane].first)


def end_of(program: Program, op: int) -> Event:
    """The event at which op's lane has passed it."""
    chain, position = start_of(program, op)
    return chain, position + 1


def sequence(program: Program, full: Run) -> list[tuple[int, bool]]:
    """The events of all lanes in the order of a run: (op, whether it completed)."""
    lanes = program.lanes
    return [
        (lanes[chain - 1].first + position // 2, bool(position % 2))
        for chain, first, stop in full.stretches
        if chain <= len(lanes)
        for position in range(first, stop)
    ]


def contended(program: Program, streams: Streams, before: Before) -> Iterator[tuple[int, int]]:
    """Pairs of ops of different lanes that take turns on a channel, in a group or
    on a stream, although nothing orders them: which comes first is chance."""
    turn = turns(program)
    if turn is None:
        return
    for ops in _taking_turns(program, streams, turn):
        for one, other in pairwise(ops):
            apart = program.lane_of(one) != program.lane_of(other)
            if apart and not before(start_of(program, one), start_of(program, other)):
                yield one, other


def _taking_turns(program: Program, streams: Streams, turn: Longs) -> Iterable[list[int]]:
    """The ops that share one end of a channel, a group or a stream, by turn."""
    m = program.messages
    shared: dict[tuple[object, ...], dict[int, None]] = {}
    order = np.argsort(turn[m.op], kind="stable").tolist()
    columns = (m.op, m.send, m.rank, m.peer, m.comm)
    op, send, rank, peer, comm = (c.tolist() for c in columns)
    for row in order:
        ends = ("channel", rank[row], peer[row], comm[row], send[row])
        shared.setdefault(ends, {})[op[row]] = None
        if program.request[op[row]] >= 0 and streams is not Streams.FREE:
            pair = () if streams is Streams.RANK else (peer[row],)
            way = (send[row] and rank[row] != peer[row],) if streams is Streams.DIRECTED else ()
            shared.setdefault(("stream", rank[row], *pair, *way), {})[op[row]] = None
    for meeting in meetings(program, turn):
        for member, call in meeting.calls:
            if call is None:
                continue
            shared.setdefault(("group", meeting.group, member), {})[call] = None
            if program.request[call] >= 0 and streams is Streams.RANK:
                shared.setdefault(("stream", member), {})[call] = None
    return [sorted(ops, key=lambda o: int(turn[o])) for ops in shared.values()]
