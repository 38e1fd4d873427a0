"""The zero-bubble pipeline's recipe: messages stand where they are made in time.

Its planner runs the schedule with lengths for its ops, and puts a message, on
both ranks, at the time when its producer ends: a receive before the op that runs
then. The queue leaves as one batch when a compute follows, or with a receive that
the next compute needs. That compute waits for the batch; what is left is waited
for at the end. In a batch stand the messages of the rank before, then those of
the next rank, sends first.

The lengths here are those of equal ops and short messages; a full backward, too,
counts as one op, as that planner leaves its weight gradient out.
"""

from __future__ import annotations

from typing import NamedTuple

from pipeproof.program.ops import Kind
from pipeproof.program.schedules import Schedule
from pipeproof.recipes.lowering import BACKWARDS, Action, Cell, Wires, cells_of
from pipeproof.recipes.posting import How, Post, Row, other_stage, peer

OP, LATENCY = 1000, 1
"""Lengths of any op, and of a message."""

Key = tuple[bool, int, int]
"""An output: whether it is a gradient, its stage, its microbatch."""


class _Event(NamedTuple):
    """Something at a time; at equal times receives stand before computes, and those
    before sends. ``number`` is the cell that it belongs to."""

    time: int
    turn: int
    number: int


def rows_in_time(schedule: Schedule) -> list[Row]:
    """The rows of a compute-only schedule."""
    wires = Wires(schedule)
    cells = cells_of(schedule)
    ends = _ends(schedule, cells)
    made = {k: ends[r][n] for k, (r, n) in _makers(cells).items() if n < len(ends[r])}
    rows = []
    for rank, own in enumerate(cells):
        events: list[tuple[_Event, Cell | Action]] = []
        time = 0
        for number, cell in enumerate(own):
            # What never runs stands in the order of the cells.
            time = ends[rank][number] if number < len(ends[rank]) else time + OP
            events.append((_Event(time, 1, number), cell))
            for action in cell:
                if (taken := wires.receive(action)) is not None:
                    start = made.get((taken.backward, other_stage(taken), taken.microbatch), time)
                    events.append((_Event(min(start, time), 0, number), taken))
                if (sent := wires.send(action)) is not None:
                    events.append((_Event(time, 2, number), sent))
        events.sort(key=lambda entry: entry[0])
        rows.append(_batched(schedule, wires, rank, [what for _, what in events]))
    return rows


def _makers(cells: list[list[Cell]]) -> dict[Key, tuple[int, int]]:
    """Where every output is made: rank and number of the cell."""
    return {
        (action.kind != Kind.F, action.stage, action.microbatch): (rank, number)
        for rank, own in enumerate(cells)
        for number, cell in enumerate(own)
        for action in cell
        if action.kind == Kind.F or action.kind in BACKWARDS
    }


def _ends(schedule: Schedule, cells: list[list[Cell]]) -> list[list[int]]:
    """When each cell of each rank ends; where a rank gets stuck, its list does."""
    makers = _makers(cells)
    ends: list[list[int]] = [[] for _ in cells]

    def start(rank: int, number: int) -> int | None:
        """When a cell starts, None where an input of it has no time yet."""
        found = ends[rank][-1] if ends[rank] else 0
        for action in cells[rank][number]:
            for key in _needs(action, schedule.stages):
                other, maker = makers.get(key, (rank, number))
                if (other, maker) == (rank, number):
                    continue  # nobody makes it, or this very cell
                if maker >= len(ends[other]):
                    return None
                found = max(found, ends[other][maker] + (LATENCY if other != rank else 0))
        return found

    moved = True
    while moved:
        moved = False
        for rank, own in enumerate(cells):
            while len(ends[rank]) < len(own):
                begin = start(rank, len(ends[rank]))
                if begin is None:
                    break
                ends[rank].append(begin + OP * len(own[len(ends[rank])]))
                moved = True
    return ends


def _needs(action: Action, stages: int) -> list[Key]:
    """The outputs that a compute takes from neighbouring stages."""
    if action.kind == Kind.F:
        return [(False, action.stage - 1, action.microbatch)] if action.stage else []
    if action.kind in BACKWARDS and action.stage < stages - 1:
        return [(True, action.stage + 1, action.microbatch)]
    return []


def _batched(schedule: Schedule, wires: Wires, rank: int, events: list[Cell | Action]) -> Row:
    row: Row = []
    queue: list[Action] = []
    # The next cell from each event on.
    following: list[Cell | None] = [None]
    for event in reversed(events):
        following.append(following[-1] if isinstance(event, Action) else event)
    following.reverse()

    def turn(message: Action) -> tuple[bool, bool]:
        other = peer(schedule, message)
        before = other == (rank - 1) % schedule.ranks and (other < rank or schedule.ranks > 2)
        return not before, message.kind == Kind.RECV

    for at, event in enumerate(events):
        if not isinstance(event, Action):
            row.append(event)
            continue
        queue.append(event)
        onward = at + 1 < len(events) and isinstance(events[at + 1], Action)
        needy = following[at + 1] or ()
        if not onward or event in [wires.receive(action) for action in needy]:
            row.append(Post(How.BATCH_KEPT, tuple(sorted(queue, key=turn))))
            queue = []
    return row
