"""Which format a JSON object is in, told by the names of its entries.

Programs and recordings are all ``.json``. Each format has names that no other
has, and the first such name of an object decides. An object without any is read
as a program, and refused as one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

PROGRAM = "program-json"

JSON_FORMATS: Mapping[str, tuple[str, ...]] = {
    PROGRAM: ("programs", "n_ranks", "placement", "model", "fixed_model", "title_gist"),
    "deepspeed": ("class",),
    "zero-bubble": ("sched",),
    "dualpipe": ("cls",),
    "chimera": ("per_rank",),
    "pipedream": (),  # its names are those of configurations
}
"""The formats of ``.json`` files, and names that only they have."""

_LINES = {"megatron": ("schedule",)}  # the first of several lines, each an object

_BY_NAME = {
    name: format for known in (JSON_FORMATS, _LINES) for format in known for name in known[format]
}
_CONFIGURATION = re.compile(r".+_[rs][0-9]+")

_SPACE = re.compile(r"[ \t\n\r]*")


def detect_json(document_keys: Iterable[str]) -> str:
    """The format of the object that has these keys, read no further than needed."""
    for key in document_keys:
        if key in _BY_NAME:
            return _BY_NAME[key]
        if _CONFIGURATION.fullmatch(key):
            return "pipedream"
    return PROGRAM


def top_level_keys(text: str) -> Iterator[str]:
    """The keys of the object that a JSON text begins with, one by one.

    They end where the object does or where the text is no JSON: its reader
    says so.
    """
    decode = json.JSONDecoder().raw_decode
    at = _behind_space(text, 0)
    separator = "{"
    try:
        while text[at : at + 1] == separator:
            key, at = decode(text, _behind_space(text, at + 1))
            if not isinstance(key, str):
                return
            yield key
            at = _behind_space(text, at)
            if text[at : at + 1] != ":":
                return
            _, at = decode(text, _behind_space(text, at + 1))
            at = _behind_space(text, at)
            separator = ","
    except (ValueError, RecursionError):
        return


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
