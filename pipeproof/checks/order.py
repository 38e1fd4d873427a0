"""order: a consumer happens after its producer.

An op needs its inputs on its own rank when it runs: the forward the previous
stage's output, the backward the next stage's gradient and its own forward, the
weight gradient its input gradient, a send what it sends. An input whose
receive was posted but not waited for is a race, and reported there.

Sharded parameters (UNSHARD, RESHARD, REDUCE_GRAD) are inputs too: torch's
runtime refuses to compute on a stage whose parameters are not gathered, and a
gradient made after its stage's REDUCE_GRAD is never reduced.

What a lane has when it reaches an op follows from the lane alone, whichever
sender a receive from any sender takes its message from.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeproof.checks.executions import in_both_readings
from pipeproof.checks.sharding import broken_sharding
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import count, finding, result, unanswered
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import LETTER, Kind, is_gradient, stage_and_microbatch
from pipeproof.program.programs import Program
from pipeproof.verdict import CheckResult, Finding, Illegal, Lacks, Verdict

NAME = "order"
TITLE = "every op has its inputs when it runs"


def check(subject: Subject) -> CheckResult:
    """Compare every op with what its rank holds when it runs."""
    held = subject.holdings
    if subject.program.chooses:
        found, gaps = in_both_readings(subject, NAME, _found)
        if gaps:
            return unanswered(NAME, gaps[0], gaps[0])
    else:
        found = _found(subject)
    return result(
        subject,
        NAME,
        found,
        f"{count(held.obligations, 'input')}, each there when it is needed",
        evidence={"inputs": held.obligations},
    )


def _found(subject: Subject) -> list[Finding]:
    return [
        *_missing_inputs(subject),
        *_unprepared(subject),
        *broken_sharding(subject, NAME),
        *_absent_resources(subject),
    ]


def _missing_inputs(subject: Subject) -> Iterator[Finding]:
    program, missing = subject.program, subject.holdings.missing
    if not len(missing):
        return
    missing = missing[np.argsort(missing[:, 0], kind="stable")]
    op, payload = int(missing[0, 0]), int(missing[0, 1])
    rank = subject.rank[op]
    need = "sends" if program.kind[op] in (Kind.SEND, Kind.GROUP) else "needs"
    later = _provider(subject, op, payload)
    if later is None:
        then, cause = "which never reaches it", "The op that makes it, or its message, is missing."
    else:
        then = f"which it only has after {op_text(program, later)}"
        cause = "Two ops stand in the wrong order on this rank."
    yield finding(
        subject,
        NAME,
        Verdict.ORDER,
        f"rank {rank} runs {op_text(program, op)}, which {need} {_spelled(program, payload)}, "
        f"{then}",
        op,
        Lacks(op, payload=payload),
        cause=cause,
        count=len(missing),
        where=[op] if later is None else [op, later],
    )


def _spelled(program: Program, payload: int) -> str:
    stage, microbatch = stage_and_microbatch(payload)
    what = "the gradient" if is_gradient(payload) else "the output"
    return (
        f"{what} of stage {stage} for microbatch {microbatch} ({payload_name(program, payload)})"
    )


def _provider(subject: Subject, op: int, payload: int) -> int | None:
    """The first later op of the same lane that makes or receives the payload."""
    program = subject.program
    lane = program.lanes[program.lane_of(op)]
    stage, microbatch = stage_and_microbatch(payload)
    kinds = (Kind.B, Kind.I) if is_gradient(payload) else (Kind.F,)
    here = slice(op, lane.stop)
    makes = (
        np.isin(program.kind[here], kinds)
        & (program.stage[here] == stage)
        & (program.microbatch[here] == microbatch)
    )
    rows = program.messages
    receives = rows.op[
        ~rows.send & (rows.payload == payload) & (rows.op >= op) & (rows.op < lane.stop)
    ]
    later = [*(np.flatnonzero(makes) + op).tolist(), *receives.tolist()]
    return min(later) if later else None


def _unprepared(subject: Subject) -> Iterator[Finding]:
    program, rows = subject.program, subject.holdings.unprepared
    sliced = rows[:, 2] != program.microbatch[rows[:, 0]]
    for kind, of_slices in (
        (Kind.F, False),
        (Kind.I, False),
        (Kind.F, True),
        (Kind.B, True),
        (Kind.I, True),
    ):
        these = rows[(rows[:, 1] == kind) & (sliced == of_slices)]
        if not len(these):
            continue
        op, stage, microbatch = int(these[0, 0]), int(program.stage[these[0, 0]]), int(these[0, 2])
        first = f"{stage}{LETTER[kind]}{microbatch}"
        after = np.flatnonzero(
            (program.kind == kind)
            & (program.stage == stage)
            & (program.microbatch == microbatch)
            & (subject.rank == subject.rank[op])
        )
        then = "stands behind it" if len(after) else "never runs on this rank"
        yield finding(
            subject,
            NAME,
            Verdict.ORDER,
            f"rank {subject.rank[op]} runs {op_text(program, op)} without {first}, which {then}",
            op,
            Lacks(op, kind=int(kind), microbatch=microbatch if of_slices else None),
            cause=_unprepared_cause(of_slices, behind=bool(len(after))),
            count=len(these),
            where=[op, *after[:1].tolist()],
        )


def _unprepared_cause(of_slices: bool, *, behind: bool) -> str:
    if of_slices:
        return (
            "A slice's forward needs the keys and values of the slice before it, its "
            "backward the gradients of those from the slice after it."
        )
    if behind:
        return "Two ops are swapped."
    return "The op it builds on is missing, or belongs to another microbatch."


def _absent_resources(subject: Subject) -> Iterator[Finding]:
    """MAKE, DROP and ``needs``: resources by name, on one lane."""
    program = subject.program
    relevant = sorted(o for o, a in program.details.attributes.items() if a.needs)
    live = {lane.rank: set[str]() for lane in program.lanes}
    for rank, name in program.details.resources:
        live.setdefault(rank, set()).add(name)
    bad: list[tuple[int, str]] = []
    for op in relevant:
        have = live[int(subject.rank[op])]
        for name in program.details.attributes[op].needs:
            if program.kind[op] == Kind.MAKE:
                have.add(name)
            elif name not in have:
                bad.append((op, name))
            elif program.kind[op] == Kind.DROP:
                have.discard(name)
    if bad:
        op, name = bad[0]
        yield finding(
            subject,
            NAME,
            Verdict.ORDER,
            f"rank {subject.rank[op]} runs {op_text(program, op)}, which needs {name}, but "
            f"{name} does not exist there",
            op,
            Illegal(op, name),
            cause="It is made later, was dropped before, or is made on another rank.",
            count=len(bad),
        )
