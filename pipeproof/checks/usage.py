"""What each rank holds over time.

Where a program allocates and frees, its units are counted: an allocation lives
from before its op to after the op that frees it has completed. When a posted
op completes nobody knows before it is waited for, so what it frees counts until
then. Otherwise the units are live activations: the forward of (stage,
microbatch) leaves one, and its backward, or its weight gradient where the
backward is split, gives it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.program.keys import dense
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.program.programs import Ints, Longs


@dataclass(frozen=True, slots=True)
class Usage:
    """``held[op]`` is what op's rank holds while op runs; ``peak`` and ``peak_op``
    are a lane's largest, in order of the lanes."""

    held: Longs
    peak: tuple[int, ...]
    peak_op: tuple[int, ...]
    unit: str


def usage(program: Program, rank: Ints) -> Usage:
    """What each rank holds over time."""
    before, after = _changes(program, rank)
    total = np.cumsum(before - np.concatenate(([0], after[:-1])))
    held = np.empty(program.ops, np.int64)
    peaks, ops = [], []
    for lane in program.lanes:
        if lane.stop == lane.first:
            peaks.append(0)
            ops.append(-1)
            continue
        base = total[lane.first - 1] - after[lane.first - 1] if lane.first else 0
        held[lane.first : lane.stop] = total[lane.first : lane.stop] - base
        at = int(held[lane.first : lane.stop].argmax()) + lane.first
        peaks.append(max(0, int(held[at])))
        ops.append(at)
    return Usage(held, tuple(peaks), tuple(ops), unit_of(program))


def unit_of(program: Program) -> str:
    """What the figures count."""
    return "units" if program.allocates else "live activations"


def _changes(program: Program, rank: Ints) -> tuple[Longs, Longs]:
    """What each op takes before it runs, and what it gives back after."""
    return _allocated(program, rank) if program.allocates else activations(program, rank)


def _allocated(program: Program, rank: Ints) -> tuple[Longs, Longs]:
    before, after = np.zeros(program.ops, np.int64), np.zeros(program.ops, np.int64)
    live: dict[tuple[int, str], int] = {}
    for op, allocated, freed, earlier in memory_events(program):
        r, waits = int(rank[op]), program.kind[op] == Kind.WAIT
        for name in () if waits else earlier:
            before[op] -= live.pop((r, name), 0)
        for name, units in allocated:
            before[op] += units
            live[r, name] = live.get((r, name), 0) + units
        for name in (*earlier, *freed) if waits else freed:
            after[op] += live.pop((r, name), 0)
    return before, after


Allocated = tuple[tuple[str, int], ...]
Names = tuple[str, ...]


def memory_events(program: Program) -> Iterator[tuple[int, Allocated, Names, Names]]:
    """(op, what it allocates, what it frees, what posted ops free that it waits for).

    Lane after lane, in order. A posted op frees nothing itself, but where it is
    first waited for: after the waiting, if that op is a WAIT, and otherwise
    before the op allocates and runs. One that is never waited for frees nothing.
    """
    attributes = program.details.attributes
    posted = {
        int(program.request[op]): a.free
        for op, a in attributes.items()
        if a.free and program.request[op] >= 0
    }
    waited: dict[int, list[str]] = {}
    if posted:
        for op, request in zip(
            program.waits.op.tolist(), program.waits.request.tolist(), strict=True
        ):
            waited.setdefault(op, []).extend(posted.pop(request, ()))
    for op in sorted({*attributes, *waited}):
        a = attributes.get(op)
        freed = a.free if a and program.request[op] < 0 else ()
        yield op, a.alloc if a else (), freed, tuple(waited.get(op, ()))


def activations(program: Program, rank: Ints) -> tuple[Longs, Longs]:
    """What each op takes and gives back, in live activations.

    A forward adds the activation if it is not there, a B or W takes it away if it is.

    Where no backward will ever ask for it, it is gone when the forward has run.
    """
    before, after = np.zeros(program.ops, np.int64), np.zeros(program.ops, np.int64)
    kind = program.kind
    if program.forward_only:
        forward = (kind == Kind.F) & (program.stage >= 0) & (program.microbatch >= 0)
        before[forward] = after[forward] = 1
        return before, after
    acting = (kind == Kind.F) | (kind == Kind.B) | (kind == Kind.W)
    ops = np.flatnonzero(acting & (program.stage >= 0) & (program.microbatch >= 0))
    key, _ = dense(rank[ops], program.stage[ops], program.microbatch[ops])
    order = np.argsort(key, kind="stable")
    ops, key = ops[order], key[order]
    makes = kind[ops] == Kind.F
    there = np.zeros(len(ops), np.bool_)  # what the op before it on the same key left
    there[1:] = makes[:-1] & (key[1:] == key[:-1])
    before[ops[makes & ~there]] = 1
    after[ops[~makes & there]] = 1
    return before, after
