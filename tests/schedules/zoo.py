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
from pipeproof.judge.judge import judge_schedule
from pipeproof.judge.options import Options
from pipeproof.program.costs import Costs
from pipeproof.program.ops import LETTER, Kind
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import build
from pipeproof.schedules.table import find
from pipeproof.spec.definition import Sizes, evaluated
from pipeproof.spec.running import run
from pipeproof.verdict import Report

TRACES = Path(__file__).parent.parent / "data" / "traces"

Row = list[tuple[str, int, int]]
"""The compute ops of a rank: letter, stage, microbatch."""


def made(name: str, **sizes: int) -> Schedule:
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


def timed(schedule: Schedule, costs: Costs | None = None) -> Timing:
    """Time of its compute order, whatever issues the communication."""
    found = timing(build(schedule, "naive", PRESETS["nccl"]), costs or Costs())
    assert found is not None
    return found


def judged(name: str, sizes: Sizes) -> Report:
    """What every check says of it, issued by its own recipe, on nccl."""
    definition = find(name)
    return judge_schedule(name, run(definition, sizes), Options(recipe=definition.recipe))


def sizes_of(name: str, grid: dict[str, Any]) -> list[Sizes]:
    """The valid sizes of a grid."""
    return list(_valid(name, grid))


def _valid(name: str, grid: dict[str, Any]) -> Iterator[Sizes]:
    for values in product(*grid.values()):
        try:
            yield find(name).sizes(dict(zip(grid, values, strict=True)))
        except InputError:
            continue


def broken_claims(name: str, sizes: Sizes, report: Report) -> list[str]:
    """The claims with a bound that the figures of a report, for F = I = W = 1, do not meet."""
    broken = []
    metrics = report.metrics
    known = {**sizes, "F": 1, "I": 1, "W": 1, "B": 2, "R": 1, "comm": 0}
    for claim in find(name).claims:
        if claim.bound is None or claim.figure in ("staleness", "weight_versions"):
            continue
        if claim.figure == "peak_activations":
            figures = {int(rank): peak for rank, peak in metrics["peak_memory"].items()}
        elif claim.figure in ("makespan", "messages"):
            figures = {0: metrics[claim.figure]}
        else:
            figures = {0: metrics["bubble"][claim.figure]}
        for rank, figure in figures.items():
            bound = claim.bound
            if callable(bound):
                bound = evaluated(bound, {**known, "rank": rank} if claim.per_rank else known)
            met = abs(figure - bound) < 1e-9 if claim.equal else figure <= bound + 1e-9
            if not met:
                broken.append(f"{sizes}: {claim.figure} is {figure} on {rank}, not {bound}")
    return broken
