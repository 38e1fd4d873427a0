"""Per-op arrays that follow from where the lanes begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pipeproof.program.programs import Ints, Longs, Program


def rank_of_ops(program: Program) -> Ints:
    """The rank that executes each op."""
    ranks = np.array([lane.rank for lane in program.lanes], np.int32)
    return np.repeat(ranks, [lane.stop - lane.first for lane in program.lanes])


def places_of_ops(program: Program) -> tuple[Longs, Longs]:
    """The number of each op's lane, and its place on it, both from 0."""
    first = np.array([lane.first for lane in program.lanes], np.int64)
    size = np.array([lane.stop - lane.first for lane in program.lanes], np.int64)
    return np.repeat(np.arange(len(first)), size), np.arange(program.ops) - np.repeat(first, size)
