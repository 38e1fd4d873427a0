"""Sharded parameters: a small state machine a stage.

::

    sharded --UNSHARD--> pending --compute--> gathered --RESHARD--> sharded

``pending`` is a gather that no compute has waited for yet. Any other step is
an error that torch 2.13's runtime raises, and so is a step that ends pending.
The machine runs only where the plan gathers parameters at all; REDUCE_GRAD is
judged in any case.
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
    # Between two sharding actions of a stage only the first and the last of a
    # run of equal computes can matter; order by (rank, stage) and drop the rest.
    lane = subject.rank[relevant].astype(np.int64)
    order = np.argsort(lane * max(program.stages, 1) + program.stage[relevant], kind="stable")
    ops = relevant[order]
    group = lane[order] * max(program.stages, 1) + program.stage[ops]
    kind = program.kind[ops]
    same = np.zeros(len(ops), np.bool_)
    same[1:] = (group[1:] == group[:-1]) & (kind[1:] <= Kind.W) & (kind[:-1] <= Kind.W)
    reduces = (kind == Kind.B) | (kind == Kind.W)
    # A run that holds a B or W counts as one.
    run = np.cumsum(~same) - 1
    run_reduces = np.zeros(run[-1] + 1, np.bool_)
    run_reduces[run[reduces]] = True
    first_reducing = np.full(run[-1] + 1, -1, np.int64)
    first_reducing[run[reduces][::-1]] = ops[reduces][::-1]
    heads = np.flatnonzero(~same)
    bad = _walk(
        ops[heads].tolist(),
        kind[heads].tolist(),
        group[heads].tolist(),
        first_reducing.tolist(),
        gathers=bool((kind == Kind.UNSHARD).any()),
    )
    if bad:
        bad.sort()
        op, why = bad[0]
        yield finding(
            subject,
            check,
            Verdict.ORDER,
            f"rank {subject.rank[op]} runs {op_text(program, op)}, but {why}",
            op,
            Sharding(op),
            cause="An UNSHARD, RESHARD or REDUCE_GRAD was moved, repeated or left out.",
            count=len(bad),
            where=[o for o, _ in bad[:5]],
        )


def _walk(
    ops: list[int], kinds: list[int], groups: list[int], reducing: list[int], *, gathers: bool
) -> list[tuple[int, str]]:
    bad: list[tuple[int, str]] = []
    group, state, gathered_by, reduced = -1, "sharded", -1, False

    def close() -> None:
        if gathers and state == "pending":
            bad.append((gathered_by, "nothing computes on the stage after it"))

    for i, (op, kind) in enumerate(zip(ops, kinds, strict=True)):
        if groups[i] != group:
            close()
            group, state, reduced = groups[i], "sharded", False
        if kind == Kind.UNSHARD:
            if state != "sharded":
                bad.append((op, "the stage's parameters are gathered already"))
            state, gathered_by = "pending", op
        elif kind == Kind.RESHARD:
            if state == "sharded":
                bad.append((op, "the stage's parameters are not gathered"))
            elif state == "pending":
                bad.append((op, "nothing has computed on the stage since its UNSHARD"))
            state = "sharded"
        elif kind == Kind.REDUCE_GRAD:
            if reduced:
                bad.append((op, "the stage's gradients are reduced already"))
            reduced = True
        else:
            if gathers and state == "sharded":
                bad.append((op, "the stage's parameters are not gathered (no UNSHARD before)"))
            state = "gathered"
            if reduced and reducing[i] >= 0:
                bad.append(
                    (reducing[i], "its gradient comes after the stage's REDUCE_GRAD and is lost")
                )
    close()
    return bad
