"""A published figure beside ours: the rows of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

from pipeproof.program.costs import exact

Value = int | float | Fraction | str | bool | tuple[Any, ...]
"""A number, one a rank (or stage), yes or no, or a word."""

Case = Mapping[str, Any]
"""Sizes of a case with the figures published for it, as the data files have them."""


class Outcome(Enum):
    """What became of a published figure."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    SEARCHED = "searched"  # of an order that its authors' search found, and nobody printed
    FINDING = "finding"  # not a figure of the source, but what follows from ours for it


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: ``case`` in words, what is measured, both values. ``note`` says why they
    differ where they do, or how ours compares where neither is the only right one."""

    case: str
    what: str
    published: Value
    ours: Value
    outcome: Outcome
    note: str = ""


def value(given: Any) -> Value:
    """A value of a data file: ``"3/7"`` is a fraction, a list a tuple."""
    if isinstance(given, str):
        return Fraction(given)
    if isinstance(given, list):
        return tuple(value(one) for one in given)
    found: Value = given
    return found


def compared(case: str, what: str, published: Any, ours: Any, note: str = "") -> Figure:
    """The row of two values that must be equal, exactly; ours is written as the other is."""
    expected = value(published)
    agrees = _equal(expected, ours)
    return Figure(
        case,
        what,
        expected,
        _like(expected, ours),
        Outcome.AGREES if agrees else Outcome.DISAGREES,
        note,
    )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) or isinstance(other, tuple):
        if not (isinstance(one, tuple) and isinstance(other, tuple)) or len(one) != len(other):
            return False
        return all(_equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, (str, bool)) or isinstance(other, (str, bool)):
        return type(one) is type(other) and bool(one == other)
    return exact(one) == exact(other)


def _like(published: Any, ours: Any) -> Value:
    """Ours in the form of the published one: a fraction, or a decimal number."""
    if isinstance(ours, tuple):
        first = published[0] if isinstance(published, tuple) and published else published
        return tuple(_like(first, one) for one in ours)
    if isinstance(ours, Fraction):
        if isinstance(published, float):
            return float(ours)
        return int(ours) if ours.denominator == 1 else ours
    found: Value = ours
    return found


def same(values: Sequence[Any]) -> Value:
    """What all ranks have in common, or the values of all."""
    return values[0] if len(set(values)) == 1 else tuple(values)


_SIZES = ("p", "D", "ranks", "m", "N", "v", "k")


def spelled(case: Case) -> str:
    """The sizes of a case: ``p=4, m=8``."""
    return ", ".join(f"{name}={case[name]}" for name in _SIZES if isinstance(case.get(name), int))
