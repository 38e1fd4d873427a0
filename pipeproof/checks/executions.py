"""Programs with choice, judged over every execution.

What a receive from any sender takes, what a WAITANY goes on with, and which of
two lanes posts first where nothing orders them: each execution settles it its
own way. The explicit-state search visits all of them; where it cannot, or the
program format leaves open what an execution is, the answer is *undetermined*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import SCOPE, count
from pipeproof.engines.explore.search import Decision, Take
from pipeproof.program.notation import message_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import ANY, Program, Waits
from pipeproof.verdict import CheckResult, Finding, Status, Taken

ENGINE = "explicit-state search"
SEARCHED_OPS = 20_000
"""Programs of more ops are not searched: each state costs a look at all of them."""


def gap(subject: Subject) -> str | None:
    """Why not every execution was visited, if it was not."""
    if subject.program.ops > SEARCHED_OPS:
        return f"a search of {subject.program.ops} ops is beyond its limit of {SEARCHED_OPS}"
    if subject.program.chooses and subject.unclear is not None:
        return f"the program format does not say {subject.unclear}"
    if subject.executions.truncated:
        return (
            f"{count(subject.executions.states, 'state')} explored, the limit, and there are more"
        )
    return None


def visited(subject: Subject) -> bool:
    """Whether there are executions to speak of: all, or some of them."""
    unclear = subject.program.chooses and subject.unclear is not None
    return subject.program.ops <= SEARCHED_OPS and not unclear


def scope(subject: Subject) -> str:
    """What an answer over the executions covers."""
    states = count(subject.executions.states, "state")
    if subject.executions.truncated:
        return f"this program: {states} explored"
    return f"every execution of this program: {states} explored"


def answer(
    subject: Subject,
    check: str,
    found: Sequence[Finding],
    gaps: Sequence[str],
    summary: str,
    evidence: dict[str, object],
) -> CheckResult:
    """Violated where something was found, else undetermined where there are ``gaps``."""
    searched = visited(subject)
    status = Status.HOLDS
    if found or gaps:
        status = Status.VIOLATED if found else Status.UNDETERMINED
    return CheckResult(
        check=check,
        status=status,
        scope=scope(subject) if searched else SCOPE,
        engine=ENGINE if searched else "none",
        summary=found[0].message if found else gaps[0] if gaps else summary,
        evidence=evidence if status is Status.HOLDS else {},
        reason="; ".join(gaps) if status is Status.UNDETERMINED else None,
        findings=tuple(found),
    )


def taken(decisions: Iterable[Decision]) -> Taken | None:
    """The decisions of an execution as a claim states them; None where lanes took
    turns in it, which no claim states."""
    takes: list[tuple[int, int]] = []
    for decision in decisions:
        if not isinstance(decision, Take):
            return None
        takes.append((decision.receive, decision.send))
    return tuple(takes)


def open_takes(subject: Subject, decisions: Iterable[Decision]) -> list[Take]:
    """Those of the decisions that other executions settle with another sender."""
    m, takes = subject.program.messages, subject.executions.takes
    return [
        d
        for d in decisions
        if isinstance(d, Take)
        and m.peer[d.receive] == ANY
        and len({int(m.rank[send]) for send in takes[d.receive]}) > 1
    ]


def take_text(program: Program, take: Take) -> str:
    """``rank 0's RECV x from any takes the message of rank 2``."""
    m = program.messages
    return (
        f"rank {m.rank[take.receive]}'s {message_text(program, take.receive)} takes the message "
        f"of rank {m.rank[take.send]}"
    )


def in_both_readings(
    subject: Subject, check: str, run: Callable[[Subject], list[Finding]]
) -> tuple[list[Finding], list[str]]:
    """(what is found, what is open) by a check that reads each lane by itself.

    When a WAITANY goes on, some of its requests have completed: at most all of
    them, at least none that one could name. What is so in both readings is so.
    """
    most = run(subject)
    waits, program = subject.program.waits, subject.program
    vague = {
        op
        for op in (program.kind == Kind.WAITANY).nonzero()[0].tolist()
        if len(set(program.requests_of(op))) > 1
    }
    if not vague:
        return most, []
    kept = [i for i, op in enumerate(waits.op.tolist()) if op not in vague]
    fewer = replace(program, waits=Waits(waits.op[kept], waits.request[kept]))
    least = run(replace(subject, program=fewer))
    if bool(most) == bool(least):
        return most, []
    return [], [f"what {check} finds depends on which requests a WAITANY goes on with"]
