"""A Program to the program format, version 1: the inverse of `read_program`.

Reading what is printed gives the program again, in meaning: the same ops on
the same lanes, messages, waits, details and transport. An op that waits before
it runs becomes a WAIT and the op. What the format cannot say is left out
(``forward_only`` and the recipe) or printed as an X (sharding of parameters).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from pipeproof.formats.program_document import MAIN
from pipeproof.formats.program_transport import print_transport
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import SHARDING, Kind, is_gradient, stage_and_microbatch
from pipeproof.program.programs import ANY, OBSERVED, Attributes, Lane, Program, Traits

Document = dict[str, Any]


def print_program(program: Program) -> Document:
    """The document of a program: plain values, ready for ``json.dumps``."""
    document: Document = {
        "n_ranks": program.ranks,
        "stages": program.stages,
        "m": program.microbatches,
    }
    placement = {str(s): _one_or_list(hosts) for s, hosts in enumerate(program.hosts) if hosts}
    if placement:
        document["placement"] = placement
    document["semantics"] = print_transport(program.transport)
    if program.complete and not program.forward_only:  # which would demand backwards
        document["complete"] = True
    document.update(_details(program))
    document["programs"] = _Printer(program).lanes()
    return document


def _details(program: Program) -> Document:
    details = program.details
    document: Document = {
        "pre": _by_rank((rank, payload_name(program, p)) for rank, p in details.held),
        "pre_res": _by_rank(details.resources),
        "budget": {str(rank): units for rank, units in details.budget.items()},
        "leak_check": details.leak_check,
        "may_remain": sorted(details.may_remain),
    }
    document = {key: value for key, value in document.items() if value}
    if details.layers is not None:
        document["layers"] = {str(s): list(listed) for s, listed in enumerate(details.layers)}
    if details.n_layers is not None:
        document["n_layers"] = details.n_layers
    for key in ("groups", "replicas", "want", "want_effects", "versions", "alias"):
        value = getattr(details, key)
        if value and value != OBSERVED:  # which demands nothing
            document[key] = _PRINT[key](value)
    return document


def _one_or_list(ranks: tuple[int, ...]) -> int | list[int]:
    return ranks[0] if len(ranks) == 1 else list(ranks)


def _by_rank(pairs: Iterable[tuple[int, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for rank, name in sorted(pairs):
        found.setdefault(str(rank), []).append(name)
    return found


# --- ops -----------------------------------------------------------------------


class _Printer:
    """Prints ops; holds the columns as lists, which are quicker to index."""

    def __init__(self, program: Program) -> None:
        m, waits = program.messages, program.waits
        self.program = program
        self.kind = program.kind.tolist()
        self.stage = program.stage.tolist()
        self.microbatch = program.microbatch.tolist()
        self.request = program.request.tolist()
        self.send = m.send.tolist()
        self.peer = m.peer.tolist()
        self.payload = m.payload.tolist()
        self.comm = m.comm.tolist()
        self.rows = _positions(m.op.tolist())
        self.waits = {
            op: [int(waits.request[i]) for i in places]
            for op, places in _positions(waits.op.tolist()).items()
        }
        self.ids = self._request_ids()

    def lanes(self) -> Document:
        """``programs``: a list of ops a rank, or an object of its lanes."""
        ranks: dict[str, dict[str, list[Any]]] = {}
        for lane in self.program.lanes:
            ops: list[Any] = []
            for op in range(lane.first, lane.stop):
                self._print(op, ops)
            ranks.setdefault(str(lane.rank), {})[lane.name] = ops
        return {
            rank: lanes[MAIN] if list(lanes) == [MAIN] else lanes for rank, lanes in ranks.items()
        }

    def _print(self, op: int, ops: list[Any]) -> None:
        kind = Kind(self.kind[op])
        ids = [self.ids[request] for request in self.waits.get(op, ())]
        if ids and kind not in (Kind.WAIT, Kind.WAITANY):
            ops.append(["WAIT", *ids])
        attributes = self.program.details.attributes.get(op, _NO_ATTRIBUTES)
        if kind <= Kind.R:
            words = ["BI" if kind is Kind.I else kind.name, self.stage[op], self.microbatch[op]]
        elif kind in (Kind.WAIT, Kind.WAITANY):
            words = [kind.name, *ids]
        elif kind in (Kind.SEND, Kind.RECV, Kind.GROUP):
            words = self._message(op, kind, attributes)
        elif kind in SHARDING:
            words = ["X", op_text(self.program, op)]
        else:
            words = [kind.name, *_ARGUMENTS.get(kind, _label)(attributes)]
        stated = _attributes(kind, attributes)
        if self.request[op] >= 0:
            stated["req"] = self.ids[self.request[op]]
        if stated and isinstance(words[-1], dict):
            words[-1].update(stated)  # an end's own attributes, of a send on its own
        elif stated:
            words.append(stated)
        if len(words) > 1:  # a WAIT for nothing has no place in the format
            ops.append(words)

    def _message(self, op: int, kind: Kind, attributes: Attributes) -> list[Any]:
        commuting = attributes.more.get("commutes", ())
        ends = [self._end(row, i in commuting) for i, row in enumerate(self.rows.get(op, ()))]
        if kind is Kind.GROUP:
            return ["GROUP", ends]
        (end,) = ends
        return [f"I{end[0]}" if self.request[op] >= 0 else end[0], *end[1:]]

    def _end(self, row: int, commutes: bool) -> list[Any]:
        payload, details = self.payload[row], self.program.details
        words: list[Any] = ["SEND" if self.send[row] else "RECV"]
        if payload < 0:
            words.append(payload_name(self.program, payload))
        else:
            words += ["grad" if is_gradient(payload) else "act", *stage_and_microbatch(payload)]
        words.append("any" if self.peer[row] == ANY else self.peer[row])
        stated = _traits(details.traits.get(row, _NO_TRAITS))
        if self.comm[row]:
            stated["comm"] = details.comms[self.comm[row]]
        if commutes:
            stated["commutes"] = True
        return [*words, stated] if stated else words

    def _request_ids(self) -> list[str]:
        """An id a request: the producer's own, where reading finds the same pairs by them."""
        ids = list(self.program.details.requests)
        count = max(self.request, default=-1) + 1
        return (
            ids if len(ids) >= count and self._found_by(ids) else [f"r{i}" for i in range(count)]
        )

    def _found_by(self, ids: list[str]) -> bool:
        posted: dict[tuple[int, str], int] = {}
        for op, request in enumerate(self.request):
            if request >= 0:
                key = self.program.rank_of(op), ids[request]
                posted[key] = posted.get(key, 0) + 1
        return all(self._lane_found_by(ids, posted, lane) for lane in self.program.lanes)

    def _lane_found_by(
        self, ids: list[str], posted: Mapping[tuple[int, str], int], lane: Lane
    ) -> bool:
        latest: dict[str, int] = {}
        unwaited: set[str] = set()
        for op in range(lane.first, lane.stop):
            for request in self.waits.get(op, ()):
                name = ids[request]
                unwaited.discard(name)
                if latest.get(name, request) != request:
                    return False
                if name not in latest and posted.get((lane.rank, name)) != 1:
                    return False
            if self.request[op] >= 0:
                name = ids[self.request[op]]
                if name in unwaited:
                    return False
                latest[name] = self.request[op]
                unwaited.add(name)
        return True


def _positions(ops: list[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for position, op in enumerate(ops):
        found.setdefault(op, []).append(position)
    return found


# --- arguments and attributes --------------------------------------------------

_NO_ATTRIBUTES = Attributes()
_NO_TRAITS = Traits()

_IN_ARGUMENTS = frozenset({"kind", "group", "copy", "factor", "version", "commutes"})
"""What ``more`` holds that the op's arguments say."""


def _label(a: Attributes) -> list[Any]:
    return [a.label or ""]


_ARGUMENTS: Mapping[Kind, Callable[[Attributes], list[Any]]] = {
    Kind.ALLOC: lambda a: list(a.alloc[0]),
    Kind.FREE: lambda a: [a.free[0]],
    Kind.MAKE: lambda a: [a.needs[0]],
    Kind.DROP: lambda a: [a.needs[0]],
    Kind.COPY: lambda a: list(a.more["copy"]),
    Kind.ICOPY: lambda a: list(a.more["copy"]),
    Kind.COLL: lambda a: [a.more["kind"], a.more["group"], a.label],
    Kind.SCALE: lambda a: [a.label, _coefficient(a.more["factor"])],
    Kind.ROLLBACK: lambda a: [a.label, a.more["version"]],
}
"""The arguments of kinds that have others than their label."""


def _attributes(kind: Kind, a: Attributes) -> Document:
    """The attribute object of an op; its first entry may be an argument."""
    alloc = a.alloc[1:] if kind is Kind.ALLOC else a.alloc
    free = a.free[1:] if kind is Kind.FREE else a.free
    needs = a.needs[1:] if kind in (Kind.MAKE, Kind.DROP) else a.needs
    stated: Document = {
        "redo": a.redo,
        "anywhere": a.anywhere,
        "nodeps": a.nodeps,
        "alloc": dict(alloc),
        "free": list(free),
        "needs": list(needs),
        "w": [list(pair) for pair in a.writes],
        "r": [list(pair) for pair in a.reads],
    }
    stated = {key: value for key, value in stated.items() if value}
    for key, value in a.more.items():
        if key not in _IN_ARGUMENTS:
            stated[key] = _PRINT.get(key, _as_is)(value)
    return stated


def _traits(traits: Traits) -> Document:
    stated: Document = {
        "shape": None if traits.shape is None else list(traits.shape),
        "dtype": traits.dtype,
        "count": traits.count,
        "buf": traits.buf,
    }
    return {key: value for key, value in stated.items() if value is not None}


def _as_is(value: Any) -> Any:
    return value


def _coefficient(value: Fraction) -> int | str:
    return value.numerator if value.denominator == 1 else str(value)


def _forms(value: Mapping[str, Mapping[str, Fraction]]) -> Document:
    return {
        name: {symbol: _coefficient(c) for symbol, c in form.items()}
        for name, form in value.items()
    }


def _lists(value: Mapping[str, tuple[int, ...]]) -> Document:
    return {name: list(ranks) for name, ranks in value.items()}


def _counts(value: Mapping[tuple[int, str], int]) -> Document:
    return {f"{rank}:{effect}": count for (rank, effect), count in value.items()}


_PRINT: Mapping[str, Callable[[Any], Any]] = {
    # Attributes.
    "grad": _forms,
    "effects": list,
    "uses": list,
    "bumps": list,
    # Keys of the document.
    "groups": _lists,
    "replicas": _lists,
    "want": _forms,
    "want_effects": _counts,
    "versions": _as_is,
    "alias": dict,
}
"""What is not JSON already, in ``more`` and in ``stated`` -> how it is written."""
