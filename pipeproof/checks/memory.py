"""memory: what each rank holds at once, and whether it fits its budget.

Where a program allocates and frees, its units are counted: an allocation lives
from before its op to after the op that frees it. Otherwise the units are live
activations: the forward of (stage, microbatch) leaves one, and its backward,
or its weight gradient where the backward is split, gives it back.

Every rank has one lane, and frees happen on it; so the peak over every legal
timing is the peak in program order, and exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding, result
from pipeproof.program.keys import dense
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.verdict import (
    CheckResult,
    Exceeds,
    Finding,
    Illegal,
    Remains,
    Verdict,
)

if TYPE_CHECKING:
    from pipeproof.program.programs import Ints, Longs

NAME = "memory"
TITLE = "no rank holds more than its budget, and nothing is left over"


@dataclass(frozen=True, slots=True)
class Usage:
    """``held[op]`` is what op's rank holds while op runs; ``peak`` and ``peak_op``
    are a lane's largest, in order of the lanes."""

    held: Longs
    peak: tuple[int, ...]
    peak_op: tuple[int, ...]
    unit: str  # "live activations" or "units"
    allocates: bool


def check(subject: Subject) -> CheckResult:
    """Compare every rank's peak with its budget; look for what is left over."""
    program = subject.program
    used = usage(program, subject.rank)
    found = [
        *_over_budget(subject, used),
        *_bad_frees(subject),
        *_leaks(subject),
        *_stays_gathered(subject),
    ]
    peaks = {str(lane.rank): p for lane, p in zip(program.lanes, used.peak, strict=True)}
    within = " within the budget" if _budget(subject) else ""
    return result(
        subject,
        NAME,
        found,
        f"peak {_peaks(used.peak)} {used.unit}{within}",
        engine="program order",
        evidence={
            "unit": used.unit,
            "peak": peaks,
            "budget": {str(r): b for r, b in sorted(_budget(subject).items())},
            "tightest_budget": peaks,
            "reached_at": {
                str(lane.rank): op_text(program, op) if op >= 0 else None
                for lane, op in zip(program.lanes, used.peak_op, strict=True)
            },
        },
    )


def _peaks(peak: tuple[int, ...]) -> str:
    """All peaks where they are few, else the range."""
    if len(set(peak)) == 1:
        return str(peak[0]) + (" on every rank:" if len(peak) > 1 else "")
    if len(peak) <= 8:
        return ", ".join(map(str, peak)) + f" on ranks 0 to {len(peak) - 1}:"
    return f"{min(peak)} to {max(peak)} on {len(peak)} ranks:"


def _budget(subject: Subject) -> dict[int, int]:
    budget = dict(subject.program.details.budget)
    for rank, units in subject.budget.items():
        budget[rank] = min(units, budget.get(rank, units))
    return budget


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


def _over_budget(subject: Subject, used: Usage) -> Iterator[Finding]:
    program = subject.program
    over: list[tuple[int, int, int]] = []
    for lane in program.lanes:
        limit = _budget(subject).get(lane.rank)
        if limit is None:
            continue
        high = np.flatnonzero(used.held[lane.first : lane.stop] > limit)
        if len(high):
            over.append((lane.first + int(high[0]), lane.rank, limit))
    if not over:
        return
    op, rank, limit = over[0]
    number = program.lane_of(op)
    yield finding(
        subject,
        NAME,
        Verdict.MEMORY,
        f"rank {rank} holds {used.held[op]} {used.unit} at {op_text(program, op)}, over its "
        f"budget of {limit}; its peak is {used.peak[number]}",
        op,
        Exceeds(op, int(used.held[op]), limit),
        cause="Too many forwards run ahead of their backwards, or a buffer is freed late."
        if not used.allocates
        else "What is no longer needed is held until a later wait or the end of the step.",
        cures=(f"The tightest budget that holds on rank {rank} is {used.peak[number]}.",),
        count=len(over),
        where=[o for o, _, _ in over[:5]],
    )


def _bad_frees(subject: Subject) -> Iterator[Finding]:
    """Frees of what is not live."""
    program = subject.program
    live: set[tuple[int, str]] = set()
    bad: list[tuple[int, str]] = []
    for op in sorted(program.details.attributes):
        rank, attributes = int(subject.rank[op]), program.details.attributes[op]
        live.update((rank, name) for name, _ in attributes.alloc)
        for name in attributes.free:
            if (rank, name) in live:
                live.discard((rank, name))
            else:
                bad.append((op, name))
    if bad:
        op, name = bad[0]
        yield finding(
            subject,
            NAME,
            Verdict.ORDER,
            f"rank {subject.rank[op]} frees {name} at {op_text(program, op)}, but it is not live",
            op,
            Illegal(op, name),
            cause="It was freed before, is allocated later, or on another rank.",
            count=len(bad),
        )


def _leaks(subject: Subject) -> Iterator[Finding]:
    program = subject.program
    if not program.details.leak_check:
        return
    live: dict[tuple[int, str], int] = {}
    for op in sorted(program.details.attributes):
        rank, attributes = int(subject.rank[op]), program.details.attributes[op]
        live.update(((rank, name), op) for name, _ in attributes.alloc)
        for name in attributes.free:
            live.pop((rank, name), None)
    left = [(r, n, op) for (r, n), op in live.items() if n not in program.details.may_remain]
    if left:
        rank, name, op = left[0]
        yield finding(
            subject,
            NAME,
            Verdict.LEAK,
            f"rank {rank} ends the step still holding {name}, allocated at {op_text(program, op)}",
            op,
            Remains(rank, name),
            cause="Nothing frees it; the next step starts with it and adds its own.",
            count=len(left),
            where=[o for _, _, o in left[:5]],
        )


def _stays_gathered(subject: Subject) -> Iterator[Finding]:
    """Stages whose parameters are gathered and never given back."""
    program = subject.program
    acts = np.flatnonzero((program.kind == Kind.UNSHARD) | (program.kind == Kind.RESHARD))
    last: dict[tuple[int, int], int] = {}
    for op in acts.tolist():
        last[int(subject.rank[op]), int(program.stage[op])] = op
    left = [(key, op) for key, op in last.items() if program.kind[op] == Kind.UNSHARD]
    if left:
        (rank, stage), op = left[0]
        yield finding(
            subject,
            NAME,
            Verdict.LEAK,
            f"rank {rank} ends the step with the parameters of stage {stage} gathered since "
            f"{op_text(program, op)}",
            op,
            Remains(rank, f"parameters of stage {stage}"),
            cause="No RESHARD follows; torch refuses the next step's UNSHARD.",
            count=len(left),
            where=[o for _, o in left[:5]],
        )
