"""Waits in words: who stands where, for what, and why.

Blame is a chain of events; this is its story. Each sentence says which op of
which rank cannot go on, what it needs, and what stands before that.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeproof.checks.subject import Subject
from pipeproof.engines.events.blame import Blame, Wait
from pipeproof.engines.events.graph import Event
from pipeproof.program.notation import message_text, op_text
from pipeproof.program.ops import Kind
from pipeproof.program.transports import Progress, Streams


@dataclass(frozen=True, slots=True)
class Told:
    """``ops`` where the lanes and streams of the story stand, ``steps`` (op,
    sentence), the usual ``cause``."""

    ops: tuple[int, ...]
    steps: tuple[tuple[int, str], ...]
    cyclic: bool
    cause: str


def tell(subject: Subject, why: Blame) -> Told:
    """The story of a stuck run."""
    teller = _Teller(subject)
    waits = teller.without_joints(why)
    steps = []
    for i, wait in enumerate(waits):
        last = i + 1 == len(waits)
        following = waits[(i + 1) % len(waits)] if why.cyclic or not last else None
        op, text = teller.sentence(wait, following)
        if op is not None:
            steps.append((op, text))
    ops = tuple(dict.fromkeys(op for op, _ in steps))
    return Told(ops, tuple(steps), why.cyclic, teller.cause(why))


class _Teller:
    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.program = subject.program
        self.graph = subject.graph
        self.batched: set[Event] = set()  # waits for a batch that moves only as a whole

    # --- what a chain and a position stand for ---------------------------------

    def _is_lane(self, chain: int) -> bool:
        return 1 <= chain <= self.graph.lanes

    def _is_stream(self, chain: int) -> bool:
        return self.graph.lanes < chain < len(self.graph.length) - len(self.graph.joints)

    def op_at(self, event: Event) -> int | None:
        """The op that an event belongs to; None for a joint condition."""
        chain, position = event
        if self._is_lane(chain):
            return self.program.lanes[chain - 1].first + position // 2
        if self._is_stream(chain):
            first = int(self.graph.stream_first[chain - 1 - self.graph.lanes])
            return int(self.graph.stream_op[first + position // 2])
        return None

    def _rank(self, op: int) -> int:
        return int(self.subject.rank[op])

    def _named(self, op: int) -> str:
        return f"{op_text(self.program, op)} (rank {self._rank(op)})"

    def _stream_name(self, op: int) -> str:
        streams = self.program.transport.streams
        rank = self._rank(op)
        if streams is Streams.RANK:
            return f"rank {rank}'s one stream"
        peers = sorted({int(self.program.messages.peer[r]) for r in self.program.rows_of(op)})
        return f"rank {rank}'s stream with rank {', '.join(map(str, peers))}"

    def without_joints(self, why: Blame) -> list[Wait]:
        """The waits from op to op: where one is for a condition that stands for
        several events, for the one of them that is in the way."""
        waits = list(why.waits)
        joint = [self.op_at(wait.at) is None for wait in waits]
        if why.cyclic and joint[0]:
            turn = joint.index(False)
            waits, joint = waits[turn:] + waits[:turn], joint[turn:] + joint[:turn]
        told: list[Wait] = []
        first_joint = len(self.graph.length) - len(self.graph.joints)
        for wait, is_joint in zip(waits, joint, strict=True):
            if is_joint and told:
                if self.graph.joints[wait.at[0] - first_joint].startswith("the whole batch"):
                    self.batched.add(told[-1].at)
                told[-1] = Wait(told[-1].at, wait.needs)
            elif not is_joint:
                told.append(wait)
        return told

    # --- sentences -------------------------------------------------------------

    def sentence(self, wait: Wait, following: Wait | None) -> tuple[int | None, str]:
        """One step: why the chain stands there, and what is in the way."""
        op = self.op_at(wait.at)
        if op is None:
            return None, ""
        if self._is_stream(wait.at[0]):
            text = self._on_stream(op, wait)
        else:
            text = self._on_lane(op, wait)
        if following is not None:
            text += self._behind(wait.needs, following)
        return op, text + "."

    def _on_lane(self, op: int, wait: Wait) -> str:
        rank, text = self._rank(op), op_text(self.program, op)
        waited = self.program.requests_of(op)
        if waited:
            kind = Kind(int(self.program.kind[op]))
            awaited = self._awaited(op, wait.needs)
            verb = "waits for" if kind is Kind.WAIT else f"is at {text}, which waits for"
            return f"rank {rank} {verb} {awaited}"
        if self.program.kind[op] == Kind.COLL:
            return f"rank {rank} is in {text}, {self._absent(op, wait)}"
        if self.program.kind[op] == Kind.AWAIT:
            given = self.op_at(wait.needs)
            if wait.needs[0] == 0 or given is None:
                return f"rank {rank} is in {text}, a signal that no lane of the rank gives"
            lane = self.program.lanes[self.program.lane_of(given)].name
            return f"rank {rank} is in {text}, which lane {lane} gives later"
        if self.program.kind[op] == Kind.GROUP:
            return f"rank {rank} is in the batch {text}: it needs {self._counterpart(op, wait)}"
        if wait.needs[0] == 0:
            return f"rank {rank} is in {text}, {self._hopeless(op)}"
        if wait.at in self.batched:
            return (
                f"rank {rank} is in {text}, tied to a batch that moves only as a whole: not "
                f"before {self._counterpart(op, wait)}"
            )
        return f"rank {rank} is in {text}, which completes when {self._counterpart(op, wait)}"

    def _absent(self, op: int, wait: Wait) -> str:
        """Who has not joined a collective."""
        target = self.op_at(wait.needs)
        if wait.needs[0] == 0 or target is None:
            return self._hopeless(op)
        return f"which needs rank {self._rank(target)} to call {op_text(self.program, target)}"

    def _awaited(self, op: int, needs: Event) -> str:
        """Which of the requests that op waits for needs this event."""
        posters = self._posters(op)
        target = self.op_at(needs)
        if needs[0] == 0:
            hopeless = {poster: self._hopeless(poster, "") for poster in posters}
            for poster, why in hopeless.items():
                if why:
                    return f"{op_text(self.program, poster)}, {why}"
        for poster in posters:
            if poster == target:
                return f"its own {op_text(self.program, poster)}"
            if target is not None and target in self._met_by(poster):
                return (
                    f"its {op_text(self.program, poster)}, which needs the matching "
                    f"{self._named(target)}"
                )
        return self._spelled(posters)

    def _met_by(self, op: int) -> set[int]:
        """The ops that post the other ends of op's messages."""
        rows = (int(self.graph.match[r]) for r in self.program.rows_of(op))
        return {int(self.program.messages.op[row]) for row in rows if row >= 0}

    def _spelled(self, posters: list[int]) -> str:
        """The operations waited for: a few by name, more by their number."""
        names = [op_text(self.program, p) for p in posters]
        if len(names) <= 2:
            return " and ".join(names) or "its requests"
        return f"{names[0]} and {len(names) - 1} more"

    def _posters(self, op: int) -> list[int]:
        wanted = set(self.program.requests_of(op))
        request = self.program.request
        lane = self.program.lanes[self.program.lane_of(op)]
        return [
            o
            for o in range(lane.first, lane.stop)
            if int(request[o]) in wanted and request[o] >= 0
        ]

    def _counterpart(self, op: int, wait: Wait) -> str:
        target = self.op_at(wait.needs)
        if target is not None and self.program.kind[target] == Kind.WAIT:
            return (
                f"rank {self._rank(target)} reaches {op_text(self.program, target)}, the only "
                "place where its send moves"
            )
        if wait.needs[0] == 0:
            for row in self.program.rows_of(op):
                if self.graph.match[row] < 0:
                    return f"{message_text(self.program, row)} to meet its other end, " + (
                        self._unmet(row)
                    )
            return f"what never happens: it is a batch {self._hopeless(op)}"
        if target is None:
            return self.graph.joints[wait.needs[0] - len(self.graph.length)] + " to be there"
        capacity = self.program.transport.capacity
        if capacity and target not in self._met_by(op):
            return (
                f"one of its {capacity} buffer slot(s) is free, once rank {self._rank(target)} "
                f"posts {op_text(self.program, target)}"
            )
        return f"rank {self._rank(target)} posts {op_text(self.program, target)}"

    def _hopeless(self, op: int, otherwise: str = "which never starts as a whole") -> str:
        """Why an operation can never complete, as far as it says so itself."""
        if self.program.kind[op] == Kind.COLL:
            group = self.program.details.attributes[op].more["group"]
            return f"a call of group {group} that not all of its members make"
        for row in self.program.rows_of(op):
            other = int(self.graph.match[row])
            if other < 0:
                return self._unmet(row)
            send = row if self.program.messages.send[row] else other
            if self._lazy(send):
                moved = message_text(self.program, send)
                return f"but {moved} moves only while it is waited for, and nothing does"
        return otherwise

    def _lazy(self, send: int) -> bool:
        """Whether a send only moves inside a wait that never comes."""
        op = int(self.program.messages.op[send])
        return (
            self.program.transport.isend_progress is Progress.AT_WAIT
            and self.program.kind[op] == Kind.SEND
            and self.program.request[op] >= 0
            and int(self.program.request[op]) not in self.program.waits.request
        )

    def _unmet(self, row: int) -> str:
        m = self.program.messages
        if m.send[row]:
            return f"which rank {m.peer[row]} never receives"
        return f"which rank {m.peer[row]} never sends"

    def _on_stream(self, op: int, wait: Wait) -> str:
        text, rank = op_text(self.program, op), self._rank(op)
        needs = wait.needs
        stream = self._stream_name(op)
        if wait.at[1] % 2 == 0:
            if self._is_lane(needs[0]):
                return f"{text} is next on {stream}, but rank {rank} has not posted it"
            before = self.op_at(needs)
            return f"{text} on {stream} waits for its turn behind {self._maybe(before)}"
        if needs[0] == 0:
            return f"{text} is first on {stream}, {self._hopeless(op)}"
        target = self.op_at(needs)
        return f"{text} is first on {stream} and needs {self._maybe(target)}"

    def _maybe(self, op: int | None) -> str:
        return "more than one other operation" if op is None else self._named(op)

    def _behind(self, needs: Event, following: Wait) -> str:
        """How the next chain stands in front of what is needed."""
        blocker, target = self.op_at(following.at), self.op_at(needs)
        if blocker is None or target is None:
            return ""
        if self._is_stream(following.at[0]):
            if blocker == target:
                return ""
            return f", which is queued behind {op_text(self.program, blocker)}"
        if blocker == target:
            return ""
        return (
            f"; rank {self._rank(blocker)} gets there only after {op_text(self.program, blocker)}"
        )

    # --- the usual cause -------------------------------------------------------

    def cause(self, why: Blame) -> str:
        """What such a cycle usually comes from."""
        ops = [op for w in why.waits if (op := self.op_at(w.at)) is not None]
        kinds = {Kind(int(self.program.kind[op])) for op in ops}
        if not why.cyclic:
            last = self.op_at(why.waits[-1].at)
            if last is not None and self.program.kind[last] == Kind.COLL:
                return (
                    "A member of the group never makes this call: it skipped a step, or took "
                    "another branch."
                )
            return (
                "One rank sends or receives more than the other: a step, a tensor or a "
                "whole rank takes another path."
            )
        lazy = self.program.transport.isend_progress is Progress.AT_WAIT
        needed = [self.op_at(w.needs) for w in why.waits]
        if lazy and any(op is not None and self.program.kind[op] == Kind.WAIT for op in needed):
            return (
                "A posted send moves only inside the wait for it, and that stands behind an op "
                "that needs the send to have moved."
            )
        if Kind.COLL in kinds and len(kinds) > 1:
            return (
                "A collective and a message, or another collective, stand in opposite orders "
                "on the ranks: each waits for the other's turn."
            )
        if any(self._is_stream(w.at[0]) for w in why.waits):
            return (
                "The two ends of a stream queue their operations in different orders, so the "
                "operations at their heads never meet."
            )
        if Kind.GROUP in kinds or self.batched:
            return (
                "Batches wait to be complete, and something that a batch needs stands behind "
                "something that waits for it."
            )
        return (
            "Ranks send before they receive, and a send completes only when its receive is posted."
        )
