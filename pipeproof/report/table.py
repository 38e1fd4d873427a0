"""Tables of plain text: the first column to the left, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

from pipeproof.report.style import WIDTH, cut

_GAP = "  "


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of at most 80 columns. Columns that do not fit beside each other stand in
    a second table below, with the first column again."""
    wide = [
        max(len(head), *(len(row[i]) for row in rows)) if rows else len(head)
        for i, head in enumerate(heads)
    ]
    wide[0] = min(wide[0], WIDTH - len(_GAP) - max(wide[1:], default=0))
    lines: list[str] = []
    next_column = 1
    while next_column < len(heads) or not lines:
        room, columns = WIDTH - wide[0], [0]
        while next_column < len(heads) and (
            wide[next_column] + len(_GAP) <= room or len(columns) == 1
        ):
            room -= wide[next_column] + len(_GAP)
            columns.append(next_column)
            next_column += 1
        lines += [""] if lines else []
        lines += [_line(row, columns, wide) for row in (heads, *rows)]
    return lines


def _line(row: Sequence[str], columns: Sequence[int], wide: Sequence[int]) -> str:
    first = f"{cut(row[0], wide[0]):<{wide[0]}}"
    return _GAP.join([first, *(f"{row[i]:>{wide[i]}}" for i in columns[1:])]).rstrip()
