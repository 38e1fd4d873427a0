"""Collectives and signals: which calls meet, and which events they need.

The i-th calls of all members of a group meet, each completing when all have
started. A call that a member never makes is one that never happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.events.edges import Edges, Joints
from pipeproof.engines.events.graph import NEVER, Event
from pipeproof.engines.events.streams import Occupancy
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.program.programs import Longs


@dataclass(frozen=True, slots=True)
class Meeting:
    """The ``index``-th calls of ``group``: for each member rank its op, None if missing."""

    group: str
    index: int
    calls: tuple[tuple[int, int | None], ...]


def meetings(program: Program, turn: Longs | None) -> list[Meeting]:
    """All meetings of all groups, in order."""
    ops = np.flatnonzero(program.kind == Kind.COLL)
    if not len(ops):
        return []
    if turn is not None:
        ops = ops[np.argsort(turn[ops], kind="stable")]
    calls: dict[tuple[str, int], list[int]] = {}
    groups: dict[str, None] = {}
    for op in ops.tolist():
        group = program.details.attributes[op].more["group"]
        groups[group] = None
        calls.setdefault((group, program.rank_of(op)), []).append(op)
    found = []
    for group in groups:
        members = program.details.groups.get(group, tuple(range(program.ranks)))
        lists = [calls.get((group, rank), []) for rank in members]
        for index in range(max(map(len, lists))):
            row = tuple(
                (rank, made[index] if index < len(made) else None)
                for rank, made in zip(members, lists, strict=True)
            )
            found.append(Meeting(group, index, row))
    return found


def call_needs(
    found: list[Meeting], occupied: Occupancy, joints: Joints
) -> tuple[Longs, Longs, Longs]:
    """Arrays (op, chain, position): what each call needs, beside its own start."""
    rows: list[tuple[int, int, int]] = []
    for meeting in found:
        ops = [op for _, op in meeting.calls if op is not None]
        if len(ops) < len(meeting.calls):
            rows.extend((op, *NEVER) for op in ops)
        starts = [(int(occupied.chain[op]), int(occupied.position[op])) for op in ops]
        if len(ops) > 2:
            everyone = joints.all_of(starts, f"call {meeting.index} of group {meeting.group}")
            rows.extend((op, *everyone) for op in ops)
        else:
            rows.extend((op, *start) for op in ops for start in starts)
    rows.sort()
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def add_signals(
    program: Program, lane: Longs, position: Longs, edges: Edges, joints: Joints
) -> None:
    """An AWAIT completes once a SIGNAL of its name, on its rank, has completed."""
    waiting = np.flatnonzero(program.kind == Kind.AWAIT)
    if not len(waiting):
        return
    signals: dict[tuple[int, str | None], list[Event]] = {}
    for op in np.flatnonzero(program.kind == Kind.SIGNAL).tolist():
        key = (program.rank_of(op), program.details.attributes[op].label)
        signals.setdefault(key, []).append((int(lane[op]), int(position[op]) + 1))
    for op in waiting.tolist():
        label = program.details.attributes[op].label
        given = signals.get((program.rank_of(op), label), [NEVER])
        event = given[0] if len(given) == 1 else joints.some_of(1, given, f"signal {label}")
        edges.add_one((int(lane[op]), int(position[op]) + 1), event)
