"""What the readers of recorded schedules share.

A recording states its sizes and lists events, each an object with exactly the
keys of its kind. A key that is missing or unknown says that another release
wrote the file, and what it would mean is not guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeproof.formats.json_values import (
    MAX_UNITS,
    Key,
    child,
    fields,
    integer,
    items,
    quoted,
    refusal,
    wrong,
)
from pipeproof.program.ops import activation, gradient
from pipeproof.program.programs import Program

RECIPE = "executed"
"""How a recording's communication came about: somebody's code posted it so."""

PAYLOADS = {"act": activation, "grad": gradient}
"""The kinds of payload that recordings name, and their ids by producing stage
and microbatch."""


def record(
    value: Any,
    path: str,
    required: Sequence[str],
    what: str,
    optional: Sequence[str] = (),
) -> dict[str, Any]:
    """An object with all required keys, and no others but the optional ones."""
    found = fields(value, path, (*required, *optional), what)
    for key in required:
        if key not in found:
            raise refusal(
                path,
                f"{quoted(key)} is missing, expected {what} with {', '.join(required)}",
                "another release may write other keys, or the file was edited",
            )
    return found


def size(holder: Any, key: Key, path: str, what: str, events: int) -> int:
    """How many ranks, chunks or microbatches there are: at least 1, and each has an event."""
    found = integer(holder, key, path, f"a number of {what}, 1 or more", 1)
    if found > events:
        raise wrong(
            holder,
            key,
            path,
            f"no more {what} than events, of which there are {events}",
            "a complete step has an event for each: the file may have been cut off",
        )
    return found


def number(holder: Any, key: Key, path: str, expected: str = "a number") -> float:
    """A figure that the producer states: a number, whole or not."""
    value = holder[key]
    if type(value) not in (int, float) or abs(value) > MAX_UNITS:
        raise wrong(holder, key, path, expected)
    return float(value)


def numbers(holder: Any, key: Key, path: str) -> list[float]:
    """A list of such figures."""
    listed, where = items(holder, key, path, "a list of numbers"), child(path, key)
    return [number(listed, i, where) for i in range(len(listed))]


def peer(holder: Any, key: Key, path: str, rank: int, ranks: int) -> int:
    """The rank at the other end of a message."""
    expected = f"a rank, 0 to {ranks - 1}, other than its own ({rank})"
    found = integer(holder, key, path, expected, 0, ranks - 1)
    if found == rank:
        raise wrong(holder, key, path, expected, "what stays on a rank needs no message")
    return found


def neighbour(stage: int, stages: int, step: int, path: str, what: str) -> int:
    """The stage before (step -1) or behind (step 1); ``what`` wants it."""
    if not 0 <= stage + step < stages:
        edge, side = ("first", "before") if step < 0 else ("last", "behind")
        raise refusal(
            path,
            f"found {what} of stage {stage}, the {edge} one; expected none, as no stage "
            f"stands {side} it",
            "the stage is wrong, or the direction",
        )
    return stage + step


def at_paths(program: Program, paths: Sequence[str]) -> Program:
    """The program with the JSON path of each of its ops."""
    return replace(program, origin=replace(program.origin, path=tuple(paths)))


def entry(path: str, *keys: Key) -> str:
    """The path of an entry further down: ``stages[0][3]``."""
    for key in keys:
        path = child(path, key)
    return path
