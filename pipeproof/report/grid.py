"""The grid: the ops around a finding, a column a rank, with the stuck ones marked."""

from __future__ import annotations

from pipeproof.report.style import WIDTH, Style, cut
from pipeproof.verdict import Excerpt

CELL, MEMBERS = 20, 3
"""Widest a line of an op gets, and most lines of a group; what is more is cut."""


def grid(excerpts: tuple[Excerpt, ...], style: Style) -> list[str]:
    """Plain lines of at most 80 columns, the same number a lane, a heading on top."""
    if not excerpts:
        return []
    gaps = 3 * (len(excerpts) - 1)
    columns = [_column(e, style, CELL) for e in excerpts]
    longest = max(len(line) for c in columns for line in c)
    while gaps + sum(max(len(line) for line in c) for c in columns) > WIDTH:
        longest -= 1  # the widest lanes give way, so that short ops stay whole
        columns = [_column(e, style, longest - 2) for e in excerpts]
    rows = max((len(c) for c in columns), default=0)
    wide = [max(len(line) for line in c) for c in columns]
    lines = []
    for i in range(rows):
        cells = [f"{c[i] if i < len(c) else '':<{w}}" for c, w in zip(columns, wide, strict=True)]
        lines.append(f" {style.bar} ".join(cells).rstrip())
    return lines


def legend(excerpts: tuple[Excerpt, ...], style: Style) -> str:
    """What the marks mean, for those that occur."""
    used = {m for e in excerpts for m in e.marks}
    parts = []
    if "stuck" in used:
        parts.append(f"{style.pointer} stuck")
    if "here" in used:
        parts.append(f"{style.pointer} here")
    if "in flight" in used:
        parts.append("~ posted, not done")
    if "done" in used:
        parts.append(f"{_done(style)} done")
    return "   ".join(parts)


def _done(style: Style) -> str:
    return "·" if style.unicode else "."


def _column(excerpt: Excerpt, style: Style, room: int) -> list[str]:
    symbols = {
        "stuck": style.pointer,
        "here": style.pointer,
        "in flight": "~",
        "done": _done(style),
        "": " ",
    }
    lane = "" if excerpt.lane == "main" else f" {excerpt.lane}"
    lines = [style.clean(f"rank {excerpt.rank}{lane}")]
    if excerpt.before:
        lines.append(f"  ({excerpt.before} before)")
    for op, mark in zip(excerpt.ops, excerpt.marks, strict=True):
        first, *rest = _op_lines(style.clean(op), room)
        lines += [f"{symbols[mark]} {first}", *(f"   {line}" for line in rest)]
    if excerpt.after:
        lines.append(f"  ({excerpt.after} more)")
    return [cut(line, room + 2) for line in lines]


def _op_lines(op: str, room: int) -> list[str]:
    """An op in lines of at most ``room`` columns; a group is broken between members."""
    if len(op) <= room or ";" not in op:
        return [cut(op, room)]
    members = [f"{member};" for member in op.split(";")]
    members[-1] = members[-1][:-1]
    if len(members) > MEMBERS:
        members[MEMBERS - 1 :] = [f"{len(members) - MEMBERS + 1} more)"]
    return [cut(members[0], room), *(cut(member, room - 1) for member in members[1:])]
