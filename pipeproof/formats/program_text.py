"""A Program as the text of a JSON file, an op a line, and what of it the format
has no words for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from pipeproof.formats.program_print import print_program
from pipeproof.program.notation import op_text
from pipeproof.program.ops import SHARDING, Kind
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule


def program_text(program: Program) -> str:
    """The program format's text of a program."""
    entries = []
    for key, value in print_program(program).items():
        written = _lanes(value) if key == "programs" else _compact(value)
        entries.append(f" {_compact(key)}: {written}")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _lanes(programs: dict[str, Any]) -> str:
    ranks = []
    for rank, ops in programs.items():
        if isinstance(ops, list):
            written = _ops(ops)
        else:
            lanes = (f"{_compact(name)}: {_ops(listed)}" for name, listed in ops.items())
            written = "{" + ", ".join(lanes) + "}"
        ranks.append(f"  {_compact(rank)}: {written}")
    return "{\n" + ",\n".join(ranks) + "\n }"


def _ops(ops: list[Any]) -> str:
    return "[\n" + ",\n".join(f"   {_compact(op)}" for op in ops) + "\n  ]" if ops else "[]"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def left_out(program: Program) -> list[str]:
    """What a program has that the program format has no words for, a line each."""
    found = []
    sharding = np.flatnonzero(np.isin(program.kind, SHARDING))
    if len(sharding):
        example = op_text(program, int(sharding[0]))
        found.append(
            f'actions on sharded parameters (as X, such as "{example}", to which no check '
            f"gives meaning): {len(sharding)}"
        )
    if program.complete and program.forward_only:
        found.append("that a step of forwards is complete: no coverage is demanded")
    if program.details.graph is not None:
        found.append("the graph of its stages, or slices: read again, they are a plain chain")
    if program.recipe is not None:
        found.append(f"the recipe that issued its messages ({program.recipe})")
    if program.notes:
        found.append(f"notes: {len(program.notes)}")
    return found


def overlapping(schedule: Schedule) -> int:
    """How many actions share the cell of the one before them: they overlap, which a
    program has no words for."""
    same = (schedule.line[1:] == schedule.line[:-1]) & (
        schedule.column[1:] == schedule.column[:-1]
    )
    computes = schedule.kind <= Kind.W
    return int((same & computes[1:] & computes[:-1]).sum())
