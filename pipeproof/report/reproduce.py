"""Published figures beside ours: as text of 80 columns, as Markdown, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from pipeproof.published.figures import Figure, Outcome, Value
from pipeproof.published.table import Reproduced
from pipeproof.report.outcome import HOLDS, VIOLATED
from pipeproof.report.style import WIDTH, Style, amount
from pipeproof.verdict import Status

_STATUS = {
    Outcome.AGREES: Status.HOLDS,
    Outcome.DISAGREES: Status.VIOLATED,
    Outcome.SEARCHED: Status.UNDETERMINED,
    Outcome.FINDING: Status.UNDETERMINED,
}
_GAP = "  "


def exit_status(claims: Sequence[Reproduced]) -> int:
    """0 where every figure agrees, 1 otherwise; searched orders and findings do not count."""
    return HOLDS if all(claim.agrees for claim in claims) else VIOLATED


def render(claims: Sequence[Reproduced], form: str, style: Style) -> str:
    """All claims as ``text``, ``markdown`` or ``json``."""
    if form == "json":
        return json.dumps(_document(claims), indent=1) + "\n"
    lines = _markdown(claims) if form == "markdown" else _text(claims, style)
    return "".join(line + "\n" for line in lines)


# --- words -----------------------------------------------------------------------


def summary(claims: Sequence[Reproduced]) -> list[str]:
    """How many figures there are of each outcome, in a few sentences."""
    figures = [figure for claim in claims for figure in claim.figures]
    count = Counter(figure.outcome for figure in figures)
    agree, differ = count[Outcome.AGREES], count[Outcome.DISAGREES]
    definite = agree + differ
    lines = [
        f"{agree} of {_counted(definite, 'figure')} in {_counted(len(claims), 'claim')} "
        f"{'agrees' if agree == definite == 1 else 'agree'}"
        + (f"; {differ} {'disagrees' if differ == 1 else 'disagree'}." if differ else ".")
    ]
    if count[Outcome.SEARCHED]:
        ranks = Counter(f.note.split()[-1] for f in figures if f.outcome is Outcome.SEARCHED)
        parts = [f"{ranks[word]} {word}" for word in ("equal", "better", "worse") if ranks[word]]
        lines.append(
            f"{_counted(count[Outcome.SEARCHED], 'figure')} of searched orders, where ours is "
            f"another order than the published one: {', '.join(parts)}."
        )
    if count[Outcome.FINDING]:
        lines.append(
            f"{_counted(count[Outcome.FINDING], 'finding')}: what follows from ours, and is "
            "not as it was published."
        )
    return lines


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _outcome(figure: Figure) -> str:
    if figure.outcome is Outcome.DISAGREES:
        return "DISAGREES"
    if figure.outcome is Outcome.SEARCHED:
        return f"searched: {figure.note}"
    return str(figure.outcome.value)


class _Cells(NamedTuple):
    """A row as text."""

    case: str
    what: str
    published: str
    ours: str
    outcome: str


def _cells(figures: Sequence[Figure]) -> list[_Cells]:
    found = []
    for f in figures:
        decimals = _decimals(figures, f.what)
        published, ours = _said(f.published, decimals), _said(f.ours, decimals)
        found.append(_Cells(f.case, f.what, published, ours, _outcome(f)))
    return found


def _decimals(figures: Sequence[Figure], what: str) -> int | None:
    """How many decimals the figures of one kind have at most, if all are decimal numbers."""
    values = [v for f in figures if f.what == what for v in (f.published, f.ours)]
    numbers = [v for v in values if isinstance(v, float)]
    if len(numbers) < len(values):
        return None
    return max(len(amount(number).partition(".")[2]) for number in numbers)


def _said(value: Value, decimals: int | None = None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(_said(one) for one in value)
    if isinstance(value, float):
        return amount(value) if decimals is None else f"{value:.{decimals}f}"
    return str(value)


def _notes(claim: Reproduced) -> Iterator[str]:
    """What is said under a claim's table, the outcome of searched orders set aside."""
    if claim.note:
        yield claim.note
    for figure in claim.figures:
        if figure.note and figure.outcome is not Outcome.SEARCHED:
            yield f"{figure.case}, {figure.what}: {figure.note}"


# --- text ------------------------------------------------------------------------


def _text(claims: Sequence[Reproduced], style: Style) -> list[str]:
    lines: list[str] = []
    for claim in claims:
        lines += [*_of_claim(claim, style), ""]
    lines.append(style.rule * WIDTH)
    for sentence in summary(claims):
        lines += style.wrap(sentence)
    return lines


def _of_claim(claim: Reproduced, style: Style) -> list[str]:
    lines = [style.strong(line) for line in style.wrap(claim.claim)]
    lines += style.wrap(claim.source, "  ")
    if claim.figures:
        lines += ["", *_rows(claim.figures, style)]
    notes = [line for note in _notes(claim) for line in style.wrap(note, "  ")]
    return [*lines, *([""] if notes else []), *notes]


def _rows(figures: Sequence[Figure], style: Style) -> list[str]:
    cells = _cells(figures)
    heads = ("", "", "published", "ours", "")
    wide = [max(len(head), *(len(row[i]) for row in cells)) for i, head in enumerate(heads)]
    lines = [_line(heads, wide)]
    before = ""
    for figure, row in zip(figures, cells, strict=True):
        plain = _line(row._replace(case="" if row.case == before else row.case, outcome=""), wide)
        before = row.case
        outcome = style.paint(row.outcome, _STATUS[figure.outcome])
        lines.append(f"{plain:<{_start(wide)}}{outcome}")
    return lines


def _start(wide: Sequence[int]) -> int:
    """The column at which the outcome stands."""
    return 2 + sum(w + len(_GAP) for w in wide[:4] if w)


def _line(row: Sequence[str], wide: Sequence[int]) -> str:
    """Case and what to the left, numbers to the right."""
    parts = [
        f"{cell:>{w}}" if i in (2, 3) else f"{cell:<{w}}"
        for i, (cell, w) in enumerate(zip(row, wide, strict=True))
        if w
    ]
    return f"  {_GAP.join(parts)}".rstrip()


# --- Markdown --------------------------------------------------------------------


def _markdown(claims: Sequence[Reproduced]) -> list[str]:
    made = "`pipeproof reproduce --format markdown` prints this page."
    lines = ["# Published figures, and ours", "", made, "", *summary(claims), ""]
    for claim in claims:
        lines += [f"## {_escaped(claim.claim)}", "", _escaped(claim.source), ""]
        named = any(figure.what for figure in claim.figures)
        lines += [
            f"| case |{' |' if named else ''} published | ours | |",
            f"|---|{'---|' if named else ''}---:|---:|---|",
        ]
        for case, what, published, ours, outcome in _cells(claim.figures):
            middle = [what] if named else []
            shown = f"**{outcome}**" if outcome == "DISAGREES" else outcome
            row = " | ".join(map(_escaped, (case, *middle, published, ours)))
            lines.append(f"| {row} | {shown} |")
        lines.append("")
        for note in _notes(claim):
            lines += [_escaped(note), ""]
    return lines[:-1]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


# --- JSON ------------------------------------------------------------------------


def _document(claims: Sequence[Reproduced]) -> dict[str, Any]:
    return {
        "schema": 1,
        "exit_status": exit_status(claims),
        "summary": " ".join(summary(claims)),
        "claims": [
            {
                "claim": claim.claim,
                "source": claim.source,
                "agrees": claim.agrees,
                "note": claim.note,
                "cases": [
                    {
                        "case": figure.case,
                        "figure": figure.what,
                        "published": _plain(figure.published),
                        "ours": _plain(figure.ours),
                        "outcome": figure.outcome.value,
                        "agrees": _agrees(figure),
                        "note": figure.note,
                    }
                    for figure in claim.figures
                ],
            }
            for claim in claims
        ],
    }


def _agrees(figure: Figure) -> bool | None:
    """Null where neither value is the only right one, or nothing was published."""
    if figure.outcome in (Outcome.SEARCHED, Outcome.FINDING):
        return None
    return figure.outcome is Outcome.AGREES


def _plain(value: Value) -> Any:
    """A value as JSON has it; a fraction as the data have it, ``"3/7"``."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Fraction) else value
