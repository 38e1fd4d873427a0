"""``pipeproof shrink``: cut a violated input to the smallest that fails the same way."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import click

from pipeproof.cli import options
from pipeproof.cli.check import CHECK_NAMES
from pipeproof.cli.reading import Reading, complain, read, sources, with_reading
from pipeproof.errors import InputError
from pipeproof.formats.sources import Failure
from pipeproof.program.transports import Transport
from pipeproof.report.style import escaped

if TYPE_CHECKING:
    from pipeproof.program.programs import Program
    from pipeproof.verdict import Finding

DONE, UNUSABLE, NOTHING = 0, 2, 5


@click.command("shrink", context_settings={"max_content_width": 80})
@click.argument("file")
@options.FROM
@options.TRANSPORT
@options.RECIPE
@click.option(
    "--only", type=click.Choice(CHECK_NAMES), metavar="CHECK", help="What this check finds."
)
@with_reading
@click.option("-o", "--output", metavar="OUT", default="-", help="File to write, - for stdout.")
def command(
    file: str,
    format_: str | None,
    transport: Transport | None,
    recipe: str | None,
    only: str | None,
    reading: Reading,
    output: str,
) -> int:
    """Cut what is violated to the smallest program that still is, in the same
    way: fewest ranks, then microbatches, stages and ops.

    The first finding of the input (or of --only) is kept, and written as a case
    in JSON that check reads again. Exit status: 0 where one is written, 5 where
    nothing is violated.
    """
    # As for check: arrays and long lists, no cycles worth a collector's walk.
    gc.disable()
    from pipeproof.recipes.issuing import issued

    at_fault = file
    try:
        for item in sources([file], format_):
            at_fault = item.file
            if isinstance(item, Failure):
                raise item.error
            for target in read(item, reading):
                program = issued(target, recipe, transport)
                found = _finding(program, only)
                if found is not None:
                    return _shrunk(item.file, program, found, output)
    except InputError as error:
        complain(at_fault, error)
        return UNUSABLE
    what = f"{only} finds nothing" if only else "nothing is violated"
    click.echo(f"pipeproof: {escaped(file)}: {what}, so there is nothing to cut", err=True)
    return NOTHING


def _finding(program: Program, only: str | None) -> Finding | None:
    from pipeproof.judge.judge import judged

    results = judged(program, (only,) if only else ())
    return next((finding for result in results for finding in result.findings), None)


def _shrunk(file: str, program: Program, found: Finding, output: str) -> int:
    from pipeproof.formats.case_text import case_text
    from pipeproof.judge.shrink import shrink

    smallest = shrink(program, found)
    finding, cut = smallest.finding, smallest.program
    text = case_text(
        cut,
        note=f"Cut from {os.path.basename(file)}: {_sizes(program)}.",
        verdict=finding.verdict.value,
        where="; ".join(f"rank {p.rank}: {p.op}" for p in finding.where) or "the program",
        why=finding.message,
    )
    if output == "-":
        click.echo(text, nl=False)
    else:
        try:
            with open(output, "w", encoding="utf-8", newline="\n") as written:
                written.write(text)
        except (OSError, ValueError) as error:  # no file can have a name with a NUL
            reason = getattr(error, "strerror", None) or str(error)
            complain(output, InputError(f"it cannot be written: {reason.lower()}"))
            return UNUSABLE
    click.echo(
        f"pipeproof: {escaped(file)}: {finding.check}: {_sizes(program)}\n"
        f"  cut to {_sizes(cut)}, in {smallest.tries} tries",
        err=True,
    )
    return DONE


def _sizes(program: Program) -> str:
    sizes = (
        (program.ranks, "rank", "ranks"),
        (program.microbatches, "microbatch", "microbatches"),
        (program.stages, "stage", "stages"),
        (program.ops, "op", "ops"),
    )
    return ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in sizes)
