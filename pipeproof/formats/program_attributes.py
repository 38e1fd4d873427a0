"""The attributes of ops: which there are, where each may stand, what it holds.

One literal table, name -> reader, and the sets of attributes that a kind of op
may carry. What a message end states about its tensor, and the request that an
op posts, are read here too but kept beside the messages and the requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from pipeproof.errors import InputError
from pipeproof.formats.json_values import (
    Reader,
    boolean,
    child,
    did_you_mean,
    entries,
    integer,
    items,
    quoted,
    rational,
    refusal,
    text,
    texts,
    word,
    wrong,
)
from pipeproof.program.ops import MAX_ID
from pipeproof.program.programs import Attributes

# --- readers -------------------------------------------------------------------


def _units(holder: Any, key: Any, path: str) -> tuple[tuple[str, int], ...]:
    found, where = entries(holder, key, path, "an object from names to units"), child(path, key)
    return tuple((name, integer(found, name, where)) for name in found)


def _shape(holder: Any, key: Any, path: str) -> tuple[int, ...]:
    found, where = items(holder, key, path, "a shape, a list of whole numbers"), child(path, key)
    return tuple(integer(found, i, where) for i in range(len(found)))


def _contents(holder: Any, key: Any, path: str) -> tuple[tuple[str, str], ...]:
    found, where = items(holder, key, path, "a list of [slot, content]"), child(path, key)
    pairs = []
    for i, pair in enumerate(found):
        if not isinstance(pair, list) or len(pair) != 2:
            raise wrong(found, i, where, "a pair [slot, content]")
        at = child(where, i)
        pairs.append((text(pair, 0, at), text(pair, 1, at)))
    return tuple(pairs)


def linear_form(holder: Any, key: Any, path: str) -> Mapping[str, Fraction]:
    """``{SYMBOL: coefficient}``."""
    found = entries(holder, key, path, "an object from symbols to coefficients")
    where = child(path, key)
    return MappingProxyType({symbol: rational(found, symbol, where) for symbol in found})


def linear_forms(holder: Any, key: Any, path: str) -> Mapping[str, Mapping[str, Fraction]]:
    """``{NAME: {SYMBOL: coefficient}}``."""
    found = entries(holder, key, path, "an object from names to linear forms")
    where = child(path, key)
    return MappingProxyType({name: linear_form(found, name, where) for name in found})


def version(holder: Any, key: Any, path: str) -> int:
    """The number of a weight version."""
    return integer(holder, key, path, "a version, a whole number from 0", 0, MAX_ID)


def _rank(holder: Any, key: Any, path: str) -> int:
    return integer(holder, key, path, "a rank, a whole number from 0", 0, MAX_ID)


def _state(holder: Any, key: Any, path: str) -> str | int:
    value: str | int = holder[key]
    if isinstance(value, str):
        return value
    return integer(holder, key, path, "the name or number of a random state", -MAX_ID, MAX_ID)


def _weights(holder: Any, key: Any, path: str) -> tuple[str, ...]:
    if isinstance(holder[key], str):
        return (text(holder, key, path),)
    return texts(holder, key, path)


def _mode(holder: Any, key: Any, path: str) -> str:
    return word(holder, key, path, ("add", "set"))


def _reduction(holder: Any, key: Any, path: str) -> str:
    return word(holder, key, path, ("sum", "avg"))


# --- the tables ----------------------------------------------------------------

ATTRIBUTES: Mapping[str, Reader] = {
    # The rules of compute ops that are lifted.
    "redo": boolean,
    "anywhere": boolean,
    "nodeps": boolean,
    # Memory and resources.
    "alloc": _units,
    "free": texts,
    "needs": texts,
    # A message end; the slot it reads or fills.
    "shape": _shape,
    "dtype": text,
    "count": integer,
    "comm": text,
    "buf": text,
    "commutes": boolean,
    # The request of an asynchronous op.
    "req": text,
    # Slots.
    "w": _contents,
    "r": _contents,
    # Gradients, effects, random states.
    "grad": linear_forms,
    "grad_mode": _mode,
    "effects": texts,
    "rng": _state,
    "opt": text,
    # Weight versions.
    "uses": texts,
    "it": version,
    "wv": version,
    # Collectives.
    "param": text,
    "op": _reduction,
    "owner": _rank,
    "bumps": _weights,
    "to": version,
}

ANY_OP = frozenset(
    {"alloc", "free", "needs", "w", "r", "grad", "grad_mode", "effects", "uses", "it"}
)
"""What every op may carry: it says what happens beside the op's own business."""

COMPUTE = ANY_OP | {"redo", "anywhere", "nodeps", "wv"}
FORWARD = COMPUTE | {"rng"}
END = frozenset({"shape", "dtype", "count", "comm", "buf"})
"""What one end of a message may carry, alone or in a group."""

SENDING = ANY_OP | END
RECEIVING = ANY_OP | END | {"commutes"}
ASYNC = frozenset({"req"})
COLLECTIVE = ANY_OP | {"param", "op", "owner", "bumps", "to", "req"}
STEPPING = ANY_OP | {"opt"}

_PARTNERS = {"uses": "it", "it": "uses", "grad_mode": "grad", "to": "bumps"}
"""Attributes that mean nothing without another one."""

_FIELDS = {
    "redo": "redo",
    "anywhere": "anywhere",
    "nodeps": "nodeps",
    "alloc": "alloc",
    "free": "free",
    "needs": "needs",
    "w": "writes",
    "r": "reads",
}
"""Attributes that `Attributes` has a field for; the others go to ``more``."""

_PLAIN = Attributes()


# --- reading -------------------------------------------------------------------


def read_attributes(given: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The attributes of an op that may carry them, validated."""
    for key in given:
        partner = _PARTNERS.get(key, key)
        if partner not in given:
            message = f'"{key}" stands without "{partner}", expected both'
            raise refusal(child(path, key), message, "one says nothing without the other")
    return {key: ATTRIBUTES[key](given, key, path) for key in given}


def misplaced(
    key: str, legal: Collection[str], path: str, op: str, homes: Sequence[str]
) -> InputError:
    """The error of an attribute that this op may not carry; ``homes``: those that may."""
    where = child(path, key)
    if key not in ATTRIBUTES:
        message = f"unknown attribute {quoted(key)} on {op}"
        return refusal(where, message, did_you_mean(key, sorted(legal)))
    if key == "req":
        return refusal(where, f'"req" on {op}, which posts no request', _blocking_cause(op))
    cause = f"it may stand on {', '.join(homes)}" if homes else None
    return refusal(where, f'"{key}" has no meaning on {op}', cause)


def _blocking_cause(op: str) -> str:
    if op.startswith("a member"):
        return "the GROUP carries the request for all its members"
    if op in ("SEND", "RECV", "COPY"):
        return f"{op} blocks until it is done: I{op} posts a request, and WAIT waits for it"
    return "only ISEND, IRECV, ICOPY, GROUP and COLL can be waited for"


def packed(values: Mapping[str, Any], fixed: Mapping[str, Any]) -> Attributes | None:
    """An op's `Attributes`: those read, and ``fixed`` from its arguments.

    ``fixed`` holds fields of `Attributes` (its lists come first) and ``more``.
    """
    if not values and not fixed:
        return None
    known: dict[str, Any] = {}
    more: dict[str, Any] = dict(fixed.get("more", ()))
    for key, value in values.items():
        if key in _FIELDS:
            known[_FIELDS[key]] = value
        else:
            more[key] = value
    for key, value in fixed.items():
        if key != "more":
            known[key] = value + known.get(key, ()) if isinstance(value, tuple) else value
    if more:
        known["more"] = MappingProxyType(more)
    attributes = Attributes(**known)
    return None if attributes == _PLAIN else attributes
