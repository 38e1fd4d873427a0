"""Rounds: the collective calls that meet, and where what they do becomes visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeproof.engines.events.collectives import meetings
from pipeproof.engines.events.turns import turns
from pipeproof.program.programs import Program

Event = tuple[int, bool]
"""(op, whether it completes): where an op starts on its lane, or its lane has passed it."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The collective calls of a program.

    ``number`` is the round of each call; ``calls[n]`` is the calls of round n,
    an op for every member of its group, None where a member makes no such call.
    ``collected`` has, by op, the asynchronous calls whose request it is the
    first to wait for: what they do is done when it has gone on.
    """

    number: dict[int, int]
    calls: tuple[tuple[int | None, ...], ...]
    collected: dict[int, tuple[int, ...]]

    def reached(self, sequence: Sequence[Event]) -> list[int]:
        """The ops of a sequence in the order in which they are reached: calls when
        they start, every other op when what it waits for is done."""
        return [op for op, completed in sequence if completed != (op in self.number)]


def rounds(program: Program, sequence: Sequence[Event]) -> Rounds:
    """The rounds of ``program``, whose events happen in the order of ``sequence``."""
    calls = tuple(tuple(op for _, op in m.calls) for m in meetings(program, turns(program)))
    number = {op: n for n, ops in enumerate(calls) for op in ops if op is not None}
    posted = {int(program.request[op]): op for op in number if program.request[op] >= 0}
    collected: dict[int, tuple[int, ...]] = {}
    if posted:
        waits: dict[int, list[int]] = {}
        pairs = zip(program.waits.op.tolist(), program.waits.request.tolist(), strict=True)
        for op, request in pairs:
            if request in posted:
                waits.setdefault(op, []).append(request)
        for op, completed in sequence:
            if completed and op in waits:
                first = [posted.pop(r) for r in waits[op] if r in posted]
                collected[op] = tuple(dict.fromkeys(first))
    return Rounds(number, calls, collected)
