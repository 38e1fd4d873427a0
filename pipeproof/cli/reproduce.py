"""``pipeproof reproduce``: published figures of known schedules, computed again."""

from __future__ import annotations

import gc

import click

from pipeproof.cli.check import text_style
from pipeproof.cli.progress import progress_bar


@click.command("reproduce", context_settings={"max_content_width": 80})
@click.option(
    "--only",
    metavar="TEXT",
    help="Only claims that have this text in their words or their source.",
)
@click.option(
    "--format",
    "output",
    type=click.Choice(("text", "markdown", "json")),
    default="text",
    show_default=True,
    help="Form of the table.",
)
def command(only: str | None, output: str) -> int:
    """Compute published figures again, from the known schedules, and put ours
    beside them: bubbles, memory, messages, weight versions, states.

    The exit status is 1 where a figure disagrees. Where the published order is the
    output of its authors' search, ours is another order: the row says so, and does
    not count.
    """
    from pipeproof.published.table import chosen, entries, reproduced, units
    from pipeproof.report.reproduce import exit_status, render

    gc.disable()  # arrays and long lists, no cycles worth a collector's walk
    found = entries()
    if only is not None:
        found = chosen(found, only)
        if not found:
            raise click.UsageError(
                f"no claim has {only!r} in its words or its source; without --only all are listed"
            )
    work = units(found)
    claims = reproduced(found, progress_bar("cases", work, len(work)))
    click.echo(render(claims, output, text_style()), nl=False)
    return exit_status(claims)
