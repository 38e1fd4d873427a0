"""Timing: when every compute op runs, under a cost model.

Time is computed on the compute order: an op starts when the one before it on
its rank has ended and its input has arrived, a message being a pure delay. So
the figures are those of the schedule, whatever issues its communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.program.costs import Costs
from pipeproof.program.keys import dense
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.program.programs import Ints, Longs

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
    circle and no execution has a time."""
    computes = np.flatnonzero(program.kind <= Kind.R)
    if not len(computes):
        return None
    producer, remote = _producers(program, computes)
    cost = np.array([costs.of(Kind(k)) for k in range(Kind.R + 1)])
    duration = cost[program.kind[computes]].tolist()
    lanes = [lane for lane in program.lanes if lane.stop > lane.first]
    bounds = np.searchsorted(computes, [lane.first for lane in lanes] + [program.ops]).tolist()
    finish, starts = _longest(
        duration, producer.tolist(), (remote * 1).tolist(), bounds, costs.comm
    )
    if finish is None:
        return None
    busy: dict[int, Number] = dict.fromkeys(range(program.ranks), 0)
    span: dict[int, Number] = dict(busy)
    for i, lane in enumerate(lanes):
        low, high = bounds[i], bounds[i + 1]
        if low < high:
            busy[lane.rank] += sum(duration[low:high])
            span[lane.rank] = max(span[lane.rank], finish[high - 1] - starts[i])
    makespan = max(finish)
    return Timing(
        _plain(makespan), tuple(map(_plain, busy.values())), tuple(map(_plain, span.values()))
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
    rank = _rank_of(program)[computes]
    return producer, (producer >= 0) & (rank[producer] != rank)


def _rank_of(program: Program) -> Ints:
    ranks = np.array([lane.rank for lane in program.lanes], np.int32)
    return np.repeat(ranks, [lane.stop - lane.first for lane in program.lanes])


def _longest(
    duration: list[Number],
    producer: list[int],
    remote: list[int],
    bounds: list[int],
    latency: Number,
) -> tuple[list[Number] | None, list[Number]]:
    """Finish times, one resumable walk a lane; None where a circle blocks it."""
    finish: list[Number] = [-1] * len(duration)
    lanes = len(bounds) - 1
    at = bounds[:lanes]
    clock: list[Number] = [0] * lanes
    starts: list[Number] = [0] * lanes
    parked: dict[int, list[int]] = {}
    ready = list(range(lanes - 1, -1, -1))
    while ready:
        lane = ready.pop()
        i, stop, now = at[lane], bounds[lane + 1], clock[lane]
        while i < stop:
            source = producer[i]
            if source >= 0:
                arrival = finish[source]
                if arrival < 0:
                    parked.setdefault(source, []).append(lane)
                    break
                if remote[i]:
                    arrival += latency
                if arrival > now:
                    now = arrival
            if i == bounds[lane]:
                starts[lane] = now
            now += duration[i]
            finish[i] = now
            if i in parked:
                ready.extend(parked.pop(i))
            i += 1
        at[lane], clock[lane] = i, now
    return (None if parked else finish), starts
