"""The report of a proof for all sizes, as text."""

from __future__ import annotations

from collections.abc import Sequence

from pipeproof.report.style import Style
from pipeproof.report.text import status_lines
from pipeproof.verdict import Report, Status

_WORDS = {
    Status.HOLDS: "holds for every size",
    Status.UNDETERMINED: "undetermined",
    Status.VIOLATED: "VIOLATED",
}


def render(
    report: Report,
    loops: Sequence[str],
    numbers: Sequence[str],
    left: Sequence[str],
    style: Style,
) -> str:
    """What was proved of a definition, on which loops, with which ranking function."""
    transport = report.transport
    verdict = style.paint(_WORDS[report.status], report.status)
    scope = next((c.scope for c in report.checks), "")
    lines = [
        style.strong(style.clean(report.name)),
        f"  {verdict} on {transport['name']} ({transport['recipe']} recipe): {scope}",
        "",
    ]
    for result in report.checks:
        lines += status_lines(result, style)
    if loops:
        lines += ["", "loops of every rank"]
        for line in loops:
            lines += style.wrap(line, "  ")
    if numbers:
        lines += ["", "the number of the group before each op, which grows along every wait"]
        for line in numbers:
            lines += style.wrap(line, "  ")
    if left:
        lines += ["", "not part of the proof; check judges it size by size"]
        for line in left:
            lines += style.wrap(line, "  ")
    for note in report.notes:
        lines += ["", *style.wrap(note, "note: ")]
    return "\n".join(lines) + "\n"
