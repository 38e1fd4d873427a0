"""Timing: when every compute op runs, under a cost model.

Time is computed on the compute order: an op starts when the one before it on
its rank has ended and its input has arrived, a message being a pure delay. So
the figures are those of the schedule, whatever issues its communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.program.costs import Costs
from pipeproof.program.keys import dense
from pipeproof.program.lanes import rank_of_ops
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.program.programs import Longs

Number = int | float


@dataclass(frozen=True, slots=True)
class Timing:
    """Figures of one step. ``busy`` and ``span`` are a rank's: time computing,
    and time from its first start to its last end."""

    makespan: Number
    busy: tuple[Number, ...]
    span: tuple[Number, ...]

    @property
    def bubble(self) -> dict[str, float]:
        """The three ratios that are all called bubble, each by its own name.

        ``overhead_over_ideal``: idle over computing time of the busiest rank
        (Megatron-LM, arXiv 2104.04473). ``idle_over_elapsed``: the share of all
        ranks' time that is idle (GPipe, arXiv 1811.06965). ``idle_over_span``:
        one minus work over the longest span of a rank (zero bubble,
        arXiv 2401.10241).
        """
        ideal, longest = max(self.busy, default=0), max(self.span, default=0)
        if not self.makespan or not ideal or not longest:
            return {}
        total = self.makespan * len(self.busy)
        return {
            "overhead_over_ideal": self.makespan / ideal - 1,
            "idle_over_elapsed": 1 - sum(self.busy) / total,
            "idle_over_span": 1 - ideal / longest,
        }

    @property
    def idle(self) -> tuple[Number, ...]:
        """Idle time of each rank within the makespan."""
        return tuple(self.makespan - b for b in self.busy)


def timing(program: Program, costs: Costs) -> Timing | None:
    """Time of one step, or None where the compute ops wait for each other in a
    circle and no execution has a time.

    Along a lane times are prefix sums of durations, plus an offset that grows
    where an input arrives late. Only those places are walked one by one.
    """
    computes = np.flatnonzero(program.kind <= Kind.R)
    if not len(computes):
        return None
    producer, remote = _producers(program, computes)
    cost = np.array([costs.of(Kind(k)) for k in range(Kind.R + 1)])
    duration = cost[program.kind[computes]]
    lanes = [lane for lane in program.lanes if lane.stop > lane.first]
    bounds = np.searchsorted(computes, [lane.first for lane in lanes] + [program.ops])
    lane = np.repeat(np.arange(len(lanes)), np.diff(bounds))
    total = np.cumsum(duration)
    before_lane = (total - duration)[np.minimum(bounds[:-1], len(computes) - 1)]
    end = total - before_lane[lane]  # when each op ends if its lane never waits
    begin = end - duration

    gates = np.flatnonzero(producer >= 0)
    source = producer[gates]
    passed = np.cumsum(producer >= 0)  # gates up to and with each op
    # The gate that sets the offset at the source, -1 where none stands before it.
    first_gate = np.searchsorted(gates, bounds[:-1])
    setter = passed[source] - 1
    setter[setter < first_gate[lane[source]]] = -1
    late = end[source] - begin[gates] + np.where(remote[gates], costs.comm, 0)
    offset = _offsets(setter.tolist(), late.tolist(), [*first_gate.tolist(), len(gates)])
    if offset is None:
        return None
    offsets = np.append(np.array(offset, end.dtype), 0)
    at = passed - 1
    at[at < first_gate[lane]] = -1
    end = end + offsets[at]
    busy, span = np.zeros(program.ranks), np.zeros(program.ranks)
    for i, entry in enumerate(lanes):
        low, high = bounds[i], bounds[i + 1]
        if low < high:
            busy[entry.rank] += duration[low:high].sum()
            starts = end[low] - duration[low]
            span[entry.rank] = max(span[entry.rank], end[high - 1] - starts)
    return Timing(
        _plain(end.max()), tuple(map(_plain, busy.tolist())), tuple(map(_plain, span.tolist()))
    )


def _plain(value: Number) -> Number:
    return int(value) if value == int(value) else float(value)


def _producers(program: Program, computes: Longs) -> tuple[Longs, Longs]:
    """For each compute op the one (by its place among computes) that makes its
    input on another stage, -1 for none; and whether it is on another rank."""
    kind, stage = program.kind[computes], program.stage[computes]
    microbatch = program.microbatch[computes]
    backward = (kind == Kind.B) | (kind == Kind.I)
    takes = (kind == Kind.F) | backward
    low = min(int(stage.min()), 0) - 1
    key, size = dense(
        np.concatenate((stage - low, stage - low + np.where(backward, 1, -1))),
        np.concatenate((microbatch, microbatch)) - min(int(microbatch.min()), 0),
        np.concatenate((backward, backward)),
    )
    made, needed = key[: len(computes)], key[len(computes) :]
    maker = np.full(size, -1, np.int64)
    makers = np.flatnonzero(takes)[::-1]
    maker[made[makers]] = makers
    producer = np.where(takes, maker[needed], -1)
    rank = rank_of_ops(program)[computes]
    return producer, (producer >= 0) & (rank[producer] != rank)


def _offsets(setter: list[int], late: list[Number], bounds: list[int]) -> list[Number] | None:
    """The offset of its lane from each gate on, one resumable walk a lane.

    Gate i is held until the offset at ``setter[i]`` (0 for -1) plus ``late[i]``.
    None where a circle blocks the walk.
    """
    lanes = len(bounds) - 1
    offset: list[Number | None] = [None] * len(setter)
    offset.append(0)  # that of no gate, at -1
    walks = [zip(range(a, b), setter[a:b], late[a:b], strict=True) for a, b in pairwise(bounds)]
    held: list[tuple[int, int, Number] | None] = [None] * lanes  # the gate a walk stands at
    clock: list[Number] = [0] * lanes
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
