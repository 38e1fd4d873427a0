"""A cost model in a file: TOML, or JSON with the same keys.

    F = [1, 1, 2, 1]       # a list has one a stage, a number is for all
    I = 1
    W = 1
    comm = 0.1             # latency of a message; a list: one a boundary
    release = "commit"
    bandwidth = 100e9      # bytes a time unit
    message_bytes = 4194304

Keys are the fields of ``program.costs.Costs``. A number may also be a text such
as "1/3".
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from typing import Any

from pipeproof.errors import InputError
from pipeproof.formats.json_text import parse_json
from pipeproof.formats.json_values import child, quoted, shown
from pipeproof.program.costs import KEYS, accepted, number

# How tomllib ends its messages, where it knows the place.
_PLACE = re.compile(r" \(at line (\d+), column \d+\)")


def read_costs(text: str, name: str) -> dict[str, Any]:
    """Fields of `Costs`; InputError has the key path of what is wrong.

    ``name`` is the file's: ``.json`` is JSON, anything else TOML.
    """
    document = parse_json(text) if name.lower().endswith(".json") else _toml(text)
    if not isinstance(document, dict):
        raise InputError(f"found {shown(document)}, expected an object of costs", path="$")
    return {key: _field(key, value) for key, value in document.items()}


def _toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        raise InputError(
            f"found no TOML: {_PLACE.sub('', str(error)).lower()}",
            cause="write KEY = VALUE, a line each; a costs file in JSON ends in .json",
            line=int(place[1]) if place else None,
        ) from None


def _field(key: str, value: Any) -> Any:
    path = child("", key)
    if key not in KEYS:
        near = get_close_matches(key, KEYS, 1)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(KEYS)}"
        raise InputError(f"found the key {quoted(key)}, expected a cost", cause=hint, path=path)
    try:
        if key == "release":
            return accepted(key, value)
        if isinstance(value, list):
            if not value:
                raise ValueError("expected a number or a list of them")
            listed = tuple(_number(one, child(path, i)) for i, one in enumerate(value))
            return accepted(key, listed)
        return accepted(key, _number(value, path))
    except ValueError as error:
        raise InputError(f"found {shown(value)}, {error}", path=path) from None


def _number(value: Any, path: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"found {shown(value)}, expected a number of 0 or more", path=path)
    try:
        return number(value if isinstance(value, str) else repr(value))
    except ValueError as error:
        raise InputError(f"found {shown(value)}, {error}", path=path) from None
