"""What a torch plan computes, run over terms: an oracle that shares no code.

The plan is read from its text and run as torch's runtime runs it: sends and
receives are posted, a receive is waited for by the op that consumes it, sends
at the end of the row, and messages of a pair of ranks meet first in, first
out. Values are terms instead of numbers, ``("F", 1, 0, x)`` for the forward of
stage 1 on microbatch 0 of input x. A plan is right if every stage's gradients
are the terms of the sequential step, once each, reduced once, after all were
made. Everything is recounted in plain Python and meant to be read.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Term = Any
"""A nested tuple, or None for what is not there."""


class Action(NamedTuple):
    """``word`` is F, B, I, W, SEND_F ... or UNSHARD, RESHARD, REDUCE_GRAD (microbatch -1)."""

    stage: int
    word: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.word}" + ("" if self.microbatch < 0 else f"{self.microbatch}")


Rows = list[list[Action]]
"""The actions of each rank, in order."""


def parse(text: str) -> Rows:
    """The rows of a plan; overlapped pairs become one after the other."""
    rows = []
    for line in text.splitlines():
        found = re.findall(r"(\d+)([A-Z_]+?)(\d*)(?=[,;)]|$)", line.replace("OVERLAP_F_B", ""))
        rows.append([Action(int(s), word, int(m) if m else -1) for s, word, m in found])
    return rows


def write(rows: Rows) -> str:
    """The text of a plan."""
    return "\n".join(",".join(map(str, row)) for row in rows) + "\n"


COMPUTES = ("F", "B", "I", "W")
STREAM = {
    "gloo": None,  # no streams
    "nccl-directed": lambda rank, peer, send: (rank, peer, send),
    "nccl": lambda rank, peer, send: (rank, peer),
    "nccl-eager": lambda rank, peer, send: rank,
}


@dataclass
class _Message:
    """One end, posted: its number on its channel, and what it carries."""

    send: bool
    channel: tuple[int, int]  # (sender, receiver)
    number: int
    action: Action
    value: Term = None
    done: bool = False


@dataclass
class Sequential:
    """A run of a plan: ``wrongs`` is everything that is wrong with it, in words."""

    rows: Rows
    stages: int
    microbatches: int
    transport: str = "nccl"
    wrongs: list[str] = field(default_factory=list)

    def run(self) -> list[str]:
        """Run the plan to its end, or until nothing moves; what is wrong with it."""
        self.host = {a.stage: rank for rank, row in enumerate(self.rows) for a in row}
        self.shards = any(a.word in ("UNSHARD", "RESHARD") for row in self.rows for a in row)
        self.at = [0] * len(self.rows)
        self.queues: dict[Any, deque[_Message]] = defaultdict(deque)
        self.open: dict[tuple[bool, tuple[int, int], int], _Message] = {}
        self.counts: Counter[tuple[bool, tuple[int, int]]] = Counter()
        self.receives: dict[tuple[int, str, int], _Message] = {}
        self.sent: list[list[_Message]] = [[] for _ in self.rows]
        self.made: dict[tuple[int, str, int], Term] = {}  # (stage, letter, microbatch)
        self.gathered: dict[int, str] = {}
        self.weight: dict[int, Counter[Term]] = {s: Counter() for s in range(self.stages)}
        self.reduced: Counter[int] = Counter()
        moving = True
        while moving:
            advanced = [self._advance(rank) for rank in range(len(self.rows))]
            moving = self._transfer() or any(advanced)
        self._end()
        return self.wrongs

    # --- one rank ----------------------------------------------------------------

    def _advance(self, rank: int) -> bool:
        before = self.at[rank]
        row = self.rows[rank]
        while self.at[rank] < len(row):
            action = row[self.at[rank]]
            if action.word in COMPUTES:
                arriving = self._arriving(action)
                if arriving is not None and not arriving.done:
                    break
                self._compute(action, arriving)
            elif action.word[:4] in ("SEND", "RECV"):
                self._post(rank, action)
            else:
                self._shard(action)
            self.at[rank] += 1
        return self.at[rank] > before

    def _source(self, action: Action) -> int | None:
        """The stage that makes the op's input, if another stage does."""
        source = action.stage + (-1 if action.word == "F" else 1)
        return source if action.word != "W" and 0 <= source < self.stages else None

    def _arriving(self, action: Action) -> _Message | None:
        source = self._source(action)
        if source is None or self.host.get(source) == self.host[action.stage]:
            return None  # handed over on the rank
        word = "RECV_F" if action.word == "F" else "RECV_B"
        return self.receives.get((action.stage, word, action.microbatch))

    def _post(self, rank: int, action: Action) -> None:
        send, forward = action.word[:4] == "SEND", action.word[-1] == "F"
        peer = self.host[action.stage + (1 if send == forward else -1)]
        channel = (rank, peer) if send else (peer, rank)
        message = _Message(send, channel, self.counts[send, channel], action)
        self.counts[send, channel] += 1
        if send:
            key = (action.stage, action.word[-1], action.microbatch)
            message.value = self.made.get(key)
            if message.value is None:
                self._say(action, "sends what does not exist")
            self.sent[rank].append(message)
        else:
            key = (action.stage, action.word, action.microbatch)
            if key in self.receives:
                self._say(action, "is posted twice")
            self.receives[key] = message
        self.open[send, channel, message.number] = message
        stream = STREAM[self.transport]
        if stream is not None:
            self.queues[stream(rank, peer, send)].append(message)

    def _transfer(self) -> bool:
        """Let every pair of ends meet that can."""
        moved = False
        for (send, channel, number), message in list(self.open.items()):
            other = self.open.get((False, channel, number))
            if not send or other is None:
                continue
            if not (self._heads(message) and self._heads(other)):
                continue
            other.value, message.done, other.done = message.value, True, True
            for end in (message, other):
                del self.open[end.send, channel, number]
                queue = self._queue(end)
                if queue is not None:
                    queue.popleft()
            moved = True
        return moved

    def _queue(self, message: _Message) -> deque[_Message] | None:
        stream = STREAM[self.transport]
        if stream is None:
            return None
        rank, peer = message.channel if message.send else message.channel[::-1]
        return self.queues[stream(rank, peer, message.send)]

    def _heads(self, message: _Message) -> bool:
        queue = self._queue(message)
        return queue is None or queue[0] is message

    # --- what is computed ----------------------------------------------------------

    def _compute(self, action: Action, arriving: _Message | None) -> None:
        stage, word, microbatch = action
        value: Term = ("data", microbatch) if word == "F" else ("loss", microbatch)
        source = self._source(action)
        if source is not None:
            here = self.host.get(source) == self.host[stage]
            letter = "F" if word == "F" else "B"
            if arriving is not None:
                value = arriving.value
            else:
                value = self.made.get((source, letter, microbatch)) if here else None
            if value is None:
                self._say(action, "has no input")
        if self.shards and self.gathered.get(stage, "sharded") == "sharded":
            self._say(action, "computes on a stage that is not gathered")
        self.gathered[stage] = "gathered"
        forward = self.made.get((stage, "F", microbatch))
        if word == "F":
            self.made[stage, "F", microbatch] = ("F", stage, microbatch, value)
            return
        if word == "W":
            back = self.made.get((stage, "I", microbatch))
            if back is None:
                self._say(action, "has no input gradient")
        else:
            if forward is None:
                self._say(action, "has no forward")
            back = ("grad", stage, microbatch, forward, value)
            self.made[stage, "B", microbatch] = back
            if word == "I":
                self.made[stage, "I", microbatch] = back
        if word in ("B", "W"):
            if self.reduced[stage]:
                self._say(action, "comes after the reduction")
            self.weight[stage][back] += 1

    def _shard(self, action: Action) -> None:
        stage, state = action.stage, self.gathered.get(action.stage, "sharded")
        if action.word == "REDUCE_GRAD":
            self.reduced[stage] += 1
        elif action.word == "UNSHARD":
            if state != "sharded":
                self._say(action, "is gathered already")
            self.gathered[stage] = "pending"
        else:
            if state != "gathered":
                self._say(action, "is not gathered")
            self.gathered[stage] = "sharded"

    # --- the end -------------------------------------------------------------------

    def _end(self) -> None:
        stuck = [a for a in range(len(self.rows)) if self.at[a] < len(self.rows[a])]
        stuck += [rank for rank, sent in enumerate(self.sent) if not all(m.done for m in sent)]
        if stuck:
            self.wrongs.append(f"ranks {sorted(set(stuck))} are stuck")
        self.wrongs += [f"{m.action} meets nothing" for m in self.open.values()]
        for stage, state in self.gathered.items():
            if self.shards and state != "sharded":
                self.wrongs.append(f"stage {stage} ends {state}")
        self._recount()
        if stuck:
            return
        for stage in range(self.stages):
            if self.weight[stage] != Counter(self._expected(stage)):
                self.wrongs.append(f"stage {stage} sums other gradients than the sequential step")
        if self.reduced and any(self.reduced[s] != 1 for s in range(self.stages)):
            self.wrongs.append("some stage is not reduced once")

    def _recount(self) -> None:
        times = Counter(a for row in self.rows for a in row if a.microbatch >= 0)
        self.wrongs += [f"{a} stands {n} times" for a, n in times.items() if n > 1]
        for stage in range(self.stages):
            for microbatch in range(self.microbatches):
                have = [w for w in COMPUTES if times[Action(stage, w, microbatch)]]
                if have not in (["F", "B"], ["F", "I", "W"]):
                    self.wrongs.append(f"stage {stage}, microbatch {microbatch} runs {have}")
        for action in times:
            if not (action.stage < self.stages and action.microbatch < self.microbatches):
                self.wrongs.append(f"{action} is out of range")

    def _expected(self, stage: int) -> list[Term]:
        """The gradients of a stage as the sequential step makes them."""
        terms = []
        for microbatch in range(self.microbatches):
            value: Term = ("data", microbatch)
            forwards = []
            for s in range(self.stages):
                value = ("F", s, microbatch, value)
                forwards.append(value)
            back: Term = ("loss", microbatch)
            for s in range(self.stages - 1, stage - 1, -1):
                back = ("grad", s, microbatch, forwards[s], back)
            terms.append(back)
        return terms

    def _say(self, action: Action, what: str) -> None:
        self.wrongs.append(f"{action} {what}")


def wrongs_of(
    rows: Sequence[Sequence[Action]], stages: int, microbatches: int, transport: str = "nccl"
) -> list[str]:
    """Everything that is wrong with a plan."""
    return Sequential([list(row) for row in rows], stages, microbatches, transport).run()
