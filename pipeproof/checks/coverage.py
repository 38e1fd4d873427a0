"""coverage: every (letter, stage, microbatch) of the step runs exactly once,
on a rank that hosts the stage.

A fragment (a program without ``complete``) owes nothing, but what it runs must
still be in range, on the right rank, and there at most once. A repeated
message, or a stage whose gradients alone are never reduced, counts as well:
torch's runtime refuses the first and trains wrongly on the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding, result, spell
from pipeproof.program.keys import dense
from pipeproof.program.notation import op_text
from pipeproof.program.ops import LETTER, Kind, is_gradient, stage_and_microbatch
from pipeproof.program.programs import Program
from pipeproof.verdict import CheckResult, Finding, Misplaced, Ran, Repeated, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeproof.program.programs import Longs

NAME = "coverage"
TITLE = "every F, B, I and W of the step runs exactly once, on its stage's rank"


def check(subject: Subject) -> CheckResult:
    """Count what runs against what the step needs."""
    program = subject.program
    found = [f for part in (_range, _hosts, _counts) for f in part(subject)]
    stages = f"{program.stages} stage{'s' if program.stages != 1 else ''}"
    microbatches = f"{program.microbatches} microbatch{'es' if program.microbatches != 1 else ''}"
    size = f"{stages} x {microbatches}"
    if program.complete and program.forward_only:
        summary = f"every forward of {size} runs once; the file has no backward"
    elif program.complete:
        summary = f"every forward and backward of {size} runs exactly once"
    else:
        summary = "nothing runs twice, out of range or on a wrong rank (a fragment)"
    return result(
        subject,
        NAME,
        found,
        summary,
        evidence={
            "complete": program.complete,
            "forward_only": program.forward_only,
            "stages": program.stages,
            "microbatches": program.microbatches,
            "computes": int((program.kind <= Kind.R).sum()),
        },
    )


def _with(program: Program, attribute: str) -> Longs:
    return np.array(
        [o for o, a in program.details.attributes.items() if getattr(a, attribute)], np.int64
    )


def _range(subject: Subject) -> Iterator[Finding]:
    program = subject.program
    stage, microbatch = program.stage, program.microbatch
    out = (program.kind <= Kind.R) & (
        (stage < 0)
        | (stage >= program.stages)
        | (microbatch < 0)
        | (microbatch >= program.microbatches)
    )
    ops = np.flatnonzero(out)
    if not len(ops):
        return
    op = int(ops[0])
    kind, s, m = Kind(int(program.kind[op])), int(stage[op]), int(microbatch[op])
    times = int(((program.kind == kind) & (stage == s) & (microbatch == m)).sum())
    what, number, count = "stage", s, program.stages
    if 0 <= s < program.stages:
        what, number, count = "microbatch", m, program.microbatches
    has = f"it has {count}, counted from 0" if count else "it has none"
    yield finding(
        subject,
        NAME,
        Verdict.ORDER,
        f"rank {subject.rank[op]} runs {op_text(program, op)}, but the step has no {what} "
        f"{number}: {has}",
        op,
        Ran(int(kind), s, m, times, 0),
        cause="A loop count is one too large, or a warm-up was not cut to the microbatches.",
        count=len(ops),
        where=ops[:5],
    )


def _hosts(subject: Subject) -> Iterator[Finding]:
    program = subject.program
    hosts = program.hosts
    known = np.array([bool(h) for h in hosts] or [False], np.bool_)
    several = any(len(h) > 1 for h in hosts)
    host = np.array([h[0] if h else -1 for h in hosts] or [-1], np.int32)
    computes = np.flatnonzero(
        (program.kind <= Kind.R) & (program.stage >= 0) & (program.stage < program.stages)
    )
    stage = program.stage[computes]
    away = known[stage] & (host[stage] != subject.rank[computes])
    ops = computes[away]
    if several:
        ops = np.array(
            [o for o in ops.tolist() if subject.rank[o] not in hosts[program.stage[o]]], np.int64
        )
    if len(ops):  # what the set needs takes as long to load as a small file to check
        ops = np.setdiff1d(ops, _with(program, "anywhere"))
    if not len(ops):
        return
    op = int(ops[0])
    s = int(program.stage[op])
    yield finding(
        subject,
        NAME,
        Verdict.ORDER,
        f"rank {subject.rank[op]} runs {op_text(program, op)}, but stage {s} lives on rank "
        f"{', '.join(map(str, hosts[s]))}",
        op,
        Misplaced(op),
        cause="The placement and the schedule disagree: a chunk or rank index is off.",
        count=len(ops),
        where=ops[:5],
    )


def _counts(subject: Subject) -> Iterator[Finding]:
    program = subject.program
    counted = (program.kind <= Kind.R) & (program.stage >= 0) & (program.microbatch >= 0)
    counted &= (program.stage < program.stages) & (program.microbatch < program.microbatches)
    there = np.flatnonzero(counted)
    counted[_with(program, "redo")] = False
    once = np.flatnonzero(counted)
    yield from _repeats(subject, once)
    if program.recipe is not None:
        yield from _message_repeats(subject)
    if program.complete:
        yield from _missing(subject, there)
        if not program.forward_only:
            yield from _both_ways(subject, once)
        yield from _unreduced(subject, there)


def _repeats(subject: Subject, ops: Longs) -> Iterator[Finding]:
    """Ops that run a second time: anywhere where the step is complete, else on
    the same rank."""
    program = subject.program
    columns: list[NDArray[Any]] = [program.kind[ops], program.stage[ops], program.microbatch[ops]]
    if not program.complete:
        columns.insert(0, subject.rank[ops])
    yield from _more_than_once(subject, ops, columns)


def _message_repeats(subject: Subject) -> Iterator[Finding]:
    program = subject.program
    if program.details.graph is not None:
        return  # a stage's output may be wanted several times; `matching` counts the ends
    m = program.messages
    # Inside a group the op has no letter of its own; the payload says which.
    known = np.flatnonzero(m.payload >= 0)
    payload = m.payload[known]
    columns = (payload >> 32, payload >> 1 & 0x7FFFFFFF, payload & 1, m.send[known])
    key, size = dense(*columns)
    many = np.flatnonzero(np.bincount(key, minlength=size) > 1)
    if not len(many):
        return
    rows = known[key == many[0]]
    op, send, first = int(m.op[rows[1]]), bool(m.send[rows[0]]), int(m.payload[rows[0]])
    verb = "sent" if send else "received"
    stage, microbatch = stage_and_microbatch(first)
    what = "gradient" if is_gradient(first) else "output"
    yield finding(
        subject,
        NAME,
        Verdict.ORDER,
        f"the {what} of stage {stage}, microbatch {microbatch}, is {verb} {len(rows)} times; "
        "the step needs it once",
        op,
        Repeated(first, send, len(rows)),
        cause="A send or receive was emitted twice; torch refuses a second receive.",
        count=len(many),
        where=m.op[rows[:5]],
    )


def _more_than_once(
    subject: Subject, ops: Longs, columns: list[NDArray[Any]]
) -> Iterator[Finding]:
    program = subject.program
    if not len(ops):
        return
    key, size = dense(*columns)
    times = np.bincount(key, minlength=size)
    many = np.flatnonzero(times > 1)
    if not len(many):
        return
    # The repeat that stands first in the file.
    again = np.flatnonzero(times[key] > 1)
    same = ops[key == key[again[0]]]
    op = int(same[1])
    text = op_text(program, op)
    # The claim counts over all ranks, and in a fragment others may run it too.
    first = [program.kind[op], program.stage[op], program.microbatch[op]]
    columns = [program.kind[ops], program.stage[ops], program.microbatch[ops]]
    total = np.logical_and.reduce([c == v for c, v in zip(columns, first, strict=True)])
    yield finding(
        subject,
        NAME,
        Verdict.ORDER,
        f"{text} runs {len(same)} times: on rank "
        f"{spell(dict.fromkeys(subject.rank[same].tolist()))}; the step needs it once",
        op,
        Ran(
            int(program.kind[op]),
            int(program.stage[op]),
            int(program.microbatch[op]),
            int(total.sum()),
            1,
        ),
        cause="Its gradient is counted twice. A loop overlaps itself by one step.",
        count=len(many),
        where=same[:5],
    )


def _missing(subject: Subject, ops: Longs) -> Iterator[Finding]:
    program = subject.program
    stages, microbatches = program.stages, program.microbatches
    kind = program.kind[ops]
    place = program.stage[ops].astype(np.int64) * microbatches + program.microbatch[ops]
    cells = stages * microbatches
    if cells > 8 * len(ops) + 4096:  # far more missing than there: find the first gap
        forward = np.unique(place[kind == Kind.F])
        gap = int(np.flatnonzero(np.append(forward, cells) != np.arange(len(forward) + 1))[0])
        yield _missed(subject, Kind.F, gap, cells - len(forward))
        return
    has = {
        k: np.bincount(place[kind == k], minlength=cells) > 0
        for k in (Kind.F, Kind.B, Kind.I, Kind.W)
    }
    absent = {Kind.F: ~has[Kind.F]}
    if not program.forward_only:
        split = has[Kind.I] | has[Kind.W]
        absent[Kind.B] = ~has[Kind.B] & ~split
        absent[Kind.I] = ~has[Kind.I] & ~has[Kind.B] & split
        absent[Kind.W] = ~has[Kind.W] & ~has[Kind.B] & split
    for k, cell in absent.items():
        at = np.flatnonzero(cell)
        if len(at):
            yield _missed(subject, k, int(at[0]), len(at))


def _missed(subject: Subject, kind: Kind, cell: int, count: int) -> Finding:
    program = subject.program
    stage, microbatch = divmod(cell, program.microbatches)
    near = np.flatnonzero((program.stage == stage) & (program.kind <= Kind.R))
    host = program.hosts[stage] if stage < len(program.hosts) else ()
    letter = LETTER[kind]
    if len(near):
        where = f"rank {subject.rank[near[-1]]}"
    else:
        where = f"rank {host[0]}" if host else "no rank"
    full = " (or I and W)" if kind is Kind.B else ""
    return finding(
        subject,
        NAME,
        Verdict.ORDER,
        f"{stage}{letter}{microbatch} never runs{full}: stage {stage}, on {where}, leaves out "
        f"microbatch {microbatch}",
        int(near[-1]) if len(near) else None,
        Ran(int(kind), stage, microbatch, 0, 1),
        cause="A loop ends one step early, or an action was deleted or renamed.",
        count=count,
    )


def _both_ways(subject: Subject, ops: Longs) -> Iterator[Finding]:
    program = subject.program
    kind = program.kind[ops]
    place = program.stage[ops].astype(np.int64) * program.microbatches + program.microbatch[ops]
    whole, parts = place[kind == Kind.B], place[(kind == Kind.I) | (kind == Kind.W)]
    if not len(whole) or not len(parts):
        return
    both = np.intersect1d(whole, parts)
    if not len(both):
        return
    stage, microbatch = divmod(int(both[0]), program.microbatches)
    same = ops[(place == both[0]) & (kind >= Kind.B) & (kind <= Kind.W)]
    times = int((program.kind[same] == Kind.B).sum())
    yield finding(
        subject,
        NAME,
        Verdict.ORDER,
        f"stage {stage} runs the backward of microbatch {microbatch} whole and in parts: "
        f"{spell(op_text(program, int(o)) for o in same)}",
        int(same[-1]),
        Ran(int(Kind.B), stage, microbatch, times, 0),
        cause="B already computes both gradients; I or W beside it counts one twice.",
        count=len(both),
        where=same,
    )


def _unreduced(subject: Subject, ops: Longs) -> Iterator[Finding]:
    """Stages without REDUCE_GRAD in a plan that reduces the gradients of others."""
    program = subject.program
    reduced = program.stage[program.kind == Kind.REDUCE_GRAD]
    if not len(reduced):
        return
    trained = program.stage[ops[(program.kind[ops] == Kind.B) | (program.kind[ops] == Kind.W)]]
    here = np.bincount(trained, minlength=program.stages) > 0
    here[reduced[(reduced >= 0) & (reduced < program.stages)]] = False
    left = np.flatnonzero(here)
    if not len(left):
        return
    stage = int(left[0])
    near = np.flatnonzero((program.stage == stage) & (program.kind <= Kind.R))
    yield finding(
        subject,
        NAME,
        Verdict.ORDER,
        f"{stage}REDUCE_GRAD never runs: the gradients of stage {stage} are neither divided by "
        "the number of microbatches nor reduced over its replicas",
        int(near[-1]),
        Ran(int(Kind.REDUCE_GRAD), stage, -1, 0, 1),
        cause="The other stages have it; here it was left out. Nothing fails at run time.",
        count=len(left),
    )
