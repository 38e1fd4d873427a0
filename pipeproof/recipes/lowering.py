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
    other: int = -1  # of a message: the stage at its other end


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
            out.extend(r for a in cell for r in wires.receives(a))
            out.extend(cell)
            out.extend(s for a in cell for s, _ in wires.sends(a))
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
    kind, stage, microbatch, backward, line, column, source, other = zip(*flat, strict=True)
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
        other=None if schedule.details.graph is None else np.array(other, np.int32),
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


Place = tuple[int, int]
"""A stage and a microbatch."""


class Wires:
    """Which messages an action's output leaves by, and which bring its inputs."""

    def __init__(self, schedule: Schedule) -> None:
        self.stages = schedule.stages
        self.graph = schedule.details.graph
        self.outputs = () if self.graph is None else self.graph.outputs
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

    def host(self, place: Place) -> int:
        """The rank that runs the microbatch on the stage."""
        stage, microbatch = place
        way = 0 <= microbatch < len(self.other_way) and self.other_way[microbatch]
        return self.hosts[way][stage]

    def sources(self, a: Action) -> list[Place]:
        """Where the outputs are made that ``a`` takes."""
        backward = a.kind in BACKWARDS
        if a.kind != F and not backward:
            return []
        if self.graph is not None and 0 <= a.stage < self.stages:
            if backward:
                return [(s, a.microbatch) for s in self.outputs[a.stage]]
            return self.graph.sources(a.stage, a.microbatch)
        source = a.stage + (1 if backward else -1)
        return [(source, a.microbatch)] if 0 <= source < self.stages else []

    def targets(self, a: Action) -> list[Place]:
        """Where the output of ``a`` is taken."""
        backward = a.kind in BACKWARDS
        if a.kind != F and not backward:
            return []
        if self.graph is not None and 0 <= a.stage < self.stages:
            if backward:
                return [(s, a.microbatch) for s in self.graph.inputs[a.stage]]
            return self.graph.targets(a.stage, a.microbatch)
        target = a.stage + (-1 if backward else 1)
        return [(target, a.microbatch)] if 0 <= target < self.stages else []

    def _elsewhere(self, a: Action, other: Place) -> bool:
        return self.host(other) not in (-1, self.host((a.stage, a.microbatch)))

    def sends(self, a: Action) -> list[tuple[Action, Place]]:
        """The sends that follow ``a``, each with where it is taken on another rank."""
        backward = a.kind in BACKWARDS
        where = a.line, a.column
        return [
            (Action(Kind.SEND, a.stage, a.microbatch, backward, *where, other=target[0]), target)
            for target in self.targets(a)
            if self._elsewhere(a, target)
        ]

    def receives(self, a: Action) -> list[Action]:
        """The receives that must precede ``a``, of what other ranks make. What nobody
        makes has none: the order check says so."""
        backward = a.kind in BACKWARDS
        return [
            receipt(a.stage, source, backward, a.line, a.column)
            for source in self.sources(a)
            if self._elsewhere(a, source) and (backward, *source) in self.produced
        ]

    def send(self, a: Action) -> Action | None:
        """The send that follows ``a`` where stages are a chain, if there is one."""
        found = self.sends(a)
        return found[0][0] if found else None

    def receive(self, a: Action) -> Action | None:
        """The receive that must precede ``a`` where stages are a chain, if there is one."""
        found = self.receives(a)
        return found[0] if found else None


def receipt(stage: int, source: Place, backward: bool, line: int, column: int) -> Action:
    """The receive, for ``stage``, of what is made at ``source``."""
    return Action(Kind.RECV, stage, source[1], backward, line, column, other=source[0])


class _Router:
    """Torch's round: each rank in turn advances by one cell if its inputs are there."""

    def __init__(self, schedule: Schedule, cells: list[list[Cell]]) -> None:
        self.wires = Wires(schedule)
        self.cells = cells
        self.rows: list[list[Action]] = [[] for _ in cells]
        self.at = [0] * len(cells)
        # Receives placed anywhere, by (backward, source, target), and outputs made,
        # by (backward, source).
        self.received: set[tuple[bool, Place, Place]] = set()
        self.made: set[tuple[bool, Place]] = set()
        # Receives put before their op although nobody had sent yet.
        self.early: set[tuple[bool, Place, Place]] = set()
        # The consumer's cell, for the place of a receive.
        self.cell_of: dict[tuple[bool, Place], Action] = {}
        for row in cells:
            for cell in row:
                for a in cell:
                    if a.kind in (F, B, I):
                        self.cell_of.setdefault((a.kind != F, (a.stage, a.microbatch)), a)

    def _there(self, a: Action, source: Place) -> bool:
        """Whether an input of ``a`` is made here or received."""
        backward, place = a.kind in BACKWARDS, (a.stage, a.microbatch)
        if (backward, source, place) in self.received:
            return True
        here = self.wires.host(source) == self.wires.host(place)
        return here and (backward, source) in self.made

    def _place(self, rank: int, cell: Cell) -> None:
        row = self.rows[rank]
        row.extend(cell)
        for a in cell:
            if a.kind == F or a.kind in BACKWARDS:
                self.made.add((a.kind in BACKWARDS, (a.stage, a.microbatch)))
            for sent, target in self.wires.sends(a):
                row.append(sent)
                self._place_receive(a, target)

    def _place_receive(self, a: Action, target: Place) -> None:
        backward = a.kind in BACKWARDS
        source = a.stage, a.microbatch
        key = backward, source, target
        if key in self.early:
            self.early.discard(key)  # already put before its op
            return
        self.received.add(key)
        consumer = self.cell_of.get((backward, target))
        line, column = (consumer.line, consumer.column) if consumer else (0, 0)
        row = self.rows[self.wires.host(target)]
        row.append(receipt(target[0], source, backward, line, column))

    def route(self) -> list[list[Action]]:
        left = [r for r in range(len(self.cells)) if self.cells[r]]
        while left:
            progress = False
            for rank in left:
                cell = self.cells[rank][self.at[rank]]
                if all(self._there(a, s) for a in cell for s in self.wires.sources(a)):
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
            place = a.stage, a.microbatch
            for receive in self.wires.receives(a):
                source = receive.other, receive.microbatch
                if not self._there(a, source):
                    key = (receive.backward, source, place)
                    self.received.add(key)
                    self.early.add(key)
                    self.rows[rank].append(receive)
        self._place(rank, cell)
        self.at[rank] += 1
