"""``pipeproof check``: judge every target and print what is known."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator, Mapping

import click

from pipeproof.cli import options
from pipeproof.cli.crash import report_crash
from pipeproof.cli.reading import Reading, complain, read, read_stdin
from pipeproof.engines.explore.search import LIMIT
from pipeproof.errors import InputError
from pipeproof.formats.sources import Failure, Source, gather
from pipeproof.judge.options import Options
from pipeproof.program.costs import Costs, parse_costs
from pipeproof.program.transports import Transport
from pipeproof.report import outcome
from pipeproof.verdict import Report, Status

CHECK_NAMES = (
    "coverage",
    "order",
    "matching",
    "deadlock",
    "race",
    "memory",
    "versions",
    "gradients",
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
@click.option("--only", multiple=True, type=click.Choice(CHECK_NAMES), help="Only this check.")
@options.FIXED
@click.option(
    "--budget",
    metavar="UNITS",
    callback=options.parsed(_parse_budget),
    help="Live activations (or a program's units) a rank may hold: 4, or 0=4,1=3.",
)
@click.option(
    "--activation-bytes", type=click.IntRange(min=0), help="Bytes of one live activation."
)
@options.MICROBATCHES
@options.NOTATION
@click.option(
    "--cost",
    default="F=1,I=1,W=1,comm=0",
    show_default=True,
    metavar="TIMES",
    callback=options.parsed(parse_costs),
    help="Time of each letter, and a message's latency.",
)
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
    recipe: str,
    only: tuple[str, ...],
    fixed: bool,
    budget: Mapping[int | None, int] | None,
    activation_bytes: int | None,
    microbatches: int | None,
    notation: str,
    cost: Costs,
    states: int,
    output: str,
    quiet: bool,
) -> int:
    """Check schedules and programs: does every op run once, in order, on the
    right data, without hanging, within memory?

    FILE is a torch action CSV, a program or case in JSON, a recording of
    another framework's schedule, a folder of them, or - for standard input.
    """
    # Arrays and long lists of numbers, no cycles: the collector would only walk them.
    gc.disable()
    if not files:
        raise click.UsageError("no FILE given; expected files, folders, or - for standard input")
    wishes = Options(
        transport=transport,
        recipe=recipe,
        only=only,
        budget=budget or {},
        activation_bytes=activation_bytes,
        costs=cost,
        states=states,
    )
    reading = Reading(microbatches=microbatches, older=notation == "older", fixed=fixed)
    reports = list(_reports(files, format_, reading, wishes))
    if reports and all(r.error is not None and r.error.get("empty") for r in reports):
        reports = []
    click.echo(_rendered(reports, output, quiet=quiet), nl=False)
    return outcome.exit_status(reports)


def _reports(
    files: tuple[str, ...], format_: str | None, reading: Reading, wishes: Options
) -> Iterator[Report]:
    for item in gather(files, format=format_, stdin=read_stdin):
        if isinstance(item, Failure):
            yield _failed(item.file, item.error, empty=_is_empty_folder(item))
            continue
        try:
            yield from _judged(item, reading, wishes)
        except InputError as error:
            yield _failed(item.file, error)
        except MemoryError:
            yield _failed(item.file, InputError("too large for this machine's memory"))
        except Exception as error:  # a defect of ours: the other targets are still judged
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

    for target in read(source, reading):
        _require_ranks(wishes.budget, target.ranks)
        if isinstance(target, Schedule):
            yield judge_schedule(source.file, target, wishes)
        else:
            yield judge_program(source.file, target, wishes)


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


def _failed(file: str, error: InputError, *, empty: bool = False) -> Report:
    """The report of an input that could not be read; its message goes out at once."""
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


def _rendered(reports: list[Report], output: str, *, quiet: bool) -> str:
    if output == "json":
        from pipeproof.report.json import render as render_json

        return render_json(reports)
    from pipeproof.report.style import Style
    from pipeproof.report.text import render as render_text

    out = sys.stdout if sys.stdout is not None else io.StringIO()  # None where it was closed
    terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    encoding = (getattr(out, "encoding", None) or "ascii").lower()
    style = Style(
        colour=terminal and not os.environ.get("NO_COLOR"),
        unicode=encoding.replace("-", "").startswith("utf"),
    )
    return render_text(reports, style, quiet=quiet)
