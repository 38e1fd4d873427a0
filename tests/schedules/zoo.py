"""What the tests of the zoo share: rows of ops, figures, and claims compared with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from pipeproof.engines.timing import Timing, timing
from pipeproof.errors import InputError
from pipeproof.formats.chimera import read_chimera
from pipeproof.formats.deepspeed import read_deepspeed
from pipeproof.formats.dualpipe import read_dualpipe
from pipeproof.formats.megatron import read_megatron
from pipeproof.formats.pipedream import read_pipedream
from pipeproof.formats.zero_bubble import read_zero_bubble
from pipeproof.judge.definitions import judge_definition
from pipeproof.judge.options import Options
from pipeproof.program.costs import Costs
from pipeproof.program.ops import LETTER, Kind
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.recipes.issuing import issued
from pipeproof.schedules.table import find
from pipeproof.spec.definition import Sizes
from pipeproof.spec.running import run
from pipeproof.verdict import Report

TRACES = Path(__file__).parent.parent / "data" / "traces"

Row = list[tuple[str, int, int]]
"""The compute ops of a rank: letter, stage, microbatch."""


def made(name: str, **sizes: int) -> Any:
    """A schedule of the zoo."""
    definition = find(name)
    return run(definition, definition.sizes(sizes))


def rows(what: Schedule | Program) -> list[Row]:
    """The compute ops of every rank, in order."""
    bounds = what.first if isinstance(what, Schedule) else _bounds(what)
    return [
        [
            (LETTER[Kind(what.kind[op])], int(what.stage[op]), int(what.microbatch[op]))
            for op in range(start, stop)
            if what.kind[op] <= Kind.R
        ]
        for start, stop in pairwise(bounds)
    ]


def _bounds(program: Program) -> list[int]:
    return [lane.first for lane in program.lanes] + [program.ops]


_READERS: dict[str, Any] = {
    "chimera": read_chimera,
    "deepspeed": read_deepspeed,
    "dualpipe": read_dualpipe,
    "megatron": read_megatron,
    "pipedream": read_pipedream,
    "zero_bubble": read_zero_bubble,
}


@cache
def trace(path: str) -> Any:
    """A producer's recording as a program (several, for PipeDream's)."""
    return _READERS[path.partition("/")[0]]((TRACES / path).read_text(), path)


def timed(schedule: Schedule | Program, costs: Costs | None = None) -> Timing:
    """Time of its compute order, whatever issues the communication."""
    found = timing(issued(schedule, "naive"), costs or Costs())
    assert found is not None
    return found


def judged(name: str, sizes: Sizes) -> Report:
    """What every check says of it, its claims too, issued by its own recipe on nccl."""
    return judge_definition(name, find(name), Options(), sizes, run, lambda points, count: points)


def sizes_of(name: str, grid: dict[str, Any]) -> list[Sizes]:
    """The valid sizes of a grid."""
    return list(_valid(name, grid))


def _valid(name: str, grid: dict[str, Any]) -> Iterator[Sizes]:
    for values in product(*grid.values()):
        try:
            yield find(name).sizes(dict(zip(grid, values, strict=True)))
        except InputError:
            continue
