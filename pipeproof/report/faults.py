"""The kill table: as text of 80 columns, and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pipeproof.faults.harmless import ALLOWED, HARMLESS
from pipeproof.faults.table import KILLED, SURVIVES, UNDETERMINED, KillTable, Mutant, Row
from pipeproof.report.outcome import HOLDS, NOTHING, VIOLATED
from pipeproof.report.outcome import UNDETERMINED as DOUBTFUL
from pipeproof.report.style import Style
from pipeproof.verdict import Status

_HEAD = f"{'fault':<28}{'seeded':>6}{'killed':>7}{'spared':>7}{'open':>5}  caught by"
_INDENT = " " * (len(_HEAD) - len("caught by"))
_STATUS = {
    KILLED: Status.HOLDS,
    HARMLESS: Status.HOLDS,
    ALLOWED: Status.HOLDS,
    UNDETERMINED: Status.UNDETERMINED,
    SURVIVES: Status.VIOLATED,
}
"""A killed mutant is good news: it is painted like a verdict of the checks."""


def exit_status(tables: Sequence[KillTable]) -> int:
    """0 where all is killed or spared, 1 where a mutant survives or a target is
    violated itself, 3 where a mutant or a target is undetermined, 5 for no mutant."""
    if any(t.status is Status.VIOLATED or t.mutants(SURVIVES) for t in tables):
        return VIOLATED
    if not any(row.mutants for table in tables for row in table.rows):
        return NOTHING
    return DOUBTFUL if any(t.mutants(UNDETERMINED) for t in tables) else HOLDS


# --- text ----------------------------------------------------------------------


def render(
    tables: Sequence[KillTable], style: Style, written: Mapping[int, str] | None = None
) -> str:
    """All tables, one after the other; ``written`` says in which file a mutant is (by
    the identity of its value)."""
    lines: list[str] = []
    for table in tables:
        lines += [*_table(table, style, written or {}), ""]
    return "".join(line + "\n" for line in lines)


def _table(table: KillTable, style: Style, written: Mapping[int, str]) -> list[str]:
    part = table.name.removeprefix(table.file.replace("\\", "/").rsplit("/", 1)[-1])
    heading = f"{table.file}{part}" if part.startswith(" [") else table.file
    lines = [style.strong(style.clean(heading))]
    if table.status is Status.VIOLATED:
        lines += style.wrap(
            "It is violated as it is, so no fault was seeded: what its mutants would show is "
            "not theirs.",
            "  ",
        )
        for objection in table.objections:
            lines += style.wrap(objection, "  - ")
        return [*lines, f"  See pipeproof check {style.clean(table.file)}"]
    if not table.rows:
        return [*lines, "  nothing to check, so no fault could be caught"]
    fates = Counter(mutant.fate for mutant in table.mutants(*_STATUS))
    told = [f"{fates[fate]} {word}" for fate, word in _WORDS.items() if fates[fate]]
    lines += style.wrap(f"{fates.total()} mutants: {', '.join(told) or 'none'}", "  ")
    lines += ["", _HEAD]
    for row in table.rows:
        if row.mutants:
            lines += _row(row, style)
    nowhere = [row.rule.name for row in table.rows if not row.mutants]
    if nowhere:
        lines += style.wrap(f"no place for: {', '.join(nowhere)}", "-  ")
    lines += ["", "* a check that must catch this fault: of several named, one"]
    astray = [m for m in table.mutants(KILLED) if not m.named]
    if astray:
        lines += ["", "Caught, but by no check that the rule names:"]
        for mutant in astray:
            lines += style.wrap(f"{mutant.words} ({', '.join(mutant.checks)})", "- ")
    return [*lines, *_left(table, style, written)]


_WORDS = {
    KILLED: "killed",
    HARMLESS: "harmless",
    ALLOWED: "allowed",
    UNDETERMINED: "undetermined",
    SURVIVES: "survive",
}


def _row(row: Row, style: Style) -> list[str]:
    fates, caught = row.fates(), row.caught_by()
    spared = fates[HARMLESS] + fates[ALLOWED]
    left = fates[SURVIVES] + fates[UNDETERMINED]
    numbers = (len(row.mutants), fates[KILLED], spared, left)
    cells = "".join(
        str(n or ".").rjust(width) for n, width in zip(numbers, (6, 7, 7, 5), strict=True)
    )
    named = sorted(caught.items(), key=lambda entry: (entry[0] not in row.rule.must, -entry[1]))
    by = ", ".join(f"{c}{'*' if c in row.rule.must else ''} {n}" for c, n in named)
    lines = style.wrap(by, f"{row.rule.name:<28}{cells}  ", _INDENT)
    if left:
        worst = Status.VIOLATED if fates[SURVIVES] else Status.UNDETERMINED
        lines[0] = style.paint(row.rule.name, worst) + lines[0][len(row.rule.name) :]
    return lines


def _left(table: KillTable, style: Style, written: Mapping[int, str]) -> list[str]:
    """The mutants that no check objects to, one by one, the worst first."""
    lines: list[str] = []
    titles = {
        SURVIVES: "Survivors: no check objects, and they are not shown harmless",
        UNDETERMINED: "Undetermined: a check cannot answer",
        ALLOWED: "Allowed: they change what the target states nothing of",
        HARMLESS: "Harmless: they change nothing, in any execution",
    }
    for fate, title in titles.items():
        mutants = table.mutants(fate)
        if mutants:
            lines += ["", style.paint(title, _STATUS[fate])]
            for mutant in mutants:
                lines += _told(mutant, style, written)
    return lines


def _told(mutant: Mutant, style: Style, written: Mapping[int, str]) -> list[str]:
    doubts = f" ({', '.join(mutant.checks)})" if mutant.checks else ""
    lines = style.wrap(f"{mutant.rule}: {mutant.words}{doubts}", "- ")
    lines += style.wrap(mutant.reason, "  ")
    if id(mutant) in written:
        lines.append(f"  {style.clean(written[id(mutant)])}")
    return lines


# --- JSON ----------------------------------------------------------------------


def render_json(tables: Sequence[KillTable], written: Mapping[int, str] | None = None) -> str:
    """One object: the rows of every table, and each mutant that was judged."""
    document = {
        "schema": 1,
        "exit_status": exit_status(tables),
        "targets": [_target(table, written or {}) for table in tables],
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def _target(table: KillTable, written: Mapping[int, str]) -> dict[str, Any]:
    return {
        "file": table.file,
        "name": table.name,
        "verdict": table.status.word,
        "objections": list(table.objections),
        "rules": [
            {
                "rule": row.rule.name,
                "must": list(row.rule.must),
                "places": row.places,
                "seeded": len(row.mutants),
                **{fate: row.fates()[fate] for fate in _STATUS},
                "caught_by": dict(row.caught_by()),
            }
            for row in table.rows
        ],
        "mutants": [
            {
                "rule": mutant.rule,
                "mutant": mutant.words,
                "fate": mutant.fate,
                "checks": list(mutant.checks),
                "named": mutant.named,
                "reason": mutant.reason,
                **({"written": written[id(mutant)]} if id(mutant) in written else {}),
            }
            for mutant in table.mutants(*_STATUS)
        ],
    }
