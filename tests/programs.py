"""Small programs for tests, written as the program format writes them.

``program`` takes one list of ops a rank::

    program(
        [["F", 0, 0], ["ISEND", "act", 0, 0, 1, {"req": "a"}], ["WAIT", "a"]],
        [["RECV", "act", 0, 0, 0], ["F", 1, 0]],
    )

A rank with several lanes is a dictionary of lists. Beyond the format, the
attribute ``wait`` attaches waits to any op: ``["F", 1, 0, {"wait": ["r"]}]``.
Input is trusted: what is wrong with it raises whatever it happens to raise.

``programs`` and ``transports`` are Hypothesis strategies for the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from pipeproof.program.ops import COMPUTE, SHARDING, Kind, activation, gradient, named
from pipeproof.program.programs import (
    ANY,
    Attributes,
    Details,
    Lane,
    Messages,
    Origin,
    Program,
    Traits,
    Waits,
)
from pipeproof.program.transports import Grouping, Match, Progress, Streams, Transport

Op = Sequence[Any]
Rank = Sequence[Op] | Mapping[str, Sequence[Op]]

KINDS = {kind.name: kind for kind in Kind} | {
    "BI": Kind.I,
    "ISEND": Kind.SEND,
    "IRECV": Kind.RECV,
}
ENDS = ("SEND", "ISEND", "RECV", "IRECV")


@dataclass(slots=True)
class _Columns:
    """A program being put together: the arrays, as lists."""

    lanes: list[Lane] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    microbatch: list[int] = field(default_factory=list)
    request: list[int] = field(default_factory=list)
    rows: list[tuple[int, bool, int, int, int, int]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    comms: list[str] = field(default_factory=lambda: [""])
    requests: list[str] = field(default_factory=list)
    posted: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    attributes: dict[int, Attributes] = field(default_factory=dict)
    traits: dict[int, Traits] = field(default_factory=dict)

    def payload(self, *words: Any) -> int:
        """The id of ``act, S, B``, ``grad, S, B``, ``kind, S, B`` or a name."""
        if words[0] in ("act", "grad"):
            return int((activation if words[0] == "act" else gradient)(words[1], words[2]))
        return named(_index(self.names, ":".join(map(str, words))))


def program(
    *ranks: Rank,
    stages: int | None = None,
    microbatches: int | None = None,
    placement: Sequence[int | Sequence[int]] = (),
    transport: Transport | None = None,
    name: str = "test",
    recipe: str | None = None,
    complete: bool = False,
    forward_only: bool = False,
    held: Mapping[int, Iterable[str]] | None = None,
    resources: Mapping[int, Iterable[str]] | None = None,
    **details: Any,
) -> Program:
    """A program of these ranks.

    ``placement[s]`` is the rank or ranks of stage s; stages without one have
    no known host. Stages and microbatches are counted if not given.
    ``held`` (payloads as ``act:0:1``) and ``resources`` exist before the first
    op; ``details`` are further fields of ``Details``.
    """
    columns = _Columns()
    ops = [(rank, lane, op) for rank, own in enumerate(ranks) for lane, op in _ops_of(own)]
    for rank, _, op in ops:
        # Lanes may wait for what a later lane posts, so all posts are numbered first.
        if "req" in _split(op)[1]:
            request = _split(op)[1]["req"]
            columns.posted.setdefault((rank, request), []).append(len(columns.requests))
            columns.requests.append(request)
    issued = 0
    for rank, own in enumerate(ranks):
        for lane, sequence in _lanes_of(own):
            latest: dict[str, int] = {}  # what an id means is its last post on the lane
            first = len(columns.kind)
            for op in sequence:
                issued = _add(columns, rank, op, latest, issued)
            columns.lanes.append(Lane(rank, lane, first, len(columns.kind)))

    computes = [n for n, kind in enumerate(columns.kind) if kind in (*COMPUTE, *SHARDING)]
    if stages is None:
        stages = max([len(placement)] + [columns.stage[n] + 1 for n in computes])
    if microbatches is None:
        microbatches = max([0] + [columns.microbatch[n] + 1 for n in computes])
    hosts = [(h,) if isinstance(h, int) else tuple(h) for h in placement]
    hosts += [()] * (stages - len(hosts))
    rows = [np.array(c) for c in zip(*columns.rows, strict=True)] or [np.zeros(0, int)] * 6
    waits = [np.array(c, np.int32) for c in zip(*columns.waits, strict=True)]
    waits = waits or [np.zeros(0, np.int32)] * 2
    before = frozenset(
        (rank, _payload_of(columns, text)) for rank, own in (held or {}).items() for text in own
    )
    return Program(
        name=name,
        ranks=max([len(ranks)] + [peer + 1 for _, _, _, peer, _, _ in columns.rows]),
        stages=stages,
        microbatches=microbatches,
        hosts=tuple(hosts),
        lanes=tuple(columns.lanes),
        kind=np.array(columns.kind, np.uint8),
        stage=np.array(columns.stage, np.int32),
        microbatch=np.array(columns.microbatch, np.int32),
        request=np.array(columns.request, np.int32),
        messages=Messages(
            op=rows[0].astype(np.int32),
            send=rows[1].astype(np.bool_),
            rank=rows[2].astype(np.int32),
            peer=rows[3].astype(np.int32),
            payload=rows[4].astype(np.int64),
            comm=rows[5].astype(np.int32),
        ),
        waits=Waits(op=waits[0], request=waits[1]),
        origin=Origin(
            line=np.zeros(len(columns.kind), np.int32),
            column=np.zeros(len(columns.kind), np.int32),
        ),
        transport=transport or Transport(),
        recipe=recipe,
        complete=complete,
        forward_only=forward_only,
        details=Details(
            names=tuple(columns.names),
            comms=tuple(columns.comms),
            requests=tuple(columns.requests),
            attributes=columns.attributes,
            traits=columns.traits,
            held=before,
            resources=frozenset((r, name) for r, own in (resources or {}).items() for name in own),
            **details,
        ),
    )


def _lanes_of(rank: Rank) -> list[tuple[str, Sequence[Op]]]:
    return list(rank.items()) if isinstance(rank, Mapping) else [("main", rank)]


def _ops_of(rank: Rank) -> list[tuple[str, Op]]:
    return [(lane, op) for lane, sequence in _lanes_of(rank) for op in sequence]


def _split(op: Op) -> tuple[list[Any], dict[str, Any]]:
    """An op's words and its attributes."""
    return (list(op[:-1]), dict(op[-1])) if isinstance(op[-1], dict) else (list(op), {})


def _index(table: list[str], name: str) -> int:
    if name not in table:
        table.append(name)
    return table.index(name)


def _payload_of(columns: _Columns, text: str) -> int:
    words = text.split(":")
    return columns.payload(words[0], *map(int, words[1:]))


def _add(columns: _Columns, rank: int, op: Op, latest: dict[str, int], issued: int) -> int:
    """Append one op; the number of requests issued so far comes in and goes out."""
    (word, *arguments), attributes = _split(op)
    number, kind = len(columns.kind), KINDS[word]
    stage, microbatch = -1, -1
    given: dict[str, Any] = {}
    if kind in COMPUTE:
        stage, microbatch = arguments
    elif kind in SHARDING:
        (stage,) = arguments
    elif word in ENDS:
        _add_row(columns, number, rank, op)
    elif kind is Kind.GROUP:
        for member in arguments[0]:
            _add_row(columns, number, rank, member)
    elif kind in (Kind.WAIT, Kind.WAITANY):
        attributes["wait"] = arguments
    elif kind is Kind.ALLOC:
        given["alloc"] = (tuple(arguments),)
    elif kind is Kind.FREE:
        given["free"] = tuple(arguments)
    elif kind in (Kind.MAKE, Kind.DROP):
        given["needs"] = tuple(arguments)
    elif kind in (Kind.COPY, Kind.ICOPY):
        given["more"] = {"copy": tuple(arguments)}
    elif kind is Kind.COLL:
        name, group, label = arguments
        given["label"], given["more"] = label, {"kind": name, "group": group}
    elif arguments:
        given["label"] = str(arguments[0])

    # The last post of that id on this lane, else the first one of another lane.
    for request in attributes.pop("wait", ()):
        target = latest.get(request)
        target = columns.posted[rank, request][0] if target is None else target
        columns.waits.append((number, target))
    columns.kind.append(kind)
    columns.stage.append(stage)
    columns.microbatch.append(microbatch)
    if "req" in attributes:
        latest[attributes.pop("req")] = issued
        columns.request.append(issued)
        issued += 1
    else:
        columns.request.append(-1)
    if word in ENDS:  # these speak of the message, not of the op
        for key in ("comm", "shape", "dtype", "count", "buf"):
            attributes.pop(key, None)
        if attributes.pop("commutes", False):
            given["more"] = {"commutes": (0,)}
    if attributes or given:
        columns.attributes[number] = _attributes(attributes, given)
    return issued


def _add_row(columns: _Columns, number: int, rank: int, end: Op) -> None:
    (word, *payload, peer), attributes = _split(end)
    traits = Traits(
        shape=tuple(attributes["shape"]) if "shape" in attributes else None,
        dtype=attributes.get("dtype"),
        count=attributes.get("count"),
        buf=attributes.get("buf"),
    )
    if traits != Traits():
        columns.traits[len(columns.rows)] = traits
    comm = _index(columns.comms, attributes.get("comm", ""))
    send = word in ("SEND", "ISEND")
    peer = ANY if peer == "any" else peer
    columns.rows.append((number, send, rank, peer, columns.payload(*payload), comm))


def _attributes(stated: dict[str, Any], given: dict[str, Any]) -> Attributes:
    known: dict[str, Any] = {
        "label": given.get("label"),
        "redo": bool(stated.pop("redo", False)),
        "anywhere": bool(stated.pop("anywhere", False)),
        "nodeps": bool(stated.pop("nodeps", False)),
        "alloc": given.get("alloc", ()) + tuple(stated.pop("alloc", {}).items()),
        "free": given.get("free", ()) + tuple(stated.pop("free", ())),
        "writes": tuple((slot, content) for slot, content in stated.pop("w", ())),
        "reads": tuple((slot, content) for slot, content in stated.pop("r", ())),
        "needs": given.get("needs", ()) + tuple(stated.pop("needs", ())),
    }
    return Attributes(**known, more=stated | given.get("more", {}))


# --- strategies ---------------------------------------------------------------

ALL_TRANSPORTS = [
    Transport("test", streams, capacity, match, group, progress)
    for streams, capacity, match, group, progress in product(
        Streams, (0, 1, 2, None), Match, Grouping, Progress
    )
]
"""Every transport, with the capacities at which something may change."""


def transports() -> st.SearchStrategy[Transport]:
    """Any transport; rendezvous on free streams is the simplest."""
    return st.sampled_from(ALL_TRANSPORTS)


@st.composite
def programs(
    draw: st.DrawFn, *, ranks: int = 3, messages: int = 5, ends: int = 4, lanes: int = 1
) -> Program:
    """Programs of messages alone: 2 to ``ranks`` ranks, up to ``messages`` messages
    and ``ends`` ends a lane, most of them matched, in any order on their lanes.

    Neighbouring ends may form groups, and whatever is posted may be
    asynchronous, waited for at any later place of its lane, or never.
    """
    count = draw(st.integers(2, ranks))
    loose: list[tuple[int, Op]] = []  # (rank, a send or receive)
    for _ in range(draw(st.integers(1, messages))):
        sender = draw(st.integers(0, count - 1))
        # A rank that sends to itself is possible, and the least likely.
        receiver = (sender + draw(st.sampled_from([1, 1, 1, 2, 2, 0]))) % count
        payload = draw(st.sampled_from("xy"))
        extra = [{"comm": "c"}] if draw(st.sampled_from([False, False, True])) else []
        both = draw(st.sampled_from(["both"] * 8 + ["send", "receive"]))
        if both != "receive":
            loose.append((sender, ["SEND", payload, receiver, *extra]))
        if both != "send":
            loose.append((receiver, ["RECV", payload, sender, *extra]))
    placed: list[list[list[Op]]] = [[[] for _ in range(lanes)] for _ in range(count)]
    for rank, end in draw(st.permutations(loose)):
        lane = placed[rank][draw(st.integers(0, lanes - 1))]
        if len(lane) < ends:
            lane.append(end)
    return program(
        *(
            {f"lane {n}": _issued(draw, f"{n}.", lane) for n, lane in enumerate(own)}
            for own in placed
        )
    )


def _issued(draw: st.DrawFn, prefix: str, ends: list[Op]) -> list[Op]:
    """How the ends of one lane are posted, and where they are waited for."""
    posts: list[Op] = []
    while ends:
        size = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
        if size == 0:
            posts.append(ends[0])
            ends = ends[1:]
        else:
            posts.append(["GROUP", ends[:size]])
            ends = ends[size:]
    sequence: list[Op] = []
    pending: list[str] = []
    for number, post in enumerate(posts):
        words, attributes = _split(post)
        request = None
        if draw(st.booleans()):
            request = f"{prefix}{number}"
            attributes["req"] = request
            words[0] = words[0] if words[0] == "GROUP" else "I" + words[0]
        if draw(st.booleans()) and pending:
            some = draw(st.integers(1, len(pending)))
            ready, pending = pending[:some], pending[some:]
            how = draw(st.sampled_from(["wait", "wait", "consume"]))
            if how == "wait":
                sequence.append(["WAIT", *ready])
            else:
                sequence.append(["X", "consumer", {"wait": ready}])
        sequence.append([*words, attributes])
        if request is not None:
            pending.append(request)
    if draw(st.integers(0, 2)) < 2 and pending:
        sequence.append(["WAIT", *pending])
    return sequence
