"""Timing: when every compute op runs, under a cost model.

Time is computed on the compute order: an op starts when the one before it on
its rank has ended and its input has arrived, a message being a pure delay. So
the figures are those of the schedule, whatever issues its communication.
``timing_recipe`` lets the communication count, ``timing_path`` says what holds
the step back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.timing_network import earliest, network
from pipeproof.program.costs import Costs, plain
from pipeproof.program.programs import Lane, Program

if TYPE_CHECKING:
    from pipeproof.engines.timing_network import Ticks
    from pipeproof.program.programs import Longs

Number = int | float


def _none() -> Longs:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one step, in ticks: ``per_unit`` of them a time unit.

    ``computing`` and ``spanned`` are a rank's: ticks computing, and ticks from its
    first start to its last end. Op ``op[i]`` (a compute op's number in the program)
    runs from ``start[i]`` to ``end[i]``. The properties are in time units, whole
    numbers as int, others as the float next to the exact value.
    """

    last: Fraction
    computing: tuple[Fraction, ...]
    spanned: tuple[Fraction, ...]
    op: Longs = field(default_factory=_none)
    start: Ticks = field(default_factory=_none)
    end: Ticks = field(default_factory=_none)
    per_unit: int = 1

    @property
    def makespan(self) -> Number:
        """Time from the first start to the last end."""
        return self.number(self.last)

    @property
    def busy(self) -> tuple[Number, ...]:
        """Computing time of each rank."""
        return tuple(map(self.number, self.computing))

    @property
    def span(self) -> tuple[Number, ...]:
        """Time from the first start to the last end of each rank."""
        return tuple(map(self.number, self.spanned))

    @property
    def idle(self) -> tuple[Number, ...]:
        """Idle time of each rank within the makespan."""
        return tuple(self.number(self.last - busy) for busy in self.computing)

    @property
    def bubble(self) -> dict[str, float]:
        """The three ratios that are all called bubble, each by its own name.

        ``overhead_over_ideal``: idle over computing time of the busiest rank
        (Megatron-LM, arXiv 2104.04473). ``idle_over_elapsed``: the share of all
        ranks' time that is idle (GPipe, arXiv 1811.06965). ``idle_over_span``:
        one minus work over the longest span of a rank (zero bubble,
        arXiv 2401.10241, where a stage is all that a rank hosts).
        """
        return {name: float(ratio) for name, ratio in self.ratios.items()}

    @property
    def ratios(self) -> dict[str, Fraction]:
        """`bubble` exactly, as far as the ticks are exact; empty where nothing takes time."""
        ideal, longest = max(self.computing, default=0), max(self.spanned, default=0)
        if not self.last or not ideal or not longest:
            return {}
        total = self.last * len(self.computing)
        return {
            "overhead_over_ideal": Fraction(self.last) / ideal - 1,
            "idle_over_elapsed": 1 - Fraction(sum(self.computing)) / total,
            "idle_over_span": 1 - Fraction(ideal) / longest,
        }

    def number(self, ticks: Fraction | int | float) -> Number:
        """Ticks as time units."""
        return plain(Fraction(ticks) / self.per_unit)

    def mean(self, ticks: list[int | float]) -> Number:
        """The mean of times in ticks, as time units."""
        return self.number(sum(map(Fraction, ticks)) / len(ticks))


def timing(program: Program, costs: Costs) -> Timing | None:
    """Time of one step on its compute order, or None where the compute ops wait for
    each other in a circle, or there are none, and no execution has a time."""
    net = network(program, costs)
    start = earliest(net) if net is not None else None
    if net is None or start is None:
        return None
    end = start + net.duration
    last, computing, spanned = sums(program.ranks, net.lanes, net.bounds, start, end, net.duration)
    return Timing(
        last,
        computing,
        spanned,
        net.op,
        net.of_ops(start),
        net.of_ops(end),
        net.per_unit,
    )


def sums(
    ranks: int, lanes: tuple[Lane, ...], bounds: Longs, start: Ticks, end: Ticks, duration: Ticks
) -> tuple[Fraction, tuple[Fraction, ...], tuple[Fraction, ...]]:
    """(last end, computing, spanned): the latter two by rank, see `Timing`. Arrays have
    an entry a node; lane i has the nodes ``bounds[i]`` to ``bounds[i + 1] - 1``."""
    computing = [Fraction(0)] * ranks
    first: dict[int, Fraction] = {}
    final: dict[int, Fraction] = {}
    for i, lane in enumerate(lanes):
        low, high, rank = int(bounds[i]), int(bounds[i + 1]), lane.rank
        if low == high:
            continue
        computing[rank] += Fraction(duration[low:high].sum().item())
        began, ended = Fraction(start[low].item()), Fraction(end[high - 1].item())
        first[rank] = min(first.get(rank, began), began)
        final[rank] = max(final.get(rank, ended), ended)
    spanned = tuple(final[r] - first[r] if r in first else Fraction(0) for r in range(ranks))
    return Fraction(end.max().item()), tuple(computing), spanned
