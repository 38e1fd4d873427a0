"""The text report: for each target the verdict, what each check says, and the
story of every finding with the grid beside it. Fits 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from pipeproof.program.notation import Place
from pipeproof.report.grid import grid, legend
from pipeproof.report.style import WIDTH, Style, beside, wrap
from pipeproof.verdict import CheckResult, Finding, Report, Status

_WORDS = {Status.HOLDS: "holds", Status.VIOLATED: "VIOLATED", Status.UNDETERMINED: "undetermined"}


def render(reports: Sequence[Report], style: Style, *, quiet: bool = False) -> str:
    """All targets that were read, one after the other."""
    read = [r for r in reports if r.error is None]
    if quiet:
        lines = [line for r in read for line in _quiet(r, style)]
    else:
        lines = [line for r in read for line in [*_target(r, style), ""]]
        if len(read) > 1:
            lines.append(_tally(read, style))
    return "".join(line + "\n" for line in lines)


def _tally(reports: Sequence[Report], style: Style) -> str:
    parts = []
    for status in Status:
        count = sum(r.status is status for r in reports)
        if count:
            parts.append(style.paint(f"{count} {_WORDS[status].lower()}", status))
    return f"{len(reports)} targets: {', '.join(parts)}"


def _quiet(report: Report, style: Style) -> list[str]:
    """One line a target; a line more for each finding."""
    if report.status is Status.HOLDS:
        return [f"{report.file}: {style.paint('holds', Status.HOLDS)}"]
    words = ", ".join(dict.fromkeys(f.verdict.value for f in report.findings))
    word = words or _WORDS[Status.UNDETERMINED]
    return [f"{report.file}: {style.paint(word, report.status)}"]


def _target(report: Report, style: Style) -> list[str]:
    lines = [style.strong(report.file)]
    lines += wrap(_sizes(report), "  ")
    lines.append("")
    for result in report.checks:
        lines += _check_lines(result, style)
    for finding in report.findings:
        lines += ["", *_finding(report, finding, style)]
    table = _transports(report, style)
    if table:
        lines += ["", *table]
    measures = _measures(report)
    if measures:
        lines += ["", *measures]
    for note in report.notes:
        lines += wrap(note, "note: ")
    return lines


def _sizes(report: Report) -> str:
    sizes, transport = report.sizes, report.transport
    recipe = f" ({transport['recipe']} recipe)" if transport.get("recipe") else ""
    return (
        f"{_WORDS[report.status]} on {transport['name']}{recipe}: {sizes['ranks']} ranks, "
        f"{sizes['stages']} stages, {sizes['microbatches']} microbatches, {sizes['ops']} ops"
    )


def _check_lines(result: CheckResult, style: Style) -> list[str]:
    word = _WORDS[result.status]
    head = f"  {result.check:<10} {word:<12} "
    lines = wrap(result.summary, head)
    lines[0] = lines[0].replace(word, style.paint(word, result.status), 1)
    return lines


def _finding(report: Report, finding: Finding, style: Style) -> list[str]:
    title = f" {finding.check}: {finding.verdict.value} "
    lines = [style.paint(f"{style.rule * 2}{title}".ljust(WIDTH, style.rule), Status.VIOLATED)]
    lines += wrap(finding.message[:1].upper() + finding.message[1:] + ".")
    if finding.count > 1 and str(finding.count) not in finding.message:
        lines += [f"({finding.count} of this kind; this is the first.)"]
    lines += ["", *_picture(finding, style), ""]
    if finding.cause:
        lines += wrap(finding.cause, "why   ")
    for number, cure in enumerate(finding.cures):
        lines += wrap(cure, "cure  " if number == 0 else "      ")
    for number, place in enumerate(finding.where[:4]):
        lines += wrap(_located(report.file, place), "at    " if number == 0 else "      ")
    if finding.replayed:
        lines.append("      confirmed by a step-by-step run of the program")
    return lines


def _picture(finding: Finding, style: Style) -> list[str]:
    """The grid with the story beside it, or under it where there is no room."""
    plain = grid(finding.excerpts, style)
    marks = legend(finding.excerpts, style)
    story: list[str] = []
    wide = max((len(line) for line in plain), default=0)
    room = WIDTH - wide - 5
    fits = room >= 34
    for number, step in enumerate(finding.counterexample.steps, 1):
        text = step.text[:1].upper() + step.text[1:]
        story += wrap(text, f"{number}. ", width=room if fits else WIDTH)
    if finding.counterexample.cyclic:
        story += wrap("... which waits for 1.", "   ", width=room if fits else WIDTH)
    if not plain:
        return story
    if not story:
        return [*plain, "", marks] if marks else plain
    lines = beside(plain, story, "     ") if fits else [*plain, "", *story]
    return [*lines, "", marks] if marks else lines


def _located(file: str, place: Place) -> str:
    where = file
    if place.line is not None:
        where += f":{place.line}:{place.column}"
    if place.path is not None:
        where += f" {place.path}"
    return f"{where}  {place.op} (rank {place.rank}, op {place.index})"


def _transports(report: Report, style: Style) -> list[str]:
    if not report.transports:
        return []
    lines = ["runs to its end on"]
    for row in report.transports:
        if row.status is Status.HOLDS:
            text = "yes"
        elif row.capacity is None:
            text = "no, with any number of buffer slots"
        elif row.capacity == -1:
            text = "no"
        else:
            text = f"no; with {row.capacity} buffer slot{'s' if row.capacity > 1 else ''}, yes"
        mark = style.paint(text, row.status)
        lines.append(f"  {row.name:<14} {mark}")
    return lines


def _measures(report: Report) -> list[str]:
    metrics = report.metrics
    makespan = metrics.get("makespan")
    if makespan is None:
        return []
    bubble = metrics["bubble"]
    text = f"makespan {_number(makespan)}"
    if bubble:
        text += (
            f"; bubble {bubble['idle_over_elapsed']:.1%} of elapsed time, "
            f"{bubble['overhead_over_ideal']:.1%} over the ideal"
        )
    if metrics.get("peak_bytes"):
        text += f"; peak {_number(max(metrics['peak_bytes'].values()))} bytes"
    return wrap(text)


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
