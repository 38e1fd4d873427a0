"""The most bytes each rank holds: live activations and weights.

An activation of a stage holds its ``activation_bytes`` from its forward to the end
of its last backward. Where it is recomputed (R) it holds ``recompute_bytes``, what
the recompute starts from, until the R begins. What an op needs only while it runs
is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipeproof.checks.peaks import rank_peaks
from pipeproof.checks.subject import Subject
from pipeproof.checks.usage import activations
from pipeproof.program.costs import Costs, at
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program


def byte_peaks(
    subject: Subject, costs: Costs, versions: Mapping[int, int]
) -> dict[int, int] | None:
    """Peak bytes of every rank; None where the costs or the program do not say them.

    ``versions`` is how many versions of its weights a stage keeps, 1 where it names
    none. Programs that allocate their own units say nothing of bytes, and where
    ranks have several lanes a recompute leaves the peak open.
    """
    program = subject.program
    if costs.activation_bytes is None or program.allocates:
        return None
    if not program.several_lanes:
        peaks = _in_order(subject, costs)
    elif (program.kind == Kind.R).any() and costs.recompute_bytes is not None:
        return None
    else:
        whole = costs.activation_bytes
        found = rank_peaks(program, subject.before, lambda stage: int(at(whole, stage)))
        peaks = {peak.rank: peak.closure.peak for peak in found}
    if costs.weight_bytes is not None:
        for stage, ranks in enumerate(program.hosts):
            for rank in ranks:
                kept = int(at(costs.weight_bytes, stage)) * versions.get(stage, 1)
                peaks[rank] = peaks.get(rank, 0) + kept
    return peaks


def _in_order(subject: Subject, costs: Costs) -> dict[int, int]:
    """Peaks in program order, which is every timing where ranks have one lane."""
    program = subject.program
    taken, given = activations(program, subject.rank)
    stages = range(max(program.stages, 1))
    assert costs.activation_bytes is not None
    full = np.array([int(at(costs.activation_bytes, s)) for s in stages], np.int64)
    size = full[np.clip(program.stage, 0, len(full) - 1)]
    before, after = taken * size, given * size
    if costs.recompute_bytes is not None and (program.kind == Kind.R).any():
        less = full - [int(at(costs.recompute_bytes, s)) for s in stages]
        _recomputed(program, subject, less, before, after)
    total = np.cumsum(before - np.concatenate(([0], after[:-1])))
    peaks = dict.fromkeys(range(program.ranks), 0)
    for lane in program.lanes:
        if lane.stop > lane.first:
            base = int(total[lane.first - 1] - after[lane.first - 1]) if lane.first else 0
            peaks[lane.rank] = max(0, int(total[lane.first : lane.stop].max()) - base)
    return peaks


def _recomputed(
    program: Program, subject: Subject, less: np.ndarray, before: np.ndarray, after: np.ndarray
) -> None:
    """Move what a recompute makes again from its forward to the first R behind it; where
    the backward comes without one, it gives back no more than was kept."""
    repeated = np.flatnonzero(program.kind == Kind.R)
    cells = {
        (int(subject.rank[op]), int(program.stage[op]), int(program.microbatch[op]))
        for op in repeated.tolist()
    }
    away: dict[tuple[int, int, int], bool] = {}
    for op in np.flatnonzero(program.kind <= Kind.R).tolist():
        stage = int(program.stage[op])
        cell = int(subject.rank[op]), stage, int(program.microbatch[op])
        if cell not in cells:
            continue
        if before[op]:
            away[cell] = True
            before[op] -= less[stage]
        elif program.kind[op] == Kind.R and away.get(cell):
            away[cell] = False
            before[op] += less[stage]
        elif after[op] and away.pop(cell, False):
            after[op] -= less[stage]
