"""Options that several commands have, each written once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


def _sizes(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for text in given:
        name, equals, number = (part.strip() for part in text.partition("="))
        if not name.isidentifier() or not equals or not number.isdigit() or len(number) > 9:
            raise click.BadParameter(f"found {text!r}; expected NAME=NUMBER", ctx, param)
        if name in sizes:
            raise click.BadParameter(f"{name} is given twice", ctx, param)
        sizes[name] = int(number)
    return sizes


FROM = click.option(
    "--from",
    "format_",
    type=click.Choice(FORMATS),
    metavar="FORMAT",
    help=f"Format of all inputs: {', '.join(FORMATS)}. Default: by their names and contents.",
)


def _transport(default: str) -> Callable[..., Any]:
    return click.option(
        "--transport",
        metavar="NAME[:SLOTS]",
        callback=parsed(parse_transport),
        help=f"Transport of the messages: {', '.join(PRESETS)}; with :1 or :inf for buffer "
        f"slots. Default: {default}.",
    )


TRANSPORT = _transport("nccl for schedules, a program's own")
ONE_TRANSPORT = _transport("nccl, for programs too")
RECIPE = click.option(
    "--recipe",
    type=click.Choice(RECIPE_NAMES),
    metavar="NAME",
    help=f"How a schedule's communication is issued: {', '.join(RECIPE_NAMES)}. Default: "
    "its own; of a CSV, torch.",
)
FIXED = click.option("--fixed", is_flag=True, help="Take the repaired program of a case.")
MICROBATCHES = click.option(
    "--microbatches",
    type=click.IntRange(1, MAX_ID),
    help="Microbatches of the step (m).",
)
STAGES = click.option(
    "--stages", type=click.IntRange(1, MAX_ID), help="Ranks of a named schedule or spec (p)."
)
CHUNKS = click.option(
    "--chunks", type=click.IntRange(1, MAX_ID), help="Stages a rank of a schedule or spec (v)."
)
SIZE = click.option(
    "--size",
    "more_sizes",
    multiple=True,
    metavar="NAME=NUMBER",
    callback=_sizes,
    help="Another size of a schedule or spec, by its name.",
)
TIME_LIMIT = click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="For what a spec's own code may take, each time it is run.",
)


def sizes_of(
    stages: int | None, microbatches: int | None, chunks: int | None, more: Mapping[str, int]
) -> dict[str, int]:
    """The sizes that were given, by the names that definitions have for them."""
    named = {"p": stages, "m": microbatches, "v": chunks}
    for name in named.keys() & more.keys():
        if named[name] is not None:
            raise click.UsageError(f"{name} is given twice, by its option and by --size")
    return {**{n: value for n, value in named.items() if value is not None}, **more}


NOTATION = click.option(
    "--notation",
    type=click.Choice(("current", "older")),
    default="current",
    show_default=True,
    help="older: B is the input gradient and BW the full backward.",
)


def _cost_fields(text: str) -> dict[str, Any]:
    # Help must not wait for what only reading costs needs.
    from pipeproof.program.costs import parse_fields

    return parse_fields(text)


COST = click.option(
    "--cost",
    metavar="TIMES",
    callback=parsed(_cost_fields),
    help="Time of each letter, a message's latency, and every key of a costs file: "
    "F=2,B=3,comm=0.5; F=1:2:1 lists stages. Default: F=1,I=1,W=1,comm=0.",
)
COSTS = click.option(
    "--costs",
    "costs_file",
    metavar="FILE",
    help="Cost model in TOML or JSON; --cost overrides it.",
)
TIMING = click.option(
    "--timing",
    type=click.Choice(("compute", "recipe")),
    default="compute",
    show_default=True,
    help="compute: the compute order, messages as pure delays. recipe: streams, batches and "
    "blocking count.",
)
PER_RANK = click.option(
    "--per-rank",
    is_flag=True,
    help="Costs are of all that a rank hosts: each of its v stages takes a v-th.",
)
