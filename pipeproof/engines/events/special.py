"""Conditions that a single edge cannot say: slots out of order, atomic groups,
sends that only move inside their wait.

These are kept as the format states them and built op by op; programs that use
them are small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.events.edges import Joints
from pipeproof.engines.events.graph import NEVER, Event
from pipeproof.engines.events.pairing import Pairing
from pipeproof.engines.events.streams import Occupancy
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import Grouping, Progress, Streams, Transport

if TYPE_CHECKING:
    from pipeproof.program.programs import Bools, Longs


def special_rows(program: Program, transport: Transport, pairing: Pairing, fifo: Pairing) -> Bools:
    """Which message rows need more than the one edge of the rules in ``build``.

    ``fifo`` is the first-in-first-out pairing of the same program.
    """
    messages = program.messages
    kind, request = program.kind[messages.op], program.request[messages.op]
    rows = np.zeros(len(messages.op), np.bool_)
    grouped = kind == Kind.GROUP
    if transport.group is Grouping.ATOMIC:
        rows |= grouped
    lagging = (
        messages.send & ~grouped & (request >= 0)
        if transport.isend_progress is Progress.AT_WAIT
        else np.zeros_like(rows)
    )
    rows |= lagging
    met = rows & (pairing.match >= 0)
    rows[pairing.match[met]] = True
    if transport.capacity == 0 or transport.capacity is None:
        return rows
    # Slots: a channel whose ends do not start in order, or whose reads are not
    # what its n-th receive says, keeps the rule as it is.
    odd = rows | (pairing.match != fifo.match)
    if transport.streams is not Streams.FREE:
        posted = request >= 0
        channels = int(pairing.channel.max(initial=-1)) + 1
        for end in (messages.send, ~messages.send):
            has_posted = np.bincount(pairing.channel[end & posted], minlength=channels) > 0
            has_blocking = np.bincount(pairing.channel[end & ~posted], minlength=channels) > 0
            odd |= (has_posted & has_blocking)[pairing.channel]
    channels = int(pairing.channel.max(initial=-1)) + 1
    odd_channel = np.bincount(pairing.channel[odd], minlength=channels) > 0
    return rows | odd_channel[pairing.channel]


def special_conditions(
    program: Program,
    transport: Transport,
    pairing: Pairing,
    rows: Longs,
    occupied: Occupancy,
    joints: Joints,
) -> list[tuple[int, Event]]:
    """Pairs (row, event): the row completes after every event it is paired with."""
    return _Special(program, transport, pairing, occupied, joints).conditions(rows.tolist())


class _Special:
    def __init__(
        self,
        program: Program,
        transport: Transport,
        pairing: Pairing,
        occupied: Occupancy,
        joints: Joints,
    ) -> None:
        self.program = program
        self.transport = transport
        self.pairing = pairing
        self.occupied = occupied
        self.joints = joints
        self.op = program.messages.op.tolist()
        self.send = program.messages.send.tolist()
        self.match = pairing.match.tolist()
        self.kind = program.kind.tolist()
        self.waiter = program.waiters()
        self.go: dict[int, Event] = {}  # by group op

    def conditions(self, rows: list[int]) -> list[tuple[int, Event]]:
        return [(row, event) for row in rows for event in self._needs(row)]

    def _start(self, row: int) -> Event:
        op = self.op[row]
        return int(self.occupied.chain[op]), int(self.occupied.position[op])

    def _atomic(self, row: int) -> bool:
        return self.transport.group is Grouping.ATOMIC and self.kind[self.op[row]] == Kind.GROUP

    def _moving(self, send: int) -> list[Event]:
        """When a started send may move: inside its wait, where that is asked."""
        op = self.op[send]
        request = int(self.program.request[op])
        if (
            self.transport.isend_progress is Progress.ASYNC
            or request < 0
            or self.kind[op] == Kind.GROUP
        ):
            return []
        if request not in self.waiter:
            return [NEVER]
        waiter = self.waiter[request]
        lane = self.program.lane_of(waiter)
        return [(lane + 1, 2 * (waiter - self.program.lanes[lane].first))]

    def _meeting(self, row: int) -> list[Event]:
        """Both ends of the row's message have started and may move."""
        partner = self.match[row]
        if partner < 0:
            return [NEVER]
        send, recv = (row, partner) if self.send[row] else (partner, row)
        events = [self._start(send), self._start(recv), *self._moving(send)]
        for end in (send, recv):
            if self._atomic(end):
                events.append(self._group_go(self.op[end]))
        return events

    def _needs(self, row: int) -> list[Event]:
        if not self.send[row] or self._atomic(row) or self.transport.capacity == 0:
            return self._meeting(row)
        moving = self._moving(row)
        capacity = self.transport.capacity
        earlier = self._earlier_sends(row)
        if capacity is None or len(earlier) < capacity:
            return moving
        # A slot is free when fewer than `capacity` of the earlier sends are unread.
        reads = [self._read(send) for send in earlier]
        slot = self.joints.some_of(
            len(earlier) - capacity + 1, reads, f"a free slot for row {row}"
        )
        if self.match[row] < 0:
            return [*moving, slot]
        meeting = self.joints.all_of(self._meeting(row), f"the receive of row {row}")
        return [*moving, self.joints.some_of(1, (slot, meeting), f"a slot or receive, row {row}")]

    def _earlier_sends(self, row: int) -> list[int]:
        p = self.pairing
        first = int(p.sends_first[p.channel[row]])
        return [int(s) for s in p.sends[first : first + int(p.ordinal[row])]]

    def _read(self, send: int) -> Event:
        if self.match[send] < 0:
            return NEVER
        return self.joints.all_of(self._meeting(send), f"the read of row {send}")

    def _group_go(self, op: int) -> Event:
        """When an atomic group moves: everything it is tied to has been posted.

        Groups whose members meet are tied to each other; together they start
        when all of them, and every single operation that one of their members
        meets, have started.
        """
        if op in self.go:
            return self.go[op]
        tied, frontier, posted, whole = {op}, [op], set(), True
        while frontier:
            group = frontier.pop()
            posted.add((int(self.occupied.chain[group]), int(self.occupied.position[group])))
            for row in self.program.rows_of(group):
                partner = self.match[row]
                if partner < 0:
                    whole = False
                elif not self._atomic(partner):
                    posted.add(self._start(partner))
                elif self.op[partner] not in tied:
                    tied.add(self.op[partner])
                    frontier.append(self.op[partner])
        events = sorted(posted) if whole else [NEVER]
        go = self.joints.all_of(events, f"the whole batch of op {op}")
        for group in tied:
            self.go[group] = go
        return go
