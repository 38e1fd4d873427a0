"""Slots: named buffers of a rank, and what is in them when they are read.

Followed through one order of the events; where an access could fall elsewhere
there is a race, which is reported as such. An op expects a slot's contents by
``r``, a send from a slot (``buf``) expects its own payload there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeproof.checks.subject import Subject
from pipeproof.program.notation import payload_name
from pipeproof.program.programs import Program


@dataclass(frozen=True, slots=True)
class Misread:
    """``op`` expects ``expected`` in ``slot`` and finds ``found`` (None: nothing was
    ever put there), left by op ``writer``."""

    op: int
    slot: str
    expected: str
    found: str | None
    writer: int | None


def uses_slots(program: Program) -> bool:
    """Whether any op or message names a slot."""
    details = program.details
    return any(t.buf is not None for t in details.traits.values()) or any(
        a.writes or a.reads or "copy" in a.more for a in details.attributes.values()
    )


def misreads(subject: Subject) -> Iterator[Misread]:
    """Reads of a slot that holds something else, in one order of the events."""
    program = subject.program
    if not uses_slots(program):
        return
    reader = _Reader(program)
    for op, completed in subject.sequence:
        yield from reader.complete(op) if completed else reader.start(op)


class _Reader:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.held: dict[tuple[int, str], tuple[str, int]] = {}  # (rank, slot) -> content, writer
        self.copied: dict[int, str | None] = {}  # a pending copy -> what it took
        self.filled = set(_filled(program))
        self.posters = {int(r): op for op, r in enumerate(program.request.tolist()) if r >= 0}

    def _get(self, op: int, slot: str, expected: str) -> Iterator[Misread]:
        found = self.held.get((self.program.rank_of(op), slot))
        if found is None:
            yield Misread(op, slot, expected, None, None)
        elif found[0] != expected:
            yield Misread(op, slot, expected, *found)

    def _put(self, op: int, slot: str, content: str) -> None:
        self.held[self.program.rank_of(op), slot] = (content, op)

    def start(self, op: int) -> Iterator[Misread]:
        """What op reads when it begins, or is posted; one that waits begins after that."""
        if not self.program.requests_of(op):
            yield from self._read(op)

    def _read(self, op: int) -> Iterator[Misread]:
        program = self.program
        attributes = program.details.attributes.get(op)
        if attributes is not None:
            for slot, content in attributes.reads:
                yield from self._get(op, slot, content)
            if "copy" in attributes.more:
                source = attributes.more["copy"][0]
                held = self.held.get((program.rank_of(op), source))
                self.copied[op] = held[0] if held else None
        for row in program.rows_of(op):
            traits = program.details.traits.get(row)
            if traits is None or traits.buf is None or not program.messages.send[row]:
                continue
            # A slot that nothing in the program fills was filled before it.
            if (program.rank_of(op), traits.buf) in self.filled:
                expected = payload_name(program, int(program.messages.payload[row]))
                yield from self._get(op, traits.buf, expected)

    def complete(self, op: int) -> Iterator[Misread]:
        """What op leaves behind, and what it waited for has left."""
        program = self.program
        requests = program.requests_of(op)
        for request in requests:
            self._deliver(self.posters[request])
        if requests:
            yield from self._read(op)
        if program.request[op] < 0:
            self._deliver(op)
        attributes = program.details.attributes.get(op)
        if attributes is not None:
            for slot, content in attributes.writes:
                self._put(op, slot, content)

    def _deliver(self, op: int) -> None:
        program = self.program
        for row in program.rows_of(op):
            traits = program.details.traits.get(row)
            if traits is not None and traits.buf is not None and not program.messages.send[row]:
                payload = int(program.messages.payload[row])
                self._put(op, traits.buf, payload_name(program, payload))
        attributes = program.details.attributes.get(op)
        if attributes is not None and "copy" in attributes.more:
            taken = self.copied.get(op)
            target = attributes.more["copy"][1]
            if taken is None:
                self.held.pop((program.rank_of(op), target), None)
            else:
                self._put(op, target, taken)


def _filled(program: Program) -> Iterator[tuple[int, str]]:
    """(rank, slot) of every slot that some op of the program fills."""
    for op, attributes in program.details.attributes.items():
        rank = program.rank_of(op)
        yield from ((rank, slot) for slot, _ in attributes.writes)
        if "copy" in attributes.more:
            yield rank, attributes.more["copy"][1]
    m = program.messages
    for row, traits in program.details.traits.items():
        if traits.buf is not None and not m.send[row]:
            yield int(m.rank[row]), traits.buf
