"""Sizes as numbers or as unknowns: one definition of a schedule serves both.

A spec is a function of its sizes. Run with integers it lists the ops of those
sizes. Run with unknowns it shows its loops: how often each runs, and which
microbatch each op takes, as linear expressions in the sizes, the rank and the
indices of the loops. ``loop``, ``least`` and ``most`` work on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol


class NotLoops(Exception):
    """The definition does something with an unknown that has no linear form, so it
    has meaning for given sizes only."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least (``most`` False) or the greatest of several forms."""

    most: bool
    parts: tuple[Form, ...]

    def __str__(self) -> str:
        return f"{'most' if self.most else 'least'}({', '.join(map(str, self.parts))})"


Atom = str | Extreme
"""An unknown by its name, or an extreme of forms."""


@dataclass(frozen=True, slots=True)
class Form:
    """A linear expression: ``constant`` plus each atom times its coefficient.

    ``terms`` has no zero coefficient and stands in the order of the atoms' texts,
    so equal forms are equal values.
    """

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(terms: Mapping[Atom, int], constant: int) -> Form:
        """The form with these coefficients."""
        kept = [(atom, c) for atom, c in terms.items() if c]
        return Form(tuple(sorted(kept, key=lambda term: str(term[0]))), constant)

    def plus(self, other: Form, times: int = 1) -> Form:
        """This form and ``times`` the other."""
        terms = dict(self.terms)
        for atom, coefficient in other.terms:
            terms[atom] = terms.get(atom, 0) + times * coefficient
        return Form.of(terms, self.constant + times * other.constant)

    def times(self, factor: int) -> Form:
        """This form times a number."""
        return Form.of({a: factor * c for a, c in self.terms}, factor * self.constant)

    def value(self, sizes: Mapping[str, int]) -> int:
        """Its value where the unknowns have these values; KeyError for one that has none."""
        total = self.constant
        for atom, coefficient in self.terms:
            if isinstance(atom, Extreme):
                values = [part.value(sizes) for part in atom.parts]
                total += coefficient * (max(values) if atom.most else min(values))
            else:
                total += coefficient * sizes[atom]
        return total

    def unknowns(self) -> frozenset[str]:
        """The names that occur, within extremes too."""
        names: set[str] = set()
        for atom, _ in self.terms:
            if isinstance(atom, Extreme):
                names.update(*(part.unknowns() for part in atom.parts))
            else:
                names.add(atom)
        return frozenset(names)

    def __str__(self) -> str:
        words: list[str] = []
        for atom, coefficient in self.terms:
            size = "" if abs(coefficient) == 1 else f"{abs(coefficient)} "
            words.append(f"{'-' if coefficient < 0 else '+'} {size}{atom}")
        if self.constant or not words:
            words.append(f"{'-' if self.constant < 0 else '+'} {abs(self.constant)}")
        text = " ".join(words)
        return text.removeprefix("+ ") if text[0] == "+" else "-" + text[2:]


class Recorder(Protocol):
    """What notes the loops that a definition runs through."""

    def loop(self, start: Form, stop: Form) -> Iterator[Size]:
        """Run a loop's body once over an unknown index."""


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """An unknown whole number in a definition that is read for its loops.

    It adds, subtracts and multiplies by numbers. What has no linear form (a
    comparison, a division, a product of two unknowns) raises `NotLoops`.
    """

    form: Form
    recorder: Recorder

    def _form_of(self, other: object) -> Form:
        if isinstance(other, Size):
            return other.form
        if isinstance(other, int) and not isinstance(other, bool):
            return Form(constant=other)
        raise NotLoops(f"{self.form} meets {other!r}")

    def __add__(self, other: int | Size) -> Size:
        return Size(self.form.plus(self._form_of(other)), self.recorder)

    __radd__ = __add__

    def __sub__(self, other: int | Size) -> Size:
        return Size(self.form.plus(self._form_of(other), -1), self.recorder)

    def __rsub__(self, other: int | Size) -> Size:
        return Size(self._form_of(other).plus(self.form, -1), self.recorder)

    def __mul__(self, other: int | Size) -> Size:
        factor = self._form_of(other)
        if not factor.terms:
            return Size(self.form.times(factor.constant), self.recorder)
        if not self.form.terms:
            return Size(factor.times(self.form.constant), self.recorder)
        raise NotLoops(f"({self.form}) ({factor}) is not linear")

    __rmul__ = __mul__

    def __neg__(self) -> Size:
        return Size(self.form.times(-1), self.recorder)

    def _no(self, *_: Any) -> NoReturn:
        raise NotLoops(f"{self.form} is asked for more than sums and multiples")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _no
    __bool__ = __index__ = __int__ = __hash__ = __iter__ = _no
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __truediv__ = _no
    __rtruediv__ = __pow__ = __abs__ = _no

    def __str__(self) -> str:
        return str(self.form)


def loop(start: Any, stop: Any = None, /) -> Any:
    """The indices from ``start`` (0 if only ``stop`` is given) to below ``stop``.

    ``for i in loop(w): ...`` is ``range`` where the bounds are numbers; where they
    are unknowns the body is run over an unknown index, and the loop is noted.
    Nothing may be carried from one turn of a loop to the next but the index.
    """
    if stop is None:
        start, stop = 0, start
    bound = next((b for b in (start, stop) if isinstance(b, Size)), None)
    if bound is None:
        return range(start, stop)
    return bound.recorder.loop(bound._form_of(start), bound._form_of(stop))


def within(index: Any, start: Any, stop: Any, /) -> Any:
    """``index`` alone if it is from ``start`` to below ``stop``, and nothing otherwise.

    ``for j in within(i - 1, 0, m): yield B(j)`` is an ``if`` that can be read for
    loops: it is a loop of at most one turn.
    """
    return loop(most(index, start), least(index + 1, stop))


def least(first: Any, *rest: Any) -> Any:
    """The least of numbers or sizes, as ``min`` is of numbers."""
    return _extreme(False, (first, *rest))


def most(first: Any, *rest: Any) -> Any:
    """The greatest of numbers or sizes, as ``max`` is of numbers."""
    return _extreme(True, (first, *rest))


def _extreme(most: bool, values: tuple[Any, ...]) -> Any:
    unknown = next((v for v in values if isinstance(v, Size)), None)
    if unknown is None:
        return max(values) if most else min(values)
    forms = sorted({unknown._form_of(v) for v in values}, key=str)
    if len(forms) == 1:
        return Size(forms[0], unknown.recorder)
    return Size(Form.of({Extreme(most, tuple(forms)): 1}, 0), unknown.recorder)
