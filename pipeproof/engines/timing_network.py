"""The compute order with its times: what waits for what, and for how long.

A *node* is a compute op, or an overlapped pair that counts as one block. Nodes
stand lane after lane. A *gate* says that a node starts at the earliest so long
after the start of another one. Times are integers in *ticks*, the smallest
common unit of all times of the cost model, so that sums are exact; where that
unit is too small for 64 bits they are float64 in the model's own unit, and
sums carry the usual relative error of 2^-53 an addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeproof.engines.timing_inputs import Inputs, inputs
from pipeproof.program.costs import Costs, Release, exact
from pipeproof.program.lanes import rank_of_ops
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Lane, Program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeproof.program.programs import Longs

    Ticks = NDArray[Any]  # of int64, or of float64

_ROOM = 1 << 61
"""Largest sum of ticks: every time stays well within 64 bits."""


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes and gates of a program under a cost model.

    ``op`` numbers the compute ops; ``node[i]`` is the node of ``op[i]``, None where
    every op is its own. ``duration`` is a node's; lane i has the nodes
    ``bounds[i]`` to ``bounds[i + 1] - 1``. Gate j: node ``to[j]`` (ascending)
    starts ``lag[j]`` or more after the start of node ``source[j]``, because the
    op ``inputs.consumer[j]`` needs what ``inputs.producer[j]`` makes; ``delay[j]``
    of it the message is under way. ``per_unit`` is ticks a time unit.
    """

    op: Longs
    node: Longs | None
    duration: Ticks
    lanes: tuple[Lane, ...]
    bounds: Longs
    to: Longs
    source: Longs
    lag: Ticks
    delay: Ticks
    inputs: Inputs
    per_unit: int

    def of_ops(self, values: Any) -> Any:
        """Values of nodes, one an op."""
        return values if self.node is None else values[self.node]


@dataclass(frozen=True, slots=True)
class Scale:
    """Ticks: ``per_unit`` of them a time unit, in arrays of type ``dtype``."""

    per_unit: int
    dtype: type

    def ticks(self, times: list[Fraction]) -> Ticks:
        """Times in ticks."""
        if self.dtype is np.int64:
            return np.array([int(t * self.per_unit) for t in times], np.int64)
        return np.array([float(t) for t in times], np.float64)


def scale_of(program: Program, costs: Costs, computes: int) -> Scale:
    """The ticks that keep every sum of this program's times exact, if there are any."""
    times = [costs.of(Kind(k), s) for k in range(Kind.R + 1) for s in _stages(program, costs)]
    delays = [costs.delay(s) for s in _boundaries(program, costs)]
    pair = [exact(costs.pair)] if costs.pair is not None else []
    per_unit = lcm(*(t.denominator for t in (*times, *delays, *pair)))
    rows = len(program.messages.op) + 2 * computes
    longest = computes * max(times + pair) + rows * max(delays, default=Fraction(0))
    fits = longest * per_unit < _ROOM
    return Scale(per_unit, np.int64) if fits else Scale(1, np.float64)


def _stages(program: Program, costs: Costs) -> range:
    return range(1 if costs.uniform else max(program.stages, 1))


def _boundaries(program: Program, costs: Costs) -> range:
    return range(1 if costs.uniform_delay else max(program.stages - 1, 1))


def durations(program: Program, computes: Longs, costs: Costs, scale: Scale) -> Ticks:
    """The time of each compute op, pairs set aside."""
    kind = program.kind[computes]
    stages = _stages(program, costs)
    table = scale.ticks([costs.of(Kind(k), s) for k in range(Kind.R + 1) for s in stages])
    row = kind.astype(np.int64)
    if len(stages) > 1:
        row = row * len(stages) + np.clip(program.stage[computes], 0, len(stages) - 1)
    found: Ticks = table[row]
    return found


def delays(program: Program, boundary: Longs, costs: Costs, scale: Scale) -> Ticks:
    """The time of a message over each boundary."""
    boundaries = _boundaries(program, costs)
    table = scale.ticks([costs.delay(s) for s in boundaries])
    if len(boundaries) == 1:
        return np.full(len(boundary), table[0])
    found: Ticks = table[np.clip(boundary, 0, len(boundaries) - 1)]
    return found


def overlapped(program: Program, computes: Longs) -> Longs:
    """The places among ``computes`` of ops that overlap with the one before them.

    A pair is a forward with a backward or input gradient in one cell of the input,
    or between the marks FB_begin and FB_end of a recording. Ops that need each
    other's output, or more than two, do not overlap: they run as they stand.
    """
    if len(computes) < 2:
        return np.empty(0, np.int64)
    line, column = program.origin.line[computes], program.origin.column[computes]
    cell = (line > 0) & (column > 0)
    marked = _marked(program)[computes]
    same = np.zeros(len(computes), np.bool_)
    same[1:] = cell[1:] & (line[1:] == line[:-1]) & (column[1:] == column[:-1])
    same[1:] |= (marked[1:] > 0) & (marked[1:] == marked[:-1])
    kind, stage = program.kind[computes], program.stage[computes]
    forward, backward = kind == Kind.F, (kind == Kind.B) | (kind == Kind.I)
    fits = np.zeros(len(computes), np.bool_)
    fits[1:] = (forward[1:] & backward[:-1]) | (backward[1:] & forward[:-1])
    twice = same & np.roll(same, 1)  # a third one in a cell
    alone = ~twice & ~np.roll(twice, -1)
    second = np.flatnonzero(same & fits & alone)
    first = second - 1
    mb = program.microbatch[computes]
    # The backward of what the forward beside it has just made comes after it.
    apart = (stage[first] != stage[second]) | (mb[first] != mb[second])
    found: Longs = second[apart]
    return found


def _marked(program: Program) -> Longs:
    """For each op the number of the FB_begin that it stands behind, 0 past its FB_end."""
    marked = np.zeros(program.ops, np.int64)
    began = -1
    for op, own in sorted(program.details.attributes.items(), key=lambda item: item[0]):
        if own.label == "FB_begin" and program.kind[op] == Kind.X:
            began = op
        elif own.label == "FB_end" and program.kind[op] == Kind.X and began >= 0:
            if program.lane_of(began) == program.lane_of(op):
                marked[began:op] = began + 1
            began = -1
    return marked


def network(program: Program, costs: Costs) -> Network | None:
    """The network of a program, None where it has no compute op."""
    computes = np.flatnonzero(program.kind <= Kind.R)
    if not len(computes):
        return None
    found = inputs(program, computes)
    scale = scale_of(program, costs, len(computes))
    duration = durations(program, computes, costs, scale)
    lanes = tuple(lane for lane in program.lanes if lane.stop > lane.first)
    bounds = np.searchsorted(computes, [lane.first for lane in lanes] + [program.ops])
    consumer, producer, remote = found.consumer, found.producer, found.remote
    pairs = costs.pair is not None or costs.release is not Release.OP
    second = overlapped(program, computes) if pairs else np.empty(0, np.int64)
    node: Longs | None = None
    to, source = consumer, producer
    leaves = duration[producer]
    if len(second):
        duration = paired(duration, second, costs, scale)
        leaves = duration[producer]
        if costs.release is not Release.OP:
            node, duration, bounds = _blocks(duration, second, bounds)
            to, source = node[consumer], node[producer]
            leaves = duration[source]
    if costs.release is Release.COMMIT:
        source = _committed(program, computes, node, source, found)
        leaves = duration[source]
    boundary = _boundary(program, computes, consumer)
    delay = np.where(remote, delays(program, boundary, costs, scale), 0).astype(duration.dtype)
    lag = leaves + delay
    return Network(
        computes, node, duration, lanes, bounds, to, source, lag, delay, found, scale.per_unit
    )


def _boundary(program: Program, computes: Longs, consumer: Longs) -> Longs:
    """The boundary that the input of each consumer comes over."""
    op = computes[consumer]
    boundary: Longs = program.stage[op].astype(np.int64) - (program.kind[op] == Kind.F)
    return boundary


def paired(duration: Ticks, second: Longs, costs: Costs, scale: Scale) -> Ticks:
    """Durations with those of overlapped ops: together they take ``costs.pair``."""
    if costs.pair is None:
        return duration
    (both,) = scale.ticks([exact(costs.pair)]).tolist()
    duration = duration.copy()
    duration[second - 1] = np.minimum(duration[second - 1], both)
    duration[second] = both - duration[second - 1]
    return duration


def _blocks(duration: Ticks, second: Longs, bounds: Longs) -> tuple[Longs, Ticks, Longs]:
    """The node of each op, what nodes take, and where lanes begin: pairs are one node."""
    joins = np.zeros(len(duration), np.int64)
    joins[second] = 1
    node: Longs = np.arange(len(duration)) - np.cumsum(joins)
    whole = np.zeros(int(node[-1]) + 1, duration.dtype)
    np.add.at(whole, node, duration)
    return node, whole, bounds - np.concatenate(([0], np.cumsum(joins)))[bounds]


def _committed(
    program: Program, computes: Longs, node: Longs | None, source: Longs, found: Inputs
) -> Longs:
    """The node at whose end each input leaves: the last one before its SEND, where that
    is listed behind its producer."""
    m = program.messages
    rank = rank_of_ops(program)
    sent: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(m.send)[::-1].tolist():
        sent[int(m.rank[row]), int(m.payload[row])] = int(m.op[row])
    source = source.copy()
    for gate in np.flatnonzero(found.remote).tolist():
        producer = int(computes[found.producer[gate]])
        forward = program.kind[producer] == Kind.F
        stage, microbatch = int(program.stage[producer]), int(program.microbatch[producer])
        payload = (stage << 31 | microbatch) << 1 | (not forward)
        op = sent.get((int(rank[producer]), payload))
        if op is None or program.lane_of(op) != program.lane_of(producer):
            continue
        last = int(np.searchsorted(computes, op)) - 1  # never before the lane begins:
        last = max(last, int(found.producer[gate]))  # the producer stands on it
        source[gate] = max(int(source[gate]), last if node is None else int(node[last]))
    return source


# --- earliest times ------------------------------------------------------------


def earliest(net: Network) -> Ticks | None:
    """The earliest start of each node, None where nodes wait in a circle."""
    return longest(net.duration, net.bounds, net.to, net.source, net.lag)


def longest(duration: Ticks, bounds: Longs, to: Longs, source: Longs, lag: Ticks) -> Ticks | None:
    """Longest paths to the start of each node; see `Network` for the arrays.

    Along a lane times are prefix sums of durations, plus an offset that grows
    where a gate holds. Only gates are walked one by one.
    """
    nodes, count = len(duration), np.diff(bounds)
    total = np.cumsum(duration)
    before_lane = (total - duration)[np.minimum(bounds[:-1], nodes - 1)]
    begin = total - duration - np.repeat(before_lane, count)  # if its lane never waits
    first_gate = np.searchsorted(to, bounds[:-1])
    lane_first = np.repeat(first_gate, count)
    # Gates up to and with each node; the last of them sets the offset from there on.
    at = np.cumsum(np.bincount(to, minlength=nodes)) - 1
    at[at < lane_first] = -1  # none on its lane so far
    late = begin[source] + lag - begin[to]
    offset = _offsets(at[source].tolist(), late.tolist(), [*first_gate.tolist(), len(to)])
    if offset is None:
        return None
    offsets = np.append(np.array(offset, begin.dtype), begin.dtype.type(0))
    start: Ticks = begin + offsets[at]
    return start


Tick = int | float


def _offsets(setter: list[int], late: list[Tick], bounds: list[int]) -> list[Tick] | None:
    """The offset of its lane from each gate on, one resumable walk a lane.

    Gate i is held until the offset at ``setter[i]`` (0 for -1) plus ``late[i]``.
    None where a circle blocks the walk.
    """
    lanes = len(bounds) - 1
    offset: list[Tick | None] = [None] * len(setter)
    offset.append(0)  # that of no gate, at -1
    walks = [zip(range(a, b), setter[a:b], late[a:b], strict=True) for a, b in pairwise(bounds)]
    held: list[tuple[int, int, Tick] | None] = [None] * lanes  # the gate a walk stands at
    clock: list[Tick] = [0] * lanes
    parked: dict[int, list[int]] = {}  # gate -> the lanes that wait for its offset
    ready = list(range(lanes - 1, -1, -1))
    while ready:
        lane = ready.pop()
        now = clock[lane]
        here = held[lane]
        if here is not None:
            gate, source, extra = here
            arrival = offset[source]
            assert arrival is not None, "a lane is woken only when what it waits for is known"
            now = max(now, arrival + extra)
            offset[gate] = now
            held[lane] = None
            if gate in parked:
                ready.extend(parked.pop(gate))
        for gate, source, extra in walks[lane]:
            arrival = offset[source]
            if arrival is None:
                held[lane] = (gate, source, extra)
                parked.setdefault(source, []).append(lane)
                break
            arrival += extra
            if arrival > now:
                now = arrival
            offset[gate] = now
            if gate in parked:
                ready.extend(parked.pop(gate))
        clock[lane] = now
    known = [value for value in offset[:-1] if value is not None]
    return known if len(known) == len(setter) else None
