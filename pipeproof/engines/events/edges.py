"""Edges and joint conditions while an event graph is being built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.events.graph import Event, Gate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeproof.program.programs import Longs


class Edges:
    """Blocks of equally long arrays: event (to) needs event (from)."""

    def __init__(self) -> None:
        self._blocks: list[tuple[NDArray[np.integer], ...]] = []

    def add(
        self,
        to_chain: NDArray[np.integer],
        to_position: NDArray[np.integer],
        from_chain: NDArray[np.integer],
        from_position: NDArray[np.integer],
    ) -> None:
        """Add edges, elementwise; those along a chain say nothing new and are left out."""
        new = (to_chain != from_chain) | (from_position >= to_position)
        if new.all():
            self._blocks.append((to_chain, to_position, from_chain, from_position))
        else:
            self._blocks.append(
                (to_chain[new], to_position[new], from_chain[new], from_position[new])
            )

    def add_one(self, to: Event, source: Event) -> None:
        """Add a single edge."""
        self.add(*(np.array([v], np.int64) for v in (*to, *source)))

    def sorted(self, length: Longs) -> tuple[Longs, Longs, Longs, Longs]:
        """(first edge into each chain, target position, source chain, source position)."""
        columns = [np.concatenate(c) for c in zip(*self._blocks, strict=True)] or [
            np.empty(0, np.int64)
        ] * 4
        to_chain, to_position, from_chain, from_position = columns
        width = int(length.max(initial=0)) + 1
        order = np.argsort(to_chain.astype(np.int64) * width + to_position, kind="stable")
        counts = np.bincount(to_chain, minlength=len(length))
        first = np.concatenate(([0], np.cumsum(counts)))
        return first, to_position[order], from_chain[order], from_position[order]


class Joints:
    """Chains of one event each, for conditions that are more than one event."""

    def __init__(self, base: int, edges: Edges) -> None:
        self.base = base
        self.gates: list[Gate] = []
        self.reasons: list[str] = []
        self._edges = edges

    def all_of(self, events: Sequence[Event], reason: str) -> Event:
        """The event that all of ``events`` have happened."""
        if len(events) == 1:
            return events[0]
        joint = self._new(reason)
        for event in events:
            self._edges.add_one(joint, event)
        return joint

    def some_of(self, threshold: int, events: Sequence[Event], reason: str) -> Event:
        """The event that at least ``threshold`` of ``events`` have happened."""
        joint = self._new(reason)
        self.gates.append(Gate(joint[0], threshold, tuple(events)))
        return joint

    def _new(self, reason: str) -> Event:
        self.reasons.append(reason)
        return self.base + len(self.reasons) - 1, 0
