"""DualPipe's order of ops and batches on every rank, for tests.

Written from the eight steps of the DualPipe repository's README and checked against
recordings of its code: a recording is what it yields, event for event.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any


class _Rank:
    """One rank: events so far, and the messages that its next batch starts.

    Directions are counted as the rank sees them, 0 first; ``phase`` turns them round in
    the second half of the ranks.
    """

    def __init__(self, p: int, rank: int) -> None:
        self.p, self.rank, self.turned = p, rank, rank >= p // 2
        self.events: list[dict[str, Any]] = []
        self.queue: list[dict[str, Any]] = []
        self.counts: Counter[tuple[str, int]] = Counter()
        self.delayed: list[tuple[int, int]] = []  # weight gradients, first in first out

    def phase(self, direction: int) -> int:
        return direction ^ self.turned

    def stage(self, phase: int) -> int:
        return self.p - 1 - self.rank if phase else self.rank

    def next(self, what: str, phase: int) -> int:
        self.counts[what, phase] += 1
        return self.counts[what, phase] - 1

    def message(self, op: str, kind: str, direction: int) -> None:
        """Queue a message, unless the pipeline ends on this rank."""
        phase = self.phase(direction)
        microbatch, stage = self.next(op + kind, phase), self.stage(phase)
        onward = (op == "send") == (kind == "act")
        if stage == (self.p - 1 if onward else 0):
            return
        step = (1 if onward else -1) * (-1 if phase else 1)
        made = stage if op == "send" else stage + (1 if onward else -1)
        what = [kind, phase, microbatch, made]
        self.queue.append({"op": op, "peer": self.rank + step, "what": what})

    def commit(self) -> None:
        if self.queue:
            self.events.append({"op": "batch", "ops": self.queue})
            self.queue = []

    def compute(self, op: str, phase: int, microbatch: int) -> None:
        self.events.append(
            {"op": op, "phase": phase, "mb": microbatch, "stage": self.stage(phase)}
        )

    def forward(self, direction: int, *, receive: bool = True, send: bool = True) -> None:
        if receive:
            self.message("recv", "act", direction)
        self.commit()
        phase = self.phase(direction)
        self.compute("F", phase, self.next("F", phase))
        if send:
            self.message("send", "act", direction)

    def backward(self, direction: int, *, split: bool = False, send: bool = True) -> None:
        self.message("recv", "grad", direction)
        self.commit()
        phase = self.phase(direction)
        microbatch = self.next("B", phase)
        self.compute("B" if split else "BW", phase, microbatch)
        if split:
            self.delayed.append((phase, microbatch))
        if send:
            self.message("send", "grad", direction)

    def weights(self) -> None:
        self.commit()
        self.compute("W", *self.delayed.pop(0))

    def both(self, forward: int, backward: int, *, receive: bool = True) -> None:
        """A forward of one direction and a backward of the other, overlapped."""
        if receive:
            self.message("recv", "act", forward)
        self.message("recv", "grad", backward)
        self.commit()
        self.events.append({"op": "FB_begin"})
        for op, count, direction in (("F", "F", forward), ("BW", "B", backward)):
            phase = self.phase(direction)
            self.compute(op, phase, self.next(count, phase))
        self.events.append({"op": "FB_end"})
        self.message("send", "act", forward)
        self.message("send", "grad", backward)


def _run(p: int, m: int, rank: int) -> list[dict[str, Any]]:
    own, outer = _Rank(p, rank), min(rank, p - 1 - rank)  # 0 for the outermost ranks
    inner = p // 2 - 1 - outer
    middle = inner == 0
    for _ in range(2 * inner):
        own.forward(0)
    own.message("recv", "act", 0)
    for i in range(outer + 1):
        own.forward(0, receive=False, send=middle)
        own.message("recv", "act", 0)
        own.forward(1, send=not middle or i < outer)
        if not middle:
            own.message("send", "act", 0)
    for _ in range(inner):
        own.backward(1, split=True)
        own.message("recv", "act", 1)
        own.weights()
        own.forward(1, receive=False)
    for i in range(m // 2 - p + outer + 1):
        if i == 0 and middle:  # the two that it starts with do not overlap
            own.forward(0, receive=False, send=False)
            own.message("send", "act", 1)
            own.backward(1, send=False)
            own.message("send", "act", 0)
            own.message("send", "grad", 1)
        else:
            own.both(0, 1, receive=i > 0)
        own.both(1, 0)
    for _ in range(inner):
        own.backward(1)
        own.both(1, 0)
    split = False
    for i in range(outer + 1):
        half = i == (outer + 1) // 2
        split |= half and outer % 2 == 1
        own.backward(1, split=split)
        split |= half and outer % 2 == 0
        own.backward(0, split=split)
    for _ in range(inner):
        own.weights()
        own.backward(0, split=True)
    for _ in range(outer + 1):
        own.weights()
    own.commit()
    return own.events


def dualpipe(p: int, m: int) -> str:
    """A recording of DualPipe on ``p`` ranks with ``m`` microbatches: even, 2 p or more."""
    ranks = [[{"step": 1, **event} for event in _run(p, m, rank)] for rank in range(p)]
    document = {"producer": "deepseek-ai/DualPipe", "cls": "DualPipe", "p": p, "m": m}
    return json.dumps({**document, "ranks": ranks})
