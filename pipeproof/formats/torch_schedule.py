"""From the actions of a torch CSV to a schedule: rows become ranks.

What only the whole table can say is settled here: how many stages and
microbatches there are, and on which rank each stage lives.
"""

from __future__ import annotations

import numpy as np

from pipeproof.errors import InputError
from pipeproof.formats.torch_csv import Actions, read_actions
from pipeproof.program.ops import LETTER, SHARDING, Kind
from pipeproof.program.schedules import Schedule


def read_schedule(
    text: str, name: str, *, older: bool = False, microbatches: int | None = None
) -> Schedule:
    """Read a torch action CSV.

    ``microbatches`` is the number the step must run. A CSV does not state it;
    without it the number is taken that most stages and letters agree on, so
    that one wrong row is a violation and not the measure of the others.
    """
    actions = read_actions(text, older=older)
    count = len(actions.kind)
    if count == 0:
        raise InputError(
            "found no action; expected a row of actions a rank, such as 0F0,0F1,0B0,0B1",
            cause="Is the file empty, or was it truncated?",
        )
    computes = actions.kind <= Kind.W
    if not computes.any():
        raise InputError(
            "found no compute action (F, I, W or B); expected a schedule of them",
            cause="Only communication is listed. Was the file filtered?",
        )
    _refuse_huge(actions, count)
    stages = int(actions.stage.max()) + 1
    row_starts = np.flatnonzero(np.diff(actions.line, prepend=0))
    first = (*row_starts.tolist(), count)
    ranks = len(row_starts)
    rank = np.repeat(np.arange(ranks, dtype=np.int32), np.diff(first))
    host = np.full(stages, -1, np.int32)
    host[actions.stage] = rank
    _refuse_shared_stages(actions, rank, host)
    messages = (actions.kind == Kind.SEND) | (actions.kind == Kind.RECV)
    lists_communication = bool(messages.any())
    if lists_communication:
        _refuse_lonely_messages(actions, np.flatnonzero(messages), host)
    blank = int(actions.line[-1]) - ranks
    notes = (f"{blank} blank row(s) skipped; a row with actions is a rank",) if blank else ()
    return Schedule(
        name=name,
        ranks=ranks,
        stages=stages,
        microbatches=microbatches or _agreed_microbatches(actions, stages),
        kind=actions.kind,
        stage=actions.stage,
        microbatch=actions.microbatch,
        backward=actions.backward,
        line=actions.line,
        column=actions.column,
        first=first,
        host=host,
        lists_communication=lists_communication,
        notes=notes,
    )


def _agreed_microbatches(actions: Actions, stages: int) -> int:
    """The number of microbatches that most (stage, letter) pairs end at."""
    computes = np.flatnonzero(actions.kind <= Kind.W)
    key = actions.stage[computes] * np.int64(4) + actions.kind[computes]
    top = np.zeros(stages * 4, np.int64)
    np.maximum.at(top, key, actions.microbatch[computes].astype(np.int64) + 1)
    votes = np.bincount(top[top > 0])
    # Among numbers equally often agreed on, the largest: it hides nothing.
    return int(np.flatnonzero(votes == votes.max())[-1])


def _refuse_huge(actions: Actions, count: int) -> None:
    """A complete step has an action for every id below the largest."""
    for ids, what in ((actions.stage, "stage"), (actions.microbatch, "microbatch")):
        at = int(ids.argmax())
        if int(ids[at]) >= count:
            raise InputError(
                f"found {what} {ids[at]} in a file of {count} actions; expected ids that "
                "count up from 0",
                cause="A complete step has actions for every smaller id. Is a separator missing?",
                line=int(actions.line[at]),
                column=int(actions.column[at]),
            )


def _refuse_shared_stages(actions: Actions, rank: np.ndarray, host: np.ndarray) -> None:
    elsewhere = np.flatnonzero(host[actions.stage] != rank)
    if not len(elsewhere):
        return
    # The row with fewer actions of the stage is the likelier slip.
    stage = int(actions.stage[elsewhere[0]])
    here = np.flatnonzero(actions.stage == stage)
    rows, counts = np.unique(rank[here], return_counts=True)
    stray = rows[counts.argmin()] if counts.min() < counts.max() else rows[-1]
    at = int(here[rank[here] == stray][0])
    others = ", ".join(str(r) for r in rows if r != stray)
    raise InputError(
        f"found stage {stage} on rank {stray} and on rank {others}; expected every stage "
        "on one rank",
        cause="A stage lives on the rank in whose row it appears: one digit is likely wrong.",
        line=int(actions.line[at]),
        column=int(actions.column[at]),
    )


def _refuse_lonely_messages(actions: Actions, rows: np.ndarray, host: np.ndarray) -> None:
    """A send or receive needs a neighbouring stage at its other end."""
    to_next = (actions.kind[rows] == Kind.SEND) ^ actions.backward[rows]
    other = actions.stage[rows] + np.where(to_next, 1, -1)
    stages = len(host)
    known = (other >= 0) & (other < stages)
    known[known] = host[other[known]] >= 0
    lonely = np.flatnonzero(~known)
    if not len(lonely):
        return
    at = int(rows[lonely[0]])
    stage, neighbour = int(actions.stage[at]), int(other[lonely[0]])
    if neighbour < 0:
        why = f"stage {stage} is the first"
    elif neighbour >= stages:
        why = f"stage {stage} is the last"
    else:
        why = f"stage {neighbour} is on no row"
    word = "SEND" if actions.kind[at] == Kind.SEND else "RECV"
    text = f"{stage}{word}_{'B' if actions.backward[at] else 'F'}{actions.microbatch[at]}"
    raise InputError(
        f"found {text}, but {why}; expected a neighbouring stage at the other end",
        cause="Activations go to the next stage, gradients to the previous one.",
        line=int(actions.line[at]),
        column=int(actions.column[at]),
    )


def _refuse_unprintable(schedule: Schedule) -> None:
    known = (*LETTER, Kind.SEND, Kind.RECV, *SHARDING)
    other = next((k for k in map(Kind, schedule.kind.tolist()) if k not in known), None)
    reason = None
    if schedule.other_host is not None:
        reason = "stages that two ranks host"
    elif schedule.details.graph is not None:
        reason = "stages that are no chain, or slices of sequences"
    elif other is not None:
        reason = f"actions of the kind {other.name}"
    if reason is not None:
        raise InputError(
            f"found {reason}, which a torch CSV has no notation for",
            cause="Write it as a program in JSON instead.",
        )


def print_schedule(schedule: Schedule) -> str:
    """The schedule as a torch action CSV, one row a rank, without idle cells.

    InputError where it has what a CSV has no notation for.
    """
    _refuse_unprintable(schedule)
    kind, stage, microbatch = (
        schedule.kind.tolist(),
        schedule.stage.tolist(),
        schedule.microbatch.tolist(),
    )
    backward, column = schedule.backward.tolist(), schedule.column.tolist()
    rows = []
    for rank in range(schedule.ranks):
        cells: list[str] = []
        previous: tuple[int, list[str]] = (-1, [])
        for i in range(schedule.first[rank], schedule.first[rank + 1]):
            code = Kind(kind[i])
            if code in LETTER:
                text = f"{stage[i]}{LETTER[code]}{microbatch[i]}"
                # Compute actions of one cell overlap; a recipe's own actions
                # share the cell of the compute action that they serve.
                if previous[0] == column[i] > 0:
                    previous[1].append(text)
                    cells[-1] = f"({';'.join(previous[1])})OVERLAP_F_B"
                    continue
                previous = (column[i], [text])
            elif code in (Kind.SEND, Kind.RECV):
                text = f"{stage[i]}{code.name}_{'B' if backward[i] else 'F'}{microbatch[i]}"
            else:
                text = f"{stage[i]}{code.name}"
            cells.append(text)
        rows.append(",".join(cells))
    return "\n".join(rows) + "\n"
