"""Memory of ranks with several lanes: the peak over every legal timing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeproof.checks.closure import Change, Closure, closure
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding
from pipeproof.engines.events.ordering import end_of, start_of
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.verdict import Finding, Illegal, PilesUp, Remains, Verdict


@dataclass(frozen=True, slots=True)
class RankPeak:
    """The most that a rank holds, the cut that shows it, and at which ops its lanes
    stand then: ``held`` ops have begun or are about to, and none has ended."""

    rank: int
    closure: Closure
    held: tuple[int, ...]


def rank_peaks(subject: Subject) -> list[RankPeak]:
    """The peak of every rank."""
    program = subject.program
    peaks = []
    for rank in range(program.ranks):
        changes = list(_changes(program, rank))
        found = closure(changes, subject.before)
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


def _changes(program: Program, rank: int) -> Iterator[Change]:
    """What the rank's ops allocate at their start and free at their end, or at the
    end of whoever waits for them."""
    attributes = program.details.attributes
    mine = [
        op for lane in program.lanes if lane.rank == rank for op in range(lane.first, lane.stop)
    ]
    if any(a.alloc for a in attributes.values()):
        waits = program.waits
        waiter = dict(zip(waits.request.tolist()[::-1], waits.op.tolist()[::-1], strict=True))
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
            yield Change(op, start_of(program, op), 1)
            if program.forward_only:
                yield Change(op, end_of(program, op), -1)
        elif kind == Kind.B or (kind == Kind.W and cell not in whole):
            yield Change(op, end_of(program, op), -1)


def over_budget(
    subject: Subject, check: str, peaks: list[RankPeak], budget: dict[int, int], unit: str
) -> Iterator[Finding]:
    """Ranks whose peak exceeds their budget, in one finding."""
    program = subject.program
    over = [p for p in peaks if p.closure.peak > budget.get(p.rank, p.closure.peak)]
    if not over:
        return
    first = over[0]
    limit, peak = budget[first.rank], first.closure.peak
    takes = [c.op for c in first.closure.chosen if c.units > 0]
    yield finding(
        subject,
        check,
        Verdict.MEMORY,
        f"rank {first.rank} can hold {peak} {unit}, over its budget of {limit}: nothing frees "
        f"any of it before {op_text(program, takes[-1])}, when its lanes run as they may",
        takes[-1],
        PilesUp(first.rank, first.held, peak, limit),
        cause="A lane runs ahead of the one that frees: no signal holds it back.",
        cures=(
            f"Make the allocating lane wait for the freeing one, or allow rank {first.rank} "
            f"{peak}.",
        ),
        count=len(over),
        where=takes[-4:],
    )


def lane_leaks(subject: Subject, check: str) -> Iterator[Finding]:
    """What a rank allocates more often than it frees it, and the other way round."""
    program = subject.program
    balance: dict[tuple[int, str], int] = {}
    last: dict[tuple[int, str], int] = {}
    for op, a in sorted(program.details.attributes.items()):
        rank = program.rank_of(op)
        for name, _ in a.alloc:
            balance[rank, name] = balance.get((rank, name), 0) + 1
            last[rank, name] = op
        for name in a.free:
            balance[rank, name] = balance.get((rank, name), 0) - 1
            last.setdefault((rank, name), op)
    kept = program.details.may_remain
    left = [k for k, n in balance.items() if n > 0 and k[1] not in kept]
    if left and program.details.leak_check:
        rank, name = left[0]
        yield finding(
            subject,
            check,
            Verdict.LEAK,
            f"rank {rank} ends the step still holding {name}, allocated at "
            f"{op_text(program, last[left[0]])}",
            last[left[0]],
            Remains(rank, name),
            cause="Nothing frees it; the next step starts with it and adds its own.",
            count=len(left),
        )
    extra = [k for k, n in balance.items() if n < 0]
    if extra:
        rank, name = extra[0]
        op = max(o for o, a in program.details.attributes.items() if name in a.free)
        yield finding(
            subject,
            check,
            Verdict.ORDER,
            f"rank {rank} frees {name} more often than it allocates it",
            op,
            Illegal(op, name),
            cause="It is freed on two lanes, or allocated on another rank.",
            count=len(extra),
        )
