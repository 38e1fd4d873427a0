"""Times of all events where ops and messages take time: the longest path over the
event graph.

Events happen as early as they can, in order of time, so that a condition that
needs some of several events gets the earliest of them. A compute op runs from
when all it waits for is there to its completion. A transfer starts when both ends
have started and takes its delay at both; where a send goes into a buffer, it is
done at once there, and the message is there a delay after the send has started.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeproof.engines.events.graph import EventGraph
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.program.programs import Longs

Tick = int | float
UNKNOWN = -1


class _Need(NamedTuple):
    """An event comes ``delay`` after event ``source`` at the earliest, because of message
    ``row`` (-1: for any other reason)."""

    source: int
    delay: Tick
    row: int = -1


@dataclass(slots=True)
class Clock:
    """Times by event: chain c's event at position p is number ``offset[c] + p``.

    ``time`` is -1 for what never happens; ``order`` lists events in the order in
    which they happened; ``cause`` is the event that came last of those an event
    needs (-1: none), and ``via`` the message that it came by (-1: none).
    """

    offset: Longs
    time: list[Tick]
    order: list[int]
    cause: list[int]
    via: list[int]
    finished: bool


class Clockwork:
    """The event graph with durations: ``takes[op]`` of ops, ``delay[row]`` of messages,
    in ticks. ``run`` makes the `Clock`, ``latest`` what could come later."""

    def __init__(
        self, program: Program, graph: EventGraph, takes: list[Tick], delay: list[Tick]
    ) -> None:
        self.program, self.graph = program, graph
        self.offset = np.concatenate(([0], np.cumsum(graph.length)))
        self.base: list[int] = self.offset.tolist()
        self.events = self.base[-1]
        self.chain_of = np.repeat(np.arange(len(graph.length)), graph.length).tolist()
        self.takes: dict[int, Tick] = {}
        for number, lane in enumerate(program.lanes):
            first = self.base[number + 1] + 1
            for i, time in enumerate(takes[lane.first : lane.stop]):
                if time:
                    self.takes[first + 2 * i] = time
        self.first = graph.first.tolist()
        self.to_position = graph.to_position.tolist()
        self.source = (self.offset[graph.from_chain] + graph.from_position).tolist()
        never = graph.from_chain == 0
        if never.any():  # chain 0 is empty: its event is nobody's
            self.source = np.where(never, self.events, self.source).tolist()
        self.transfers = self._transfers(delay)

    def _transfers(self, delay: list[Tick]) -> dict[int, list[_Need]]:
        """What each event needs of messages, by event: starts of both ends, a delay ago."""
        program, graph = self.program, self.graph
        rendezvous = program.transport.capacity == 0
        messages = program.messages
        op = messages.op.tolist()
        start = (self.offset[graph.chain] + graph.position).tolist()  # by op
        needs: dict[int, list[int]] = {}
        row, chain, position = graph.needs
        events = np.where(chain == 0, self.events, self.offset[chain] + position)
        for r, event in zip(row.tolist(), events.tolist(), strict=True):
            needs.setdefault(r, []).append(event)
        targets = self._targets()
        found: dict[int, list[_Need]] = {}
        match, send = graph.match.tolist(), messages.send.tolist()
        for r, poster in enumerate(op):
            if send[r] and not rendezvous:
                continue
            begins = needs.get(r, [])
            if rendezvous:
                begins = [start[poster], *begins]
            elif match[r] >= 0:
                begins = [*begins, *needs.get(match[r], [])]
            entries = [_Need(event, delay[r], r) for event in begins]
            for target in targets[poster]:
                found.setdefault(target, []).extend(entries)
        return found

    def _targets(self) -> list[list[int]]:
        """For each op that posts messages, the events that come when they are done: its own
        completion, or on free streams those of the ops that wait for it."""
        program, graph = self.program, self.graph
        waiters: dict[int, list[int]] = {}
        for op, request in zip(
            program.waits.op.tolist(), program.waits.request.tolist(), strict=True
        ):
            number = program.lane_of(op)
            done = self.base[number + 1] + 2 * (op - program.lanes[number].first) + 1
            waiters.setdefault(request, []).append(done)
        start = (self.offset[graph.chain] + graph.position).tolist()
        free = ((program.request >= 0) & (graph.chain <= graph.lanes)).tolist()
        request = program.request.tolist()
        return [
            waiters.get(request[op], []) if free[op] else [start[op] + 1]
            for op in range(program.ops)
        ]

    def needs(self, event: int) -> Iterator[_Need]:
        """All that an event of a lane or stream needs, the one before it included."""
        chain = self.chain_of[event]
        position = event - self.base[chain]
        if position:
            yield _Need(event - 1, 0)
        low, high = self.first[chain], self.first[chain + 1]
        while low < high:  # edges into a chain ascend by position
            middle = (low + high) // 2
            if self.to_position[middle] < position:
                low = middle + 1
            else:
                high = middle
        while low < self.first[chain + 1] and self.to_position[low] == position:
            yield _Need(self.source[low], 0)
            low += 1
        yield from self.transfers.get(event, ())

    def run(self) -> Clock:
        """Let everything happen as early as it can."""
        graph = self.graph
        time: list[Tick] = [UNKNOWN] * (self.events + 1)
        cause, via = [-1] * self.events, [-1] * self.events
        order: list[int] = []
        parked: dict[int, list[int]] = {}
        gates = {self.base[gate.chain]: gate.threshold for gate in graph.gates}
        watched: dict[int, list[int]] = {}
        for gate in graph.gates:
            for chain, position in gate.sources:
                watched.setdefault(self.base[chain] + position, []).append(self.base[gate.chain])
        heap: list[tuple[Tick, int]] = []

        def attempt(event: int) -> None:
            best: Tick = 0
            for need in self.needs(event):
                known = time[need.source]
                if known < 0:
                    parked.setdefault(need.source, []).append(event)
                    return
                if known + need.delay > best or (cause[event] < 0 and known + need.delay == best):
                    best = known + need.delay
                    cause[event], via[event] = need.source, need.row
            heappush(heap, (best + self.takes.get(event, 0), event))

        for chain in range(1, len(graph.length)):
            if graph.length[chain] and self.base[chain] not in gates:
                attempt(self.base[chain])
        while heap:
            now, event = heappop(heap)
            time[event] = now
            order.append(event)
            for waiting in parked.pop(event, ()):
                cause[waiting] = via[waiting] = -1
                attempt(waiting)
            for gate_event in watched.get(event, ()):
                gates[gate_event] -= 1
                if not gates[gate_event]:
                    cause[gate_event] = event
                    heappush(heap, (now, gate_event))
            chain = self.chain_of[event]
            if event + 1 < self.base[chain + 1]:
                attempt(event + 1)
        ends = [self.base[c + 1] - 1 for c in range(1, graph.lanes + 1) if graph.length[c]]
        finished = all(time[end] >= 0 for end in ends)
        return Clock(self.offset, time[:-1], order, cause, via, finished)

    def latest(self, clock: Clock, due: dict[int, Tick]) -> list[Tick]:
        """The latest time of every event that keeps every event of ``due`` in time; infinite
        where none of them depends on it."""
        late: list[Tick] = [float("inf")] * (self.events + 1)
        gates = {self.base[gate.chain] for gate in self.graph.gates}
        for event in reversed(clock.order):
            late[event] = min(late[event], due.get(event, late[event]))
            if late[event] == float("inf"):
                continue
            if event in gates:  # only the event that let it through counts
                needs: list[_Need] = [_Need(clock.cause[event], 0)]
            else:
                needs = list(self.needs(event))
            began = late[event] - self.takes.get(event, 0)
            for need in needs:
                late[need.source] = min(late[need.source], began - need.delay)
        return late[:-1]
