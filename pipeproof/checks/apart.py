"""Whether the lanes of a rank leave it to chance what its storage holds.

One order of the events is as good as any other for what a storage holds, if
every two uses of it, one of which changes it, stand in the same order in all
executions. On one lane they do. Across lanes something has to order them; where
nothing does there is a race, which ``race`` tells, and no value to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from pipeproof.checks.accesses import Access, apart
from pipeproof.checks.subject import Subject
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program


class Use(NamedTuple):
    """Op uses the storage ``name`` until op ``until`` has gone on: itself, the op that
    waits for it, or None where nothing does."""

    name: str
    op: int
    until: int | None
    writes: bool

    @property
    def access(self) -> Access:
        """The use as an access to whatever storage it names."""
        return Access(self.op, self.writes, self.until)


def forward_uses(program: Program) -> Iterator[Use]:
    """Which forward the other ops of a stage and microbatch build on."""
    columns = program.kind, program.stage, program.microbatch
    kinds, stages, microbatches = (column.tolist() for column in columns)
    for op, kind in enumerate(kinds):
        if kind <= Kind.R:
            name = f"the forward of stage {stages[op]} on microbatch {microbatches[op]}"
            yield Use(name, op, op, writes=kind == Kind.F)


def left_to_chance(subject: Subject, uses: Iterable[Use]) -> str | None:
    """Why what the storages hold is open, if it is."""
    program = subject.program
    if not program.several_lanes:
        return None
    if subject.contended:
        one, other = (op_text(program, op) for op in subject.contended[0])
        return f"nothing orders {one} and {other} of two lanes, so what meets them is open"
    by_storage: dict[tuple[int, str], list[Use]] = {}
    for use in uses:
        by_storage.setdefault((int(subject.rank[use.op]), use.name), []).append(use)
    for (rank, name), used in by_storage.items():
        for one_use, other_use in combinations(used, 2):
            if not (one_use.writes or other_use.writes) or _ordered(subject, one_use, other_use):
                continue
            one, other = op_text(program, one_use.op), op_text(program, other_use.op)
            return f"on rank {rank} nothing orders {one} and {other}, which both use {name}"
    return None


def _ordered(subject: Subject, one: Use, other: Use) -> bool:
    program = subject.program
    if program.lane_of(one.op) == program.lane_of(other.op):
        return True  # in flight or not: a matter of one lane
    return apart(subject, one.access, other.access)
