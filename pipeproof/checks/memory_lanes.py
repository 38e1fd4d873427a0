"""Memory of ranks with several lanes: the peak over every legal timing."""

from __future__ import annotations

from collections.abc import Iterator

from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding
from pipeproof.checks.usage import unit_of
from pipeproof.program.notation import op_text
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
