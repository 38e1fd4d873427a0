"""JSON text, strictly: the value it holds, or where and why it is refused.

The standard decoder forgives what a formal checker may not: a key that stands
twice, ``NaN``, half a surrogate pair. ``parse_json`` refuses each with its
JSON path, and a text that is no JSON at line and column.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import isinf
from typing import Any

from pipeproof.errors import InputError
from pipeproof.formats.json_values import child, quoted, refusal

_DEPTH = 200  # levels that no document of ours comes near
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Unusable:
    """Stands where the decoder met something that no document may hold."""

    message: str
    cause: str
    key: str | None = None


def parse_json(text: str) -> Any:
    """The value of a JSON text; InputError at line and column, or at a path."""
    _require_characters(text)
    found: list[_Unusable] = []
    try:
        value = _loads(text, found)
    except json.JSONDecodeError as error:
        raise _syntax_error(text, error) from None
    except RecursionError:
        raise _too_deep(text) from None
    if found or _SURROGATE.search(text):
        _refuse_unusable(value)
    return value


def _loads(text: str, found: list[_Unusable]) -> Any:
    def mark(unusable: _Unusable) -> _Unusable:
        found.append(unusable)
        return unusable

    def pairs(items: list[tuple[str, Any]]) -> Any:
        value = dict(items)
        return value if len(value) == len(items) else mark(_repeated(items))

    def constant(word: str) -> Any:
        return mark(_Unusable(f"found {word}, which is no JSON value", _NO_CONSTANT))

    def real(digits: str) -> Any:
        value = float(digits)
        return mark(_Unusable("found a number too large", _TOO_LARGE)) if isinf(value) else value

    def whole(digits: str) -> Any:
        try:
            return int(digits)
        except ValueError:  # more digits than Python converts
            count = len(digits.lstrip("-"))
            return mark(_Unusable(f"found a number of {count} digits", _TOO_LARGE))

    hooks: dict[str, Any] = {
        "object_pairs_hook": pairs,
        "parse_constant": constant,
        "parse_float": real,
    }
    try:
        return json.loads(text, **hooks)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Only a huge number gets here; a hook for each number would cost every file.
        return json.loads(text, parse_int=whole, **hooks)


_NO_CONSTANT = "a number that is not finite has no meaning here: leave the entry out"
_TOO_LARGE = "numbers of a schedule are small: this one is probably a slip or damaged"


def _repeated(items: list[tuple[str, Any]]) -> _Unusable:
    seen: set[str] = set()
    for key, _ in items:
        if key in seen:
            break
        seen.add(key)
    return _Unusable(
        f"the key {quoted(_printable(key))} stands twice in one object",
        "JSON readers keep one of the two and drop the other: keep the one that is meant",
        _printable(key),
    )


def _refuse_unusable(document: Any) -> None:
    """Raise for the first unusable part, in the order of the document."""
    stack: list[tuple[str, Any]] = [("", document)]  # no recursion: it may be deep
    while stack:
        path, value = stack.pop()
        if isinstance(value, _Unusable):
            where = path if value.key is None else child(path, value.key)
            raise refusal(where, value.message, value.cause)
        if isinstance(value, str):
            _require_whole_text(value, path)
        elif isinstance(value, list):
            stack.extend((child(path, i), value[i]) for i in range(len(value) - 1, -1, -1))
        elif isinstance(value, dict):
            for key in value:
                _require_whole_text(key, child(path, _printable(key)))
            stack.extend((child(path, key), value[key]) for key in reversed(value))


def _require_whole_text(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        code = ord(value[error.start])
        raise refusal(
            path,
            f"the text holds \\u{code:04x}, half of a surrogate pair",
            "a character beyond \\uffff is written as two such halves: the other one is missing",
        ) from None


def _require_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line, column = _line_and_column(text, error.start)
        message = f"found half of a surrogate pair, U+{ord(text[error.start]):04X}"
        cause = "the file was decoded wrongly: save it as UTF-8"
        raise InputError(message, cause=cause, line=line, column=column) from None


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _too_deep(text: str) -> InputError:
    depth, position = 0, 0
    for match in _BRACKETS.finditer(text):
        if match[0] in "[{":
            depth += 1
        elif match[0] in "]}":
            depth -= 1
        if depth > _DEPTH:
            position = match.start()
            break
    line, column = _line_and_column(text, position)
    return InputError(
        f"lists and objects are nested more than {_DEPTH} deep here",
        cause="a program nests a handful of levels: the file is damaged, or is something else",
        line=line,
        column=column,
    )


def _syntax_error(text: str, error: json.JSONDecodeError) -> InputError:
    if not text.strip():
        message, cause = "the file is empty", "expected a program: an object with `programs`"
        return InputError(message, cause=cause, line=error.lineno, column=error.colno)
    before, rest = text[: error.pos].rstrip(), text[error.pos : error.pos + 16].lstrip()
    position, cause = error.pos, _syntax_cause(error.msg, rest)
    if rest.startswith(("}", "]")) and before.endswith(","):
        # Python releases differ in which of the two they point at.
        position, cause = len(before) - 1, _COMMA
    line, column = _line_and_column(text, position)
    return InputError(f"this is not JSON: {error.msg}", cause=cause, line=line, column=column)


_COMMA = "a comma too many stands here"


def _syntax_cause(message: str, rest: str) -> str:
    if message.startswith("Extra data"):
        return "a file holds one program: put each of several into a file of its own"
    if not rest or message.startswith("Unterminated string"):
        return "the text ends too early: the file may have been cut off"
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments"
    if rest.startswith("'"):
        return "texts stand in double quotes"
    if rest.startswith(("True", "False", "None")):
        return "write true, false or null: this looks like Python, not JSON"
    if rest.startswith(","):
        return _COMMA
    return "expected plain JSON, as json.dumps or JSON.stringify write it"
