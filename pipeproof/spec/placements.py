"""Which stage a rank runs: where the chunks of a model lie.

With p ranks and v chunks a rank there are p v stages, 0 at the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """``stage(rank, chunk, way, p)`` is the stage; ``ways`` how many directions
    microbatches take. Where there are two, each rank hosts a stage of either."""

    name: str
    stage: Callable[[int, int, int, int], int]
    ways: int = 1


def _looped(rank: int, chunk: int, way: int, p: int) -> int:
    return chunk * p + rank


def _wave(rank: int, chunk: int, way: int, p: int) -> int:
    return chunk * p + (p - 1 - rank if chunk % 2 else rank)


def _two_way(rank: int, chunk: int, way: int, p: int) -> int:
    return p - 1 - rank if way else rank


LOOPED = Placement("looped", _looped)
"""Stage = chunk p + rank: one stage a rank, or round and round (interleaved)."""

WAVE = Placement("wave", _wave)
"""Down the ranks and up again: a V with two chunks, a W with four (Hanayo)."""

TWO_WAY = Placement("two-way", _two_way, ways=2)
"""Stage ``rank`` one way and ``p-1-rank`` the other (Chimera, DualPipe)."""

PLACEMENTS = {placement.name: placement for placement in (LOOPED, WAVE, TWO_WAY)}
"""By name, as ``@schedule(placement=...)`` takes them."""
