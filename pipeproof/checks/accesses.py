"""Accesses: what each op reads and writes on its rank, and for how long.

Slots, gradient accumulators and weights are storage of a rank. A blocking op
uses them from its start to its completion, a posted one from its posting until
whoever waits for it has gone on. Two accesses of which one writes must not
overlap: every execution must end one before it begins the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pipeproof.checks.subject import Subject
from pipeproof.engines.events.ordering import end_of, start_of
from pipeproof.program.ops import Kind
from pipeproof.program.programs import NOTHING, Attributes, Program

Storage = tuple[int, str, str]
"""(rank, "slot" | "gradient of" | "weight", name)."""


@dataclass(frozen=True, slots=True)
class Access:
    """``op`` uses storage, writing it or only reading, until ``until`` has gone on:
    itself, the op that waits for it, or None where nothing does. ``frees`` marks
    a write that gives the storage back."""

    op: int
    writes: bool
    until: int | None
    frees: bool = False


def accesses(program: Program) -> dict[Storage, list[Access]]:
    """All accesses to every storage that more than one op uses."""
    details = program.details
    if not (details.traits or details.attributes or program.several_lanes):
        return {}
    collector = _Collector(program)
    found: dict[Storage, list[Access]] = {}
    for storage, access in collector.collect():
        found.setdefault(storage, []).append(access)
    return {storage: used for storage, used in found.items() if len(used) > 1}


def conflicts(subject: Subject) -> Iterator[tuple[Storage, Access, Access]]:
    """Pairs of accesses that may overlap although one of them writes, first in
    the order of their ops."""
    for storage, used in accesses(subject.program).items():
        for one, other in _worth_comparing(subject, used):
            if not (one.writes or other.writes) or one.op == other.op:
                continue
            if not apart(subject, one, other) and _both_happen(subject, one, other):
                yield storage, one, other


def _worth_comparing(subject: Subject, used: list[Access]) -> Iterator[tuple[Access, Access]]:
    """Pairs that could overlap at all: on one lane only with what is still in use,
    so that a slot used a thousand times costs a thousand steps."""
    program = subject.program
    by_lane: dict[int, list[Access]] = {}
    for access in sorted(used, key=lambda a: a.op):
        by_lane.setdefault(program.lane_of(access.op), []).append(access)
    for lane in by_lane.values():
        pending: list[Access] = []
        for access in lane:
            pending = [p for p in pending if p.until is None or p.until >= access.op]
            yield from ((before, access) for before in pending)
            if access.until != access.op:
                pending.append(access)
    for one, other in combinations(by_lane.values(), 2):
        for first in one:
            for second in other:
                yield (first, second) if first.op < second.op else (second, first)


def apart(subject: Subject, one: Access, other: Access) -> bool:
    """Whether every execution ends one of the two before the other begins."""
    return ends_before(subject, one, other) or ends_before(subject, other, one)


def ends_before(subject: Subject, first: Access, second: Access) -> bool:
    """Whether ``first`` has ended, in every execution, when ``second`` begins."""
    program = subject.program
    if first.until is None:
        return False
    if program.lane_of(first.until) == program.lane_of(second.op):
        # A wait that an op carries is over before the op itself begins.
        return first.until < second.op or (first.until == second.op and first.until != first.op)
    return subject.before(end_of(program, first.until), start_of(program, second.op))


def _both_happen(subject: Subject, one: Access, other: Access) -> bool:
    """On one lane the later op is judged whether the program gets there or not; of
    two lanes both must get there to meet."""
    program = subject.program
    if program.lane_of(one.op) == program.lane_of(other.op):
        return True
    return all(subject.before.happens(start_of(program, a.op)) for a in (one, other))


class _Collector:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.waiter = program.waiters()

    def _until(self, op: int) -> int | None:
        request = int(self.program.request[op])
        return op if request < 0 else self.waiter.get(request)

    def collect(self) -> Iterator[tuple[Storage, Access]]:
        yield from self._buffers()
        for op, attributes in sorted(self.program.details.attributes.items()):
            yield from self._slots(op, attributes)
            yield from self._gradients(op, attributes)
        yield from self._weights()

    def _buffers(self) -> Iterator[tuple[Storage, Access]]:
        m = self.program.messages
        for row, traits in sorted(self.program.details.traits.items()):
            if traits.buf is not None:
                op = int(m.op[row])
                access = Access(op, not m.send[row], self._until(op))
                yield (int(m.rank[row]), "slot", traits.buf), access

    def _slots(self, op: int, attributes: Attributes) -> Iterator[tuple[Storage, Access]]:
        rank, until = self.program.rank_of(op), self._until(op)
        for slot, _ in attributes.writes:
            yield (rank, "slot", slot), Access(op, True, op)
        for slot, _ in attributes.reads:
            yield (rank, "slot", slot), Access(op, False, op)
        for slot, _ in attributes.alloc:
            yield (rank, "slot", slot), Access(op, True, op)
        for slot in attributes.free:
            yield (rank, "slot", slot), Access(op, True, until, frees=True)
        if "copy" in attributes.more:
            source, target = attributes.more["copy"]
            yield (rank, "slot", source), Access(op, False, until)
            yield (rank, "slot", target), Access(op, True, until)

    def _gradients(self, op: int, attributes: Attributes) -> Iterator[tuple[Storage, Access]]:
        rank, kind, more = self.program.rank_of(op), self.program.kind[op], attributes.more
        storage = self.program.details.alias
        touched = dict.fromkeys(more.get("grad", ()), True)
        if kind in (Kind.ZERO, Kind.SCALE, Kind.STEP) and attributes.label is not None:
            touched[attributes.label] = True
        elif kind == Kind.REPORT and attributes.label is not None:
            touched[attributes.label] = False
        elif kind == Kind.COLL and "param" in more:
            touched[more["param"]] = more["kind"] in ("allreduce", "reducescatter")
        for name, writes in touched.items():
            named = (rank, "gradient of", storage.get(name, name))
            yield named, Access(op, writes, self._until(op))

    def _weights(self) -> Iterator[tuple[Storage, Access]]:
        """Steps write the weights that computes of their stage read. On one lane
        that is a matter of versions; across lanes nothing may leave it open."""
        program = self.program
        if not program.several_lanes:
            return
        attributes = program.details.attributes
        for op in np.flatnonzero(program.kind == Kind.STEP).tolist():
            yield (program.rank_of(op), "weight", attributes[op].label or ""), Access(op, True, op)
        for op in np.flatnonzero(program.kind <= Kind.R).tolist():
            more = attributes[op].more if op in attributes else NOTHING
            if "wv" not in more:
                yield (
                    (program.rank_of(op), "weight", f"w{program.stage[op]}"),
                    Access(op, False, op),
                )
