"""What a program leaves open: which message a receive from any sender takes.

Such a receive, and the receives beside it that name a sender, take from a
*pool*: the messages to one rank on one communicator (with tags, of one
payload). Of each sender the messages are taken in the order of posting, and of
two receives that could take a message the one that was posted first gets it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from pipeproof.program.ops import Kind
from pipeproof.program.programs import ANY, Program
from pipeproof.program.transports import Grouping, Match, Progress, Streams, Transport
from pipeproof.replay.layout import NOBODY, in_posting_order


class Unsupported(Exception):
    """The program uses what the format gives no meaning to; ``what`` says it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the model executor gives no meaning to {what}")
        self.what = what


@dataclass(slots=True)
class _Pool:
    """The rows of a pool in the order of posting."""

    receives: list[int] = field(default_factory=list)
    sends: list[int] = field(default_factory=list)


class Choices:
    """The pools that have a receive from any sender; most programs have none."""

    def __init__(self, program: Program, match: Match) -> None:
        m = program.messages
        self._rank: list[int] = m.rank.tolist()
        self._peer: list[int] = m.peer.tolist()
        send, comm, payload = m.send.tolist(), m.comm.tolist(), m.payload.tolist()
        names = [
            (
                self._peer[row] if send[row] else self._rank[row],
                comm[row],
                payload[row] if match is Match.TAG else 0,
            )
            for row in range(len(send))
        ]
        pools = {names[row]: _Pool() for row, peer in enumerate(self._peer) if peer == ANY}
        self._pool: dict[int, _Pool] = {}
        for row in in_posting_order(program) if pools else ():
            pool = pools.get(names[row])
            if pool is not None:
                self._pool[row] = pool
                (pool.sends if send[row] else pool.receives).append(row)

    @property
    def rows(self) -> Collection[int]:
        """The message rows whose counterpart is open."""
        return self._pool.keys()

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Every receive with every send that it might take."""
        for receive, pool in self._pool.items():
            if receive in pool.receives:
                for send in pool.sends:
                    if self._accepts(receive, send):
                        yield receive, send

    def in_turn(self, mate: Sequence[int], receive: int, send: int) -> bool:
        """Whether it is the turn of both: no earlier message of the sender is left,
        and no earlier receive that could take this one. ``mate`` has what was taken."""
        pool = self._pool.get(receive)
        if pool is None or pool is not self._pool.get(send):
            return False
        if receive not in pool.receives or send not in pool.sends:
            return False
        free = [row for row in pool.sends if mate[row] == NOBODY]
        first = next((row for row in free if self._rank[row] == self._rank[send]), NOBODY)
        waiting = [row for row in pool.receives if mate[row] == NOBODY]
        taker = next((row for row in waiting if self._accepts(row, send)), NOBODY)
        return (first, taker) == (send, receive)

    def _accepts(self, receive: int, send: int) -> bool:
        return self._peer[receive] in (ANY, self._rank[send])


def left_open(program: Program, transport: Transport, rows: Collection[int]) -> str | None:
    """What the program does that the format gives no meaning to, together with a
    receive from any sender (the pools' ``rows``) or a WAITANY."""
    kind, posted = program.kind.tolist(), (program.request >= 0).tolist()
    ops = {int(program.messages.op[row]) for row in rows}
    if transport.streams is not Streams.FREE and any(posted[op] for op in ops):
        return "a posted message on a stream, in a pool with a receive from any sender"
    if transport.group is Grouping.ATOMIC and any(kind[op] == Kind.GROUP for op in ops):
        return "an atomic group in a pool with a receive from any sender"
    if transport.isend_progress is Progress.AT_WAIT:
        lazy = {op for op in range(program.ops) if posted[op] and kind[op] == Kind.SEND}
        if lazy & ops:
            return "a send that moves at its wait, for a receive from any sender"
        requests = {int(program.request[op]) for op in lazy}
        for op in (program.kind == Kind.WAITANY).nonzero()[0].tolist():
            waited = program.requests_of(op)
            if len(waited) > 1 and not requests.isdisjoint(waited):
                return "a send that moves at its wait, in a WAITANY"
    return None
