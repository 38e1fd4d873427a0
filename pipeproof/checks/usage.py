"""What each rank holds over time.

Where a program allocates and frees, its units are counted: an allocation lives
from before its op to after the op that frees it. Otherwise the units are live
activations: the forward of (stage, microbatch) leaves one, and its backward,
or its weight gradient where the backward is split, gives it back.
"""

from __future__ import annotations

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
    unit: str  # "live activations" or "units"
    allocates: bool


def usage(program: Program, rank: Ints) -> Usage:
    """What each rank holds over time."""
    before, after, allocates = _changes(program, rank)
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
    unit = "units" if allocates else "live activations"
    return Usage(held, tuple(peaks), tuple(ops), unit, allocates)


def _changes(program: Program, rank: Ints) -> tuple[Longs, Longs, bool]:
    """What each op takes before it runs, what it gives back after, and whether
    the program says so itself."""
    before, after = np.zeros(program.ops, np.int64), np.zeros(program.ops, np.int64)
    attributes = program.details.attributes
    if any(a.alloc for a in attributes.values()):
        live: dict[tuple[int, str], int] = {}
        for op in sorted(attributes):
            for name, units in attributes[op].alloc:
                before[op] += units
                live[int(rank[op]), name] = live.get((int(rank[op]), name), 0) + units
            for name in attributes[op].free:
                after[op] += live.pop((int(rank[op]), name), 0)
        return before, after, True
    computes = np.flatnonzero(
        (program.kind <= Kind.W) & (program.stage >= 0) & (program.microbatch >= 0)
    )
    key, size = dense(rank[computes], program.stage[computes], program.microbatch[computes])
    kind = program.kind[computes]
    made = np.full(size, program.ops, np.int64)
    freed = np.full(size, -1, np.int64)
    forward = kind == Kind.F
    made[key[forward][::-1]] = computes[forward][::-1]
    for last in (Kind.W, Kind.B):  # a full backward, where there is one, decides
        here = kind == last
        freed[key[here][::-1]] = computes[here][::-1]
    np.add.at(before, computes[forward], 1)
    gone = freed > made
    np.add.at(after, freed[gone], 1)
    return before, after, False
