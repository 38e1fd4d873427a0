"""What is fixed before the first move: who posts what, where, and for whom.

*Queues* are wherever the order of posting counts: the ends of a channel, the
calls of a group by one rank, a stream. The queue that one lane alone posts into
has its order from the program; one that several lanes share gets its order from
the execution, so that order is part of the state (`Queue.number`).

Messages find each other within a *pool*: what one rank may receive on one
communicator (with tags: under one payload). In a pool that no receive from any
sender touches, the n-th send of each sender meets the n-th receive that names
it. In a *wild* pool which send a receive takes is settled by the execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pipeproof.program.ops import Kind
from pipeproof.program.programs import ANY, Program
from pipeproof.program.transports import Grouping, Match, Progress, Streams, Transport

NOBODY = -1


@dataclass(slots=True)
class Queue:
    """``users`` (rows or ops) in program order, also as ``bits``, and for each lane the
    last op that posts here. ``number`` is the queue's place in the state where several lanes
    share it, None where program order is the order of posting."""

    users: list[int] = field(default_factory=list)
    bits: int = 0
    last: dict[int, int] = field(default_factory=dict)  # by lane
    number: int | None = None


@dataclass(slots=True)
class Pool:
    """The receives of a pool in one queue, its sends in one a sender."""

    receives: Queue = field(default_factory=Queue)
    sends: dict[int, Queue] = field(default_factory=dict)  # by sender
    named: dict[int, Queue] = field(default_factory=dict)  # receives, by the sender they name
    wild: bool = False
    from_any: int = 0  # the receives from any sender, as bits


class Tables:
    """The program and its transport, laid out for the machine.

    ``awaited[op]`` are the ops whose completion op waits for (``NOBODY`` never
    completes), of which one is enough where ``any_one[op]``.
    """

    def __init__(self, program: Program, transport: Transport) -> None:
        self.ops = program.ops
        self.kind: list[int] = program.kind.tolist()
        self.posts_request = [r >= 0 for r in program.request.tolist()]
        self.lanes = [(lane.first, lane.stop) for lane in program.lanes]
        self.lane_of = [n for n, (low, high) in enumerate(self.lanes) for _ in range(low, high)]
        self.rank_of = [program.lanes[lane].rank for lane in self.lane_of]

        m = program.messages
        self.op: list[int] = m.op.tolist()
        self.send: list[bool] = m.send.tolist()
        self.peer: list[int] = m.peer.tolist()
        self.rank: list[int] = m.rank.tolist()
        self.rows: list[list[int]] = [[] for _ in range(self.ops)]
        for row, op in enumerate(self.op):
            self.rows[op].append(row)

        self._waits(program)
        self._signals(program)
        self._messages(program, transport)
        self._streams(transport)
        self._calls(program)
        self.shared = [queue for queue in self._counting(transport) if len(queue.last) > 1]
        for number, queue in enumerate(self.shared):
            queue.number = number
        self.shared_by: list[list[tuple[Queue, int]]] = [[] for _ in range(self.ops)]
        for queue, users in self._users_by_op():
            for op, user in users:
                self.shared_by[op].append((queue, user))

        self.posts = [
            bool(self.rows[op]) or self.posts_request[op] or self.kind[op] == Kind.COLL
            for op in range(self.ops)
        ]
        self.row_bits = [sum(1 << row for row in rows) for rows in self.rows]
        self._before: list[int] = []  # rows of the ops before each op on its lane
        for low, high in self.lanes:
            bits = 0
            for op in range(low, high):
                self._before.append(bits)
                bits |= self.row_bits[op]
        self.lane_bits = [sum(self.row_bits[low:high]) for low, high in self.lanes]
        self._static_orders()

    def rows_before(self, op: int, lane: int) -> int:
        """The rows that a lane has posted when it stands before ``op``, as bits."""
        return self._before[op] if op < self.lanes[lane][1] else self.lane_bits[lane]

    # --- who waits for whom ------------------------------------------------------

    def _waits(self, program: Program) -> None:
        poster = {r: op for op, r in enumerate(program.request.tolist()) if r >= 0}
        self.awaited: list[list[int]] = [[] for _ in range(self.ops)]
        self.waiters: list[list[int]] = [[] for _ in range(self.ops)]
        pairs = zip(program.waits.op.tolist(), program.waits.request.tolist(), strict=True)
        for op, request in pairs:
            posted = poster.get(request, NOBODY)
            self.awaited[op].append(posted)
            if posted != NOBODY:
                self.waiters[posted].append(op)
        self.any_one = [kind == Kind.WAITANY for kind in self.kind]

    def _signals(self, program: Program) -> None:
        """For each AWAIT the SIGNALs of its rank and name."""
        label = {op: a.label for op, a in program.details.attributes.items()}
        given: dict[tuple[int, str | None], list[int]] = {}
        for op, kind in enumerate(self.kind):
            if kind == Kind.SIGNAL:
                given.setdefault((self.rank_of[op], label.get(op)), []).append(op)
        self.signals = {
            op: given.get((self.rank_of[op], label.get(op)), [])
            for op, kind in enumerate(self.kind)
            if kind == Kind.AWAIT
        }

    # --- who meets whom ----------------------------------------------------------

    def _join(self, queue: Queue, user: int, op: int) -> Queue:
        queue.users.append(user)
        queue.bits |= 1 << user
        queue.last[self.lane_of[op]] = op
        return queue

    def _messages(self, program: Program, transport: Transport) -> None:
        pools: dict[tuple[int, ...], Pool] = {}
        channels: dict[tuple[int, int, int], Queue] = {}
        self.pool: list[Pool] = []
        self.channel: list[Queue | None] = []  # by row: the sends of its channel
        payloads, comms = program.messages.payload.tolist(), program.messages.comm.tolist()
        for row, op in enumerate(self.op):
            receiver = self.peer[row] if self.send[row] else self.rank[row]
            name: tuple[int, ...] = (receiver, comms[row])
            if transport.match is Match.TAG:
                name = (*name, payloads[row])
            pool = pools.get(name)
            if pool is None:
                pool = pools[name] = Pool()
            self.pool.append(pool)
            self.channel.append(None)
            if self.send[row]:
                sends = pool.sends.get(self.rank[row]) or Queue()
                pool.sends[self.rank[row]] = self._join(sends, row, op)
                ends = (self.rank[row], receiver, comms[row])
                channel = channels.get(ends) or Queue()
                self.channel[row] = channels[ends] = self._join(channel, row, op)
            elif self.peer[row] == ANY:
                pool.wild = True
                pool.from_any |= 1 << row
                self._join(pool.receives, row, op)
            else:
                named = pool.named.get(self.peer[row]) or Queue()
                pool.named[self.peer[row]] = self._join(named, row, op)
                self._join(pool.receives, row, op)
        self.pools = list(pools.values())

    def _streams(self, transport: Transport) -> None:
        """The streams that each posted operation stands on, by rank."""
        self.streams: list[list[Queue]] = [[] for _ in range(self.ops)]
        if transport.streams is Streams.FREE:
            return
        named: dict[tuple[int, ...], Queue] = {}
        for op in range(self.ops):
            if not self.posts_request[op]:
                continue
            names: dict[tuple[int, ...], None] = {}
            for row in self.rows[op]:
                me, other = self.rank[row], self.peer[row]
                if transport.streams is Streams.RANK:
                    names[(me,)] = None
                elif transport.streams is Streams.PAIR:
                    names[(me, other)] = None
                else:  # a message of a rank to itself has one stream
                    names[(me, other, int(self.send[row] and me != other))] = None
            if self.kind[op] == Kind.COLL and transport.streams is Streams.RANK:
                names[(self.rank_of[op],)] = None
            for name in names:
                queue = named.get(name) or Queue()
                named[name] = self._join(queue, op, op)
                self.streams[op].append(queue)

    def _calls(self, program: Program) -> None:
        """For each call of a collective the queues of all members of its group."""
        self.calls: dict[int, tuple[Queue, list[Queue]]] = {}
        queues: dict[tuple[str, int], Queue] = {}
        groups = program.details.groups
        for op in range(self.ops):
            if self.kind[op] != Kind.COLL:
                continue
            group = program.details.attributes[op].more["group"]
            members = groups.get(group, range(program.ranks))
            for rank in members:
                if (group, rank) not in queues:
                    queues[group, rank] = Queue()
            own = self._join(queues[group, self.rank_of[op]], op, op)
            self.calls[op] = (own, [queues[group, rank] for rank in members])

    def _counting(self, transport: Transport) -> list[Queue]:
        """The queues in which the order of posting makes a difference."""
        queues: list[Queue] = []
        for pool in self.pools:
            queues += pool.sends.values()
            queues += [pool.receives] if pool.wild else pool.named.values()
        if transport.capacity:  # a slot is free, or not, whatever else is posted
            queues += _distinct(channel for channel in self.channel if channel is not None)
        self._of_rows = {id(queue) for queue in queues}
        queues += _distinct(stream for streams in self.streams for stream in streams)
        queues += _distinct(own for own, _ in self.calls.values())
        return queues

    def _users_by_op(self) -> Iterator[tuple[Queue, Iterable[tuple[int, int]]]]:
        """The queues that several lanes share, with (op, user)."""
        for queue in self.shared:
            ops: Sequence[int] = queue.users
            if id(queue) in self._of_rows:
                ops = [self.op[row] for row in queue.users]
            yield queue, zip(ops, queue.users, strict=True)

    def _static_orders(self) -> None:
        """What follows from orders that the program fixes: mates, and what must be
        over before an op starts on its stream or a send counts as the first."""
        self.mate: dict[int, int] = {}
        for pool in self.pools:
            if pool.wild:
                continue
            for sender, sends in pool.sends.items():
                receives = pool.named.get(sender)
                if receives is None or sends.number is not None or receives.number is not None:
                    continue
                for one, other in zip(sends.users, receives.users, strict=False):
                    self.mate[one], self.mate[other] = other, one
        self.earlier_sends: dict[int, int] = {}
        for queue in _distinct(channel for channel in self.channel if channel is not None):
            bits = 0
            for row in queue.users:
                self.earlier_sends[row] = bits
                bits |= 1 << row


def _distinct(queues: Iterable[Queue]) -> list[Queue]:
    return list({id(queue): queue for queue in queues}.values())


def objection(program: Program, transport: Transport) -> str | None:
    """Why the program format leaves open what this program does, if it does.

    Where a receive from any sender takes part, a message is taken when both ends
    are posted. What that means for ends that are posted and may not start, or
    not move, is not said: a batch that moves only as a whole, a stream whose
    other end is open, a send that moves only at its wait.
    """
    tables = Tables(program, transport)
    at_wait = transport.isend_progress is Progress.AT_WAIT
    lazy = [
        at_wait and tables.posts_request[op] and tables.kind[op] == Kind.SEND
        for op in range(tables.ops)
    ]
    for pool in tables.pools:
        if not pool.wild:
            continue
        rows = [*pool.receives.users, *(row for q in pool.sends.values() for row in q.users)]
        ops = [tables.op[row] for row in rows]
        if transport.streams is not Streams.FREE and any(tables.posts_request[op] for op in ops):
            return "on which stream a posted receive from any sender waits its turn"
        if transport.group is Grouping.ATOMIC and any(tables.kind[op] == Kind.GROUP for op in ops):
            return "when a batch that moves only as a whole meets a receive from any sender"
        if any(lazy[op] for op in ops):
            return "when a receive from any sender takes a send that moves only at its wait"
    for op in range(tables.ops):
        several = tables.any_one[op] and len(tables.awaited[op]) > 1
        if several and any(posted != NOBODY and lazy[posted] for posted in tables.awaited[op]):
            return "whether a send that moves only at its wait moves in a WAITANY"
    return None
