"""``pipeproof check``: judge every target and print what is known."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pipeproof.cli import options
from pipeproof.cli.costs import cost_model
from pipeproof.cli.crash import report_crash
from pipeproof.cli.progress import progress_bar
from pipeproof.cli.reading import (
    DEFINED,
    Reading,
    complain,
    definitions,
    read,
    run_at,
    sources,
    with_reading,
)
from pipeproof.engines.explore import LIMIT
from pipeproof.errors import InputError
from pipeproof.formats.sources import NAMED, Failure, Source
from pipeproof.program.transports import Transport

if TYPE_CHECKING:
    from pipeproof.judge.options import Options
    from pipeproof.program.programs import Program
    from pipeproof.program.schedules import Schedule
    from pipeproof.report.style import Style
    from pipeproof.spec.definition import Definition
    from pipeproof.verdict import Report

EXPLAINED = 50_000
"""Up to so many ops a JSON report has a critical path without being asked for it."""

CHECK_NAMES = (
    "coverage",
    "order",
    "matching",
    "deadlock",
    "race",
    "memory",
    "versions",
    "gradients",
    "claims",
)


def _parse_budget(text: str) -> dict[int | None, int]:
    """Read ``4`` or ``0=4,1=3``: units a rank, under None for every rank."""
    budget: dict[int | None, int] = {}
    for part in text.split(","):
        rank, equals, units = part.strip().rpartition("=")
        digits = [units, rank] if equals else [units]
        if not all(d.isascii() and d.isdigit() and len(d) < 19 for d in digits):
            raise ValueError(f"found {part!r}; expected a number, or RANK=NUMBER")
        key = int(rank) if equals else None
        if key in budget:
            raise ValueError(f"{'every rank' if key is None else f'rank {key}'} is given twice")
        budget[key] = int(units)
    return budget


@click.command("check", context_settings={"max_content_width": 80})
@click.argument("files", nargs=-1, metavar="FILE...")
@options.FROM
@options.TRANSPORT
@options.RECIPE
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(CHECK_NAMES),
    metavar="CHECK",
    help=f"Only this check: {', '.join(CHECK_NAMES)}.",
)
@click.option(
    "--budget",
    metavar="UNITS",
    callback=options.parsed(_parse_budget),
    help="Live activations (or a program's units) a rank may hold: 4, or 0=4,1=3.",
)
@click.option(
    "--activation-bytes", type=click.IntRange(min=0), help="Bytes of one live activation."
)
@with_reading
@options.COST
@options.COSTS
@options.TIMING
@options.PER_RANK
@click.option("--explain-time", is_flag=True, help="Say what holds the step back.")
@click.option(
    "--states",
    type=click.IntRange(min=1),
    default=LIMIT,
    show_default=True,
    help="States a search of executions may visit.",
)
@click.option(
    "--format",
    "output",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Form of the report.",
)
@click.option("-q", "--quiet", is_flag=True, help="One line a target.")
def command(
    files: tuple[str, ...],
    format_: str | None,
    transport: Transport | None,
    recipe: str | None,
    only: tuple[str, ...],
    budget: Mapping[int | None, int] | None,
    activation_bytes: int | None,
    reading: Reading,
    cost: Mapping[str, Any] | None,
    costs_file: str | None,
    timing: str,
    per_rank: bool,
    explain_time: bool,
    states: int,
    output: str,
    quiet: bool,
) -> int:
    """Check schedules and programs: does every op run once, in order, on the
    right data, without hanging, within memory?

    FILE is a torch action CSV, a program or case in JSON, a recording of
    another framework's schedule, a spec in Python, a folder of them, - for
    standard input, or the name of a known schedule (pipeproof schedules).

    A spec or a known schedule is judged at the sizes that are given, and at
    those of its grid where they leave some open.
    """
    # Arrays and long lists of numbers, no cycles: the collector would only walk them.
    gc.disable()
    if not files:
        raise click.UsageError("no FILE given; expected files, folders, or - for standard input")
    from pipeproof.judge.options import Options
    from pipeproof.report import outcome

    costs = cost_model(cost, costs_file)
    if costs is None:
        return outcome.BAD_INPUT
    wishes = Options(
        transport=transport,
        recipe=recipe,
        only=only,
        budget=budget or {},
        activation_bytes=activation_bytes,
        costs=costs,
        timing=timing,
        per_rank=per_rank,
        explained=sys.maxsize if explain_time else EXPLAINED if output == "json" else 0,
        states=states,
    )
    found = list(reports(files, format_, reading, wishes))
    if found and all(r.error is not None and r.error.get("empty") for r in found):
        found = []
    click.echo(_rendered(found, output, quiet=quiet, explained=explain_time), nl=False)
    return outcome.exit_status(found)


def reports(
    files: tuple[str, ...], format_: str | None, reading: Reading, wishes: Options
) -> Iterator[Report]:
    """A report on every target; what cannot be read is one too, and complained of at once."""
    for item in sources(files, format_):
        if isinstance(item, Failure):
            yield failed_report(item.file, item.error, empty=_is_empty_folder(item))
            continue
        try:
            yield from _judged(item, reading, wishes)
        except InputError as error:
            yield failed_report(item.file, error)
        except MemoryError:
            yield failed_report(item.file, InputError("too large for this machine's memory"))
        except Exception as error:  # a defect of ours: the other targets are still judged
            from pipeproof.verdict import Report, Status

            report_crash(error, item.file)
            yield Report(
                file=item.file,
                name=os.path.basename(item.file),
                status=Status.UNDETERMINED,
                error={"message": f"internal error: {error}", "internal": True},
            )


def _judged(source: Source, reading: Reading, wishes: Options) -> Iterator[Report]:
    from pipeproof.judge.judge import judge_program, judge_schedule
    from pipeproof.program.schedules import Schedule

    if source.format in DEFINED:
        yield from _judged_definitions(source, reading, wishes)
        return
    for target in read(source, reading):
        _require_ranks(wishes.budget, target.ranks)
        if isinstance(target, Schedule):
            yield judge_schedule(source.file, target, wishes)
        else:
            yield judge_program(source.file, target, wishes)


def _judged_definitions(source: Source, reading: Reading, wishes: Options) -> Iterator[Report]:
    from pipeproof.judge.definitions import judge_definition

    def run(definition: Definition, sizes: dict[str, int]) -> Schedule | Program:
        schedule = run_at(definition, sizes, reading.time_limit)
        _require_ranks(wishes.budget, schedule.ranks)
        return schedule

    base = os.path.basename(source.file)
    for definition in definitions(source, reading):
        own = source.format != NAMED
        name = f"{base} [{definition.name}]" if own else definition.name
        try:
            report = judge_definition(
                source.file, definition, wishes, reading.sizes, run, partial(progress_bar, name)
            )
        except InputError as error:
            yield failed_report(source.file, error)
            continue
        yield replace(report, name=f"{base} [{report.name}]" if own else report.name)


def _require_ranks(budget: Mapping[int | None, int], ranks: int) -> None:
    """Refuse the budget of a rank that is not there: it would pass unchecked."""
    rank = max((r for r in budget if r is not None), default=-1)
    if rank >= ranks:
        raise InputError(
            f"found {ranks} rank{'s' if ranks != 1 else ''}; --budget names rank {rank}",
            cause="Ranks count from 0.",
        )


def _is_empty_folder(failure: Failure) -> bool:
    """Whether nothing is wrong but that there is nothing to check."""
    return failure.error.message.startswith("no file to check") and os.path.isdir(failure.file)


def failed_report(file: str, error: InputError, *, empty: bool = False) -> Report:
    """The report of an input that could not be read; its message goes out at once."""
    from pipeproof.verdict import Report, Status

    complain(file, error)
    fields = {
        "message": error.message,
        "cause": error.cause,
        "line": error.line,
        "column": error.column,
        "path": error.path,
        "empty": empty or None,
    }
    return Report(
        file=file,
        name=os.path.basename(file),
        status=Status.UNDETERMINED,
        error={k: v for k, v in fields.items() if v is not None},
    )


def _rendered(reports: list[Report], output: str, *, quiet: bool, explained: bool) -> str:
    if output == "json":
        from pipeproof.report.json import render as render_json

        return render_json(reports)
    from pipeproof.report.text import render as render_text

    return render_text(reports, text_style(), quiet=quiet, explained=explained)


def text_style() -> Style:
    """How text looks on standard output."""
    from pipeproof.report.style import Style

    out = sys.stdout if sys.stdout is not None else io.StringIO()  # None where it was closed
    terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    encoding = (getattr(out, "encoding", None) or "ascii").lower()
    return Style(
        colour=terminal and not os.environ.get("NO_COLOR"),
        unicode=encoding.replace("-", "").startswith("utf"),
    )
