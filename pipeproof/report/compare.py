"""Targets side by side: one row each, as text, Markdown, CSV or JSON.

The best of each column is marked, among the targets that hold nothing against
them: what is violated has no time worth comparing.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from pipeproof.program.costs import exact, plain
from pipeproof.report.outcome import exit_status, verdict_word
from pipeproof.report.ratios import in_words
from pipeproof.report.style import Style, amount
from pipeproof.report.table import table
from pipeproof.verdict import Report, Status

Value = int | float | None


class Column(NamedTuple):
    """``key`` names it in CSV, JSON and ``--sort``; ``head`` in tables. Smaller is better."""

    key: str
    head: str
    of: Callable[[Mapping[str, Any]], Value]
    ratio: bool = False


def _bubble(name: str) -> Callable[[Mapping[str, Any]], Value]:
    return lambda metrics: (metrics.get("bubble") or {}).get(name)


def _most(name: str) -> Callable[[Mapping[str, Any]], Value]:
    return lambda metrics: max((metrics.get(name) or {}).values(), default=None)


def _plain(name: str) -> Callable[[Mapping[str, Any]], Value]:
    return lambda metrics: metrics.get(name)


COLUMNS = (
    Column("makespan", "makespan", _plain("makespan")),
    Column("overhead_over_ideal", "over ideal", _bubble("overhead_over_ideal"), ratio=True),
    Column("idle_over_elapsed", "of elapsed", _bubble("idle_over_elapsed"), ratio=True),
    Column("idle_over_span", "of span", _bubble("idle_over_span"), ratio=True),
    Column("peak_activations", "peak act.", _most("peak_activations")),
    Column("peak_bytes", "peak bytes", _most("peak_bytes")),
    Column("messages", "messages", _plain("messages")),
    Column("message_bytes", "msg bytes", _plain("message_bytes")),
    Column("smallest_safe_capacity", "slots", _plain("smallest_safe_capacity")),
)
MARK = "*"
PER_RANK = "costs and activations of all that a rank hosts"
"""Said in the terms of a comparison whose costs are split over a rank's stages."""

_VERDICTS = ("holds", "undetermined", "violated", "error")


@dataclass(frozen=True, slots=True)
class Row:
    """A target: ``verdict`` is its status, or ``error``; ``best`` names the columns in which
    no other target is better, where there is a difference."""

    name: str
    report: Report
    verdict: str
    values: Mapping[str, Value]
    best: frozenset[str] = frozenset()


def rows_of(
    reports: Sequence[Report], sort: str | None = None, *, per_rank: bool = False
) -> list[Row]:
    """A row a target, as given or sorted by a key (what has no value comes last).

    With ``per_rank`` a live activation is that of all stages of a rank, as their costs
    are: one of a stage is a v-th of it.
    """
    rows = [
        Row(
            name=_name(report, reports),
            report=report,
            verdict="error" if report.error is not None else report.status.word,
            values=_values(report, per_rank),
        )
        for report in reports
    ]
    best = {column.key: _best(rows, column.key) for column in COLUMNS}
    rows = [replace(row, best=frozenset(_marks(row, best))) for row in rows]
    if sort == "name":
        return sorted(rows, key=lambda row: row.name)
    if sort == "verdict":
        return sorted(rows, key=lambda row: _VERDICTS.index(row.verdict))
    if sort is not None:
        return sorted(rows, key=lambda row: _place(row.values[sort]))
    return rows


def _values(report: Report, per_rank: bool) -> dict[str, Value]:
    values = {column.key: column.of(report.metrics) for column in COLUMNS}
    peak = values["peak_activations"]
    if per_rank and peak is not None:
        values["peak_activations"] = plain(exact(peak) / _chunks(report))
    return values


def _chunks(report: Report) -> Fraction:
    """Stages a rank; 1 where there are none."""
    sizes = report.sizes
    if not sizes or not sizes["stages"] or not sizes["ranks"]:
        return Fraction(1)
    return Fraction(sizes["stages"], sizes["ranks"])


def _place(value: Value) -> tuple[bool, float]:
    return value is None, value or 0


def _candidate(row: Row) -> bool:
    return row.report.error is None and row.report.status is not Status.VIOLATED


def _best(rows: Sequence[Row], key: str) -> Value:
    """The smallest value of a column, None where all are the same."""
    values = [row.values[key] for row in rows if _candidate(row)]
    known = [value for value in values if value is not None]
    return min(known) if len(set(values)) > 1 and known else None


def _marks(row: Row, best: Mapping[str, Value]) -> list[str]:
    if not _candidate(row):
        return []
    return [k for k, v in best.items() if v is not None and row.values[k] == v]


def _name(report: Report, reports: Sequence[Report]) -> str:
    """The base name, and its part where a file holds several; the whole path where two
    files have one name."""
    base = report.file.replace("\\", "/").rsplit("/", 1)[-1]
    same = {other.file for other in reports if other.name == report.name}
    if len(same) > 1:
        return report.file + report.name.removeprefix(base)
    return report.name or base


# --- the forms -----------------------------------------------------------------


def render(
    reports: Sequence[Report], form: str, style: Style, *, sort: str | None, terms: str
) -> str:
    """The comparison as ``text``, ``markdown``, ``csv`` or ``json``; ``terms`` says in words
    what all targets were judged under."""
    rows = rows_of(reports, sort, per_rank=PER_RANK in terms)
    if form == "json":
        return json.dumps(_document(reports, rows, terms), indent=1) + "\n"
    if form == "csv":
        return _csv(rows)
    notes = _notes(rows)
    if PER_RANK not in terms and len({_chunks(row.report) for row in rows}) > 1:
        notes.append(
            "Stages a rank differ, and an op of each stage costs the same here: --per-rank "
            "gives all targets the same work."
        )
    lines = (
        _markdown(rows, terms, notes) if form == "markdown" else _text(rows, style, terms, notes)
    )
    return "".join(line + "\n" for line in lines)


def _document(reports: Sequence[Report], rows: Sequence[Row], terms: str) -> dict[str, Any]:
    return {
        "schema": 1,
        "verdict": verdict_word(reports),
        "exit_status": exit_status(reports),
        "terms": terms,
        "targets": [
            {
                "file": row.report.file,
                "name": row.report.name,
                "verdict": row.verdict,
                "transport": row.report.transport.get("name"),
                "findings": sorted({f.verdict.value for f in row.report.findings}),
                **row.values,
                "best": [column.key for column in COLUMNS if column.key in row.best],
                "in_words": in_words(row.report),
            }
            for row in rows
        ],
    }


def _csv(rows: Sequence[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["file", "name", "verdict", *(column.key for column in COLUMNS)])
    for row in rows:
        values = ("" if v is None else v for v in row.values.values())
        writer.writerow([row.report.file, row.report.name, row.verdict, *values])
    return out.getvalue()


def _shown(rows: Sequence[Row]) -> list[Column]:
    """The columns in which some target has a value."""
    return [c for c in COLUMNS if any(row.values[c.key] is not None for row in rows)]


def _cell(row: Row, column: Column) -> str:
    value = row.values[column.key]
    if value is None:
        return "-"
    text = f"{value:.1%}" if column.ratio else amount(value)
    return f"{text}{MARK}" if column.key in row.best else text


def _verdict(row: Row) -> str:
    """The verdict; for what is violated, by what."""
    words = sorted({f.verdict.value for f in row.report.findings})
    if row.verdict != "violated":
        return row.verdict
    return "VIOLATED" + (f": {words[0]}" if len(words) == 1 else "")


def _notes(rows: Sequence[Row]) -> list[str]:
    """What is said under a table: the textbook's ratios, what is violated, the mark."""
    told = ((row.name, "; ".join(in_words(row.report))) for row in rows)
    notes = [f"{name}: {said}" for name, said in told if said]
    for row in rows:
        words = sorted({f.verdict.value for f in row.report.findings})
        if len(words) > 1:
            notes.append(f"{row.name}: violated: {', '.join(words)}")
        if row.verdict == "violated":
            notes.append(f"{row.name}: times are those of its compute order, if it ran")
        if row.report.error is not None:
            notes.append(f"{row.name}: not judged: {row.report.error['message']}")
    if any(row.best for row in rows):
        notes.append(f"{MARK} best of its column among what is not violated")
    return notes


def _text(rows: Sequence[Row], style: Style, terms: str, notes: list[str]) -> list[str]:
    columns = _shown(rows)
    heads = ["", "verdict", *(column.head for column in columns)]
    # The marks stand in a column of their own, so that the figures stay in line.
    cells = [
        [style.clean(row.name), _verdict(row), *(_padded(_cell(row, c)) for c in columns)]
        for row in rows
    ]
    lines = [*style.wrap(terms), "", *table(heads, cells), ""]
    for note in notes:
        lines += style.wrap(note, rest="  ")
    return lines


def _padded(cell: str) -> str:
    return cell if cell.endswith(MARK) else f"{cell} "


def _markdown(rows: Sequence[Row], terms: str, notes: list[str]) -> list[str]:
    columns = _shown(rows)
    lines = [
        terms,
        "",
        "| | verdict | " + " | ".join(column.head for column in columns) + " |",
        "|---|---|" + "---:|" * len(columns),
    ]
    for row in rows:
        cells = []
        for column in columns:
            text = _cell(row, column)
            cells.append(f"**{text[:-1]}**" if text.endswith(MARK) else text)
        name = row.name.replace("|", "\\|")
        lines.append(f"| {name} | {_verdict(row)} | {' | '.join(cells)} |")
    notes = [n for n in notes if not n.startswith(MARK)]
    if any(row.best for row in rows):
        notes.append("Bold: best of its column among what is not violated.")
    return [*lines, "", *(f"- {note}" for note in notes)] if notes else lines
