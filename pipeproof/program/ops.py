"""The letters of the field, each defined once.

A *schedule* is made of compute ops; a *program* adds communication. The kinds
below are every op of the program format, version 1. The letters follow
PyTorch's notation (``0F1`` is the forward of stage 0 on microbatch 1), each
with one meaning everywhere; importers translate other dialects.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Id = TypeVar("_Id", int, "NDArray[np.int64]")


class Kind(IntEnum):
    """What an op does. The numbers are array codes, stable within a release."""

    # Compute, on (stage, microbatch).
    F = 0  # forward
    B = 1  # full backward: input and weight gradient together
    I = 2
    W = 3  # weight gradient
    R = 4  # recompute of the forward
    # Communication.
    SEND = 5
    RECV = 6
    GROUP = 7  # sends and receives posted together
    WAIT = 8  # goes on when the named requests have completed
    # Sharded parameters (FSDP), on a stage.
    UNSHARD = 9
    RESHARD = 10
    REDUCE_GRAD = 11
    # Everything else a rank can do.
    X = 12  # anything; a label says what
    ALLOC = 13
    FREE = 14
    MAKE = 15
    DROP = 16
    COPY = 17
    ICOPY = 18
    COLL = 19
    ZERO = 20
    SCALE = 21
    STEP = 22
    ROLLBACK = 23
    REPORT = 24
    SIGNAL = 25
    AWAIT = 26
    WAITANY = 27


COMPUTE = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R)
"""Kinds that run a stage on a microbatch. As codes they are 0 to 4, and array
code relies on that: ``kind <= Kind.R`` selects them."""

SHARDING = (Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD)
"""Kinds that act on a stage's parameters, without a microbatch."""

LETTER = {Kind.F: "F", Kind.B: "B", Kind.I: "I", Kind.W: "W", Kind.R: "R"}
"""Compute kinds in PyTorch's notation; R is ours, torch has no letter for it."""

MAX_ID = (1 << 30) - 1
"""Largest stage or microbatch id. Far above any real schedule: a larger number
in a file is a typing error, and refusing it keeps every key within 64 bits."""

# A payload id is one integer. ``act:S:B`` (output of stage S, microbatch B) and
# ``grad:S:B`` (gradient of the input of stage S) are computed from S and B, so
# that a million of them cost arithmetic and no table; any other payload is an
# index into the program's table of names, stored as a negative number.


def activation(stage: _Id, microbatch: _Id) -> _Id:
    """Payload id of ``act:stage:microbatch``; of numbers or of arrays of int64."""
    return (stage << 31 | microbatch) << 1


def gradient(stage: _Id, microbatch: _Id) -> _Id:
    """Payload id of ``grad:stage:microbatch``; of numbers or of arrays of int64."""
    return (stage << 31 | microbatch) << 1 | 1


def named(index: int) -> int:
    """Payload id of entry ``index`` of the program's table of names."""
    return -1 - index


def is_gradient(payload: int) -> bool:
    """Whether a payload id is a ``grad`` (False for ``act`` and named ones)."""
    return payload >= 0 and bool(payload & 1)


def stage_and_microbatch(payload: int) -> tuple[int, int]:
    """(producing stage, microbatch) of an ``act`` or ``grad`` payload id."""
    return payload >> 32, payload >> 1 & 0x7FFFFFFF
