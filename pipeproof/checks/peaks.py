"""The most that each rank can hold, where ranks have several lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeproof.checks.closure import Change, Closure, closure
from pipeproof.engines.events.ordering import Before, end_of, start_of
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program


@dataclass(frozen=True, slots=True)
class RankPeak:
    """The most that a rank holds, the cut that shows it, and at which ops its lanes
    stand then: ``held`` ops have begun or are about to, and none has ended."""

    rank: int
    closure: Closure
    held: tuple[int, ...]


def rank_peaks(
    program: Program, before: Before, units: Callable[[int], int] | None = None
) -> list[RankPeak]:
    """The peak of every rank.

    ``units(stage)`` is what a live activation of a stage counts, 1 unless given.
    """
    peaks = []
    for rank in range(program.ranks):
        changes = list(_changes(program, rank, units or (lambda stage: 1)))
        found = closure(changes, before)
        forced = {c.op for c in found.chosen if c.units < 0}
        # Each lane may run up to the first op whose end would free something that
        # need not have been freed yet.
        first: dict[int, int] = {}
        for change in sorted(changes, key=lambda c: c.event):
            if change.units < 0 and change.op not in forced:
                first.setdefault(change.event[0], _op_at(program, change))
        peaks.append(RankPeak(rank, found, tuple(sorted(first.values()))))
    return peaks


def _op_at(program: Program, change: Change) -> int:
    chain, position = change.event
    return program.lanes[chain - 1].first + position // 2


def _changes(program: Program, rank: int, units_of: Callable[[int], int]) -> Iterator[Change]:
    """What the rank's ops allocate at their start and free at their end, or at the
    end of whoever waits for them."""
    attributes = program.details.attributes
    mine = [
        op for lane in program.lanes if lane.rank == rank for op in range(lane.first, lane.stop)
    ]
    if program.allocates:
        waiter = program.waiters()
        units = {n: u for op in mine if op in attributes for n, u in attributes[op].alloc}
        for op in mine:
            a = attributes.get(op)
            if a is None:
                continue
            for _, size in a.alloc:
                yield Change(op, start_of(program, op), size)
            request = int(program.request[op])
            ender = op if request < 0 else waiter.get(request)
            for name in a.free:
                if ender is not None and name in units:
                    yield Change(op, end_of(program, ender), -units[name])
        return
    whole = {
        (int(program.stage[op]), int(program.microbatch[op]))
        for op in mine
        if program.kind[op] == Kind.B
    }
    for op in mine:
        kind = program.kind[op]
        cell = (int(program.stage[op]), int(program.microbatch[op]))
        if kind == Kind.F:
            yield Change(op, start_of(program, op), units_of(cell[0]))
            if program.forward_only:
                yield Change(op, end_of(program, op), -units_of(cell[0]))
        elif kind == Kind.B or (kind == Kind.W and cell not in whole):
            yield Change(op, end_of(program, op), -units_of(cell[0]))
