"""JSON values, strictly: an entry as what it should be, or why it is refused.

A reader (``integer``, ``text``, ...) takes an entry out of its list or object:
it gets the holder, the key and the holder's path, so that the path of the
entry is put together only where something is wrong with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, NoReturn

from pipeproof.errors import InputError

Key = str | int
Reader = Callable[[Any, Any, str], Any]
"""``reader(holder, key, path)`` is ``holder[key]``, validated."""

MAX_UNITS = (1 << 53) - 1
"""Largest amount: the last whole number that every JSON reader keeps exact."""

MAX_DIGITS = 100
"""Longest numerator or denominator; a longer one is no coefficient of a schedule."""

_SHOWN = 48  # characters of a foreign value that a message repeats
_RATIONAL = re.compile(rf"-?[0-9]{{1,{MAX_DIGITS}}}(?:/[0-9]{{1,{MAX_DIGITS}}})?")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


# --- paths and messages --------------------------------------------------------


def child(path: str, key: Key) -> str:
    """The path of an entry: ``programs.0``, ``programs.0[3]``, ``groups["a b"]``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{quoted(key)}]"
    key = _clipped(key)
    return f"{path}.{key}" if path else key


def refusal(path: str, message: str, cause: str | None = None) -> InputError:
    """An error at a path; ``$`` is the document itself."""
    return InputError(message, cause=cause, path=path or "$")


def wrong(holder: Any, key: Key, path: str, expected: str, cause: str | None = None) -> InputError:
    """The error of an entry that is not what was expected."""
    value = holder[key]
    message = f"found {shown(value)}, expected {expected}"
    return refusal(child(path, key), message, cause or _usual_cause(value, expected))


def shown(value: Any) -> str:
    """A value in a message: what it is, cut short."""
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    if isinstance(value, list):
        return "an empty list" if not value else f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an empty object" if not value else f"an object of {len(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    digits = repr(value)
    if len(digits) > _SHOWN:
        return f"a number of {len(digits.lstrip('-'))} digits"
    return f"the number {digits}"


def quoted(word: str) -> str:
    """A name in a message."""
    return json.dumps(_clipped(word), ensure_ascii=False)


def did_you_mean(word: str, known: Collection[str]) -> str:
    """The known word that was probably meant, or the known words."""
    folded = {name.casefold(): name for name in known}
    # The length is bounded because the search is quadratic in it.
    near = get_close_matches(word[:64].casefold(), folded, n=1, cutoff=0.6)
    if near:
        return f'did you mean "{folded[near[0]]}"?'
    return f"known: {', '.join(known)}"


def _clipped(word: str) -> str:
    return word if len(word) <= _SHOWN else word[:_SHOWN] + "..."


def _usual_cause(value: Any, expected: str) -> str | None:
    """Why a value of this type tends to stand here."""
    if value is None:
        return "null states nothing: leave the entry out instead"
    if "number" in expected or "rank" in expected:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value):
            return "numbers stand without quotes"
        if isinstance(value, bool):
            return "true and false are no numbers"
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            return f"write it as {int(value)}, without a decimal point"
    return None


# --- values --------------------------------------------------------------------


def integer(
    holder: Any,
    key: Key,
    path: str,
    expected: str = "a whole number, 0 or more",
    low: int = 0,
    high: int = MAX_UNITS,
) -> int:
    """A whole number from low to high; true and false are none."""
    value = holder[key]
    if type(value) is not int or not low <= value <= high:
        raise wrong(holder, key, path, expected)
    return value


def text(holder: Any, key: Key, path: str, expected: str = "a name, as text") -> str:
    """A text."""
    value = holder[key]
    if not isinstance(value, str):
        raise wrong(holder, key, path, expected)
    return value


def boolean(holder: Any, key: Key, path: str) -> bool:
    """true or false."""
    value = holder[key]
    if not isinstance(value, bool):
        raise wrong(holder, key, path, "true or false")
    return value


def word(holder: Any, key: Key, path: str, known: Collection[str]) -> str:
    """One of a few words."""
    value = holder[key]
    if not isinstance(value, str) or value not in known:
        expected = " or ".join(f'"{name}"' for name in known)
        cause = did_you_mean(value, known) if isinstance(value, str) else None
        raise wrong(holder, key, path, expected, cause)
    return value


def rational(holder: Any, key: Key, path: str) -> Fraction:
    """An exact coefficient: a whole number, or a text like ``"1/2"``."""
    value = holder[key]
    if type(value) is int and abs(value) < 10**MAX_DIGITS:
        return Fraction(value)
    if not isinstance(value, str) or not _RATIONAL.fullmatch(value):
        cause = 'coefficients are exact: write 0.5 as "1/2"' if _decimal(value) else None
        raise wrong(holder, key, path, 'a whole number or a fraction such as "1/2"', cause)
    try:
        return Fraction(value)
    except ZeroDivisionError:
        raise wrong(holder, key, path, "a fraction whose denominator is not 0") from None


def _decimal(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, str) and "." in value)


def items(holder: Any, key: Key, path: str, expected: str = "a list") -> list[Any]:
    """A list."""
    value = holder[key]
    if not isinstance(value, list):
        raise wrong(holder, key, path, expected)
    return value


def texts(holder: Any, key: Key, path: str) -> tuple[str, ...]:
    """A list of names."""
    found = items(holder, key, path, "a list of names")
    if not all(isinstance(value, str) for value in found):
        where = child(path, key)
        return tuple(text(found, i, where) for i in range(len(found)))
    return tuple(found)


def entries(holder: Any, key: Key, path: str, expected: str = "an object") -> dict[str, Any]:
    """An object whose keys are names."""
    value = holder[key]
    if not isinstance(value, dict):
        raise wrong(holder, key, path, expected)
    return value


def fields(value: Any, path: str, known: Collection[str], what: str) -> dict[str, Any]:
    """An object whose keys are among the known ones."""
    if not isinstance(value, dict):
        raise refusal(path, f"found {shown(value)}, expected {what}, an object")
    for key in value:
        if key not in known:
            refuse_key(key, path, known, what)
    return value


def refuse_key(key: str, path: str, known: Collection[str], what: str) -> NoReturn:
    """Raise for a key that means nothing where it stands."""
    raise refusal(
        child(path, key), f"unknown key {quoted(key)} in {what}", did_you_mean(key, known)
    )


def numbered(
    holder: Any, key: Key, path: str, what: str, limit: int
) -> Iterator[tuple[int, dict[str, Any], str, str]]:
    """The entries of an object whose keys are numbers below limit.

    Each as (number, the object, its key, the object's path): what the readers
    above ask for, and the number.
    """
    found = entries(holder, key, path, f'an object by {what}, such as {{"0": ...}}')
    where = child(path, key)
    for name in found:
        if not _NUMBER.fullmatch(name) or int(name) >= limit:
            message = f"found {quoted(name)}, expected {below(what, limit)}"
            raise refusal(child(where, name), message)
        yield int(name), found, name, where


def below(what: str, limit: int) -> str:
    """``a rank, 0 to 3``: how a message states a limit."""
    return f"a {what}, 0 to {limit - 1}" if limit > 0 else f"no {what}, as there is none"
