"""``pipeproof faults``: break healthy targets by rule, and see what is caught."""

from __future__ import annotations

import gc
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pipeproof.cli import options
from pipeproof.cli.reading import Reading, complain, read, sources, with_reading
from pipeproof.errors import InputError
from pipeproof.formats.sources import Failure
from pipeproof.program.transports import Transport

if TYPE_CHECKING:
    from pipeproof.faults.table import KillTable, Seeding

UNUSABLE = 2


@click.command("faults", context_settings={"max_content_width": 80})
@click.argument("files", nargs=-1, metavar="FILE...")
@options.FROM
@options.TRANSPORT
@options.RECIPE
@with_reading
@click.option(
    "--per-rule",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Mutants of each rule at most; the same ones in every run.",
)
@click.option("--all", "everything", is_flag=True, help="Every mutant of every rule.")
@click.option(
    "--write",
    "folder",
    metavar="DIR",
    help="Write the mutants that survive, or are undetermined, to files.",
)
@click.option(
    "--format",
    "output",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Form of the report.",
)
def command(
    files: tuple[str, ...],
    format_: str | None,
    transport: Transport | None,
    recipe: str | None,
    reading: Reading,
    per_rule: int,
    everything: bool,
    folder: str | None,
    output: str,
) -> int:
    """Break healthy schedules and programs by rule, and see which check objects.

    Each row of the table is a way to break the target. A mutant that no check
    objects to is shown harmless by a second reading, or it survives: that is a
    hole in the checks, and the exit status is 1.
    """
    # As for check: arrays and long lists, no cycles worth a collector's walk.
    gc.disable()
    if not files:
        raise click.UsageError("no FILE given; expected files, folders, or - for standard input")
    from pipeproof.faults.table import Seeding
    from pipeproof.report.faults import exit_status, render_json

    seeding = Seeding(None if everything else per_rule, recipe, transport)
    tables: list[KillTable] = []
    failed = False
    for table in _tables(files, format_, reading, seeding):
        if table is None:
            failed = True
        else:
            tables.append(table)
    written: dict[int, str] = {}
    if folder is not None:
        try:
            written = _write(tables, folder)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            complain(folder, InputError(f"mutants cannot be written there: {reason}"))
            failed = True
    if output == "json":
        click.echo(render_json(tables, written), nl=False)
    else:
        click.echo(_text(tables, written), nl=False)
    return UNUSABLE if failed else exit_status(tables)


def _tables(
    files: tuple[str, ...], format_: str | None, reading: Reading, seeding: Seeding
) -> Iterator[KillTable | None]:
    """A table a target, None for an input that cannot be read (which is told at once)."""
    from pipeproof.faults.table import kill_table

    for item in sources(files, format_):
        try:
            if isinstance(item, Failure):
                raise item.error
            for target in read(item, reading):
                yield kill_table(item.file, target, seeding)
        except InputError as error:
            complain(item.file, error)
            yield None


def _write(tables: list[KillTable], folder: str) -> dict[int, str]:
    """Write the mutants that are not settled; their files by the identity of each."""
    from pipeproof.faults.table import SURVIVES, UNDETERMINED
    from pipeproof.formats.program_text import program_text
    from pipeproof.formats.torch_schedule import print_schedule
    from pipeproof.program.schedules import Schedule
    from pipeproof.recipes.issuing import issued

    os.makedirs(folder, exist_ok=True)
    written: dict[int, str] = {}
    left = [m for table in tables for m in table.mutants(SURVIVES, UNDETERMINED)]
    for number, mutant in enumerate(left, 1):
        slug = re.sub(r"[^a-z0-9]+", "-", mutant.rule.lower()).strip("-")
        target, name = mutant.target, f"{number:03}-{slug}.json"
        try:
            if isinstance(target, Schedule):
                text, name = print_schedule(target), f"{number:03}-{slug}.csv"
            else:
                text = program_text(target)
        except InputError:  # a CSV has no notation for it
            text = program_text(issued(target))
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        written[id(mutant)] = path
    return written


def _text(tables: list[KillTable], written: dict[int, str]) -> str:
    from pipeproof.report.faults import render
    from pipeproof.report.style import Style

    out = sys.stdout if sys.stdout is not None else io.StringIO()  # None where it was closed
    terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    encoding = (getattr(out, "encoding", None) or "ascii").lower()
    colour = terminal and not os.environ.get("NO_COLOR")
    return render(
        tables, Style(colour=colour, unicode=encoding.replace("-", "").startswith("utf")), written
    )
