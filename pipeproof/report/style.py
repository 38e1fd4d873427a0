"""How a text report looks: width, colour, and the marks it draws with.

Colour only repeats what a word already says.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from pipeproof.verdict import Status

WIDTH = 80

_COLOURS = {Status.HOLDS: "32", Status.UNDETERMINED: "33", Status.VIOLATED: "31"}


@dataclass(frozen=True, slots=True)
class Style:
    """``colour``: escape sequences are welcome; ``unicode``: so are symbols."""

    colour: bool = False
    unicode: bool = True

    def paint(self, text: str, status: Status) -> str:
        """Text in the colour of a status."""
        return f"\x1b[{_COLOURS[status]}m{text}\x1b[0m" if self.colour else text

    def strong(self, text: str) -> str:
        """Text that stands out."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text

    @property
    def pointer(self) -> str:
        """Marks the op where a rank is stuck."""
        return "▶" if self.unicode else ">"

    @property
    def rule(self) -> str:
        """One character of a horizontal line."""
        return "─" if self.unicode else "-"

    @property
    def bar(self) -> str:
        """One character of a vertical line."""
        return "│" if self.unicode else "|"


def wrap(text: str, first: str = "", rest: str | None = None, width: int = WIDTH) -> list[str]:
    """Lines of at most ``width`` columns, the first indented by ``first``."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_long_words=True,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def beside(left: list[str], right: list[str], gap: str) -> list[str]:
    """Two blocks of plain lines side by side."""
    wide = max((len(line) for line in left), default=0)
    rows = max(len(left), len(right))
    left = left + [""] * (rows - len(left))
    right = right + [""] * (rows - len(right))
    return [f"{a:<{wide}}{gap}{b}".rstrip() for a, b in zip(left, right, strict=True)]
