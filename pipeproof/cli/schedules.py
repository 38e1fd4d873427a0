"""``pipeproof schedules``: the known schedules, or what is known of one."""

from __future__ import annotations

import difflib
import inspect
import json
import textwrap
from typing import TYPE_CHECKING, Any

import click

from pipeproof.report.style import WIDTH
from pipeproof.schedules.table import SCHEDULES, find

if TYPE_CHECKING:
    from pipeproof.spec.definition import Definition


@click.command("schedules", context_settings={"max_content_width": 80})
@click.argument("name", required=False)
@click.option(
    "--format",
    "output",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Form of the list.",
)
@click.option("--source", is_flag=True, help="Print the definition itself.")
def command(name: str | None, output: str, source: bool) -> int:
    """List the schedules that can be named wherever a file can, or tell what NAME
    claims, where it comes from and how it is defined.
    """
    if name is not None and name not in SCHEDULES:
        close = difflib.get_close_matches(name, SCHEDULES, 3, 0.5)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise click.UsageError(f"there is no schedule {name!r}.{hint}")
    if source and name is None:
        raise click.UsageError("--source needs the NAME of a schedule")
    if source and name is not None:
        click.echo(textwrap.dedent(inspect.getsource(find(name).function)), nl=False)
    elif output == "json":
        names = list(SCHEDULES) if name is None else [name]
        click.echo(json.dumps({"schema": 1, "schedules": [_entry(n) for n in names]}, indent=1))
    elif name is None:
        _list()
    else:
        _describe(name)
    return 0


def _list() -> None:
    wide = max(map(len, SCHEDULES))
    for name, entry in SCHEDULES.items():
        click.echo(
            textwrap.fill(
                entry.title,
                WIDTH,
                initial_indent=f"{name:<{wide}}  ",
                subsequent_indent=" " * (wide + 2),
            )
        )
    click.echo(
        "\nCheck one: pipeproof check 1f1b --stages 4 --microbatches 8\n"
        "More about one: pipeproof schedules 1f1b"
    )


def _claims(definition: Definition) -> list[str]:
    from pipeproof.judge.claims import claim_text

    return [claim_text(claim) for claim in definition.claims]


def _entry(name: str) -> dict[str, Any]:
    definition = find(name)
    return {
        "name": name,
        "title": definition.title,
        "paper": definition.paper,
        "sizes": {n: "its formula" if callable(d) else d for n, d in definition.defaults.items()},
        "placement": definition.placement.name,
        "recipe": definition.recipe,
        "transport": definition.transport,
        "claims": _claims(definition),
    }


def _describe(name: str) -> None:
    definition = find(name)
    needed = [n for n, d in definition.defaults.items() if d is None]
    others = [
        f"{n} ({'its own' if callable(d) else d})"
        for n, d in definition.defaults.items()
        if d is not None and n in definition.parameters
    ]
    click.echo(f"{name}: {definition.title}")
    rows = [
        ("paper", definition.paper or "none"),
        ("sizes", ", ".join(needed) + (f"; by default {', '.join(others)}" if others else "")),
        ("placement", definition.placement.name),
        ("recipe", f"{definition.recipe}, over {definition.transport}"),
        ("loops", _loops(definition)),
    ]
    for label, text in rows:
        click.echo(
            textwrap.fill(text, WIDTH, initial_indent=f"  {label:<10}", subsequent_indent=" " * 12)
        )
    click.echo("  claims")
    for claim in _claims(definition):
        click.echo(textwrap.fill(claim, WIDTH, initial_indent="    ", subsequent_indent=" " * 6))
    click.echo(f"\nIts definition: pipeproof schedules {name} --source")


def _loops(definition: Definition) -> str:
    from pipeproof.spec.sizes import NotLoops
    from pipeproof.spec.tracing import traced

    try:
        traced(definition)
    except NotLoops as why:
        return f"none that hold for every size: {why}"
    return "linear in its sizes and the rank"
