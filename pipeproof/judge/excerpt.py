"""Excerpts: the few ops around a finding, lane by lane, ready to be drawn."""

from __future__ import annotations

from collections.abc import Container

from pipeproof.program.notation import op_text
from pipeproof.program.programs import Program
from pipeproof.verdict import Excerpt, Finding, Stuck

BEFORE, AFTER, LANES = 3, 4, 4


def excerpts(
    program: Program, finding: Finding, unfinished: Container[int] = ()
) -> tuple[Excerpt, ...]:
    """One excerpt a lane that the finding points at, at most ``LANES``.

    ``unfinished`` are posted ops that have not completed where a run gets stuck.
    """
    example = finding.counterexample
    stuck = set(example.claim.ops) if isinstance(example.claim, Stuck) else set()
    first_of = {(lane.rank, lane.name): lane.first for lane in program.lanes}
    pointed: dict[int, list[int]] = {}
    for place in finding.where:
        op = first_of[place.rank, place.lane] + place.index
        pointed.setdefault(program.lane_of(op), []).append(op)
    found = []
    for number, ops in list(pointed.items())[:LANES]:
        held = [op for op in stuck if program.lane_of(op) == number]
        found.append(_excerpt(program, number, ops, held, bool(stuck), unfinished))
    return tuple(found)


def _excerpt(
    program: Program,
    number: int,
    pointed: list[int],
    held: list[int],
    deadlock: bool,
    unfinished: Container[int],
) -> Excerpt:
    lane = program.lanes[number]
    centre = held[0] if held else pointed[0]
    low = max(lane.first, min([centre, *(p for p in pointed if centre - p <= 8)]) - BEFORE)
    high = min(lane.stop, max([centre, *(p for p in pointed if p - centre <= 8)]) + AFTER + 1)

    def mark(op: int) -> str:
        if op in held:
            return "stuck"
        if deadlock:
            if op < centre or not held:
                return "in flight" if op in unfinished else "done"
            return ""
        return "here" if op in pointed else ""

    return Excerpt(
        rank=lane.rank,
        lane=lane.name,
        first=low - lane.first,
        ops=tuple(op_text(program, op) for op in range(low, high)),
        marks=tuple(mark(op) for op in range(low, high)),
        before=low - lane.first,
        after=lane.stop - high,
    )
