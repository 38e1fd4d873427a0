"""The machine: a program as states and the smallest moves between them.

A lane that stands at a blocking send, receive, group or collective has posted
it; one that stands at an op with waits is inside its wait. Moves:

=====  ======================================================================
step   a lane completes its op: what it waits for has completed, and the
       signal of an AWAIT was given. A posted operation is posted so. Where
       lanes of a rank share a queue, posting a blocking one is a step too.
slot   a send completes into a buffer slot: its channel has fewer than
       ``capacity`` unread sends before it.
take   a message moves: its receive completes, and its send if it has not.
meet   the calls of all members of a group complete.
=====  ======================================================================

A blocking op whose messages are done completes with the last of them, and the
lane arrives at the next op. Splitting a move further (a receive that completes
after its send, a lane that arrives later) gives more states and no other ends:
such parts are enabled until they are made, and nothing else needs them undone.

*Certain* moves are those that no other move can disable, and whose effect does
not depend on when they are made. All moves are certain but these:

* a receive from any sender takes a message while another sender has, or may
  still post, a message that it could take instead;
* a lane posts into a queue into which another lane may still post.

For the rest. A step, a slot or a meeting needs what has happened, and nothing
unhappens: positions, completed ends, reads and signals only grow. The message
that a receive takes in a pool without receives from any sender is its n-th;
in a pool with them, a receive that names its sender takes that sender's first
untaken message, which no other receive may take, being later than it; so does
a receive from any where a single sender has anything left to send. So a certain
move t commutes with every move that is possible before it: {t} is a persistent
set, and a search that makes t alone reaches every end that a search of all
moves reaches, by the same takes (Godefroid; the state space has no cycles).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from pipeproof.engines.explore.tables import NOBODY, Pool, Queue, Tables
from pipeproof.program.ops import Kind
from pipeproof.program.programs import ANY, Program
from pipeproof.program.transports import Grouping, Progress, Transport


class Move(NamedTuple):
    """``number`` is a lane (step), a send (slot, take) or a call (meet); ``other`` the
    receive that takes the send."""

    what: Literal["step", "slot", "take", "meet"]
    number: int
    other: int = NOBODY


class State(NamedTuple):
    """``at`` has 2 op + 1 for a lane that has posted op and stands at it, else 2 op;
    the rest are sets as bits: message rows that are ``done``, sends ``read``, calls
    that have ``met``. ``orders``: what was posted into each shared queue."""

    at: tuple[int, ...]
    done: int
    read: int
    met: int
    orders: tuple[tuple[int, ...], ...]


class Machine:
    """A program under a transport."""

    def __init__(self, program: Program, transport: Transport) -> None:
        self.tables = Tables(program, transport)
        self._capacity = transport.capacity
        self._atomic = transport.group is Grouping.ATOMIC
        self._at_wait = transport.isend_progress is Progress.AT_WAIT
        # Blocking ops that are posted on arrival.
        t = self.tables
        self._on_arrival = [
            t.posts[op] and not t.posts_request[op] and not t.awaited[op] and not t.shared_by[op]
            for op in range(t.ops)
        ]

    def initial(self) -> State:
        """Every lane at its first op."""
        at = tuple(self._arrival(low, high) for low, high in self.tables.lanes)
        return State(at, 0, 0, 0, tuple(() for _ in self.tables.shared))

    # --- what is so in a state -----------------------------------------------------

    def _arrival(self, op: int, stop: int) -> int:
        return 2 * op + (op < stop and self._on_arrival[op] and self._outstanding(op))

    def _outstanding(self, op: int) -> bool:
        """Whether there is anything to wait for once a blocking op is posted."""
        return bool(self.tables.rows[op]) or op in self.tables.calls

    def _posted(self, state: State, op: int) -> bool:
        return state.at[self.tables.lane_of[op]] > 2 * op

    def _complete(self, state: State, op: int) -> bool:
        if op == NOBODY or not self._posted(state, op):
            return False
        unmet = op in self.tables.calls and not state.met >> op & 1
        return not unmet and not self.tables.row_bits[op] & ~state.done

    def pending(self, state: State) -> tuple[int, ...]:
        """The operations that are posted and not complete."""
        posted = (op for op, posts in enumerate(self.tables.posts_request) if posts)
        return tuple(
            op for op in posted if self._posted(state, op) and not self._complete(state, op)
        )

    def _order(self, state: State, queue: Queue) -> tuple[int, ...] | list[int]:
        """The users of a queue in the order of posting; where that is the program's,
        those that are not posted yet stand at the end."""
        return queue.users if queue.number is None else state.orders[queue.number]

    def _started(self, state: State, op: int) -> bool:
        """Posted, and first on all its streams."""
        if not self._posted(state, op):
            return False
        for stream in self.tables.streams[op]:
            for before in self._order(state, stream):
                if before == op:
                    break
                if not self._complete(state, before):
                    return False
        return True

    def _live(self, state: State, send: int) -> bool:
        """Whether the transport works on a started send now."""
        t, op = self.tables, self.tables.op[send]
        if not self._at_wait or t.kind[op] != Kind.SEND or not t.posts_request[op]:
            return True
        return any(state.at[t.lane_of[w]] >> 1 == w for w in t.waiters[op])

    def _slot(self, state: State, send: int) -> bool:
        t = self.tables
        if self._atomic and t.kind[t.op[send]] == Kind.GROUP:
            return False
        if self._capacity is None:
            return True
        channel = t.channel[send]
        if channel is None or channel.number is None:
            return (t.earlier_sends[send] & ~state.read).bit_count() < self._capacity
        earlier = self._before(state, channel, send)
        return (earlier & ~state.read).bit_count() < self._capacity

    def _mate(self, state: State, row: int) -> int:
        """The other end of a message in a pool without receives from any sender."""
        t = self.tables
        if row in t.mate:
            return t.mate[row]
        pool = t.pool[row]
        sender = t.rank[row] if t.send[row] else t.peer[row]
        sends, receives = pool.sends.get(sender), pool.named.get(sender)
        if sends is None or receives is None:
            return NOBODY
        ours = self._order(state, sends if t.send[row] else receives)
        theirs = self._order(state, receives if t.send[row] else sends)
        if row not in ours:
            return NOBODY
        nth = ours.index(row)
        return theirs[nth] if nth < len(theirs) else NOBODY

    def _whole(self, state: State, op: int) -> bool:
        """Whether the batches tied to ``op`` by their messages, and all that they meet,
        have started; true of an op that no batch is tied to."""
        t = self.tables
        found, frontier = {op}, [op]
        while frontier:
            one = frontier.pop()
            group = t.kind[one] == Kind.GROUP
            for row in t.rows[one]:
                mate = self._mate(state, row)
                other = t.op[mate] if mate != NOBODY else NOBODY
                if group and (other == NOBODY or not self._started(state, other)):
                    return False
                if other not in (NOBODY, *found) and (group or t.kind[other] == Kind.GROUP):
                    found.add(other)
                    frontier.append(other)
        return all(self._started(state, one) for one in found)

    # --- moves -----------------------------------------------------------------------

    def moves(self, state: State) -> list[Move]:
        """All moves that can be made."""
        found = [Move("step", n) for n in range(len(state.at)) if self._may_step(state, n)]
        t, posted = self.tables, 0
        for lane, code in enumerate(state.at):
            posted |= t.rows_before((code + 1) >> 1, lane)
        for row in _bits(posted & ~state.done):
            if t.send[row]:
                if self._may_slot(state, row):
                    found.append(Move("slot", row))
            else:
                found += [Move("take", send, row) for send in self._takes(state, row, posted)]
        for op in t.calls:
            if self._posted(state, op) and not state.met >> op & 1 and self._may_meet(state, op):
                found.append(Move("meet", op))
        return found

    def _may_step(self, state: State, lane: int) -> bool:
        t, code = self.tables, state.at[lane]
        op = code >> 1
        if code & 1 or op == t.lanes[lane][1]:
            return False  # a posted blocking op completes with its messages
        if t.awaited[op]:
            complete = (self._complete(state, posted) for posted in t.awaited[op])
            if not (any(complete) if t.any_one[op] else all(complete)):
                return False
        if op in t.signals:
            return any(self._posted(state, signal) for signal in t.signals[op])
        return True

    def _may_slot(self, state: State, send: int) -> bool:
        return (
            self._capacity != 0
            and self._started(state, self.tables.op[send])
            and self._live(state, send)
            and self._slot(state, send)
        )

    def _takes(self, state: State, receive: int, posted: int) -> Iterator[int]:
        """The sends that a posted receive can take now."""
        t = self.tables
        pool = t.pool[receive]
        if pool.wild:
            yield from self._wild_takes(state, receive, pool, posted)
            return
        send = self._mate(state, receive)
        if send == NOBODY or not posted >> send & 1:
            return
        one, other = t.op[send], t.op[receive]
        if not (self._started(state, one) and self._started(state, other)):
            return
        if not (state.done >> send & 1 or self._live(state, send)):
            return
        if self._atomic and not self._whole(state, other):
            return
        yield send

    def _wild_takes(self, state: State, receive: int, pool: Pool, posted: int) -> Iterator[int]:
        """The first untaken message of each sender that no earlier receive claims."""
        t = self.tables
        earlier = self._before(state, pool.receives, receive) & ~state.done
        if earlier & pool.from_any:
            return
        for sender, queue in pool.sends.items():
            if t.peer[receive] not in (ANY, sender):
                continue
            if earlier and sender in pool.named and earlier & pool.named[sender].bits:
                continue
            send = self._first_unread(state, queue)
            if send != NOBODY and posted >> send & 1:
                yield send

    def _before(self, state: State, queue: Queue, row: int) -> int:
        """The rows that stand before this one in its queue, as bits."""
        if queue.number is None:  # along a lane, rows ascend
            return queue.bits & ((1 << row) - 1)
        order = state.orders[queue.number]
        return sum(1 << other for other in order[: order.index(row)])

    def _first_unread(self, state: State, queue: Queue) -> int:
        left = queue.bits & ~state.read
        if queue.number is None:
            return (left & -left).bit_length() - 1
        return next((s for s in state.orders[queue.number] if left >> s & 1), NOBODY)

    def _may_meet(self, state: State, op: int) -> bool:
        """Whether all calls that meet have started; asked of the first of them."""
        calls = self._meeting(state, op)
        return bool(calls) and min(calls) == op and all(self._started(state, c) for c in calls)

    def _meeting(self, state: State, op: int) -> list[int]:
        """The calls that meet with op's, none where one of them is not made yet."""
        own, members = self.tables.calls[op]
        nth = self._order(state, own).index(op)
        calls = []
        for queue in members:
            order = self._order(state, queue)
            if nth >= len(order):
                return []
            calls.append(order[nth])
        return calls

    def certain(self, state: State, move: Move) -> bool:
        """Whether the move can be made at once, before all others."""
        t = self.tables
        if move.what == "take":
            pool = t.pool[move.number]
            if not pool.wild or t.peer[move.other] != ANY:
                return True
            return sum(bool(q.bits & ~state.read) for q in pool.sends.values()) == 1
        if move.what == "step":
            op = state.at[move.number] >> 1
            return all(
                lane == move.number or state.at[lane] > 2 * last
                for queue, _ in t.shared_by[op]
                for lane, last in queue.last.items()
            )
        return True

    def decides(self, state: State, move: Move) -> bool:
        """Whether the move settles what the program leaves open: which message a receive
        takes, or which lane posts first."""
        t = self.tables
        if move.what == "take":
            return t.pool[move.number].wild
        return move.what == "step" and bool(t.shared_by[state.at[move.number] >> 1])

    def apply(self, state: State, move: Move) -> State:
        """The state after a move."""
        t, at, orders = self.tables, list(state.at), state.orders
        done, read, met = state.done, state.read, state.met
        touched: list[int] = []
        if move.what == "step":
            op = at[move.number] >> 1
            if t.shared_by[op]:
                lists = list(orders)
                for queue, user in t.shared_by[op]:
                    if queue.number is not None:
                        lists[queue.number] = (*lists[queue.number], user)
                orders = tuple(lists)
            if t.posts[op] and not t.posts_request[op] and self._outstanding(op):
                at[move.number] = 2 * op + 1
            else:
                at[move.number] = self._arrival(op + 1, t.lanes[move.number][1])
        elif move.what == "slot":
            done |= 1 << move.number
            touched = [t.op[move.number]]
        elif move.what == "take":
            done |= 1 << move.number | 1 << move.other
            read |= 1 << move.number
            touched = [t.op[move.number], t.op[move.other]]
        else:
            touched = self._meeting(state, move.number)
            for op in touched:
                met |= 1 << op
        for op in touched:
            lane = t.lane_of[op]
            unmet = op in t.calls and not met >> op & 1
            if at[lane] == 2 * op + 1 and not unmet and not t.row_bits[op] & ~done:
                at[lane] = self._arrival(op + 1, t.lanes[lane][1])
        return State(tuple(at), done, read, met, orders)


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
