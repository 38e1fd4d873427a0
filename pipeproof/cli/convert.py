"""``pipeproof convert``: write what one input holds in another format."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from pipeproof.cli import options
from pipeproof.cli.reading import Reading, complain, read, sources, with_reading
from pipeproof.errors import InputError
from pipeproof.formats.sources import Failure, Source
from pipeproof.program.transports import Transport
from pipeproof.report.style import escaped

if TYPE_CHECKING:
    from pipeproof.program.programs import Program
    from pipeproof.program.schedules import Schedule

TARGETS = ("program-json", "torch-csv")
DONE, UNUSABLE = 0, 2


@click.command("convert", context_settings={"max_content_width": 80})
@click.argument("file")
@options.FROM
@click.option(
    "--to",
    "target",
    type=click.Choice(TARGETS),
    default=TARGETS[0],
    show_default=True,
    help="Format to write.",
)
@click.option("-o", "--output", metavar="OUT", default="-", help="File to write, - for stdout.")
@click.option("--part", help="Which one, where a file holds several programs.")
@options.RECIPE
@options.TRANSPORT
@with_reading
def command(
    file: str,
    format_: str | None,
    target: str,
    output: str,
    part: str | None,
    recipe: str | None,
    transport: Transport | None,
    reading: Reading,
) -> int:
    """Write a schedule, program or recording as a program in JSON, or as a torch
    action CSV where it fits.

    What the format written cannot hold is named on standard error. A schedule
    becomes a program by its recipe, over its transport.
    """
    try:
        found = _one(_source(file, format_), reading, part)
        if target == "torch-csv":
            text, left_out = _as_csv(found)
        else:
            text, left_out = _as_json(found, recipe, transport)
    except InputError as error:
        complain(file, error)
        return UNUSABLE
    if left_out:
        click.echo(f"pipeproof: {escaped(file)}: {target} leaves out", err=True)
        for line in left_out:
            click.echo(f"  {escaped(line)}", err=True)
    return _write(text, output)


def _source(file: str, format_: str | None) -> Source:
    """The only input that an argument names."""
    inputs = list(sources([file], format_))
    if len(inputs) > 1:
        raise InputError(
            f"found {len(inputs)} files in this folder, expected one", cause="name one of them"
        )
    (only,) = inputs
    if isinstance(only, Failure):
        raise only.error
    return only


def _one(source: Source, reading: Reading, part: str | None) -> Program | Schedule:
    """The only target of a source, or the part of it that is asked for."""
    found = read(source, reading)
    base = os.path.basename(source.file)
    parts = [target.name.removeprefix(f"{base} [").removesuffix("]") for target in found]
    if part is None:
        if len(found) == 1:
            return found[0]
        cause = f"say which one with --part: {', '.join(parts)}"
        raise InputError(f"found {len(found)} programs in this file, expected one", cause=cause)
    if len(found) == 1 and parts == [base]:
        raise InputError("found one program, which has no parts", cause="leave out --part")
    if part not in parts:
        raise InputError(
            f"found no part {part!r} in this file", cause=f"it has {', '.join(parts)}"
        )
    return found[parts.index(part)]


def _as_csv(found: Program | Schedule) -> tuple[str, list[str]]:
    from pipeproof.formats.torch_print import print_torch
    from pipeproof.formats.torch_schedule import print_schedule
    from pipeproof.program.schedules import Schedule

    if isinstance(found, Schedule):
        return print_schedule(found), []
    return print_torch(found)


def _as_json(
    found: Program | Schedule, recipe: str | None, transport: Transport | None
) -> tuple[str, list[str]]:
    from pipeproof.formats.program_text import left_out, overlapping, program_text
    from pipeproof.program.schedules import Schedule
    from pipeproof.recipes.issuing import issued

    beside: list[str] = []
    if isinstance(found, Schedule):
        pairs = overlapping(found)
        if pairs:
            beside.append(f"overlaps (the actions of a cell stand one after the other): {pairs}")
    program = issued(found, recipe, transport)
    return program_text(program), [*beside, *left_out(program)]


def _write(text: str, output: str) -> int:
    if output == "-":
        click.echo(text, nl=False)
        return DONE
    try:
        with open(output, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except (OSError, ValueError) as error:  # no file can have a name with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        complain(output, InputError(f"it cannot be written: {reason.lower()}"))
        return UNUSABLE
    return DONE
