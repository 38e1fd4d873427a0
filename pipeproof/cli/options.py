"""Options that several commands have, each written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pipeproof.formats.sources import FORMATS
from pipeproof.program.ops import MAX_ID
from pipeproof.program.transports import PRESETS, parse_transport

RECIPE_NAMES = (
    *("torch", "naive", "grouped"),
    *("megatron", "megatron-unbatched", "deepspeed", "dualpipe", "zero-bubble"),
)


def parsed(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A click callback that reads the option's text with ``parse``."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback


FROM = click.option(
    "--from",
    "format_",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    help=f"Format of all inputs: {', '.join(FORMATS)}. Default: by their names and contents.",
)
TRANSPORT = click.option(
    "--transport",
    metavar="NAME[:SLOTS]",
    callback=parsed(parse_transport),
    help=f"Transport of the messages: {', '.join(PRESETS)}; with :1 or :inf for buffer "
    "slots. Default: nccl for schedules, a program's own.",
)
RECIPE = click.option(
    "--recipe",
    type=click.Choice(RECIPE_NAMES),
    metavar="NAME",
    default="torch",
    show_default=True,
    help=f"How a schedule's communication is issued: {', '.join(RECIPE_NAMES)}.",
)
FIXED = click.option("--fixed", is_flag=True, help="Take the repaired program of a case.")
MICROBATCHES = click.option(
    "--microbatches",
    type=click.IntRange(1, MAX_ID),
    help="Microbatches the step must run (CSV).",
)
NOTATION = click.option(
    "--notation",
    type=click.Choice(("current", "older")),
    default="current",
    show_default=True,
    help="older: B is the input gradient and BW the full backward.",
)
