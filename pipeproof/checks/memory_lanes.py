"""Memory of ranks with several lanes: the peak over every legal timing."""

from __future__ import annotations

from collections.abc import Iterator

from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding
from pipeproof.checks.usage import unit_of
from pipeproof.program.notation import op_text
from pipeproof.program.programs import Program
from pipeproof.verdict import Finding, Illegal, PilesUp, Remains, Verdict


def over_budget(subject: Subject, check: str, budget: dict[int, int]) -> Iterator[Finding]:
    """Ranks whose peak exceeds their budget, in one finding."""
    program = subject.program
    over = [p for p in subject.peaks if p.closure.peak > budget.get(p.rank, p.closure.peak)]
    if not over:
        return
    first = over[0]
    limit, peak = budget[first.rank], first.closure.peak
    takes = [c.op for c in first.closure.chosen if c.units > 0]
    yield finding(
        subject,
        check,
        Verdict.MEMORY,
        f"rank {first.rank} can hold {peak} {unit_of(program)}, over its budget of "
        f"{limit}: nothing frees any of it before {op_text(program, takes[-1])}, "
        "when its lanes run as they may",
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
    """What a rank allocates and does not free, and what it frees without having it.

    On one lane a FREE gives back all that there is of a name; across lanes, where
    their order is open, each gives back one.
    """
    program = subject.program
    left: dict[tuple[int, str], int] = {}  # -> the op that allocated it
    extra: dict[tuple[int, str], int] = {}  # -> the op that frees it
    for key, events in _events(program).items():
        if len({program.lane_of(op) for op, _ in events}) == 1:
            _in_order(key, events, left, extra)
        else:
            _in_balance(key, events, left, extra)
    kept = program.details.may_remain
    remaining = [(key, op) for key, op in left.items() if key[1] not in kept]
    if remaining and program.details.leak_check:
        (rank, name), op = remaining[0]
        yield finding(
            subject,
            check,
            Verdict.LEAK,
            f"rank {rank} ends the step still holding {name}, allocated at {op_text(program, op)}",
            op,
            Remains(rank, name),
            cause="Nothing frees it; the next step starts with it and adds its own.",
            count=len(remaining),
        )
    if extra:
        (rank, name), op = next(iter(extra.items()))
        yield finding(
            subject,
            check,
            Verdict.ORDER,
            f"rank {rank} at {op_text(program, op)} frees {name}, which it does not hold",
            op,
            Illegal(op, name),
            cause="It is freed twice or on two lanes, or allocated on another rank.",
            count=len(extra),
        )


_Events = list[tuple[int, bool]]
"""(op, whether it allocates), in the order of the ops."""


def _events(program: Program) -> dict[tuple[int, str], _Events]:
    """What happens to each (rank, name)."""
    found: dict[tuple[int, str], _Events] = {}
    for op, own in sorted(program.details.attributes.items(), key=lambda item: item[0]):
        rank = program.rank_of(op)
        for name, _ in own.alloc:
            found.setdefault((rank, name), []).append((op, True))
        for name in own.free:
            found.setdefault((rank, name), []).append((op, False))
    return found


_Ops = dict[tuple[int, str], int]


def _in_order(key: tuple[int, str], events: _Events, left: _Ops, extra: _Ops) -> None:
    live: int | None = None
    for op, allocates in events:
        if not allocates and live is None:
            extra.setdefault(key, op)
        live = op if allocates else None
    if live is not None:
        left[key] = live


def _in_balance(key: tuple[int, str], events: _Events, left: _Ops, extra: _Ops) -> None:
    allocating = [op for op, allocates in events if allocates]
    freeing = [op for op, allocates in events if not allocates]
    if len(allocating) > len(freeing):
        left[key] = allocating[-1]
    elif len(freeing) > len(allocating):
        extra[key] = freeing[-1]
