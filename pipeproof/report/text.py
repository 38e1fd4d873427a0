"""The text report: for each target the verdict, what each check says, and the
story of every finding with the grid beside it.

Every line fits 80 columns, except where a path alone is longer: it is never
broken, so that it can be clicked or copied."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from pipeproof.program.notation import Place
from pipeproof.report.grid import grid, legend
from pipeproof.report.holding import holding
from pipeproof.report.ratios import in_words
from pipeproof.report.style import WIDTH, Style, amount, beside, cut
from pipeproof.verdict import CheckResult, Finding, Report, Status, Verdict

_WORDS = {Status.HOLDS: "holds", Status.VIOLATED: "VIOLATED", Status.UNDETERMINED: "undetermined"}

PLACES = 4
"""Places that a finding lists; of more, the number is said."""

# Where the first statement of a message ends.
_CLAUSE = re.compile(r"[:;] ")


def render(
    reports: Sequence[Report], style: Style, *, quiet: bool = False, explained: bool = False
) -> str:
    """All targets that were read, one after the other; ``explained``: with what holds
    each of them back."""
    read = [r for r in reports if r.error is None]
    if quiet:
        lines = [_quiet(r, style) for r in read]
    else:
        lines = [line for r in read for line in [*_target(r, style, explained), ""]]
        if len(reports) > 1:
            lines.append(_tally(reports, style))
    return "".join(line + "\n" for line in lines)


def _tally(reports: Sequence[Report], style: Style) -> str:
    parts = []
    for status in Status:
        count = sum(r.status is status and r.error is None for r in reports)
        if count:
            parts.append(style.paint(f"{count} {_WORDS[status].lower()}", status))
    failed = sum(r.error is not None for r in reports)
    if failed:
        parts.append(style.paint(f"{failed} not judged", Status.UNDETERMINED))
    return f"{len(reports)} targets: {', '.join(parts)}"


def _quiet(report: Report, style: Style) -> str:
    """One line a target: its verdict, or the word of each of its findings."""
    words = ", ".join(dict.fromkeys(f.verdict.value for f in report.findings))
    word = words or _WORDS[report.status]
    return f"{style.clean(_heading(report))}: {style.paint(word, report.status)}"


def _heading(report: Report) -> str:
    """The file, and its part where it holds several targets (``NAME [PART]``)."""
    part = report.name.removeprefix(re.split(r"[/\\]", report.file)[-1])
    return f"{report.file}{part}" if part.startswith(" [") else report.file


def _target(report: Report, style: Style, explained: bool) -> list[str]:
    lines = [style.strong(style.clean(_heading(report)))]
    lines += style.wrap(_sizes(report), "  ")
    lines.append("")
    for result in report.checks:
        lines += status_lines(result, style)
    if not report.checks:
        lines.append("  nothing to check: none of the checks asked for applies")
    for finding in report.findings:
        lines += ["", *_finding(report, finding, style)]
    table = _transports(report, style)
    if table:
        lines += ["", *table]
    measures = _measures(report, style)
    if measures:
        lines += ["", *measures]
        held = holding(report, style) if explained else []
        lines += ["", *held] if held else []
    for note in report.notes:
        lines += style.wrap(note, "note: ")
    return lines


def _sizes(report: Report) -> str:
    transport = report.transport
    recipe = f" ({transport['recipe']} recipe)" if transport.get("recipe") else ""
    words = ("rank", "stage", "microbatch", "op")
    sizes = ", ".join(_counted(report.sizes[_plural(word)], word) for word in words)
    return f"{_WORDS[report.status]} on {transport['name']}{recipe}: {sizes}"


def _counted(number: int, word: str) -> str:
    return f"{number} {word if number == 1 else _plural(word)}"


def _plural(word: str) -> str:
    return f"{word}es" if word.endswith("ch") else f"{word}s"


def status_lines(result: CheckResult, style: Style) -> list[str]:
    """A check's name, its answer, and what that rests on."""
    word = _WORDS[result.status]
    head = f"  {result.check:<10} {word:<12} "
    lines = style.wrap(result.summary, head)
    if result.findings:
        lines = [head + _gist(result.findings, style, WIDTH - len(head))]
    lines[0] = lines[0].replace(word, style.paint(word, result.status), 1)
    for claim in result.evidence.get("claims", ()):
        mark = "" if claim["status"] == Status.HOLDS.word else f"{claim['status'].upper()}: "
        lines += style.wrap(f"{mark}{claim['claim']}", " " * (len(head) + 2))
    return lines


def _gist(findings: Sequence[Finding], style: Style, room: int) -> str:
    """What the first finding's message begins with; the rest is told below."""
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    clause = style.clean(_CLAUSE.split(findings[0].message, maxsplit=1)[0])
    room -= len(more)
    if len(clause) > room and " " in clause[: room - 4]:
        clause = textwrap.shorten(clause, room, placeholder=" ...")
    return cut(clause, room) + more


def _finding(report: Report, finding: Finding, style: Style) -> list[str]:
    names = dict.fromkeys((finding.check, finding.verdict.value))
    title = f"{style.rule * 2} {': '.join(names)} ".ljust(WIDTH, style.rule)
    lines = [style.paint(title, Status.VIOLATED)]
    lines += style.wrap(finding.message[:1].upper() + finding.message[1:] + ".")
    if finding.count > 1 and not finding.message.startswith(f"{finding.count} "):
        lines.append(f"({finding.count} of this kind; this is the first.)")
    picture = _picture(finding, style)
    lines += ["", *picture, ""] if picture else [""]
    if finding.cause:
        lines += style.wrap(finding.cause, "why   ")
    for number, cure in enumerate(finding.cures):
        lines += style.wrap(cure, "cure  " if number == 0 else "      ")
    lines += _places(report.file, finding.where[:PLACES], style)
    if len(finding.where) > PLACES:
        lines.append(f"      and {len(finding.where) - PLACES} more")
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
        story += style.wrap(text, f"{number}. ", width=room if fits else WIDTH)
    if finding.counterexample.cyclic:
        story += style.wrap("... which waits for 1.", "   ", width=room if fits else WIDTH)
    if not plain:
        return story
    if not story:
        return [*plain, "", marks] if marks else plain
    lines = beside(plain, story, "     ") if fits else [*plain, "", *story]
    return [*lines, "", marks] if marks else lines


def _places(file: str, places: Sequence[Place], style: Style) -> list[str]:
    """Each op, and where the file says so: beside it, or unbroken under it."""
    ops = [f"{style.clean(p.op)} (rank {p.rank}, op {p.index})" for p in places]
    locations = [_location(file, p, style) for p in places]
    fits = all(6 + len(f"{o}  {at}") <= WIDTH for o, at in zip(ops, locations, strict=True))
    lines: list[str] = []
    for op, at in zip(ops, locations, strict=True):
        first = "      " if lines else "at    "
        if fits:
            lines.append(f"{first}{op}  {at}")
        else:
            lines += [*style.wrap(op, first), f"      {at}"]
    return lines


def _location(file: str, place: Place, style: Style) -> str:
    """``file:row:cell``, or ``file: path``."""
    numbers = [n for n in (place.line, place.column) if n is not None]
    cell = "".join(f":{n}" for n in numbers)
    path = f": {style.clean(place.path)}" if place.path is not None else ""
    return f"{style.clean(file)}{cell}{path}"


def _transports(report: Report, style: Style) -> list[str]:
    if not report.transports:
        return []
    wide = max(14, *(len(style.clean(row.name)) for row in report.transports))
    lines = ["runs to its end on"]
    for row in report.transports:
        if row.status is Status.HOLDS:
            text = "yes"
        elif row.status is Status.UNDETERMINED:
            text = "undetermined: lanes of a rank take turns in no fixed order"
        elif row.capacity is None:
            text = "no, with any number of buffer slots"
        elif row.capacity == -1:
            text = "no"
        else:
            text = f"no; with {_counted(row.capacity, 'buffer slot')}, yes"
        lines.append(f"  {style.clean(row.name):<{wide}} {style.paint(text, row.status)}")
    return lines


def _measures(report: Report, style: Style) -> list[str]:
    metrics = report.metrics
    makespan = metrics.get("makespan")
    stuck = any(f.verdict is Verdict.DEADLOCK for f in report.findings)
    runs = any(row.status is Status.HOLDS for row in report.transports)
    if makespan is None or (stuck and not runs):
        return []  # what never ends takes no time
    bubble = metrics["bubble"]
    text = f"{'where it runs: ' if stuck else ''}makespan {amount(makespan)}"
    if metrics.get("timing") == "recipe":
        text += " with its communication"
    if bubble:
        text += (
            f"; bubble {bubble['idle_over_elapsed']:.1%} of elapsed time, "
            f"{bubble['overhead_over_ideal']:.1%} over the ideal"
        )
    if metrics.get("peak_bytes"):
        text += f"; peak {amount(max(metrics['peak_bytes'].values()))} bytes"
    return [*style.wrap(text), *(line for said in in_words(report) for line in style.wrap(said))]
