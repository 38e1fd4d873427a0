"""A simulator of the compute order that is meant to be read, in exact fractions.

It shares no code with the engines: cells are swept over until nothing changes. A
plan is a list of rows, one a rank; a row is a list of cells; a cell is one action or
an overlapped pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from tests.sequential import COMPUTES, Action, Rows

Cell = tuple[Action, ...]
Cells = list[list[Cell]]


def paired(rows: Rows, random: Random) -> Cells:
    """The rows with some neighbouring forwards and backwards put into one cell."""
    plan: Cells = []
    for row in rows:
        cells: list[Cell] = []
        for action in row:
            before = cells[-1] if cells else ()
            if len(before) == 1 and _overlap(before[0], action) and random.random() < 0.7:
                cells[-1] = (before[0], action)
            else:
                cells.append((action,))
        plan.append(cells)
    return plan


def _overlap(a: Action, b: Action) -> bool:
    letters = {a.word, b.word}
    one_of_each = "F" in letters and len(letters & {"B", "I"}) == 1
    return one_of_each and (a.stage, a.microbatch) != (b.stage, b.microbatch)


def write_cells(plan: Cells) -> str:
    """The plan as a torch CSV."""
    return "".join(
        ",".join(
            str(cell[0]) if len(cell) == 1 else f"({';'.join(map(str, cell))})OVERLAP_F_B"
            for cell in row
        )
        + "\n"
        for row in plan
    )


@dataclass
class Simulated:
    """Times of a plan. ``cost[word][stage]``, ``delay[boundary]``; ``extra`` lengthens ops."""

    plan: Cells
    cost: Mapping[str, list[Fraction]]
    delay: list[Fraction]
    pair: Fraction | None = None
    release: str = "op"
    extra: Mapping[tuple[int, Action], Fraction] = field(default_factory=dict)
    start: dict[Action, Fraction] = field(default_factory=dict)
    end: dict[Action, Fraction] = field(default_factory=dict)
    cell_end: dict[tuple[int, int], Fraction] = field(default_factory=dict)

    def run(self) -> bool:
        """Sweep until nothing changes; whether everything ran."""
        self.home = {
            a: (rank, at)
            for rank, row in enumerate(self.plan)
            for at, cell in enumerate(row)
            for a in cell
        }
        changed = True
        while changed:
            changed = False
            for rank, row in enumerate(self.plan):
                for at in range(len(row)):
                    if (rank, at) not in self.cell_end and self._try(rank, at):
                        changed = True
        return all(
            (rank, at) in self.cell_end
            for rank, row in enumerate(self.plan)
            for at, cell in enumerate(row)
            if cell[0].word in COMPUTES
        )

    @property
    def makespan(self) -> Fraction:
        return max(self.end.values())

    def _try(self, rank: int, at: int) -> bool:
        before = Fraction(0)
        for earlier in range(at):
            if self.plan[rank][earlier][0].word in COMPUTES:
                if (rank, earlier) not in self.cell_end:
                    return False
                before = self.cell_end[rank, earlier]
        cell = self.plan[rank][at]
        if cell[0].word not in COMPUTES:
            self.cell_end[rank, at] = before  # a message costs its rank no time
            return True
        arrivals = [self._arrival(rank, a) for a in cell]
        if self.release == "op":  # one after the other, each as soon as it can
            if arrivals[0] is None:
                return False
            lengths = self._lengths(rank, cell)
            for a, arrival, length in zip(cell, arrivals, lengths, strict=True):
                if arrival is None:
                    return False  # the cell is tried anew, with the same outcome so far
                self.start[a] = max(before, arrival)
                self.end[a] = before = self.start[a] + length
            self.cell_end[rank, at] = before
            return True
        if any(arrival is None for arrival in arrivals):
            return False
        start = max([before, *(a for a in arrivals if a is not None)])
        end = start + sum(self._lengths(rank, cell))
        for a in cell:
            self.start[a], self.end[a] = start, end
        self.cell_end[rank, at] = end
        return True

    def _lengths(self, rank: int, cell: Cell) -> list[Fraction]:
        alone = [self.cost[a.word][a.stage] for a in cell]
        if len(cell) == 2 and self.pair is not None:
            first = min(alone[0], self.pair)
            alone = [first, self.pair - first]
        return [t + self.extra.get((rank, a), 0) for t, a in zip(alone, cell, strict=True)]

    def _arrival(self, rank: int, a: Action) -> Fraction | None:
        """When the input of an action is there; None where that is not known yet."""
        if a.word == "W":
            return Fraction(0)
        step = -1 if a.word == "F" else 1
        words = ("F",) if a.word == "F" else ("B", "I")
        makers = [Action(a.stage + step, word, a.microbatch) for word in words]
        maker = next((m for m in makers if m in self.home), None)
        if maker is None:
            return Fraction(0)
        if maker not in self.end:
            return None
        there, at = self.home[maker]
        if there == rank:
            return self.end[maker]
        left = self.end[maker]
        if self.release != "op":
            left = self.cell_end[there, at]
        if self.release == "commit":
            send = Action(maker.stage, "SEND_F" if a.word == "F" else "SEND_B", a.microbatch)
            where = self.home.get(send)
            if where is not None and where[1] > at:
                if where not in self.cell_end:
                    return None
                left = self.cell_end[where]
        return left + self.delay[a.stage + min(step, 0)]
