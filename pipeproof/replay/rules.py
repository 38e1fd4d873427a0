"""The rules of the model executor: the states of a program, and its smallest moves.

This is the operational reading of the program format, as literal as it can be,
and the engines are compared with it. Every rule of a transport is a method here.

===========  ============================================================
move         enabled when
===========  ============================================================
enter lane   the lane is between two ops. An op without waits posts what
             it posts at once; one with waits is now *inside its wait*.
post lane    the lane is inside the wait of an op that also posts, and
             what it waits for has completed (for a WAITANY: one of it).
start op     the asynchronous op is posted and heads every stream that it
             occupies. (Without streams, and for blocking ops, posting
             starts the op.)
take send    a receive from any sender, or beside such a one, has started, and so
             has a send that it may take (``choices``): the two are paired.
finish row   a receive: it and its send have *met*, and the send is live
             or has completed. A send: it is live, and has met its
             receive or may use a buffer slot.
meet op      the op calls a collective and has started, and so have the
             calls of all other members of its group that meet it.
leave lane   the current op is entered, what it waits for has completed,
             and what it posted is asynchronous or has completed; an AWAIT
             in addition needs its signal to have been given.
===========  ============================================================

*Met*: paired, both ops started and, where groups are atomic, all parties of
their cluster of groups started. *Live*: always, except that a transport
without progress of its own moves an asynchronous send only while its rank is
inside the wait for it. Compute and all bookkeeping ops do nothing here: data
needs, allocations and slots are obligations, they never block.

No move disables another, except that a message is taken once, and that lanes
of one rank may race for a place on a stream that they share. Without that, all
maximal runs end in the same state; the exhaustive search of the tests takes
every order and finds that one end. Messages are paired in program order: two
lanes that post on one channel without order between them are a race, and no
matter of this room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import Grouping, Progress, Transport
from pipeproof.replay.choices import Choices, Unsupported, left_open
from pipeproof.replay.layout import (
    NOBODY,
    channels_of,
    clusters_of,
    meetings_of,
    pairing,
    ranges,
    streams_of,
)
from pipeproof.replay.state import Move, State, WhatAlone


class Rules:
    """A program under a transport: its states, and the moves between them."""

    def __init__(self, program: Program, transport: Transport) -> None:
        self._choices = Choices(program, transport.match)
        unknown = left_open(program, transport, self._choices.rows)
        if unknown is not None:
            raise Unsupported(unknown)

        self._at_wait = transport.isend_progress is Progress.AT_WAIT
        self._atomic = transport.group is Grouping.ATOMIC
        self._capacity = transport.capacity

        # Ops and lanes.
        self._kind: list[int] = program.kind.tolist()
        self._request: list[int] = program.request.tolist()
        self._first = [lane.first for lane in program.lanes]
        self._stop = [lane.stop for lane in program.lanes]
        self._lane = [
            n for n, lane in enumerate(program.lanes) for _ in range(lane.first, lane.stop)
        ]

        # Message rows: the rows of an op are a range.
        self._op: list[int] = program.messages.op.tolist()
        self._send: list[bool] = program.messages.send.tolist()
        self._pairing = pairing(program, transport.match)
        for row in self._choices.rows:
            self._pairing[row] = NOBODY  # until it takes, or is taken
        self._rows = ranges(self._op, program.ops)

        # Waits: by op the ops that post what it waits for, and by op those that wait.
        poster = {r: op for op, r in enumerate(self._request) if r >= 0}
        if len(poster) != sum(r >= 0 for r in self._request):
            raise ValueError("a request number is posted twice")
        self._awaited: dict[int, list[int]] = {}
        self._waiters: dict[int, list[int]] = {}
        for op, request in zip(
            program.waits.op.tolist(), program.waits.request.tolist(), strict=True
        ):
            # A request that nobody posts never completes.
            self._awaited.setdefault(op, []).append(poster.get(request, NOBODY))
            if request in poster:
                self._waiters.setdefault(poster[request], []).append(op)
        self._one_enough = [kind == Kind.WAITANY for kind in self._kind]
        self._streams, self._stream_count = streams_of(program, transport.streams)
        self._channel, self._position, self._sends = channels_of(program)
        self._cluster, self._parties = (
            clusters_of(program, self._pairing) if self._atomic else ({}, [])
        )

        self._meeting, self._members = meetings_of(program)
        self._rank = [program.lanes[lane].rank for lane in self._lane]
        self._label = {op: a.label for op, a in program.details.attributes.items()}

        self._rules: dict[WhatAlone, Callable[[State, int], bool]] = {
            "enter": self._may_enter,
            "post": self._may_post,
            "start": self._may_start,
            "finish": self._may_finish,
            "meet": self._may_meet,
            "leave": self._may_leave,
        }
        self._effects: dict[WhatAlone, Callable[[State, int], list[Move]]] = {
            "enter": self._enter,
            "post": self._post,
            "start": self._start,
            "finish": self._finish,
            "meet": self._meet,
            "leave": self._leave,
        }

    def initial(self) -> State:
        """The state before the first move."""
        ops = len(self._kind)
        slots = [len(s) if self._capacity is None else self._capacity for s in self._sends]
        return State(
            at=self._first.copy(),
            entered=bytearray(len(self._first)),
            posted=bytearray(ops),
            started=bytearray(ops),
            finished=bytearray(len(self._op)),
            streams=[deque() for _ in range(self._stream_count)],
            unfinished=[len(rows) + (op in self._meeting) for op, rows in enumerate(self._rows)],
            mate=self._pairing.copy(),
            awaited=[self._counted(op) for op in range(ops)],
            absent=[len(parties) for parties in self._parties],
            missing=self._members.copy(),
            given=set(),
            room=[k - 1 for k in slots],
        )

    def _counted(self, op: int) -> int:
        """How many of the requests that an op waits for have to complete."""
        waited = len(self._awaited.get(op, ()))
        return min(1, waited) if self._one_enough[op] else waited

    # --- the rules: when a move is enabled -----------------------------------

    def enabled(self, state: State, move: Move) -> bool:
        """Whether the move can be made now."""
        if move.what == "take":
            return self._may_take(state, move.number, move.send)
        return self._rules[move.what](state, move.number)

    def moves(self, state: State) -> list[Move]:
        """All enabled moves."""
        return [move for move in self._conceivable() if self.enabled(state, move)]

    def takes(self, state: State) -> list[Move]:
        """The messages that can be taken now."""
        every = (Move("take", receive, send) for receive, send in self._choices.pairs())
        return [move for move in every if self.enabled(state, move)]

    def _conceivable(self) -> Iterator[Move]:
        for lane in range(len(self._first)):
            yield Move("enter", lane)
            yield Move("post", lane)
            yield Move("leave", lane)
        for op in self._streams:
            yield Move("start", op)
        for row in range(len(self._op)):
            yield Move("finish", row)
        for op in self._meeting:
            yield Move("meet", op)
        for receive, send in self._choices.pairs():
            yield Move("take", receive, send)

    def _may_enter(self, state: State, lane: int) -> bool:
        return not state.entered[lane] and state.at[lane] < self._stop[lane]

    def _may_post(self, state: State, lane: int) -> bool:
        op = state.at[lane]
        return (
            bool(state.entered[lane])
            and self._posts(op)
            and not state.posted[op]
            and not state.awaited[op]
        )

    def _may_start(self, state: State, op: int) -> bool:
        return (
            bool(state.posted[op])
            and not state.started[op]
            and all(state.streams[stream][0] == op for stream in self._streams[op])
        )

    def _may_take(self, state: State, receive: int, send: int) -> bool:
        started = (state.started[self._op[row]] for row in (receive, send))
        return all(started) and self._choices.in_turn(state.mate, receive, send)

    def _may_finish(self, state: State, row: int) -> bool:
        if state.finished[row] or not state.started[self._op[row]]:
            return False
        if self._send[row]:
            return self._live(state, row) and (self._met(state, row) or self._slot(state, row))
        # A send that completed, even into a slot, has handed its data over.
        mate = state.mate[row]
        return self._met(state, row) and (bool(state.finished[mate]) or self._live(state, mate))

    def _may_meet(self, state: State, op: int) -> bool:
        return (
            bool(state.started[op])
            and bool(state.unfinished[op])
            and not state.missing[self._meeting[op]]
        )

    def _may_leave(self, state: State, lane: int) -> bool:
        op = state.at[lane]
        if not state.entered[lane] or state.awaited[op]:
            return False
        if self._kind[op] == Kind.AWAIT:
            return (self._rank[op], self._label[op]) in state.given
        if not self._posts(op):
            return True
        return bool(state.posted[op]) and (self._request[op] >= 0 or not state.unfinished[op])

    # --- the words that the rules are made of --------------------------------

    def _posts(self, op: int) -> bool:
        """Whether the op posts messages, or a copy, beside waiting and computing."""
        return bool(self._rows[op]) or self._request[op] >= 0 or op in self._meeting

    def _met(self, state: State, row: int) -> bool:
        """Whether the two ends of a message can see each other."""
        mate = state.mate[row]
        if mate == NOBODY:
            return False
        op, other = self._op[row], self._op[mate]
        if not (state.started[op] and state.started[other]):
            return False
        cluster = self._cluster.get(op)
        return cluster is None or not state.absent[cluster]

    def _slot(self, state: State, send: int) -> bool:
        """Whether fewer than ``capacity`` earlier sends of the channel are unread."""
        if self._atomic and self._kind[self._op[send]] == Kind.GROUP:
            return False  # members of an atomic group use no slots
        return self._position[send] <= state.room[self._channel[send]]

    def _live(self, state: State, send: int) -> bool:
        """Whether the transport works on this send now."""
        op = self._op[send]
        if not self._at_wait or self._kind[op] != Kind.SEND or self._request[op] < 0:
            return True
        for waiter in self._waiters.get(op, ()):
            lane = self._lane[waiter]
            if state.at[lane] == waiter and state.entered[lane]:
                return True
        return False

    # --- the effects: what a move changes, and which moves to look at again --

    def apply(self, state: State, move: Move) -> None:
        """Make an enabled move, in place."""
        self._effect(state, move)

    def _effect(self, state: State, move: Move) -> list[Move]:
        if move.what == "take":
            state.mate[move.number], state.mate[move.send] = move.send, move.number
            return [Move("finish", move.number), Move("finish", move.send)]
        return self._effects[move.what](state, move.number)

    def _enter(self, state: State, lane: int) -> list[Move]:
        state.entered[lane] = True
        op = state.at[lane]
        if op in self._awaited:
            again = [Move("post" if self._posts(op) else "leave", lane)]
            if self._at_wait:
                for poster in self._awaited[op]:
                    again += self._both_ends(state, poster)
            return again
        return self._post(state, lane) if self._posts(op) else [Move("leave", lane)]

    def _post(self, state: State, lane: int) -> list[Move]:
        op = state.at[lane]
        state.posted[op] = True
        if op in self._streams:
            for stream in self._streams[op]:
                state.streams[stream].append(op)
            again = [Move("start", op)]
        else:
            again = self._start(state, op)
        if not state.unfinished[op]:  # a copy, or a group of none: nothing has to meet
            again += self._complete(state, op)
        elif self._request[op] >= 0:
            again.append(Move("leave", lane))
        return again

    def _start(self, state: State, op: int) -> list[Move]:
        state.started[op] = True
        again = self._both_ends(state, op)
        if op in self._meeting:
            number = self._meeting[op]
            state.missing[number] -= 1
            again += [Move("meet", o) for o, m in self._meeting.items() if m == number]
        cluster = self._cluster.get(op)
        if cluster is not None:
            state.absent[cluster] -= 1
            if not state.absent[cluster]:
                for party in self._parties[cluster]:
                    again += self._both_ends(state, party)
        return again

    def _meet(self, state: State, op: int) -> list[Move]:
        state.unfinished[op] -= 1
        return self._complete(state, op)

    def _finish(self, state: State, row: int) -> list[Move]:
        state.finished[row] = True
        op, mate = self._op[row], state.mate[row]
        state.unfinished[op] -= 1
        again: list[Move] = []
        # The counterpart gains nothing: a send completes while it is live, and while it is
        # live its receive can complete as well.
        if mate != NOBODY and not self._send[row]:
            again += self._make_room(state, mate)
        if not state.unfinished[op]:
            again += self._complete(state, op)
        return again

    def _complete(self, state: State, op: int) -> list[Move]:
        """Everything that the op posted has completed."""
        again = [Move("leave", self._lane[op])]
        for stream in self._streams.get(op, ()):
            queue = state.streams[stream]
            queue.popleft()
            if queue:
                again.append(Move("start", queue[0]))
        for waiter in self._waiters.get(op, ()):
            if not state.awaited[waiter]:
                continue  # a WAITANY that had enough before
            state.awaited[waiter] -= 1
            if not state.awaited[waiter]:
                lane = self._lane[waiter]
                again.append(Move("post" if self._posts(waiter) else "leave", lane))
        return again

    def _leave(self, state: State, lane: int) -> list[Move]:
        op = state.at[lane]
        state.at[lane] += 1
        state.entered[lane] = False
        again = [Move("enter", lane)]
        if self._kind[op] == Kind.SIGNAL:
            state.given.add((self._rank[op], self._label[op]))
            again += [Move("leave", other) for other in range(len(self._first))]
        return again

    def _make_room(self, state: State, send: int) -> list[Move]:
        """A send was read.

        ``room`` is the position of the capacity-th unread send: exactly the sends
        up to there have fewer than ``capacity`` unread ones before them.
        """
        number = self._channel[send]
        sends, old = self._sends[number], state.room[number]
        if self._position[send] > old:
            return []
        new = old + 1
        while new < len(sends) and self._read(state, sends[new]):
            new += 1
        state.room[number] = new
        return [Move("finish", other) for other in sends[old + 1 : new + 1]]

    def _read(self, state: State, send: int) -> bool:
        mate = state.mate[send]
        return mate != NOBODY and bool(state.finished[mate])

    def _both_ends(self, state: State, op: int) -> list[Move]:
        """The rows of an op and their counterparts."""
        if op == NOBODY:
            return []
        ends = []
        for row in self._rows[op]:
            ends.append(Move("finish", row))
            if state.mate[row] != NOBODY:
                ends.append(Move("finish", state.mate[row]))
        return ends
