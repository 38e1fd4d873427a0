"""Programs of recordings that list compute ops and no messages.

Each message is put beside the ops it joins: received right before the op that
needs it, sent right after the op that made it. What then stands side by side on
a rank is posted together and waited for, as the ``grouped`` recipe does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from pipeproof.formats.recordings import at_paths
from pipeproof.program.builder import ProgramBuilder
from pipeproof.program.ops import Kind, activation, gradient
from pipeproof.program.programs import Attributes, Program
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.regrouping import regrouped

RECIPE = "grouped"

Compute = tuple[Kind, int, int]
"""A forward or backward (F or B), its stage and its microbatch."""


class SideBySide:
    """Collects ops lane after lane; ``program`` makes the program.

    ``host(stage, microbatch)`` is the rank that runs a microbatch's ops of a
    stage. ``computes`` are all that will be added: a message joins two of them,
    and without its other end there is none.
    """

    def __init__(
        self, stages: int, host: Callable[[int, int], int], computes: Iterable[Compute]
    ) -> None:
        self.stages = stages
        self.host = host
        self.computes = frozenset(computes)
        self.builder = ProgramBuilder()
        self.paths: list[str] = []

    def lane(self, rank: int) -> None:
        """Start the next rank."""
        self.builder.lane(rank)

    def compute(self, compute: Compute, path: str, attributes: Attributes | None = None) -> None:
        """Append a compute op with its messages."""
        kind, stage, microbatch = compute
        onward = 1 if kind is Kind.F else -1
        self._message(compute, -onward, path)
        self.other(kind, path, attributes, stage, microbatch)
        self._message(compute, onward, path)

    def other(
        self,
        kind: Kind,
        path: str,
        attributes: Attributes | None = None,
        stage: int = -1,
        microbatch: int = -1,
    ) -> None:
        """Append an op as it is."""
        self.builder.op(kind, stage, microbatch, attributes=attributes)
        self.paths.append(path)

    def _message(self, compute: Compute, step: int, path: str) -> None:
        """The message to or from the neighbouring stage, if another rank has it."""
        kind, stage, microbatch = compute
        other = stage + step
        if (kind, other, microbatch) not in self.computes:
            return
        peer = self.host(other, microbatch)
        if peer == self.host(stage, microbatch):
            return
        send = step == (1 if kind is Kind.F else -1)
        self.other(Kind.SEND if send else Kind.RECV, path, None, stage, microbatch)
        payload_of = activation if kind is Kind.F else gradient
        self.builder.message(send, peer, payload_of(stage if send else other, microbatch))

    def program(self, name: str, **more: Any) -> Program:
        """The program; ``more`` goes to the builder."""
        program = self.builder.build(
            name,
            stages=self.stages,
            transport=PRESETS["nccl"],
            recipe=RECIPE,
            complete=True,
            **more,
        )
        program = at_paths(program, self.paths)
        together = regrouped(program)
        return program if together is None else replace(together, recipe=RECIPE)
