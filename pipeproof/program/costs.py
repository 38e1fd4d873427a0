"""Costs: how long each letter takes, and a message's latency."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeproof.program.ops import Kind


@dataclass(frozen=True, slots=True)
class Costs:
    """Time units a compute op takes, by letter, and the delay of a message.

    ``B`` is I and W together unless it is given.
    """

    F: float = 1
    I: float = 1
    W: float = 1
    B: float | None = None
    R: float | None = None  # as long as F unless given
    comm: float = 0

    def of(self, kind: Kind) -> float:
        """Time of one op of ``kind``."""
        if kind is Kind.B:
            return self.I + self.W if self.B is None else self.B
        if kind is Kind.R:
            return self.F if self.R is None else self.R
        return {Kind.F: self.F, Kind.I: self.I, Kind.W: self.W}.get(kind, 0)


def parse_costs(text: str) -> Costs:
    """Read ``F=1,I=1,W=1,comm=0``; ValueError says what is wrong."""
    values: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (p.strip() for p in part.partition("="))
        if name not in ("F", "I", "W", "B", "R", "comm") or not equals:
            raise ValueError(f"found {part.strip()!r}; expected F=, I=, W=, B=, R= or comm=")
        try:
            value = float(number)
        except ValueError:
            raise ValueError(f"found {number!r} for {name}; expected a number") from None
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"found {number} for {name}; expected a number of 0 or more")
        if name in values:
            raise ValueError(f"{name} is given twice")
        values[name] = int(value) if value == int(value) else value
    return Costs(**values)
