"""Timing in which the program's own communication counts: streams, batches and
blocking.

The figures are those of one program over its transport, where ``timing`` gives
those of its schedule. When a message leaves is what the program lists, so the
cost model's ``release`` only says whether overlapped pairs are one block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeproof.engines.events.clock import Clock, Clockwork
from pipeproof.engines.events.graph import EventGraph
from pipeproof.engines.timing import Timing, sums
from pipeproof.engines.timing_network import delays, durations, overlapped, paired, scale_of
from pipeproof.engines.timing_path import Explanation, Hop
from pipeproof.program.costs import Costs, Release
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.engines.timing_network import Ticks
    from pipeproof.program.programs import Longs


class _Timed(NamedTuple):
    computes: Longs
    duration: Ticks
    second: Longs  # places of ops that are one block with the one before them
    event: Longs  # the completion of each compute op
    work: Clockwork
    clock: Clock
    per_unit: int


def _timed(program: Program, costs: Costs, graph: EventGraph) -> _Timed | None:
    computes = np.flatnonzero(program.kind <= Kind.R)
    if not len(computes):
        return None
    scale = scale_of(program, costs, len(computes))
    duration = durations(program, computes, costs, scale)
    second = np.empty(0, np.int64)
    if costs.pair is not None or costs.release is not Release.OP:
        second = overlapped(program, computes)
        duration = paired(duration, second, costs, scale)
    if costs.release is Release.OP:
        second = second[:0]
    takes = np.zeros(program.ops, duration.dtype)
    takes[computes] = duration
    # A block runs when the inputs of both are there: all of it stands at its second op.
    takes[computes[second]] += duration[second - 1]
    takes[computes[second - 1]] = 0
    payload = program.messages.payload
    boundary = np.where(payload < 0, 0, (payload >> 32) - (payload & 1))
    delay = delays(program, boundary, costs, scale)
    work = Clockwork(program, graph, takes, delay)
    clock = work.run()
    if not clock.finished:
        return None
    return _Timed(computes, duration, second, work.done[computes], work, clock, scale.per_unit)


def recipe_timing(program: Program, costs: Costs, graph: EventGraph) -> Timing | None:
    """Time of one step of a program whose event graph is ``graph``; None where it gets
    stuck, or computes nothing. The makespan ends with the last compute op."""
    timed = _timed(program, costs, graph)
    return None if timed is None else _timing(program, timed)


def _timing(program: Program, timed: _Timed) -> Timing:
    computes, duration, second = timed.computes, timed.duration, timed.second
    time = np.array(timed.clock.time, duration.dtype)
    end = time[timed.event]
    whole = duration.copy()
    whole[second] += duration[second - 1]
    start = end - whole
    start[second - 1], end[second - 1] = start[second], end[second]
    lanes = tuple(lane for lane in program.lanes if lane.stop > lane.first)
    bounds = np.searchsorted(computes, [lane.first for lane in lanes] + [program.ops])
    last, computing, spanned = sums(program.ranks, lanes, bounds, start, end, duration)
    return Timing(last, computing, spanned, computes, start, end, timed.per_unit)


def recipe_explain(program: Program, costs: Costs, graph: EventGraph) -> Explanation | None:
    """What holds the step back, its communication included; None where it has no time."""
    timed = _timed(program, costs, graph)
    if timed is None:
        return None
    timing = _timing(program, timed)
    clock, events = timed.clock, timed.event.tolist()
    number = {event: i for i, event in enumerate(events)}
    last = max(clock.time[e] for e in events)
    event = min(e for e in events if clock.time[e] == last)
    late = timed.work.latest(clock, dict.fromkeys(events, last))
    slack = np.array([late[e] - clock.time[e] for e in events], timing.end.dtype)
    slack[timed.second - 1] = slack[timed.second]
    path = tuple(_path(program, timed, timing, number, event))
    return Explanation(path, timed.computes, slack, timed.per_unit)


def _path(
    program: Program, timed: _Timed, timing: Timing, number: dict[int, int], event: int
) -> list[Hop]:
    """Back from an event, from cause to cause."""
    clock, firsts = timed.clock, set((timed.second - 1).tolist())
    start, end = timing.start.tolist(), timing.end.tolist()
    op_of, posted_by = timed.computes.tolist(), program.messages.op.tolist()
    hops: list[Hop] = []
    while event >= 0:
        at = number.get(event)
        if at is not None and at not in firsts and clock.time[event] >= 0:
            hops.append(Hop(op_of[at], start[at], end[at]))
            began = start[at]
        else:
            began = clock.time[event]
        cause, row = clock.cause[event], clock.via[event]
        if row >= 0:
            hops.append(Hop(posted_by[row], clock.time[cause], began, row=row))
        event = cause
    return hops[::-1]
