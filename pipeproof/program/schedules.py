"""Schedules: the order of actions on every rank, before a recipe issues them.

A schedule may list its communication (a torch CSV *with communication* does)
or only the compute ops; either way it does not say when a send is waited for
or what is posted together. A recipe does, and makes a program of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeproof.program.programs import Bools, Bytes, Ints


@dataclass(frozen=True, slots=True)
class Schedule:
    """Actions of all ranks, rank after rank, in flat arrays of equal length.

    ``kind`` holds codes of ``ops.Kind``: compute, sharding, SEND and RECV;
    ``backward`` tells a SEND_B or RECV_B from a SEND_F or RECV_F. ``stage`` is
    the stage that acts, ``microbatch`` is -1 for sharding actions. ``first``
    has ``ranks + 1`` entries: rank r owns actions ``first[r]`` to
    ``first[r+1] - 1``. ``line`` and ``column`` say where each stands in its
    file (from 1); actions that share a cell overlap.

    ``host[s]`` is the rank of stage ``s``, -1 where no action names the stage.
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
