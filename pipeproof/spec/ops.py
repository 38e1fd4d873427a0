"""What a spec yields: the ops of a rank, each letter with its one meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeproof.program.ops import LETTER, Kind


@dataclass(frozen=True, slots=True)
class Op:
    """One op of a rank. Numbers are whole, or sizes where the definition is read
    for its loops.

    ``chunk`` says which of the rank's stages it runs, by the placement of the
    schedule; ``stage`` names the stage itself instead. ``way`` 1 is the second
    direction of a two-way placement. ``slice`` is the part of the sequence, for
    schedules that cut sequences. ``version`` is the weight version it uses, the
    current one unless given. ``label`` is the rest's: a parameter or a group.
    """

    kind: Kind
    microbatch: Any = None
    chunk: Any = 0
    stage: Any = None
    way: int = 0
    slice: Any = 0
    version: Any = None
    label: str = ""

    def __str__(self) -> str:
        if self.kind not in LETTER:
            return f"{self.kind.name} {self.label}".rstrip()
        beside = [] if self.stage is None else [f", stage={self.stage}"]
        for name in ("chunk", "way", "slice"):
            value = getattr(self, name)
            if str(value) != "0":
                beside.append(f", {name}={value}")
        return f"{LETTER[self.kind]}({self.microbatch}{''.join(beside)})"


@dataclass(frozen=True, slots=True)
class Together:
    """Ops that a rank runs at the same time: a forward overlapped with a backward."""

    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """A compute op by its letter: ``F(3)`` is the forward of microbatch 3.

    The keywords are the fields of `Op`.
    """

    kind: Kind

    def __call__(
        self,
        microbatch: Any,
        *,
        chunk: Any = 0,
        stage: Any = None,
        way: int = 0,
        slice: Any = 0,
        version: Any = None,
    ) -> Op:
        return Op(self.kind, microbatch, chunk, stage, way, slice, version)


F = Letter(Kind.F)
"""The forward of a microbatch on this rank's stage."""
B = Letter(Kind.B)
"""The full backward: the gradients of the input and of the weights."""
I = Letter(Kind.I)
"""The gradient of the input alone; a `W` must follow."""
W = Letter(Kind.W)
"""The gradient of the weights, after its `I`."""
R = Letter(Kind.R)
"""The forward run again before its backward, its activations having been dropped."""


def together(*ops: Op) -> Together:
    """A forward and a backward that overlap, as torch's ``(a;b)OVERLAP_F_B``."""
    return Together(ops)


def update(*, chunk: Any = 0, stage: Any = None, way: int = 0) -> Op:
    """The optimizer's step on this rank's stage: its weights get a new version."""
    return Op(Kind.STEP, None, chunk, stage, way)


def allreduce(label: str, *, chunk: Any = 0, stage: Any = None, way: int = 0) -> Op:
    """Sum the stage's gradients over all ranks that host it, and wait for it.

    The n-th calls of these ranks meet; ``label`` must be the same on all of them.
    """
    return Op(Kind.COLL, None, chunk, stage, way, label=label)
