"""Lowering: put the sends and receives into a compute-only schedule.

``lower_as_torch`` follows torch's runtime (torch 2.13, ``_add_unshard_reshard``,
``_add_reduce_grad`` and ``_add_send_recv`` in torch.distributed.pipelining):
parameters are gathered for the next three stages that compute, a stage's
gradients are reduced after its last backward, and a send puts its receive into
the other rank's row at that moment, so that both ends of every pair of ranks
list their messages in the same order.

``lower_naively`` sends right after an output exists and receives right before
it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pipeproof.program.ops import Kind
from pipeproof.program.schedules import Schedule

F, B, I, W = int(Kind.F), int(Kind.B), int(Kind.I), int(Kind.W)
BACKWARDS = (B, I)

ACTIVE_STAGES = 3
"""How many stages torch keeps gathered: one forward, one backward, one ahead."""


class Action(NamedTuple):
    """An action of a schedule; see `pipeproof.program.schedules.Schedule`."""

    kind: int
    stage: int
    microbatch: int
    backward: bool
    line: int
    column: int
    source: int = -1  # its number in the schedule that is lowered


Cell = tuple[Action, ...]
"""The actions of one cell; more than one where they overlap."""


def lower_as_torch(schedule: Schedule) -> Schedule:
    """Torch's own order, or, where torch would refuse the plan, the nearest one.

    Torch stops with "malformed compute schedule" when no rank can go on. Then
    the lowest waiting rank is let through, its receives put right before the
    op, so that the defect is found and explained in the program that results.
    """
    cells = cells_of(schedule)
    listed = set(np.unique(schedule.kind).tolist())
    if not listed & {Kind.UNSHARD, Kind.RESHARD}:
        cells = [list(_with_sharding(row)) for row in cells]
    if Kind.REDUCE_GRAD not in listed:
        cells = [list(_with_reduction(row, schedule)) for row in cells]
    return _from_rows(schedule, _Router(schedule, cells).route())


def lower_naively(schedule: Schedule) -> Schedule:
    """Receive right before the op that needs it, send right after the op that made it."""
    wires = Wires(schedule)
    rows: list[list[Action]] = []
    for row in cells_of(schedule):
        out: list[Action] = []
        for cell in row:
            out.extend(r for a in cell if (r := wires.receive(a)) is not None)
            out.extend(cell)
            out.extend(s for a in cell if (s := wires.send(a)) is not None)
        rows.append(out)
    return _from_rows(schedule, rows)


def cells_of(schedule: Schedule) -> list[list[Cell]]:
    """The cells of every rank, in order."""
    columns = (
        schedule.kind.tolist(),
        schedule.stage.tolist(),
        schedule.microbatch.tolist(),
        schedule.backward.tolist(),
        schedule.line.tolist(),
        schedule.column.tolist(),
        range(len(schedule.kind)),
    )
    actions = [Action(*fields) for fields in zip(*columns, strict=True)]
    rows: list[list[Cell]] = []
    for start, stop in pairwise(schedule.first):
        row: list[list[Action]] = []
        for action in actions[start:stop]:
            if row and row[-1][0].column == action.column:
                row[-1].append(action)
            else:
                row.append([action])
        rows.append([tuple(cell) for cell in row])
    return rows


def _from_rows(schedule: Schedule, rows: list[list[Action]]) -> Schedule:
    flat = [action for row in rows for action in row]
    kind, stage, microbatch, backward, line, column, source = zip(*flat, strict=True)
    attributes = {
        number: schedule.attributes[action]
        for number, action in enumerate(source)
        if action in schedule.attributes
    }
    first = [0]
    for row in rows:
        first.append(first[-1] + len(row))
    return replace(
        schedule,
        kind=np.array(kind, np.uint8),
        stage=np.array(stage, np.int32),
        microbatch=np.array(microbatch, np.int32),
        backward=np.array(backward, np.bool_),
        line=np.array(line, np.int32),
        column=np.array(column, np.int32),
        first=tuple(first),
        lists_communication=True,
        attributes=attributes,
    )


# --- sharded parameters -------------------------------------------------------


def _next_stages(row: list[Cell]) -> list[list[int]]:
    """For each cell, the stages that compute next, from that cell on.

    Read backwards, each cell moves its stages to the front. The list is cut at
    the first cell that brings it to ``ACTIVE_STAGES``; an overlapped pair is
    never split, so it may hold one more.
    """
    ahead: list[tuple[int, int]] = []  # (stage, cell where it comes next)
    result: list[list[int]] = [[] for _ in row]
    for at in range(len(row) - 1, -1, -1):
        stages = list(dict.fromkeys(a.stage for a in row[at] if a.stage >= 0))
        ahead = [(s, at) for s in stages] + [e for e in ahead if e[0] not in stages]
        end = min(ACTIVE_STAGES, len(ahead))
        while end < len(ahead) and ahead[end][1] == ahead[end - 1][1]:
            end += 1
        result[at] = [stage for stage, _ in ahead[:end]]
    return result


def _with_sharding(row: list[Cell]) -> Iterator[Cell]:
    # A set, because torch uses one: which of several stages is given up first
    # follows the iteration order of a set of small integers.
    active: set[int] = set()

    def act(kind: Kind, stage: int, cell: Cell) -> Cell:
        return (Action(kind, stage, -1, False, cell[0].line, cell[0].column),)

    for cell, wanted in zip(row, _next_stages(row), strict=True):
        for stage in [s for s in active if s not in wanted]:
            active.remove(stage)
            yield act(Kind.RESHARD, stage, cell)
        for stage in [s for s in wanted if s not in active]:
            active.add(stage)
            yield act(Kind.UNSHARD, stage, cell)
        yield cell
    for stage in list(active):
        yield act(Kind.RESHARD, stage, row[-1])


def _with_reduction(row: list[Cell], schedule: Schedule) -> Iterator[Cell]:
    done: dict[int, int] = {}
    microbatches = schedule.microbatches
    if schedule.other_way is not None:  # a host runs those of its own way
        microbatches = len({a.microbatch for cell in row for a in cell if a.kind in (W, B)})
    for cell in row:
        yield cell
        for action in cell:
            if action.kind in (W, B):
                done[action.stage] = done.get(action.stage, 0) + 1
                if done[action.stage] == microbatches:
                    where = (False, action.line, action.column)
                    yield (Action(Kind.REDUCE_GRAD, action.stage, -1, *where),)


# --- sends and receives -------------------------------------------------------


class Wires:
    """Which message an action's output leaves by, and which brings its input."""

    def __init__(self, schedule: Schedule) -> None:
        self.stages = schedule.stages
        host: list[int] = schedule.host.tolist()
        # By way: the host of each stage.
        self.hosts = [host, host]
        self.other_way: list[bool] = []
        if schedule.other_host is not None and schedule.other_way is not None:
            self.hosts[1] = schedule.other_host.tolist()
            self.other_way = schedule.other_way.tolist()
        computed = schedule.kind <= Kind.W
        keys = zip(
            schedule.kind[computed].tolist(),
            schedule.stage[computed].tolist(),
            schedule.microbatch[computed].tolist(),
            strict=True,
        )
        self.produced = {(k in BACKWARDS, s, m) for k, s, m in keys if k != W}

    def host(self, stage: int, microbatch: int) -> int:
        """The rank that runs the microbatch on the stage."""
        way = 0 <= microbatch < len(self.other_way) and self.other_way[microbatch]
        return self.hosts[way][stage]

    def _elsewhere(self, a: Action, other: int) -> bool:
        return 0 <= other < self.stages and self.host(other, a.microbatch) not in (
            -1,
            self.host(a.stage, a.microbatch),
        )

    def send(self, a: Action) -> Action | None:
        """The send that follows ``a``, if its output goes to another rank."""
        backward = a.kind in BACKWARDS
        if a.kind != F and not backward:
            return None
        if not self._elsewhere(a, a.stage + (-1 if backward else 1)):
            return None
        return Action(Kind.SEND, a.stage, a.microbatch, backward, a.line, a.column)

    def receive(self, a: Action) -> Action | None:
        """The receive that must precede ``a``, if another rank makes its input."""
        backward = a.kind in BACKWARDS
        if a.kind != F and not backward:
            return None
        source = a.stage + (1 if backward else -1)
        if not self._elsewhere(a, source):
            return None
        if (backward, source, a.microbatch) not in self.produced:
            return None  # nobody makes it: the order check says so
        return Action(Kind.RECV, a.stage, a.microbatch, backward, a.line, a.column)


class _Router:
    """Torch's round: each rank in turn advances by one cell if its inputs are there."""

    def __init__(self, schedule: Schedule, cells: list[list[Cell]]) -> None:
        self.wires = Wires(schedule)
        self.cells = cells
        self.rows: list[list[Action]] = [[] for _ in cells]
        self.at = [0] * len(cells)
        # (backward, stage, microbatch) of receives placed anywhere, and of
        # outputs made; a stage's neighbours tell which rank that concerns.
        self.received: set[tuple[bool, int, int]] = set()
        self.made: set[tuple[bool, int, int]] = set()
        # Receives put before their op although nobody had sent yet.
        self.early: set[tuple[bool, int, int]] = set()
        # The consumer's cell, for the place of a receive.
        self.cell_of: dict[tuple[bool, int, int], Action] = {}
        for row in cells:
            for cell in row:
                for a in cell:
                    if a.kind in (F, B, I):
                        key = (a.kind != F, a.stage, a.microbatch)
                        self.cell_of.setdefault(key, a)

    def _ready(self, a: Action) -> bool:
        backward = a.kind in BACKWARDS
        if a.kind != F and not backward:
            return True
        source = a.stage + (1 if backward else -1)
        if not 0 <= source < self.wires.stages:
            return True
        if (backward, a.stage, a.microbatch) in self.received:
            return True
        host = self.wires.host
        here = host(source, a.microbatch) == host(a.stage, a.microbatch)
        return here and (backward, source, a.microbatch) in self.made

    def _place(self, rank: int, cell: Cell) -> None:
        row = self.rows[rank]
        row.extend(cell)
        for a in cell:
            if a.kind == F or a.kind in BACKWARDS:
                self.made.add((a.kind in BACKWARDS, a.stage, a.microbatch))
            sent = self.wires.send(a)
            if sent is not None:
                row.append(sent)
                self._place_receive(a)

    def _place_receive(self, a: Action) -> None:
        backward = a.kind in BACKWARDS
        stage = a.stage + (-1 if backward else 1)
        key = (backward, stage, a.microbatch)
        if key in self.early:
            self.early.discard(key)  # already put before its op
            return
        self.received.add(key)
        consumer = self.cell_of.get(key)
        line, column = (consumer.line, consumer.column) if consumer else (0, 0)
        row = self.rows[self.wires.host(stage, a.microbatch)]
        row.append(Action(Kind.RECV, stage, a.microbatch, backward, line, column))

    def route(self) -> list[list[Action]]:
        left = [r for r in range(len(self.cells)) if self.cells[r]]
        while left:
            progress = False
            for rank in left:
                cell = self.cells[rank][self.at[rank]]
                if all(self._ready(a) for a in cell):
                    self._place(rank, cell)
                    self.at[rank] += 1
                    progress = True
            left = [r for r in left if self.at[r] < len(self.cells[r])]
            if not progress:
                self._force(left[0])
                left = [r for r in left if self.at[r] < len(self.cells[r])]
        return self.rows

    def _force(self, rank: int) -> None:
        cell = self.cells[rank][self.at[rank]]
        for a in cell:
            if self._ready(a):
                continue
            receive = self.wires.receive(a)
            if receive is not None:
                key = (receive.backward, a.stage, a.microbatch)
                self.received.add(key)
                self.early.add(key)
                self.rows[rank].append(receive)
        self._place(rank, cell)
        self.at[rank] += 1
