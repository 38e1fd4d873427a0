"""``pipeproof check``: judge every target and print what is known."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from pipeproof.cli.crash import report_crash
from pipeproof.errors import InputError
from pipeproof.formats.sources import FORMATS, Failure, Source, gather
from pipeproof.judge.options import Options
from pipeproof.program.costs import Costs, parse_costs
from pipeproof.program.transports import PRESETS, Transport, parse_transport
from pipeproof.report import outcome
from pipeproof.verdict import Report, Status

CHECK_NAMES = ("coverage", "order", "matching", "deadlock", "race", "memory")
RECIPE_NAMES = ("torch", "naive", "grouped")


def _parsed(parse: Callable[[str], Any]) -> Callable[..., Any]:
    """A click callback that reads the option's text with ``parse``."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback


def _parse_budget(text: str) -> dict[int | None, int]:
    """Read ``4`` or ``0=4,1=3``: units a rank, under None for every rank."""
    budget: dict[int | None, int] = {}
    for part in text.split(","):
        rank, equals, units = part.strip().rpartition("=")
        digits = [units, rank] if equals else [units]
        if not all(d.isascii() and d.isdigit() and len(d) < 19 for d in digits):
            raise ValueError(f"found {part!r}; expected a number, or RANK=NUMBER")
        budget[int(rank) if equals else None] = int(units)
    return budget


@click.command("check", context_settings={"max_content_width": 80})
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("--from", "format_", type=click.Choice(FORMATS), help="Format of all inputs.")
@click.option(
    "--transport",
    metavar="NAME[:SLOTS]",
    callback=_parsed(parse_transport),
    help=f"Transport the verdict is for: {', '.join(PRESETS)}; with :1 or :inf for buffer "
    "slots. Default: nccl for schedules, a program's own.",
)
@click.option(
    "--recipe",
    type=click.Choice(RECIPE_NAMES),
    default="torch",
    show_default=True,
    help="How a schedule's communication is issued.",
)
@click.option("--only", multiple=True, type=click.Choice(CHECK_NAMES), help="Only this check.")
@click.option("--fixed", is_flag=True, help="Check the repaired program of a case.")
@click.option(
    "--budget",
    metavar="UNITS",
    callback=_parsed(_parse_budget),
    help="Live activations (or a program's units) a rank may hold: 4, or 0=4,1=3.",
)
@click.option(
    "--activation-bytes", type=click.IntRange(min=0), help="Bytes of one live activation."
)
@click.option(
    "--microbatches", type=click.IntRange(min=1), help="Microbatches the step must run (CSV)."
)
@click.option(
    "--notation",
    type=click.Choice(("current", "older")),
    default="current",
    show_default=True,
    help="older: B is the input gradient and BW the full backward.",
)
@click.option(
    "--cost",
    default="F=1,I=1,W=1,comm=0",
    show_default=True,
    metavar="TIMES",
    callback=_parsed(parse_costs),
    help="Time of each letter, and a message's latency.",
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
    output: str,
    quiet: bool,
) -> int:
    """Check schedules and programs: does every op run once, in order, on the
    right data, without hanging, within memory?

    FILE is a torch action CSV, a program or case in JSON, a folder of them,
    or - for standard input.
    """
    # Arrays and long lists of numbers, no cycles: the collector would only walk them.
    gc.disable()
    if not files:
        raise click.UsageError("no FILE given; expected files, folders, or - for standard input")
    options = Options(
        transport=transport,
        recipe=recipe,
        only=only,
        budget=budget or {},
        activation_bytes=activation_bytes,
        costs=cost,
    )
    reading = _Reading(microbatches=microbatches, older=notation == "older", fixed=fixed)
    reports = list(_reports(files, format_, reading, options))
    click.echo(_rendered(reports, output, quiet=quiet), nl=False)
    return outcome.exit_status(reports)


class _Reading:
    """How inputs are to be read."""

    def __init__(self, *, microbatches: int | None, older: bool, fixed: bool) -> None:
        self.microbatches = microbatches
        self.older = older
        self.fixed = fixed


def _reports(
    files: tuple[str, ...], format_: str | None, reading: _Reading, options: Options
) -> Iterator[Report]:
    def stdin() -> bytes:
        return sys.stdin.buffer.read()

    for item in gather(files, format=format_, stdin=stdin):
        if isinstance(item, Failure):
            yield _failed(item.file, item.error)
            continue
        try:
            yield _judged(item, reading, options)
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


def _judged(source: Source, reading: _Reading, options: Options) -> Report:
    from pipeproof.formats.sources import decode
    from pipeproof.judge.judge import judge_program, judge_schedule

    text = decode(source.data)
    name = os.path.basename(source.file)
    if reading.fixed and source.format != "program-json":
        raise InputError(
            "found a schedule; expected a case with a repaired program (--fixed)",
            cause="Only cases in JSON carry a repaired program. Leave out --fixed.",
        )
    if source.format == "program-json":
        from pipeproof.formats.program_json import read_program

        return judge_program(source.file, read_program(text, name, fixed=reading.fixed), options)
    if source.format == "torch-executed":
        from pipeproof.formats.torch_executed import read_executed

        return judge_program(source.file, read_executed(text, name), options)
    from pipeproof.formats.torch_schedule import read_schedule

    schedule = read_schedule(text, name, older=reading.older, microbatches=reading.microbatches)
    return judge_schedule(source.file, schedule, options)


def _failed(file: str, error: InputError) -> Report:
    """The report of an input that could not be read; its message goes out at once."""
    click.echo(f"pipeproof: {error.located(file)}", err=True)
    fields = {
        "message": error.message,
        "cause": error.cause,
        "line": error.line,
        "column": error.column,
        "path": error.path,
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

    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    style = Style(
        colour=terminal and not os.environ.get("NO_COLOR"),
        unicode=encoding.replace("-", "").startswith("utf"),
    )
    return render_text(reports, style, quiet=quiet)
