"""Turns: the order in which a rank posts, where several lanes share it.

Sends and receives of a channel, calls of a group and operations of a stream
count in the order of posting. On one lane that is the order of its ops; across
lanes it follows from SIGNAL and AWAIT. Where nothing orders two lanes the turns
chosen here are one possibility of several: then there is a race, which
``unordered`` finds with the finished graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.program.ops import Kind
from pipeproof.program.programs import Lane, Program

if TYPE_CHECKING:
    from pipeproof.program.programs import Longs


def turns(program: Program) -> Longs | None:
    """For each op its turn, ascending along every lane; None where every rank has
    one lane, so that the ops' own order is the order of posting."""
    if not program.several_lanes:
        return None
    turn = np.empty(program.ops, np.int64)
    by_rank: dict[int, list[Lane]] = {}
    for lane in program.lanes:
        by_rank.setdefault(lane.rank, []).append(lane)
    now = 0
    for lanes in by_rank.values():
        for op in _interleaved(program, lanes):
            turn[op] = now
            now += 1
    return turn


def _interleaved(program: Program, lanes: Sequence[Lane]) -> Iterator[int]:
    """The ops of one rank's lanes, each lane in order, signals before those that
    wait for them; what waits for a signal that never comes stands last."""
    attributes = program.details.attributes
    at = [lane.first for lane in lanes]
    signalled: set[str | None] = set()
    progress = True
    while progress:
        progress = False
        for i, lane in enumerate(lanes):
            while at[i] < lane.stop:
                op = at[i]
                kind = program.kind[op]
                if kind == Kind.AWAIT and attributes[op].label not in signalled:
                    break
                if kind == Kind.SIGNAL:
                    signalled.add(attributes[op].label)
                yield op
                at[i] += 1
                progress = True
    for i, lane in enumerate(lanes):
        yield from range(at[i], lane.stop)
