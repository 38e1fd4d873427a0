"""Sharded parameters: a small state machine a stage.

::

    sharded --UNSHARD--> pending --compute--> gathered --RESHARD--> sharded

``pending`` is a gather that no compute has waited for yet. Any other step is
an error that torch 2.13's runtime raises, and so is a step that ends pending.
The machine runs only where the plan gathers parameters or gives them up at
all; REDUCE_GRAD is judged in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.verdict import Finding, Sharding, Verdict


def broken_sharding(subject: Subject, check: str) -> Iterator[Finding]:
    """Ops that break the state of their stage's parameters, in one finding."""
    program = subject.program
    acts = (program.kind >= Kind.UNSHARD) & (program.kind <= Kind.REDUCE_GRAD)
    if not acts.any():
        return
    computes = program.kind <= Kind.W
    relevant = np.flatnonzero(acts | computes)
    # Between two sharding actions of a stage all computes are in the same case:
    # order by (rank, stage) and walk from run to run.
    lane = subject.rank[relevant].astype(np.int64)
    order = np.argsort(lane * max(program.stages, 1) + program.stage[relevant], kind="stable")
    ops = relevant[order]
    group = lane[order] * max(program.stages, 1) + program.stage[ops]
    kind = program.kind[ops]
    same = np.zeros(len(ops), np.bool_)
    same[1:] = (group[1:] == group[:-1]) & (kind[1:] <= Kind.W) & (kind[:-1] <= Kind.W)
    reduces = (kind == Kind.B) | (kind == Kind.W)
    # Of each run, the first B or W, whose gradient is to be reduced, and how many.
    run = np.cumsum(~same) - 1
    heads = np.flatnonzero(~same)
    first_reducing = np.full(len(heads), -1, np.int64)
    first_reducing[run[reduces][::-1]] = ops[reduces][::-1]
    reducing = np.bincount(run[reduces], minlength=len(heads))
    bad = _walk(
        ops[heads].tolist(),
        kind[heads].tolist(),
        group[heads].tolist(),
        list(zip(first_reducing.tolist(), reducing.tolist(), strict=True)),
        shards=bool(((kind == Kind.UNSHARD) | (kind == Kind.RESHARD)).any()),
    )
    if bad:
        bad.sort()
        op, why, _ = bad[0]
        yield finding(
            subject,
            check,
            Verdict.ORDER,
            f"rank {subject.rank[op]} runs {op_text(program, op)}, but {why}",
            op,
            Sharding(op),
            cause="An UNSHARD, RESHARD or REDUCE_GRAD was moved, repeated or left out.",
            count=sum(times for *_, times in bad),
            where=dict.fromkeys(o for o, *_ in bad[:5]),
        )


def _walk(
    ops: list[int],
    kinds: list[int],
    groups: list[int],
    reducing: list[tuple[int, int]],
    *,
    shards: bool,
) -> list[tuple[int, str, int]]:
    """(op, what is wrong, how often): ops that break the state of their stage.

    ``ops`` are grouped by stage, and a run of computes is its first one;
    ``reducing`` has the first op of each run that makes a weight gradient, -1
    for none, and how many do.
    """
    bad: list[tuple[int, str, int]] = []
    group, state, gathered_by, reduced = -1, "sharded", -1, False

    def close() -> None:
        if shards and state == "pending":
            bad.append((gathered_by, "nothing computes on the stage after it", 1))

    for i, (op, kind) in enumerate(zip(ops, kinds, strict=True)):
        if groups[i] != group:
            close()
            group, state, reduced = groups[i], "sharded", False
        if kind == Kind.UNSHARD:
            if state != "sharded":
                bad.append((op, "the stage's parameters are gathered already", 1))
            state, gathered_by = "pending", op
        elif kind == Kind.RESHARD:
            if state == "sharded":
                bad.append((op, "the stage's parameters are not gathered", 1))
            elif state == "pending":
                bad.append((op, "nothing has computed on the stage since its UNSHARD", 1))
            state = "sharded"
        elif kind == Kind.REDUCE_GRAD:
            if reduced:
                bad.append((op, "the stage's gradients are reduced already", 1))
            reduced = True
        else:
            if shards and state == "sharded":
                bad.append((op, "the stage's parameters are not gathered (no UNSHARD before)", 1))
            state = "gathered"
            late, times = reducing[i]
            if reduced and late >= 0:
                why = "its gradient comes after the stage's REDUCE_GRAD and is lost"
                bad.append((late, why, times))
    close()
    return bad
