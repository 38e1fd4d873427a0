"""Times of all events where ops and messages take time: the longest path over the
event graph.

Events happen as early as they can, in order of time, so that a condition that
needs some of several events gets the earliest of them. A compute op runs from
when all it waits for is there to its completion. A transfer starts when both ends
have started and takes its delay at both; where a send goes into a buffer, it is
done at once there, and the message is there a delay after the send has started.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeproof.engines.events.graph import EventGraph
from pipeproof.program.lanes import places_of_ops
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeproof.program.programs import Longs

    Ticks = NDArray[Any]  # of int64, or of float64

Tick = int | float
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Clock:
    """Times by event: all events of chain 0, then of chain 1, ... are numbered from 0.

    ``time`` is -1 for what never happens; ``order`` lists events in the order in
    which they happened; ``cause`` is the event that came last of those an event
    needs (-1: none), and ``via`` the message that it came by (-1: none).
    """

    time: list[Tick]
    order: list[int]
    cause: list[int]
    via: list[int]
    finished: bool


class Clockwork:
    """The event graph with durations: ``takes[op]`` of ops, ``delay[row]`` of messages,
    in ticks. ``run`` makes the `Clock`, ``latest`` what could come later.

    What event e needs is ``source[i]``, for i from ``first[e]`` to ``first[e + 1] - 1``:
    it comes ``delay[i]`` later at the earliest, because of message ``row[i]`` (-1: for
    any other reason). The event before it on its chain is not listed.
    """

    def __init__(self, program: Program, graph: EventGraph, takes: Ticks, delay: Ticks) -> None:
        self.program, self.graph = program, graph
        self.offset = np.concatenate(([0], np.cumsum(graph.length)))
        self.base: list[int] = self.offset.tolist()
        self.events = self.base[-1]  # also the number of the event that never happens
        self.chain_of = np.repeat(np.arange(len(graph.length)), graph.length).tolist()
        lane, place = places_of_ops(program)
        self.done = self.offset[lane + 1] + 2 * place + 1  # by op, on its lane
        lasts = np.zeros(self.events, takes.dtype)
        lasts[self.done] = takes
        self.takes: list[Tick] = lasts.tolist()

        edges = np.diff(graph.first)
        target = np.repeat(self.offset[:-1], edges) + graph.to_position
        source = self._event(graph.from_chain, graph.from_position)
        # Where time counts, a stream starts an op no sooner than its lane comes to it.
        streamed = np.flatnonzero(graph.chain > graph.lanes)
        target = np.concatenate((target, self._event(graph.chain, graph.position)[streamed]))
        source = np.concatenate((source, self.done[streamed] - 1))
        told, came, row = self._transfers()
        order = np.argsort(np.concatenate((target, told)), kind="stable")
        target = np.concatenate((target, told))[order]
        none = np.zeros(len(source), delay.dtype)
        self.first = np.concatenate(
            ([0], np.cumsum(np.bincount(target, minlength=self.events + 1)))
        ).tolist()
        self.source = np.concatenate((source, came))[order].tolist()
        self.delay: list[Tick] = np.concatenate((none, delay[row]))[order].tolist()
        self.row = np.concatenate((np.full(len(source), -1), row))[order].tolist()

    def _event(self, chain: Longs, position: Longs) -> Longs:
        return np.where(chain == 0, self.events, self.offset[chain] + position)

    def _transfers(self) -> tuple[Longs, Longs, Longs]:
        """(event, what it needs, message row): starts of both ends of messages, needed by
        the completion of the op that posts them, or on free streams of those that wait."""
        program, graph, messages = self.program, self.graph, self.program.messages
        row, chain, position = graph.needs
        needed = self._event(chain, position)
        start = self._event(graph.chain, graph.position)  # by op
        if program.transport.capacity == 0:
            row = np.concatenate((row, np.arange(len(messages.op))))
            needed = np.concatenate((needed, start[messages.op]))
        else:
            # The receive alone takes time, from when its send has a slot and has started.
            other = graph.match[row]
            lends = messages.send[row] & (other >= 0)
            own = ~messages.send[row]
            row, needed = (
                np.concatenate((row[own], other[lends])),
                np.concatenate((needed[own], needed[lends])),
            )
        poster = messages.op[row]
        request = program.request[poster]
        free = (request >= 0) & (graph.chain[poster] <= graph.lanes)
        waits = program.waits
        order = np.argsort(waits.request, kind="stable")
        count = np.bincount(waits.request, minlength=int(program.request.max(initial=-1)) + 1)
        begin = np.cumsum(count) - count
        many = count[request[free]]
        index = np.repeat(begin[request[free]] - (np.cumsum(many) - many), many)
        waiter = waits.op[order[index + np.arange(len(index))]]
        return (
            np.concatenate((start[poster[~free]] + 1, self.done[waiter])),
            np.concatenate((needed[~free], np.repeat(needed[free], many))),
            np.concatenate((row[~free], np.repeat(row[free], many))),
        )

    def run(self) -> Clock:
        """Let everything happen as early as it can."""
        graph, base, chain_of = self.graph, self.base, self.chain_of
        first, source, delay, row = self.first, self.source, self.delay, self.row
        takes = self.takes
        time: list[Tick] = [UNKNOWN] * (self.events + 1)
        cause, via = [-1] * self.events, [-1] * self.events
        order: list[int] = []
        parked: dict[int, list[int]] = {}
        gates = {base[gate.chain]: gate.threshold for gate in graph.gates}
        watched: dict[int, list[int]] = {}
        for gate in graph.gates:
            for chain, position in gate.sources:
                watched.setdefault(base[chain] + position, []).append(base[gate.chain])
        heap: list[tuple[Tick, int]] = []

        def attempt(event: int) -> None:
            """Set when an event happens, or have it tried again when what it lacks has."""
            best: Tick = 0
            last = via_row = -1
            if event > base[chain_of[event]]:
                best, last = time[event - 1], event - 1
            for by in range(first[event], first[event + 1]):
                known = time[source[by]]
                if known < 0:
                    parked.setdefault(source[by], []).append(event)
                    return
                known += delay[by]
                if known > best or last < 0:
                    best, last, via_row = known, source[by], row[by]
            cause[event], via[event] = last, via_row
            heappush(heap, (best + takes[event], event))

        for chain in range(1, len(graph.length)):
            if graph.length[chain] and base[chain] not in gates:
                attempt(base[chain])
        while heap:
            now, event = heappop(heap)
            time[event] = now
            order.append(event)
            if event in parked:
                for waiting in parked.pop(event):
                    attempt(waiting)
            for gate_event in watched.get(event, ()):
                gates[gate_event] -= 1
                if not gates[gate_event]:
                    cause[gate_event] = event
                    heappush(heap, (now, gate_event))
            if event + 1 < base[chain_of[event] + 1]:
                attempt(event + 1)
        ends = [base[c + 1] - 1 for c in range(1, graph.lanes + 1) if graph.length[c]]
        finished = all(time[end] >= 0 for end in ends)
        return Clock(time[:-1], order, cause, via, finished)

    def latest(self, clock: Clock, due: dict[int, Tick]) -> list[Tick]:
        """The latest time of every event that keeps every event of ``due`` in time; infinite
        where none of them depends on it."""
        late: list[Tick] = [float("inf")] * (self.events + 1)
        gates = {self.base[gate.chain] for gate in self.graph.gates}
        for event in reversed(clock.order):
            late[event] = min(late[event], due.get(event, late[event]))
            if late[event] == float("inf"):
                continue
            began = late[event] - self.takes[event]
            if event in gates:  # only the event that let it through counts
                late[clock.cause[event]] = min(late[clock.cause[event]], began)
                continue
            if event > self.base[self.chain_of[event]]:
                late[event - 1] = min(late[event - 1], began)
            for by in range(self.first[event], self.first[event + 1]):
                source = self.source[by]
                late[source] = min(late[source], began - self.delay[by])
        return late[:-1]
