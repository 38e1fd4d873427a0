"""A schedule as rows of actions, for those who cut and change schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from pipeproof.program.ops import LETTER, Kind
from pipeproof.program.programs import Attributes
from pipeproof.program.schedules import Schedule


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a rank. Neighbours of one ``column`` share a cell: they overlap.
    ``other`` is the stage at the other end of a message, where stages are no chain."""

    kind: Kind
    stage: int
    microbatch: int
    backward: bool = False
    line: int = 0
    column: int = 0
    other: int = -1
    attributes: Attributes | None = field(default=None, hash=False)

    def __str__(self) -> str:
        if self.kind in LETTER:
            return f"{self.stage}{LETTER[self.kind]}{self.microbatch}"
        if self.kind in (Kind.SEND, Kind.RECV):
            way = "B" if self.backward else "F"
            return f"{self.stage}{self.kind.name}_{way}{self.microbatch}"
        if self.attributes is not None and self.attributes.label is not None:
            return f"{self.kind.name} {self.attributes.label}"
        return f"{self.stage}{self.kind.name}"


def rows_of(schedule: Schedule) -> tuple[tuple[Action, ...], ...]:
    """The actions of each rank."""
    columns = zip(
        map(Kind, schedule.kind.tolist()),
        schedule.stage.tolist(),
        schedule.microbatch.tolist(),
        schedule.backward.tolist(),
        schedule.line.tolist(),
        schedule.column.tolist(),
        [-1] * len(schedule.kind) if schedule.other is None else schedule.other.tolist(),
        map(schedule.attributes.get, range(len(schedule.kind))),
        strict=True,
    )
    actions = [Action(*fields) for fields in columns]
    return tuple(tuple(actions[first:stop]) for first, stop in pairwise(schedule.first))


def with_rows(schedule: Schedule, rows: Iterable[Sequence[Action]]) -> Schedule:
    """``schedule`` with other actions. Stages stay on their ranks; what has been put
    between the actions of a cell has parted them."""
    listed = [tuple(_in_cells(row)) for row in rows]
    flat = [action for row in listed for action in row]
    first = [0]
    for row in listed:
        first.append(first[-1] + len(row))
    return replace(
        schedule,
        kind=np.array([a.kind for a in flat], np.uint8),
        stage=np.array([a.stage for a in flat], np.int32),
        microbatch=np.array([a.microbatch for a in flat], np.int32),
        backward=np.array([a.backward for a in flat], np.bool_),
        line=np.array([a.line for a in flat], np.int32),
        column=np.array([a.column for a in flat], np.int32),
        first=tuple(first),
        other=None if schedule.other is None else np.array([a.other for a in flat], np.int32),
        attributes={i: a.attributes for i, a in enumerate(flat) if a.attributes is not None},
    )


def _in_cells(row: Sequence[Action]) -> Iterator[Action]:
    """The row with its cells counted anew."""
    column, previous = 0, None
    for action in row:
        together = previous is not None and previous.column == action.column > 0
        # An action beside itself was put there: what overlaps is two actions.
        if not together or previous == action:
            column += 1
        previous = action
        yield replace(action, column=column)
