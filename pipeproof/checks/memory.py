"""memory: what each rank holds at once, and whether it fits its budget.

What counts as a unit, and what a rank holds over time, is in ``usage``. Every
rank has one lane. What happens on it happens in program order, and what a
posted op frees may stay until that op is waited for: the peak in that order is
the peak over every legal timing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeproof.checks.executions import in_both_readings
from pipeproof.checks.memory_lanes import lane_leaks, over_budget
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding, result, unanswered
from pipeproof.checks.usage import Usage, memory_events, unit_of
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.verdict import (
    CheckResult,
    Exceeds,
    Finding,
    Illegal,
    Remains,
    Verdict,
)

NAME = "memory"
TITLE = "no rank holds more than its budget, and nothing is left over"


def check(subject: Subject) -> CheckResult:
    """Compare every rank's peak with its budget; look for what is left over."""
    program = subject.program
    if program.several_lanes:
        return _check_lanes(subject)
    used = subject.usage
    if program.chooses:
        found, gaps = in_both_readings(subject, NAME, _found)
        if gaps or _frees_at_waitany(subject):
            why = gaps[0] if gaps else "when a WAITANY goes on, what it frees is open"
            return unanswered(NAME, why, why)
    else:
        found = _found(subject)
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


def _found(subject: Subject) -> list[Finding]:
    return [
        *_over_budget(subject, subject.usage),
        *_bad_frees(subject),
        *_leaks(subject),
        *_stays_gathered(subject),
    ]


def _frees_at_waitany(subject: Subject) -> bool:
    """Whether something is freed when one of several requests has completed."""
    program = subject.program
    posted = {
        int(program.request[op])
        for op, a in program.details.attributes.items()
        if a.free and program.request[op] >= 0
    }
    vague = np.flatnonzero(program.kind == Kind.WAITANY).tolist()
    return any(not posted.isdisjoint(program.requests_of(op)) for op in vague)


def _check_lanes(subject: Subject) -> CheckResult:
    """The same where ranks have several lanes: over every legal timing of them."""
    program, budget = subject.program, _budget(subject)
    unit, peaks = unit_of(program), subject.peaks
    found = [
        *over_budget(subject, NAME, budget),
        *lane_leaks(subject, NAME),
        *_stays_gathered(subject),
    ]
    by_rank = {str(p.rank): p.closure.peak for p in peaks}
    return result(
        subject,
        NAME,
        found,
        f"peak {_peaks(tuple(by_rank.values()))} {unit}{' within the budget' if budget else ''}",
        engine="minimum cut",
        evidence={
            "unit": unit,
            "peak": by_rank,
            "budget": {str(r): b for r, b in sorted(budget.items())},
            "tightest_budget": by_rank,
            "certificate": "minimum cut",
            "cuts": {
                str(p.rank): {"allocated": p.closure.allocated, "cut": p.closure.cut}
                for p in peaks
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
        if not program.allocates
        else "What is no longer needed is held until a later wait or the end of the step.",
        cures=(f"The tightest budget that holds on rank {rank} is {used.peak[number]}.",),
        count=len(over),
        where=[o for o, _, _ in over[:5]],
    )


def _bad_frees(subject: Subject) -> Iterator[Finding]:
    """Frees of what is not live, or of what a pending op frees already."""
    program = subject.program
    live: set[tuple[int, str]] = set()
    pending: set[tuple[int, str]] = set()  # to be freed once a posted op completes
    bad: list[tuple[int, str]] = []
    for op, allocated, freed, earlier in memory_events(program):
        r = int(subject.rank[op])
        done = {(r, name) for name in earlier}
        pending -= done
        # A WAIT's allocations are made before it waits, those of other ops after.
        if program.kind[op] != Kind.WAIT:
            live -= done
        live.update((r, name) for name, _ in allocated)
        if program.kind[op] == Kind.WAIT:
            live -= done
        for name in freed:
            if (r, name) not in live or (r, name) in pending:
                bad.append((op, name))
            live.discard((r, name))
        if program.request[op] >= 0:
            for name in program.details.attributes[op].free:
                if (r, name) not in live or (r, name) in pending:
                    bad.append((op, name))
                pending.add((r, name))
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
    for op, allocated, freed, earlier in memory_events(program):
        r = int(subject.rank[op])
        waits = program.kind[op] == Kind.WAIT
        for name in () if waits else earlier:
            live.pop((r, name), None)
        live.update(((r, name), op) for name, _ in allocated)
        for name in (*earlier, *freed) if waits else freed:
            live.pop((r, name), None)
    # In the end everything posted completes, waited for or not.
    waited = set(program.waits.request.tolist())
    for op, attributes in program.details.attributes.items():
        if program.request[op] >= 0 and int(program.request[op]) not in waited:
            for name in attributes.free:
                live.pop((int(subject.rank[op]), name), None)
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
