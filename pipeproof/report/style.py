"""How a text report looks: width, colour, and the marks it draws with.

Colour only repeats what a word already says. Names come from files and paths
and may hold anything: what a terminal would act on, or cannot show, is written
as an escape before it is measured.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from pipeproof.verdict import Status

WIDTH = 80

_COLOURS = {Status.HOLDS: "32", Status.UNDETERMINED: "33", Status.VIOLATED: "31"}


def escaped(text: str, *, unicode: bool = True) -> str:
    """Text with control characters, lone surrogates and the like as ``\\n`` or ``\\u202e``."""
    if text.isprintable() and (unicode or text.isascii()):
        return text
    return "".join(
        c if c.isprintable() and (unicode or c.isascii()) else ascii(c)[1:-1] for c in text
    )


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

    def clean(self, text: str) -> str:
        """Text that can be printed as it is, and takes the columns it seems to."""
        return escaped(text, unicode=self.unicode)

    def wrap(
        self, text: str, first: str = "", rest: str | None = None, width: int = WIDTH
    ) -> list[str]:
        """Clean lines of at most ``width`` columns, the first indented by ``first``."""
        return textwrap.wrap(
            self.clean(text),
            width,
            initial_indent=first,
            subsequent_indent=" " * len(first) if rest is None else rest,
            break_long_words=True,
            break_on_hyphens=False,
        ) or [first.rstrip()]

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


def cut(text: str, width: int) -> str:
    """Text with dots for what is over ``width`` columns."""
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def beside(left: list[str], right: list[str], gap: str) -> list[str]:
    """Two blocks of plain lines side by side."""
    wide = max((len(line) for line in left), default=0)
    rows = max(len(left), len(right))
    left = left + [""] * (rows - len(left))
    right = right + [""] * (rows - len(right))
    return [f"{a:<{wide}}{gap}{b}".rstrip() for a, b in zip(left, right, strict=True)]


def amount(value: float) -> str:
    """A number as short as it can be said, to nine digits where it is no whole one."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
