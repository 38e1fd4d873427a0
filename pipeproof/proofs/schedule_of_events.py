"""The certificate of deadlock freedom, and its checker.

A certificate gives every event of a program a time, in integers: when each op
starts and completes and when each end of a message is done. It is a
topological order of the events, written so that the rules of the format can be
checked one by one, without knowing how the order was found. The checker below
is written from PROGRAM_FORMAT ("Transport") and shares nothing with the
engines: it needs no search, only comparisons of times.

Times may be equal where the rules say "not before". They are strictly later
from op to op of a lane and from operation to operation of a stream, and every
circle of waits passes through one of those, so no circle has times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeproof.program.notation import message_text, op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import Grouping, Match, Progress, Streams, Transport

NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class EventTimes:
    """``start[i]`` and ``complete[i]`` of op i; ``done[r]`` of message row r.

    A posted operation starts when it may begin to move, which on a stream is
    later than its posting; ``posted[i]`` is when its lane passes it (equal to
    the start of every other op). ``NEVER`` stands for what does not happen and
    nobody waits for: the end of a posted operation that nothing meets.
    """

    posted: tuple[int, ...]
    start: tuple[int, ...]
    complete: tuple[int, ...]
    done: tuple[int, ...]


def verify(program: Program, transport: Transport, times: EventTimes) -> str | None:
    """None if the times are a legal complete execution; else the first rule broken."""
    sizes = (program.ops, program.ops, program.ops, len(program.messages.op))
    given = (len(times.posted), len(times.start), len(times.complete), len(times.done))
    if given != sizes:
        return "the certificate is for a program of another size"
    return next(_Checker(program, transport, times).objections(), None)


class _Checker:
    def __init__(self, program: Program, transport: Transport, times: EventTimes) -> None:
        self.program, self.transport, self.times = program, transport, times
        m = program.messages
        self.op: list[int] = m.op.tolist()
        self.send: list[bool] = m.send.tolist()
        self.rank: list[int] = m.rank.tolist()
        self.peer: list[int] = m.peer.tolist()
        self.request: list[int] = program.request.tolist()
        self.kind: list[int] = program.kind.tolist()
        self.waited: dict[int, list[int]] = defaultdict(list)  # request -> ops that wait
        self.waits: dict[int, list[int]] = defaultdict(list)  # op -> requests
        for op, request in zip(
            program.waits.op.tolist(), program.waits.request.tolist(), strict=True
        ):
            self.waited[request].append(op)
            self.waits[op].append(request)
        self.poster = {r: op for op, r in enumerate(self.request) if r >= 0}
        self.rows: dict[int, list[int]] = defaultdict(list)
        for row, op in enumerate(self.op):
            self.rows[op].append(row)
        self.sends, self.match = self._pairs()
        self.whole = self._wholes()

    def _pairs(self) -> tuple[dict[tuple[int, ...], list[int]], dict[int, int]]:
        """The sends of every channel in order, and the row that each row meets."""
        m = self.program.messages
        comm, payload = m.comm.tolist(), m.payload.tolist()
        sends: dict[tuple[int, ...], list[int]] = defaultdict(list)
        open_: tuple[dict[tuple[int, ...], list[int]], ...] = (
            defaultdict(list),
            defaultdict(list),
        )
        posted = self.times.posted
        for row in sorted(range(len(self.op)), key=lambda row: (posted[self.op[row]], row)):
            ends = (self.rank[row], self.peer[row])
            channel: tuple[int, ...] = (*(ends if self.send[row] else ends[::-1]), comm[row])
            if self.send[row]:
                sends[channel].append(row)
            key = channel if self.transport.match is Match.FIFO else (*channel, payload[row])
            open_[self.send[row]][key].append(row)
        match: dict[int, int] = {}
        for key, senders in open_[True].items():
            for s, r in zip(senders, open_[False][key], strict=False):
                match[s], match[r] = r, s
        return sends, match

    def _wholes(self) -> dict[int, int]:
        """When each atomic group is there as a whole: nothing of it meets before.

        Groups whose members meet are tied to each other: all of them must have
        started, and every single operation that meets one of their members.
        """
        whole: dict[int, int] = {}
        if self.transport.group is not Grouping.ATOMIC:
            return whole
        for op, kind in enumerate(self.kind):
            if kind != Kind.GROUP or op in whole:
                continue
            tied, frontier, there = {op}, [op], 0
            while frontier:
                group = frontier.pop()
                there = max(there, self.times.start[group])
                for row in self.rows[group]:
                    other = self.match.get(row)
                    if other is None:
                        there = NEVER
                        continue
                    there = max(there, self.times.start[self.op[other]])
                    if self._batch(other) and self.op[other] not in tied:
                        tied.add(self.op[other])
                        frontier.append(self.op[other])
            whole.update(dict.fromkeys(tied, there))
        return whole

    def objections(self) -> Iterator[str]:
        """Every rule that the times break."""
        yield from self._lanes()
        yield from self._waits()
        yield from self._streams()
        yield from self._ends()
        yield from self._slots()
        yield from self._collectives()
        yield from self._signals()

    def _name(self, op: int) -> str:
        return f"{op_text(self.program, op)} (rank {self.program.rank_of(op)})"

    def _lanes(self) -> Iterator[str]:
        t = self.times
        for lane in self.program.lanes:
            for op in range(lane.first, lane.stop):
                posted = self.request[op] >= 0
                passed = t.posted[op] if posted else t.complete[op]
                if op > lane.first:
                    before = op - 1
                    gone = t.posted if self.request[before] >= 0 else t.complete
                    if t.posted[op] <= gone[before]:
                        yield f"{self._name(op)} is reached before {self._name(before)} is passed"
                if not t.posted[op] <= t.start[op] <= t.complete[op] or passed < t.posted[op]:
                    yield f"{self._name(op)} completes before it starts"
                if passed >= NEVER:
                    yield f"{self._name(op)} is never passed, so its lane does not end"
                if not posted and t.start[op] != t.posted[op]:
                    yield f"{self._name(op)} blocks its lane, so it starts when it is reached"

    def _waits(self) -> Iterator[str]:
        t = self.times
        for op, requests in self.waits.items():
            for request in requests:
                if t.complete[op] < t.complete[self.poster[request]]:
                    yield f"{self._name(op)} goes on before {self._name(self.poster[request])}"

    def _streams(self) -> Iterator[str]:
        if self.transport.streams is Streams.FREE:
            return
        last: dict[tuple[int, ...], int] = {}
        for op in self._by_posting(self.poster.values()):
            for stream in self._streams_of(op):
                before = last.get(stream)
                start = self.times.start[op]
                if before is not None and NEVER > start <= self.times.complete[before]:
                    yield f"{self._name(op)} starts before {self._name(before)} leaves the stream"
                last[stream] = op

    def _streams_of(self, op: int) -> set[tuple[int, ...]]:
        if self.kind[op] == Kind.COLL and self.transport.streams is Streams.RANK:
            return {(self.program.rank_of(op),)}
        return {self._stream(row) for row in self.rows[op]}

    def _stream(self, row: int) -> tuple[int, ...]:
        rank, peer = self.rank[row], self.peer[row]
        if self.transport.streams is Streams.RANK:
            return (rank,)
        if self.transport.streams is Streams.PAIR:
            return (rank, peer)
        return (rank, peer, int(self.send[row] and rank != peer))

    def _ends(self) -> Iterator[str]:
        t = self.times
        for row, op in enumerate(self.op):
            text = message_text(self.program, row)
            if not t.start[op] <= t.done[row] <= t.complete[op]:
                yield f"{text} is done outside the time of {self._name(op)}"
            if t.done[row] < self._moves(row):
                yield f"{text} moves outside the wait for it"
            if not self.send[row] and t.done[row] < NEVER and not self._meets(row):
                yield f"{text} is done before its send has started, or has none"

    def _moves(self, row: int) -> int:
        """When a send of its own may move: inside the wait for it, where asked."""
        op = self.op[row]
        lazy = self.transport.isend_progress is Progress.AT_WAIT
        if not (lazy and self.send[row] and self.request[op] >= 0) or self.kind[op] == Kind.GROUP:
            return self.times.start[op]
        waiting = [self.times.start[w] for w in self.waited[self.request[op]]]
        return min(waiting, default=NEVER)

    def _meets(self, row: int) -> bool:
        """Whether row is done no earlier than both ends have started and may move."""
        other = self.match.get(row)
        if other is None:
            return False
        ends = (self.op[row], self.op[other])
        ready = max(self.times.start[op] for op in ends)
        ready = max(ready, self._moves(row), self._moves(other))
        ready = max(ready, *(self.whole.get(op, ready) for op in ends))
        return self.times.done[row] >= ready

    def _batch(self, row: int) -> bool:
        """Whether row is a member of an atomic group, which uses no slot."""
        atomic = self.transport.group is Grouping.ATOMIC
        return atomic and self.kind[self.op[row]] == Kind.GROUP

    def _slots(self) -> Iterator[str]:
        """Every send is done by meeting its receive, or into a free slot."""
        done, capacity = self.times.done, self.transport.capacity
        for rows in self.sends.values():
            read: list[int] = []  # when the earlier sends were read, sorted
            for n, row in enumerate(rows):
                met = self._meets(row)
                free = capacity is None or n - bisect_right(read, done[row]) < capacity
                never = done[row] >= NEVER
                if not never and not met and (not free or self._batch(row)):
                    yield (
                        f"{message_text(self.program, row)} is done although its receive has "
                        "not started and no slot is free"
                    )
                other = self.match.get(row)
                if other is not None:
                    at = bisect_right(read, done[other])
                    read.insert(at, done[other])

    def _collectives(self) -> Iterator[str]:
        """The i-th calls of a group's members complete after all have started."""
        calls: dict[tuple[str, int], list[int]] = defaultdict(list)
        attributes = self.program.details.attributes
        for op in self._by_posting(op for op, k in enumerate(self.kind) if k == Kind.COLL):
            calls[attributes[op].more["group"], self.program.rank_of(op)].append(op)
        for (group, _), own in calls.items():
            members = self.program.details.groups.get(group, range(self.program.ranks))
            for index, op in enumerate(own):
                others = [calls.get((group, m), [])[index : index + 1] for m in members]
                starts = [self.times.start[o[0]] if o else NEVER for o in others]
                if self.times.complete[op] < max(starts):
                    yield f"{self._name(op)} completes before all of {group} have called it"

    def _signals(self) -> Iterator[str]:
        """An AWAIT completes after a signal of its name on its rank."""
        attributes = self.program.details.attributes
        given: dict[tuple[int, str | None], int] = {}
        for op, kind in enumerate(self.kind):
            if kind == Kind.SIGNAL:
                key = (self.program.rank_of(op), attributes[op].label)
                given[key] = min(self.times.complete[op], given.get(key, NEVER))
        for op, kind in enumerate(self.kind):
            if kind == Kind.AWAIT:
                key = (self.program.rank_of(op), attributes[op].label)
                if self.times.complete[op] < given.get(key, NEVER):
                    yield f"{self._name(op)} goes on before its signal is given"

    def _by_posting(self, ops: Iterable[int]) -> list[int]:
        """Ops in the order of their posting, which the certificate itself states."""
        return sorted(ops, key=lambda op: (self.times.posted[op], op))
