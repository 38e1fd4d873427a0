"""A program as lists of pieces, one an op, for those who cut and change programs.

The flat arrays of a ``Program`` are for reading fast; a piece holds everything
about one op together, so that leaving it out, doubling it or moving it is an
edit of a list. Whatever a piece came from, its place in the input goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeproof.program.ops import Kind
from pipeproof.program.programs import (
    Attributes,
    Lane,
    Messages,
    Origin,
    Program,
    Traits,
    Waits,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class End:
    """One end of a message, as its op posts it."""

    send: bool
    peer: int
    payload: int
    comm: int
    traits: Traits | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One op. ``posts`` is the request it posts (-1: it blocks), ``waits`` those it
    waits for; requests are numbers of the program that the piece came from."""

    kind: Kind
    stage: int = -1
    microbatch: int = -1
    posts: int = -1
    waits: tuple[int, ...] = ()
    ends: tuple[End, ...] = ()
    attributes: Attributes | None = None
    line: int = 0
    column: int = 0
    path: str = ""


@dataclass(frozen=True, slots=True)
class Strand:
    """The pieces of one lane, in order."""

    rank: int
    name: str
    pieces: tuple[Piece, ...]


def apart(program: Program) -> tuple[Strand, ...]:
    """The pieces of a program, a strand a lane; piece i of all of them is op i."""
    m, origin, details = program.messages, program.origin, program.details
    ends: list[list[End]] = [[] for _ in range(program.ops)]
    rows = zip(
        m.op.tolist(),
        m.send.tolist(),
        m.peer.tolist(),
        m.payload.tolist(),
        m.comm.tolist(),
        strict=True,
    )
    for row, (op, send, peer, payload, comm) in enumerate(rows):
        ends[op].append(End(send, peer, payload, comm, details.traits.get(row)))
    waits: list[list[int]] = [[] for _ in range(program.ops)]
    for op, request in zip(program.waits.op.tolist(), program.waits.request.tolist(), strict=True):
        waits[op].append(request)
    columns = zip(
        program.kind.tolist(),
        program.stage.tolist(),
        program.microbatch.tolist(),
        program.request.tolist(),
        origin.line.tolist(),
        origin.column.tolist(),
        origin.path or [""] * program.ops,
        strict=True,
    )
    pieces = [
        Piece(
            Kind(kind),
            stage,
            microbatch,
            request,
            tuple(waits[op]),
            tuple(ends[op]),
            details.attributes.get(op),
            line,
            column,
            path,
        )
        for op, (kind, stage, microbatch, request, line, column, path) in enumerate(columns)
    ]
    return tuple(
        Strand(lane.rank, lane.name, tuple(pieces[lane.first : lane.stop]))
        for lane in program.lanes
    )


def together(program: Program, strands: Iterable[Strand], **changes: Any) -> Program:
    """``program`` with other pieces; ``changes`` are further fields of ``Program``.

    A request that is posted twice becomes two, and waits mean the first. Nobody
    waits for a request that is no longer posted: a WAIT that is left with
    nothing to wait for goes, too.
    """
    strands = tuple(strands)
    posted = _posted(strands)
    listed = [_waiting(strand, posted) for strand in strands]
    pieces = [piece for strand in listed for piece in strand.pieces]
    requests, number = _requests(pieces)
    rank = [strand.rank for strand in listed for _ in strand.pieces]
    rows = [(op, end) for op, piece in enumerate(pieces) for end in piece.ends]
    waits = [(op, number[r]) for op, piece in enumerate(pieces) for r in piece.waits]
    paths = tuple(piece.path for piece in pieces)
    details = changes.pop("details", program.details)
    return replace(
        program,
        lanes=tuple(_lanes(listed)),
        kind=_column((p.kind for p in pieces), np.uint8),
        stage=_column((p.stage for p in pieces), np.int32),
        microbatch=_column((p.microbatch for p in pieces), np.int32),
        request=_column(requests, np.int32),
        messages=Messages(
            op=_column((op for op, _ in rows), np.int32),
            send=_column((end.send for _, end in rows), np.bool_),
            rank=_column((rank[op] for op, _ in rows), np.int32),
            peer=_column((end.peer for _, end in rows), np.int32),
            payload=_column((end.payload for _, end in rows), np.int64),
            comm=_column((end.comm for _, end in rows), np.int32),
        ),
        waits=Waits(
            _column((op for op, _ in waits), np.int32),
            _column((request for _, request in waits), np.int32),
        ),
        origin=Origin(
            _column((p.line for p in pieces), np.int32),
            _column((p.column for p in pieces), np.int32),
            paths if any(paths) else (),
        ),
        details=replace(
            details,
            attributes=MappingProxyType(
                {op: p.attributes for op, p in enumerate(pieces) if p.attributes is not None}
            ),
            traits=MappingProxyType(
                {row: e.traits for row, (_, e) in enumerate(rows) if e.traits is not None}
            ),
            requests=_names(details.requests, [p.posts for p in pieces if p.posts >= 0]),
        ),
        **changes,
    )


def waits_in_time(pieces: Sequence[Piece]) -> bool:
    """Whether no piece waits for what only a later one of the same lane posts: there
    is no such program."""
    late = {piece.posts for piece in pieces if piece.posts >= 0}
    for piece in pieces:
        if not late.isdisjoint(piece.waits):
            return False
        late.discard(piece.posts)
    return True


def _posted(strands: Iterable[Strand]) -> set[int]:
    return {piece.posts for strand in strands for piece in strand.pieces if piece.posts >= 0}


def _waiting(strand: Strand, posted: set[int]) -> Strand:
    """The strand without waits for what nobody posts."""
    kept = []
    for piece in strand.pieces:
        if not posted.issuperset(piece.waits):
            left = tuple(r for r in piece.waits if r in posted)
            if not left and piece.kind is Kind.WAIT:
                continue
            piece = replace(piece, waits=left)
        kept.append(piece)
    return replace(strand, pieces=tuple(kept))


def _requests(pieces: Sequence[Piece]) -> tuple[list[int], dict[int, int]]:
    """The request that each piece posts, counted anew; old number -> new number."""
    requests: list[int] = []
    number: dict[int, int] = {}
    count = 0
    for piece in pieces:
        requests.append(count if piece.posts >= 0 else -1)
        if piece.posts >= 0:
            number.setdefault(piece.posts, count)
            count += 1
    return requests, number


def _names(names: tuple[str, ...], posts: list[int]) -> tuple[str, ...]:
    """The names of the requests; a second one of the same number is told apart."""
    if not names:
        return ()
    found: list[str] = []
    seen: set[int] = set()
    taken = set(names)
    for request in posts:
        name = names[request]
        if request in seen:
            while name in taken:
                name += "'"
            taken.add(name)
        seen.add(request)
        found.append(name)
    return tuple(found)


def _lanes(strands: Sequence[Strand]) -> Iterable[Lane]:
    first = 0
    for strand in strands:
        yield Lane(strand.rank, strand.name, first, first + len(strand.pieces))
        first += len(strand.pieces)


def _column(values: Iterable[Any], dtype: Any) -> NDArray[Any]:
    return np.array(list(values), dtype)
