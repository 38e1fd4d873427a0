"""The grid: the ops around a finding, a column a rank, with the stuck ones marked."""

from __future__ import annotations

from pipeproof.report.style import Style
from pipeproof.verdict import Excerpt

CELL = 20
"""Widest a column gets; longer ops are cut."""


def grid(excerpts: tuple[Excerpt, ...], style: Style) -> list[str]:
    """Plain lines, the same number a column, a heading on top."""
    columns = [_column(e, style) for e in excerpts]
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


def _column(excerpt: Excerpt, style: Style) -> list[str]:
    symbols = {
        "stuck": style.pointer,
        "here": style.pointer,
        "in flight": "~",
        "done": _done(style),
        "": " ",
    }
    lane = "" if excerpt.lane == "main" else f" {excerpt.lane}"
    lines = [f"rank {excerpt.rank}{lane}"]
    if excerpt.before:
        lines.append(f"  ({excerpt.before} before)")
    for op, mark in zip(excerpt.ops, excerpt.marks, strict=True):
        text = op if len(op) <= CELL else op[: CELL - 3] + "..."
        lines.append(f"{symbols[mark]} {text}")
    if excerpt.after:
        lines.append(f"  ({excerpt.after} more)")
    return lines
