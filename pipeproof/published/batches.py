"""DualPipe and DualPipeV as their producer issues them: a recording of any size.

The order of ops is the zoo's. What it does not say is how messages leave: they
are queued, and all that is queued starts as one batch, which the rank waits for
before its next op. A few sends are queued one op later than they could be, so
that they meet the batch of the other end; published lengths depend on it.

Written from the code of the DualPipe repository (dualpipe.py and dualpipev.py).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

Event = dict[str, Any]


def recording(cls: str, p: int, m: int) -> str:
    """The events of ``DualPipe`` or ``DualPipeV`` on p ranks, in the form that
    `pipeproof.formats.dualpipe` reads. m is at least 2 p, and even for DualPipe."""
    ranks = [_Rank(cls, p, m, rank).run() for rank in range(p)]
    document = {"producer": "deepseek-ai/DualPipe", "cls": cls, "p": p, "m": m, "ranks": ranks}
    return json.dumps(document)


class _Rank:
    """The events of a rank, and the messages that its next batch starts.

    Both classes run two streams, called phases: 0 goes down the ranks, 1 comes up.
    Directions are counted as the rank sees them: 0 is the stream that it is nearer
    to the beginning of. In DualPipeV that is always phase 0; in DualPipe the second
    half of the ranks is turned round.
    """

    def __init__(self, cls: str, p: int, m: int, rank: int) -> None:
        two_way = cls == "DualPipe"
        self.p, self.rank = p, rank
        self.turned = two_way and rank >= p // 2
        self.back_at = p if two_way else 2 * p  # stages of phase 1 count down from here
        ranks = p // 2 if two_way else p
        self.outer = min(rank, p - 1 - rank) if two_way else rank
        self.inner = ranks - 1 - self.outer
        self.steady = (m // 2 if two_way else m) - 2 * ranks + self.outer + 1
        self.events: list[Event] = []
        self.queue: list[Event] = []
        self.counts: Counter[tuple[str, int]] = Counter()
        self.owed: list[tuple[int, int]] = []  # weight gradients, oldest first
        self.step = 1

    # --- parts of a step -----------------------------------------------------------

    def _next(self, what: str, phase: int) -> int:
        self.counts[what, phase] += 1
        return self.counts[what, phase] - 1

    def _stage(self, phase: int) -> int:
        return self.back_at - 1 - self.rank if phase else self.rank

    def _message(self, op: str, kind: str, direction: int) -> None:
        """Queue a message, unless the stream begins or ends on this rank."""
        phase = direction ^ self.turned
        microbatch, stage = self._next(op + kind, phase), self._stage(phase)
        onward = (op == "send") == (kind == "act")
        last, first = (0, self.p - 1) if phase else (self.p - 1, 0)
        if self.rank == (last if onward else first):
            return
        made = stage if op == "send" else stage + (1 if onward else -1)
        peer = self.rank + (1 if onward else -1) * (-1 if phase else 1)
        self.queue.append({"op": op, "peer": peer, "what": [kind, phase, microbatch, made]})

    def _add(self, event: Event) -> None:
        self.events.append({"step": self.step, **event})

    def _commit(self) -> None:
        if self.queue:
            self._add({"op": "batch", "ops": self.queue})
            self.queue = []

    def _compute(self, op: str, phase: int, microbatch: int) -> None:
        self._add({"op": op, "phase": phase, "mb": microbatch, "stage": self._stage(phase)})

    def _forward(self, direction: int, *, receive: bool = True, send: bool = True) -> None:
        if receive:
            self._message("recv", "act", direction)
        self._commit()
        phase = direction ^ self.turned
        self._compute("F", phase, self._next("F", phase))
        if send:
            self._message("send", "act", direction)

    def _backward(self, direction: int, *, split: bool = False, send: bool = True) -> None:
        self._message("recv", "grad", direction)
        self._commit()
        phase = direction ^ self.turned
        microbatch = self._next("B", phase)
        self._compute("B" if split else "BW", phase, microbatch)
        if split:
            self.owed.append((phase, microbatch))
        if send:
            self._message("send", "grad", direction)

    def _weights(self) -> None:
        self._commit()
        self._compute("W", *self.owed.pop(0))

    def _both(self, forward: int, backward: int, *, receive: bool = True) -> None:
        """A forward of one stream and a backward of the other, overlapped."""
        if receive:
            self._message("recv", "act", forward)
        self._message("recv", "grad", backward)
        self._commit()
        self._add({"op": "FB_begin"})
        for op, counted, direction in (("F", "F", forward), ("BW", "B", backward)):
            phase = direction ^ self.turned
            self._compute(op, phase, self._next(counted, phase))
        self._add({"op": "FB_end"})
        self._message("send", "act", forward)
        self._message("send", "grad", backward)

    # --- the eight steps ----------------------------------------------------------

    def run(self) -> list[Event]:
        """All events of the rank."""
        middle = self.inner == 0  # here a stream turns round, or meets the other
        for _ in range(2 * self.inner):
            self._forward(0)
        self.step = 2
        self._message("recv", "act", 0)
        for i in range(self.outer + 1):
            self._forward(0, receive=False, send=middle)
            self._message("recv", "act", 0)
            self._forward(1, send=not middle or i < self.outer)
            if not middle:
                self._message("send", "act", 0)
        self.step = 3
        for _ in range(self.inner):
            self._backward(1, split=True)
            self._message("recv", "act", 1)
            self._weights()
            self._forward(1, receive=False)
        self.step = 4
        for i in range(self.steady):
            if i == 0 and middle:  # these two do not overlap: the first feeds the second
                self._forward(0, receive=False, send=False)
                self._message("send", "act", 1)
                self._backward(1, send=False)
                self._message("send", "act", 0)
                self._message("send", "grad", 1)
            else:
                self._both(0, 1, receive=i > 0)
            self._both(1, 0)
        self.step = 5
        for _ in range(self.inner):
            self._backward(1)
            self._both(1, 0)
        self.step = 6
        split = False
        for i in range(self.outer + 1):
            half = i == (self.outer + 1) // 2
            split |= half and self.outer % 2 == 1
            self._backward(1, split=split)
            split |= half and self.outer % 2 == 0
            self._backward(0, split=split)
        self.step = 7
        for _ in range(self.inner):
            self._weights()
            self._backward(0, split=True)
        self.step = 8
        for _ in range(self.outer + 1):
            self._weights()
        self._commit()
        return self.events
