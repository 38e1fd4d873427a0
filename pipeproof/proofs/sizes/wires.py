"""Who hands over to whom: the neighbours of a rank, one stage each.

A forward takes the previous rank's output and hands to the next, a backward the
other way round; both are messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from pipeproof.program.ops import Kind
from pipeproof.proofs.sizes.decide import Decider
from pipeproof.proofs.sizes.lane import Forms, Lane, View, minus, number, unknown, views

FORWARD = (Kind.F,)
BACKWARD = (Kind.B, Kind.I)


class Scene:
    """A lane at any rank ``s`` and at its neighbours, in the cases that can be.

    Cases that no sizes bring about are left out once, here, and asked of no more.
    """

    def __init__(self, lane: Lane, decider: Decider) -> None:
        self.lane, self.decider = lane, decider
        self._beside: dict[int, list[tuple[View, View, Forms]]] = {}

    @cached_property
    def here(self) -> list[tuple[View, Forms]]:
        """The lane at rank s in every case, with the conditions on s and the sizes."""
        s, p = unknown("s"), unknown("p")
        rank = (*self.lane.domain, s, minus(p, s, -1))
        return [
            (view, (*rank, *view.conditions))
            for view in views(self.lane, s, "")
            if self.decider.possible((*rank, *view.conditions))
        ]

    def beside(self, step: int) -> list[tuple[View, View, Forms]]:
        """Rank s, its neighbour s + ``step``, and when the two are in these cases."""
        if step not in self._beside:
            self._beside[step] = list(self._pairs(step))
        return self._beside[step]

    def _pairs(self, step: int) -> Iterator[tuple[View, View, Forms]]:
        s, p = unknown("s"), unknown("p")
        other = s.plus(number(step))
        there = other if step < 0 else minus(p, other, -1)
        neighbours = list(views(self.lane, other, "'"))
        for view, rank in self.here:
            for neighbour in neighbours:
                both = (*rank, there, *neighbour.conditions)
                if self.decider.possible(both):
                    yield view, neighbour, both


def direction(kind: Kind) -> tuple[tuple[Kind, ...], int] | None:
    """(the letters that run this way, the step to who takes the output), None for
    what hands nothing over."""
    if kind in FORWARD:
        return FORWARD, 1
    if kind in BACKWARD:
        return BACKWARD, -1
    return None
