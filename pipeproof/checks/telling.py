"""What the checks share in telling: findings, results, places, lists in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeproof.checks.subject import Subject
from pipeproof.program.notation import op_text, place
from pipeproof.program.programs import Program
from pipeproof.verdict import (
    CheckResult,
    Claim,
    Counterexample,
    Finding,
    Status,
    Step,
    Verdict,
)

ENGINE = "event graph"
SCOPE = "this program"
LANE_BY_LANE = ("order", "memory")
"""Checks that read each lane by itself, and ask for happens-before across lanes."""
ONE_ORDER = ("versions", "gradients")
"""Checks that follow one order of all events."""


def spell(items: Iterable[object]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    words = [str(i) for i in items]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def count(number: int, noun: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def moves_to(program: Program, op: int | None) -> tuple[int, ...]:
    """Ops completed on each lane when op's lane, alone, has reached op."""
    if op is None:
        return tuple(0 for _ in program.lanes)
    lane = program.lane_of(op)
    return tuple(
        op - entry.first if number == lane else 0 for number, entry in enumerate(program.lanes)
    )


def finding(
    subject: Subject,
    check: str,
    verdict: Verdict,
    message: str,
    op: int | None,
    claim: Claim,
    *,
    cause: str = "",
    cures: Sequence[str] = (),
    count: int = 1,
    where: Iterable[int] | None = None,
    steps: Sequence[tuple[int, str]] = (),
) -> Finding:
    """A finding at ``op`` (None where no op is to blame), of ``count`` alike.

    ``where`` lists the ops to point at, ``steps`` (op, sentence) the story.
    """
    program = subject.program
    ops = [] if op is None else [op]
    if where is not None:
        ops = [int(o) for o in where]
    return Finding(
        check=check,
        verdict=verdict,
        message=message,
        where=tuple(place(program, o) for o in ops),
        counterexample=Counterexample(
            claim=claim,
            moves=moves_to(program, op),
            steps=tuple(Step(place(program, o), text) for o, text in steps),
        ),
        cause=cause,
        cures=tuple(cures),
        count=count,
    )


def result(
    subject: Subject,
    check: str,
    found: Sequence[Finding],
    summary: str,
    *,
    evidence: Mapping[str, Any],
    engine: str = "counting",
) -> CheckResult:
    """Violated where something was found, holds otherwise."""
    status = Status.VIOLATED if found else Status.HOLDS
    return CheckResult(
        check=check,
        status=status,
        scope=SCOPE,
        engine=engine,
        summary=found[0].message if found else summary,
        evidence={} if found else evidence,
        findings=tuple(found),
    )


def undetermined(subject: Subject, check: str) -> CheckResult | None:
    """The answer where the program uses what ``check`` gives no meaning to.

    Then the check is not run at all: what it does not understand could add
    the order, the payload or the choice that its verdict turns on.
    """
    chooses = subject.program.chooses
    if chooses and subject.program.several_lanes and check in LANE_BY_LANE:
        return unanswered(
            check,
            "what lanes of a rank have in common depends on the execution",
            f"{check} follows one order of the lanes of a rank, and the program has a choice",
        )
    blind = [f for f in subject.program.details.features if check in f.checks]
    if blind:
        names = spell(dict.fromkeys(f.name for f in blind))
        return unanswered(
            check,
            f"the program uses {names}, which this check gives no meaning to",
            f"{check} gives no meaning to {names} (first at {blind[0].where})",
        )
    if chooses and check in ONE_ORDER:
        return unanswered(
            check,
            "values may depend on the execution",
            f"{check} follows one order of the events, and the program has a choice",
        )
    return _left_to_chance(subject, check)


def unanswered(check: str, summary: str, reason: str) -> CheckResult:
    """The answer of a check that was not run, or cannot tell."""
    return CheckResult(
        check=check,
        status=Status.UNDETERMINED,
        scope=SCOPE,
        engine="none",
        summary=summary,
        reason=reason,
    )


def _left_to_chance(subject: Subject, check: str) -> CheckResult | None:
    """The answer where two lanes take turns in no fixed order: which messages and
    calls meet is then open, which ``race`` reports, and no single order decides
    what else turns on it."""
    decided = ("coverage", "matching", "race", "deadlock")
    if check in decided or subject.program.chooses or not subject.contended:
        return None
    one, other = (op_text(subject.program, op) for op in subject.contended[0])
    return unanswered(
        check,
        "two lanes take turns in no fixed order; see race",
        f"which of {one} and {other} comes first is left to chance",
    )
