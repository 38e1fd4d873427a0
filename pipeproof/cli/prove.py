"""``pipeproof prove``: a definition for every size at once."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from pipeproof.cli import options
from pipeproof.cli.check import failed_report, text_style
from pipeproof.cli.deadline import deadline
from pipeproof.cli.progress import PATIENCE
from pipeproof.cli.reading import (
    DEFINED,
    Reading,
    complain,
    definitions,
    run_at,
    sources,
    with_reading,
)
from pipeproof.errors import InputError
from pipeproof.formats.sources import Failure
from pipeproof.report import outcome

if TYPE_CHECKING:
    from pipeproof.judge.for_all_sizes import Outcome
    from pipeproof.spec.definition import Definition
    from pipeproof.spec.tracing import Loops
    from pipeproof.verdict import Report


@click.command("prove", context_settings={"max_content_width": 80})
@click.argument("files", nargs=-1, metavar="FILE...")
@options.FROM
@with_reading
@click.option(
    "--smtlib",
    metavar="OUT",
    help="Write every question of the proofs, for any solver to check again.",
)
@click.option(
    "--format",
    "output",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Form of the report.",
)
@click.option("-q", "--quiet", is_flag=True, help="The answers alone.")
def command(
    files: tuple[str, ...],
    format_: str | None,
    reading: Reading,
    smtlib: str | None,
    output: str,
    quiet: bool,
) -> int:
    """Prove schedules for every number of ranks and microbatches.

    FILE is a spec in Python or the name of a known schedule, written with loop,
    least and most. Proved are coverage, order, matching, freedom from deadlock
    with neighbouring messages posted together (over a rendezvous, the strictest
    transport), and claims on activations and staleness. What is wrong is shown
    at the smallest sizes; what is neither is undetermined.
    """
    gc.disable()
    if not files:
        raise click.UsageError("no FILE given; expected a spec, or the name of a schedule")
    reports: list[Report] = []
    outcomes: list[Outcome] = []
    for found in _outcomes(files, format_, reading):
        if isinstance(found, tuple):
            reports.append(failed_report(*found))
        else:
            outcomes.append(found)
            reports.append(found.report)
    if smtlib is not None:
        _write(smtlib, outcomes)
    if output == "json":
        from pipeproof.report.json import render

        click.echo(render(reports), nl=False)
    else:
        click.echo("\n".join(_text(o, quiet=quiet) for o in outcomes), nl=False)
    return outcome.exit_status(reports)


def _outcomes(
    files: tuple[str, ...], format_: str | None, reading: Reading
) -> Iterator[Outcome | tuple[str, InputError]]:
    from pipeproof.judge.for_all_sizes import judge_for_all

    for item in sources(files, format_):
        try:
            if isinstance(item, Failure):
                raise item.error
            if item.format not in DEFINED:
                raise InputError(
                    "found a schedule of one size; expected a definition",
                    cause="A spec in Python, or a known schedule, can be proved for all sizes.",
                )
            for definition in definitions(item, reading):
                progress = _Progress(definition.name)
                yield judge_for_all(
                    item.file,
                    definition,
                    lambda d, sizes: run_at(d, sizes, reading.time_limit),
                    progress,
                    lambda d: read_loops(d, reading.time_limit),
                )
                progress.clear()
        except InputError as error:
            yield item.file, error


def read_loops(definition: Definition, time_limit: float) -> Loops:
    """The loops of a definition, read within the time limit."""
    from pipeproof.spec.tracing import traced

    with deadline(time_limit, f"reading {definition.name}"):
        return traced(definition)


class _Progress:
    """A line on standard error, on a terminal, after a second."""

    def __init__(self, name: str) -> None:
        self.name, self.begun, self.drawn = name, time.monotonic(), 0.0
        self.shown = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, what: str, count: int) -> None:
        now = time.monotonic()
        if self.shown and now - self.begun > PATIENCE and now - self.drawn > 0.2:
            self.drawn = now
            sys.stderr.write(f"\r\x1b[K{self.name}: {what}, {count} questions")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        if self.drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _text(found: Outcome, *, quiet: bool) -> str:
    from pipeproof.judge.for_all_sizes import claims_left
    from pipeproof.report.proofs import render
    from pipeproof.report.text import render as render_report

    style = text_style()
    if found.refuted is not None:
        return render_report([found.refuted], style)
    proof = None if quiet else found.proof
    return render(
        found.report,
        [] if proof is None else proof.loops.lines(),
        [] if proof is None or proof.ranking is None else proof.ranking.lines(proof.lane),
        [] if proof is None else claims_left(proof),
        style,
    )


def _write(path: str, outcomes: list[Outcome]) -> None:
    from pipeproof.proofs.sizes.smtlib import smtlib

    text = "".join(
        smtlib(f"{o.report.name}, {o.proof.scope}", o.proof.asked)
        for o in outcomes
        if o.proof is not None
    )
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        complain(path, InputError(f"it cannot be written: {reason.lower()}"))
