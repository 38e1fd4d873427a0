"""What a program states beside its ops: sizes, placement, and demands.

Every key of the document has its reader here (``semantics`` has a module of
its own); each gets the document's object and its path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pipeproof.formats.json_values import (
    below,
    boolean,
    child,
    entries,
    integer,
    items,
    numbered,
    quoted,
    refusal,
    text,
    texts,
    word,
    wrong,
)
from pipeproof.formats.program_attributes import linear_forms
from pipeproof.formats.program_messages import parse_payload
from pipeproof.program.programs import Details

Stated = dict[str, Any]
Ranks = tuple[int, ...]

MAX_COUNT = 1 << 20
"""Most ranks, stages or layers: each costs memory, used or not, and a larger
number in a file is a typing error."""

MAIN = "main"
"""The lane of a rank that has only one and does not name it."""


class Lists(NamedTuple):
    """The ranks and stages that a document names, before its ops are read."""

    ranks: int
    groups: Mapping[str, Ranks]
    placement: Mapping[int, Ranks]
    layers: Mapping[int, tuple[int, ...]]


def read_lists(stated: Stated, path: str) -> Lists:
    """Ranks are as many as stated, or else up to the largest one named."""
    limit = _stated_count(stated, "n_ranks", path)
    stages = _stated_count(stated, "stages", path)
    placement = _placement(stated, path, stages, limit)
    groups = _rank_lists(stated, "groups", path, limit)
    ranks = limit
    if "n_ranks" not in stated:
        named = [rank for rank, *_ in numbered(stated, "programs", path, "rank", limit)]
        for listed in (*placement.values(), *groups.values()):
            named += listed
        ranks = max(named, default=-1) + 1
    _require_world(groups, ranks, path)
    return Lists(ranks, groups, placement, _layers(stated, path, stages))


def _stated_count(stated: Stated, key: str, path: str) -> int:
    if key not in stated:
        return MAX_COUNT
    return integer(stated, key, path, f"a whole number, 0 to {MAX_COUNT}", 0, MAX_COUNT)


def _require_world(groups: Mapping[str, Ranks], ranks: int, path: str) -> None:
    if len(groups.get("world", range(ranks))) != ranks:  # members differ, so these are all
        message = f'"world" is all ranks, expected 0 to {ranks - 1}'
        where = child(child(path, "groups"), "world")
        raise refusal(where, message, "give a group of some ranks a name of its own")


def _placement(stated: Stated, path: str, stages: int, ranks: int) -> dict[int, Ranks]:
    if "placement" not in stated:
        return {}
    hosts: dict[int, Ranks] = {}
    for stage, found, key, where in numbered(stated, "placement", path, "stage", stages):
        if isinstance(found[key], list):
            hosts[stage] = _rank_list(found, key, where, ranks)
        else:
            hosts[stage] = (_rank(found, key, where, ranks),)
    return hosts


def _layers(stated: Stated, path: str, stages: int) -> dict[int, tuple[int, ...]]:
    if "layers" not in stated:
        return {}
    layers: dict[int, tuple[int, ...]] = {}
    for stage, found, key, where in numbered(stated, "layers", path, "stage", stages):
        listed, at = items(found, key, where, "a list of layers"), child(where, key)
        layers[stage] = tuple(
            integer(listed, i, at, "a layer, a whole number from 0", 0, MAX_COUNT)
            for i in range(len(listed))
        )
    return layers


def _rank_lists(stated: Stated, key: str, path: str, ranks: int) -> dict[str, Ranks]:
    if key not in stated:
        return {}
    found, where = entries(stated, key, path, "an object from names to ranks"), child(path, key)
    return {name: _rank_list(found, name, where, ranks) for name in found}


def _rank_list(holder: Any, key: Any, path: str, ranks: int) -> Ranks:
    listed, where = items(holder, key, path, "a list of ranks"), child(path, key)
    if not listed:
        raise wrong(holder, key, path, "a list of one rank or more")
    seen: dict[int, int] = {}
    for i in range(len(listed)):
        rank = _rank(listed, i, where, ranks)
        if seen.setdefault(rank, i) != i:
            message = f"rank {rank} stands twice in one list, expected each once"
            raise refusal(child(where, i), message)
    return tuple(seen)


def _rank(holder: Any, key: Any, path: str, ranks: int) -> int:
    return integer(holder, key, path, below("rank", ranks), 0, ranks - 1)


# --- lanes ---------------------------------------------------------------------


def written_lanes(
    stated: Stated, path: str, ranks: int
) -> dict[int, list[tuple[str, list[Any], str]]]:
    """The lanes of each rank that has a program: (name, ops, path)."""
    lanes: dict[int, list[tuple[str, list[Any], str]]] = {}
    for rank, found, key, above in numbered(stated, "programs", path, "rank", ranks):
        where = child(above, key)
        if isinstance(found[key], list):
            lanes[rank] = [(MAIN, found[key], where)]
            continue
        named = entries(found, key, above, "a list of ops, or an object of lanes")
        lanes[rank] = [
            (lane, items(named, lane, where, "a list of ops"), child(where, lane))
            for lane in named
        ]
    return lanes


# --- demands and beginnings ----------------------------------------------------


def read_flag(stated: Stated, key: str, path: str) -> bool:
    """A key that is false where it is left out."""
    return key in stated and boolean(stated, key, path)


def read_details(stated: Stated, path: str, lists: Lists, stages: int) -> Details:
    """The sparse part of a program, as far as the document states it."""
    values: dict[str, Any] = {
        "budget": MappingProxyType(dict(_by_rank(stated, "budget", path, lists.ranks, integer))),
        "held": frozenset(_each(stated, "pre", path, lists.ranks, _payloads)),
        "resources": frozenset(_each(stated, "pre_res", path, lists.ranks, texts)),
        "leak_check": read_flag(stated, "leak_check", path),
    }
    if "may_remain" in stated:
        values["may_remain"] = frozenset(texts(stated, "may_remain", path))
    if "layers" in stated:
        values["layers"] = tuple(lists.layers.get(stage, ()) for stage in range(stages))
    if "n_layers" in stated:
        values["n_layers"] = _stated_count(stated, "n_layers", path)
    values.update(
        {key: read(stated, path, lists) for key, read in _DEMANDS.items() if key in stated}
    )
    return Details(**values)


def _by_rank(
    stated: Stated, key: str, path: str, ranks: int, read: Callable[[Any, Any, str], Any]
) -> list[tuple[int, Any]]:
    if key not in stated:
        return []
    return [
        (rank, read(found, name, where))
        for rank, found, name, where in numbered(stated, key, path, "rank", ranks)
    ]


def _each(
    stated: Stated, key: str, path: str, ranks: int, read: Callable[[Any, Any, str], Any]
) -> list[tuple[int, Any]]:
    by_rank = _by_rank(stated, key, path, ranks, read)
    return [(rank, value) for rank, values in by_rank for value in values]


def _payloads(holder: Any, key: Any, path: str) -> list[int]:
    listed, where = items(holder, key, path, "a list of payload ids"), child(path, key)
    payloads = []
    for i in range(len(listed)):
        expected = 'a payload id, "act:STAGE:MICROBATCH" or "grad:STAGE:MICROBATCH"'
        payload = parse_payload(text(listed, i, where, expected))
        if payload is None:
            raise wrong(listed, i, where, expected)
        payloads.append(payload[0])
    return payloads


def _want(stated: Stated, path: str, lists: Lists) -> Any:
    return linear_forms(stated, "want", path)


def _groups(stated: Stated, path: str, lists: Lists) -> Any:
    return MappingProxyType(dict(lists.groups))


def _replicas(stated: Stated, path: str, lists: Lists) -> Any:
    return MappingProxyType(_rank_lists(stated, "replicas", path, lists.ranks))


def _versions(stated: Stated, path: str, lists: Lists) -> Any:
    return word(stated, "versions", path, ("fb-equal",))


def _alias(stated: Stated, path: str, lists: Lists) -> Any:
    found = entries(stated, "alias", path, "an object from names to names")
    where = child(path, "alias")
    return MappingProxyType({name: text(found, name, where) for name in found})


def _want_effects(stated: Stated, path: str, lists: Lists) -> Any:
    found = entries(stated, "want_effects", path, 'an object such as {"0:bn": 1}')
    where = child(path, "want_effects")
    counts: dict[tuple[int, str], int] = {}
    for key in found:
        rank, colon, effect = key.partition(":")
        number = int(rank) if rank.isascii() and rank.isdigit() and len(rank) < 10 else -1
        if not colon or str(number) != rank or number >= lists.ranks:
            message = f'found {quoted(key)}, expected "RANK:EFFECT"'
            raise refusal(child(where, key), message, f"RANK is {below('rank', lists.ranks)}")
        counts[number, effect] = integer(found, key, where, "a number of times, 0 or more")
    return MappingProxyType(counts)


_DEMANDS: Mapping[str, Callable[[Stated, str, Lists], Any]] = {
    "groups": _groups,
    "want": _want,
    "replicas": _replicas,
    "want_effects": _want_effects,
    "versions": _versions,
    "alias": _alias,
}
"""Keys of the document that are fields of `Details` by the same name."""
