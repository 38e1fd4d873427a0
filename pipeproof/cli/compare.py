"""``pipeproof compare``: targets side by side, under one cost model and transport."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pipeproof.cli import options
from pipeproof.cli.check import reports, text_style
from pipeproof.cli.costs import cost_model
from pipeproof.cli.reading import Reading, with_reading
from pipeproof.program.transports import PRESETS, Transport
from pipeproof.report import outcome
from pipeproof.report.style import amount

if TYPE_CHECKING:
    from pipeproof.program.costs import Costs

SORT_KEYS = (
    *("name", "verdict", "makespan", "overhead_over_ideal", "idle_over_elapsed"),
    *("idle_over_span", "peak_activations", "peak_bytes", "messages", "message_bytes"),
    "smallest_safe_capacity",
)


@click.command("compare", context_settings={"max_content_width": 80})
@click.argument("files", nargs=-1, metavar="FILE...")
@options.FROM
@options.ONE_TRANSPORT
@options.RECIPE
@with_reading
@options.COST
@options.COSTS
@options.TIMING
@options.PER_RANK
@click.option(
    "--format",
    "output",
    type=click.Choice(("text", "markdown", "csv", "json")),
    default="text",
    show_default=True,
    help="Form of the table.",
)
@click.option(
    "--sort",
    type=click.Choice(SORT_KEYS),
    metavar="KEY",
    help=f"Sort by {', '.join(SORT_KEYS)}. Default: as given.",
)
def command(
    files: tuple[str, ...],
    format_: str | None,
    transport: Transport | None,
    recipe: str | None,
    reading: Reading,
    cost: Mapping[str, Any] | None,
    costs_file: str | None,
    timing: str,
    per_rank: bool,
    output: str,
    sort: str | None,
) -> int:
    """Put schedules and programs side by side: verdict, makespan, the three
    bubbles, peak memory, messages and the smallest safe number of buffer slots.

    FILE is whatever check takes. All targets are judged over one transport,
    nccl unless named, and timed under one cost model.
    """
    from pipeproof.judge.options import Options
    from pipeproof.report.compare import PER_RANK, render

    gc.disable()  # arrays, no cycles: the collector would only walk them
    if not files:
        raise click.UsageError("no FILE given; expected files, folders, or - for standard input")
    costs = cost_model(cost, costs_file)
    if costs is None:
        return outcome.BAD_INPUT
    transport = transport or PRESETS["nccl"]
    wishes = Options(
        transport=transport, recipe=recipe, costs=costs, timing=timing, per_rank=per_rank
    )
    found = list(reports(files, format_, reading, wishes))
    terms = f"on {transport.name}, {_model(costs)}"
    if per_rank:
        terms += f", {PER_RANK}"
    if timing == "recipe":
        terms += ", with the communication of each program counted"
    click.echo(render(found, output, text_style(), sort=sort, terms=terms), nl=False)
    return outcome.exit_status(found)


def _model(costs: Costs) -> str:
    """The cost model in the notation of ``--cost``; what is left out is the default."""
    from pipeproof.program.costs import KEYS, Release

    parts = []
    for key in KEYS:
        value = getattr(costs, key)
        if value is None or (key == "release" and value is Release.OP):
            continue
        if isinstance(value, Release):
            parts.append(f"{key}={value.value}")
        elif isinstance(value, tuple):
            parts.append(f"{key}={':'.join(map(_number, value))}")
        else:
            parts.append(f"{key}={_number(value)}")
    return ", ".join(parts)


def _number(value: Any) -> str:
    return amount(float(value)) if not isinstance(value, int) else str(value)
