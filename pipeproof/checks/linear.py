"""Linear forms: exact sums of symbols, and how two of them differ.

A gradient is followed as a form over the producer's symbols (microbatches,
samples, tokens). Two forms that are equal are equal gradients for every model
and every datum at once, and where they differ the coefficients say how.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

Form = dict[str, Fraction]
"""The coefficient of each symbol; none of them is zero."""

SHOWN = 6
"""Terms, or symbols, that a sentence lists before it counts the rest."""


def add(form: Form, other: Mapping[str, Fraction]) -> None:
    """Add ``other`` to ``form``, in place."""
    for symbol, coefficient in other.items():
        total = form.get(symbol, 0) + coefficient
        if total:
            form[symbol] = total
        else:
            form.pop(symbol, None)


def scaled(form: Mapping[str, Fraction], factor: Fraction) -> Form:
    """``factor`` times ``form``."""
    return {s: c * factor for s, c in form.items()} if factor else {}


def normal(form: Mapping[str, Fraction]) -> Form:
    """The form without zero coefficients."""
    return {s: c for s, c in form.items() if c}


# --- words --------------------------------------------------------------------


def told(form: Mapping[str, Fraction]) -> str:
    """``3/8 g0 + g1 - 2 g2``; ``nothing`` for the empty form."""
    if not form:
        return "nothing"
    shown = list(form.items())
    rest = len(shown) - SHOWN
    if rest > 1:
        shown = shown[:SHOWN]
    text = ""
    for symbol, coefficient in shown:
        sign = "- " if coefficient < 0 else "+ "
        size = abs(coefficient)
        term = symbol if size == 1 else f"{size} {symbol}"
        text += f" {sign}{term}" if text else f"{sign.strip('+ ')}{term}"
    return f"{text} + {rest} more terms" if rest > 1 else text


def listed(symbols: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and 7 more``."""
    words = list(symbols)
    if len(words) > SHOWN:
        words = [*words[: SHOWN - 2], f"{len(words) - SHOWN + 2} more"]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def times(count: Fraction | int) -> str:
    """``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(int(count) if count == int(count) else 0, f"{count} times")


# --- differences --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """How a form differs from the wanted one.

    ``kind`` is one of

    ``nothing``   there is no contribution at all
    ``factor``    every coefficient is ``ratio`` of the wanted one
    ``missing``   symbols are missing, the others are right
    ``extra``     there are symbols that do not belong, the others are right
    ``foreign``   both: symbols stand in the place of others
    ``repeated``  some symbols count ``ratio`` times, the others are right
    ``uneven``    same symbols and same sum, shared out differently
    ``mixed``     anything else

    ``symbols`` are those whose coefficients differ; ``text`` says it in words.
    """

    kind: str
    text: str
    symbols: tuple[str, ...]
    missing: tuple[str, ...] = ()
    ratio: Fraction | None = None


def difference(found: Mapping[str, Fraction], wanted: Mapping[str, Fraction]) -> Difference | None:
    """How ``found`` differs from ``wanted``; None where they are equal."""
    found, wanted = normal(found), normal(wanted)
    if found == wanted:
        return None
    missing = tuple(s for s in wanted if s not in found)
    extra = tuple(s for s in found if s not in wanted)
    off = {s: found[s] / c for s, c in wanted.items() if s in found and found[s] != c}
    symbols = (*missing, *off, *extra)
    ratios = set(off.values())
    ratio = ratios.pop() if len(ratios) == 1 else None
    if not found:
        return Difference("nothing", "no contribution has reached it", symbols, missing)
    if not missing and not extra:
        if ratio is not None and len(off) == len(wanted):
            size = f"{ratio} of" if abs(ratio) < 1 else f"{ratio} times"
            text = f"every coefficient is {size} what it should be"
            return Difference("factor", text, symbols, ratio=ratio)
        if ratio is not None and ratio > 1 and ratio.denominator == 1:
            text = _counting(off)
            return Difference("repeated", text, symbols, ratio=ratio)
        if sum(found.values()) == sum(wanted.values()):
            total = sum(wanted.values())
            text = f"the weights still add up to {total}, but they are shared out unevenly"
            return Difference("uneven", text, symbols)
    parts = []
    if missing:
        parts.append(f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if extra:
        verb = "does" if len(extra) == 1 else "do"
        parts.append(f"{listed(extra)} {verb} not belong there")
    if off:
        parts.append(_counting(off))
    kind = "mixed"
    if not off:
        kind = "foreign" if missing and extra else "missing" if missing else "extra"
    return Difference(kind, "; ".join(parts), symbols, missing)


def _counting(off: Mapping[str, Fraction]) -> str:
    """``g1 counts twice``; ``g0 counts 2/3 times and g1 counts twice``."""
    by_ratio: dict[Fraction, list[str]] = {}
    for symbol, ratio in off.items():
        by_ratio.setdefault(ratio, []).append(symbol)
    return listed(
        f"{listed(symbols)} {'counts' if len(symbols) == 1 else 'count'} {times(ratio)}"
        for ratio, symbols in by_ratio.items()
    )


def compared(found: Mapping[str, Fraction], wanted: Mapping[str, Fraction], by: Difference) -> str:
    """``on 3/8 g0; wanted 3/4 g0``, shortened to what differs where forms are long."""
    agreeing = len({*found, *wanted}) - len(by.symbols)
    found = {s: found[s] for s in (*wanted, *found) if s in found}
    if max(len(found), len(wanted)) <= SHOWN or not agreeing:
        return f"{told(found)}; wanted {told(wanted)}"
    return (
        f"{told({s: found[s] for s in by.symbols if s in found})} beside {agreeing} terms that "
        f"agree; wanted {told({s: wanted[s] for s in by.symbols if s in wanted})}"
    )
