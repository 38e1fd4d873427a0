"""Collective calls, compared one by one: the i-th calls of all members of a
group must be the same, and all of them made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding, spell
from pipeproof.engines.events.collectives import Meeting, meetings
from pipeproof.engines.events.turns import turns
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.verdict import Finding, UnequalCalls, Unjoined, Verdict


def unequal_calls(subject: Subject, check: str) -> Iterator[Finding]:
    """Meetings whose members call different collectives, in one finding."""
    program = subject.program
    bad = [m for m in meetings(program, turns(program)) if len(set(_called(program, m))) > 1]
    if not bad:
        return
    first = bad[0]
    ops = [op for _, op in first.calls if op is not None]
    one = ops[0]
    other = next(o for o in ops if _call(program, o) != _call(program, one))
    yield finding(
        subject,
        check,
        Verdict.MISMATCH,
        f"call {first.index + 1} of group {first.group}: rank {subject.rank[one]} calls "
        f"{_spelled(program, one)}, rank {subject.rank[other]} calls {_spelled(program, other)}",
        one,
        UnequalCalls(one, other),
        cause="The members do not issue their collectives in the same order: one of them "
        "skipped, added or re-ordered a call, or they walk their parameters differently.",
        cures=("Issue the calls in one order on all members, fixed before the step.",),
        count=len(bad),
        where=[one, other],
        steps=[
            (op, f"rank {subject.rank[op]} makes {op_text(program, op)} its call {m.index + 1}")
            for m in bad[:2]
            for op in [o for _, o in m.calls if o is not None][:2]
        ],
    )


def unjoined_calls(subject: Subject, check: str) -> Iterator[Finding]:
    """Posted calls that never complete, where the program runs to its end all the same:
    nothing waits for them. Where it does not, the deadlock is the finding."""
    program = subject.program
    posted = np.flatnonzero((program.kind == Kind.COLL) & (program.request >= 0))
    if not len(posted) or not subject.runs_to_end:
        return
    lonely = [op for op in posted.tolist() if op in subject.unfinished]
    if not lonely:
        return
    op = lonely[0]
    meeting = next(
        m for m in meetings(program, turns(program)) if any(o == op for _, o in m.calls)
    )
    absent = [f"rank {rank}" for rank, o in meeting.calls if o is None]
    gap = f"which {spell(absent)} never make{'s' if len(absent) == 1 else ''}"
    yield finding(
        subject,
        check,
        Verdict.MISMATCH,
        f"{op_text(program, op)} on rank {subject.rank[op]} is call {meeting.index + 1} of group "
        f"{meeting.group}, {gap if absent else 'which never completes'}; nothing waits for it",
        op,
        Unjoined(op),
        cause="The members disagree on how many collectives there are; what is left over meets "
        "the first call of the next step.",
        count=len(lonely),
        where=lonely[:5],
    )


def _call(program: Program, op: int) -> tuple[str, str | None]:
    attributes = program.details.attributes[op]
    return attributes.more["kind"], attributes.label


def _called(program: Program, meeting: Meeting) -> list[tuple[str, str | None]]:
    return [_call(program, op) for _, op in meeting.calls if op is not None]


def _spelled(program: Program, op: int) -> str:
    kind, label = _call(program, op)
    return f"{kind} {label!r}"
