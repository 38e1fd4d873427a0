"""Schedules: the order of actions on every rank, before a recipe issues them.

A schedule may list its communication (a torch CSV *with communication* does)
or only the compute ops; either way it does not say when a send is waited for
or what is posted together. A recipe does, and makes a program of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.program.programs import Attributes, Details

if TYPE_CHECKING:
    from pipeproof.program.programs import Bools, Bytes, Ints


@dataclass(frozen=True, slots=True)
class Schedule:
    """Actions of all ranks, rank after rank, in flat arrays of equal length.

    ``kind`` holds codes of ``ops.Kind``: compute, sharding, SEND and RECV, or an
    op that is no message and waits for none (a STEP, a COLL). ``backward`` tells
    a SEND_B or RECV_B from a SEND_F or RECV_F. ``stage`` is the stage that acts,
    ``microbatch`` is -1 for what has none. ``first`` has ``ranks + 1`` entries:
    rank r owns actions ``first[r]`` to ``first[r+1] - 1``. ``line`` and
    ``column`` say where each stands in its file (from 1); actions that share a
    cell overlap.

    ``host[s]`` is the rank of stage ``s``, -1 where no action names the stage.
    Where microbatches go two ways through the ranks, a stage has a second host
    in ``other_host``, and ``other_way`` tells the microbatches that run there.
    ``attributes`` are those of an action, ``details`` what the program demands.
    ``recipe`` and ``transport`` are its producer's, taken where none is asked for;
    ``forward_only`` says whether it owes backwards, None where its ops tell.
    ``other`` is the stage at the other end of each message, -1 where an action is
    none; without it the stages are a chain. ``cells`` says that line and column are
    a row and a cell of the input; where they are not, only the line is shown and
    the column tells what overlaps.
    """

    name: str
    ranks: int
    stages: int
    microbatches: int
    kind: Bytes
    stage: Ints
    microbatch: Ints
    backward: Bools
    line: Ints
    column: Ints
    first: tuple[int, ...]
    host: Ints
    lists_communication: bool
    notes: tuple[str, ...] = ()
    other_host: Ints | None = None
    other_way: Bools | None = None
    attributes: Mapping[int, Attributes] = field(default_factory=dict)
    details: Details = field(default_factory=Details)
    other: Ints | None = None
    cells: bool = True
    recipe: str = "torch"
    transport: str = "nccl"
    forward_only: bool | None = None

    @property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """The ranks that host each stage, none where nothing is known about it."""
        found = [(r,) if r >= 0 else () for r in self.host.tolist()]
        if self.other_host is None:
            return tuple(found)
        return tuple(
            tuple(sorted({*one, *((other,) if other >= 0 else ())}))
            for one, other in zip(found, self.other_host.tolist(), strict=True)
        )

    def host_of(self, stage: Ints, microbatch: Ints) -> Ints:
        """The rank that runs each microbatch on each stage; arrays of one length."""
        here: Ints = self.host[stage]
        if self.other_host is None or self.other_way is None:
            return here
        known = (microbatch >= 0) & (microbatch < len(self.other_way))
        turned = known & self.other_way[np.where(known, microbatch, 0)]
        return np.where(turned, self.other_host[stage], here)
