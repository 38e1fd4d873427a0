"""Cuts: programs that are a little less than a given one, for the shrinker.

What is cut is cut whole: a message with both of its ends, a request with the
waits for it, a collective with the calls of all members, a signal with those who
await it. Ids close up behind what is gone. A payload that an op needs and that
nothing makes any more becomes one that is there before the first op, which the
program format calls ``pre``; what was lacking before the cut stays lacking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pipeproof.program.ops import (
    COMPUTE,
    Kind,
    activation,
    gradient,
    is_gradient,
    stage_and_microbatch,
)
from pipeproof.program.pieces import Piece, Strand, apart, together
from pipeproof.program.programs import Attributes, Program
from pipeproof.replay.confirm import data_needs

Spot = tuple[int, int | None]
"""An op, or (op, member) one end of the messages that it posts."""

Lacking = set[tuple[int, int]]
"""(rank, payload) of what some op needs and nothing gives."""


@dataclass(frozen=True, slots=True)
class _Ids:
    """How ids change: None for what is gone."""

    rank: Callable[[int], int | None] = lambda rank: rank
    stage: Callable[[int], int | None] = lambda stage: stage
    microbatch: Callable[[int], int | None] = lambda microbatch: microbatch

    def payload(self, payload: int) -> int | None:
        """A payload under its new id; gone with its microbatch, or either of its stages."""
        if payload < 0:
            return payload
        stage, microbatch = stage_and_microbatch(payload)
        consumer = stage + (-1 if is_gradient(payload) else 1)
        new_stage, new_microbatch = self.stage(stage), self.microbatch(microbatch)
        if new_stage is None or new_microbatch is None or self.stage(consumer) is None:
            return None
        return (gradient if is_gradient(payload) else activation)(new_stage, new_microbatch)


def _closing(gone: int) -> Callable[[int], int | None]:
    """Ids close up behind the one that is gone."""

    def changed(number: int) -> int | None:
        return None if number == gone else number - (number > gone)

    return changed


def without_rank(program: Program, rank: int) -> Program | None:
    """The program without a rank, and without its end of every message and call."""
    owners = (a.more.get("owner") for a in program.details.attributes.values())
    if program.ranks == 1 or rank in owners:
        return None
    ids = _Ids(rank=_closing(rank))
    return _renumbered(program, ids, ranks=program.ranks - 1)


def without_microbatch(program: Program, microbatch: int) -> Program | None:
    """The program without the computes and messages of a microbatch."""
    if program.microbatches == 1:
        return None
    ids = _Ids(microbatch=_closing(microbatch))
    return _renumbered(program, ids, microbatches=program.microbatches - 1)


def without_end_stage(program: Program, first: bool) -> Program | None:
    """The program without its first or last stage."""
    details = program.details
    if program.stages <= 1 or details.layers is not None:
        return None
    if first and any(_names_weights(a) for a in details.attributes.values()):
        return None  # weights are called by their stage: they would be others'
    ids = _Ids(stage=_closing(0 if first else program.stages - 1))
    return _renumbered(program, ids, stages=program.stages - 1)


def _names_weights(attributes: Attributes) -> bool:
    named = {attributes.label, *attributes.more.get("uses", ()), *attributes.more.get("bumps", ())}
    named.update(attributes.more.get("grad", ()))
    return any(re.fullmatch(r"w\d+", name or "") for name in named)


def _renumbered(program: Program, ids: _Ids, **sizes: int) -> Program:
    details = program.details

    def ranks(listed: Collection[int]) -> tuple[int, ...]:
        return tuple(new for r in listed if (new := ids.rank(r)) is not None)

    def by_rank(entries: dict[int, Any]) -> dict[int, Any]:
        return {new: v for r, v in entries.items() if (new := ids.rank(r)) is not None}

    held = {(ids.rank(r), ids.payload(p)) for r, p in details.held}
    resources = {(ids.rank(r), name) for r, name in details.resources}
    effects = {(ids.rank(r), n): c for (r, n), c in details.want_effects.items()}
    changed = replace(
        details,
        held=frozenset((r, p) for r, p in held if r is not None and p is not None),
        resources=frozenset((r, n) for r, n in resources if r is not None),
        want_effects={(r, n): c for (r, n), c in effects.items() if r is not None},
        budget=by_rank(dict(details.budget)),
        groups={name: ranks(members) for name, members in details.groups.items()},
        replicas={name: ranks(members) for name, members in details.replicas.items()},
    )
    hosts = [h for s, h in enumerate(program.hosts) if ids.stage(s) is not None]
    strands = []
    for strand in apart(program):
        rank = ids.rank(strand.rank)
        if rank is not None:
            pieces = tuple(p for piece in strand.pieces for p in _changed(piece, ids))
            strands.append(Strand(rank, strand.name, pieces))
    cut = together(
        program, strands, details=changed, hosts=tuple(ranks(h) for h in hosts), **sizes
    )
    before = {(ids.rank(r), ids.payload(p)) for r, p in lacking(program)}
    return _completed(cut, {(r, p) for r, p in before if r is not None and p is not None})


def _changed(piece: Piece, ids: _Ids) -> Iterator[Piece]:
    """The piece under new ids; none where it is gone."""
    stage = ids.stage(piece.stage) if piece.stage >= 0 else piece.stage
    microbatch = ids.microbatch(piece.microbatch) if piece.microbatch >= 0 else piece.microbatch
    if piece.kind in COMPUTE and (stage is None or microbatch is None):
        return
    ends = []
    for end in piece.ends:
        peer, payload = ids.rank(end.peer), ids.payload(end.payload)
        # A receive from any rank names none.
        peer = end.peer if end.peer < 0 else peer
        if peer is not None and payload is not None:
            ends.append(replace(end, peer=peer, payload=payload))
    if piece.ends and not ends:
        return
    attributes = piece.attributes
    if attributes is not None:
        owner = attributes.more.get("owner")
        more = attributes.more if owner is None else {**attributes.more, "owner": ids.rank(owner)}
        attributes = replace(
            attributes,
            reads=tuple((slot, _content(content, ids)) for slot, content in attributes.reads),
            writes=tuple((slot, _content(content, ids)) for slot, content in attributes.writes),
            more=MappingProxyType(dict(more)),
        )
    if piece.kind in (Kind.SEND, Kind.RECV, Kind.GROUP):
        stage, microbatch = piece.stage, piece.microbatch
    yield replace(
        piece,
        stage=-1 if stage is None else stage,
        microbatch=-1 if microbatch is None else microbatch,
        ends=tuple(ends),
        attributes=attributes,
    )


def _content(content: str, ids: _Ids) -> str:
    """What is in a slot, where it is a payload: under its new id."""
    found = re.fullmatch(r"(act|grad):(\d+):(\d+)", content)
    if not found:
        return content
    stage, microbatch = ids.stage(int(found[2])), ids.microbatch(int(found[3]))
    gone = stage is None or microbatch is None
    return content if gone else f"{found[1]}:{stage}:{microbatch}"


# --- ops -----------------------------------------------------------------------


def units(program: Program) -> list[tuple[Spot, ...]]:
    """What can be left out of a program, each a thing with all that goes with it."""
    found: list[tuple[Spot, ...]] = []
    calls: dict[object, list[Spot]] = {}
    ends: dict[object, list[list[Spot]]] = {}
    made: dict[object, int] = {}
    op = 0
    for strand in apart(program):
        for piece in strand.pieces:
            attributes = piece.attributes or Attributes()
            if piece.kind is Kind.COLL:
                group = attributes.more["group"]
                index = made[strand.rank, group] = made.get((strand.rank, group), -1) + 1
                calls.setdefault(("call", group, index), []).append((op, None))
            elif piece.kind in (Kind.SIGNAL, Kind.AWAIT):
                event = ("signal", strand.rank, attributes.label)
                calls.setdefault(event, []).append((op, None))
            elif not piece.ends:
                found.append(((op, None),))
            for number, end in enumerate(piece.ends):
                pair = (strand.rank, end.peer) if end.send else (end.peer, strand.rank)
                both = ends.setdefault((*pair, end.comm, end.payload), [[], []])
                both[not end.send].append((op, number))
            op += 1
    found += [tuple(spots) for spots in calls.values()]
    for sends, receives in ends.values():
        for i in range(max(len(sends), len(receives))):
            found.append((*sends[i : i + 1], *receives[i : i + 1]))
    return sorted(found, key=lambda spots: spots[0][0])


def without_units(program: Program, gone: Collection[tuple[Spot, ...]]) -> Program:
    """The program without some of its units."""
    spots = {spot for unit in gone for spot in unit}
    strands, op = [], 0
    for strand in apart(program):
        pieces = []
        for piece in strand.pieces:
            if (op, None) not in spots:
                left = tuple(e for n, e in enumerate(piece.ends) if (op, n) not in spots)
                if left or not piece.ends:
                    pieces.append(replace(piece, ends=left))
            op += 1
        strands.append(replace(strand, pieces=tuple(pieces)))
    return _completed(together(program, strands), lacking(program))


def plainer(program: Program) -> Program | None:
    """The program with every group of one message a plain send or receive, and its only
    communicator the one without a name; None where it is so already."""
    comms = set(program.messages.comm.tolist())

    def plain(piece: Piece) -> Piece:
        if len(comms) == 1:
            piece = replace(piece, ends=tuple(replace(end, comm=0) for end in piece.ends))
        if piece.kind is not Kind.GROUP or len(piece.ends) != 1:
            return piece
        return replace(piece, kind=Kind.SEND if piece.ends[0].send else Kind.RECV)

    strands = apart(program)
    changed = tuple(replace(s, pieces=tuple(map(plain, s.pieces))) for s in strands)
    return None if changed == strands else together(program, changed)


def simpler_pieces(program: Program) -> Iterator[Program]:
    """The program with one op that carries one thing less, a program a thing."""
    strands = apart(program)
    for number, strand in enumerate(strands):
        for at, piece in enumerate(strand.pieces):
            for other in _simpler(piece):
                pieces = (*strand.pieces[:at], other, *strand.pieces[at + 1 :])
                changed = [*strands[:number], replace(strand, pieces=pieces)]
                yield _completed(
                    together(program, [*changed, *strands[number + 1 :]]), lacking(program)
                )


def _simpler(piece: Piece) -> Iterator[Piece]:
    for i in range(len(piece.waits)):
        left = piece.waits[:i] + piece.waits[i + 1 :]
        if left or piece.kind is not Kind.WAIT:
            yield replace(piece, waits=left)
    if piece.posts >= 0:
        yield replace(piece, posts=-1)
    if any(end.traits is not None for end in piece.ends):
        yield replace(piece, ends=tuple(replace(end, traits=None) for end in piece.ends))
    attributes = piece.attributes
    if attributes is None:
        return
    plain = Attributes()
    argued = {Kind.ALLOC: "alloc", Kind.FREE: "free", Kind.MAKE: "needs", Kind.DROP: "needs"}
    for name in ("alloc", "free", "writes", "reads", "needs"):
        if getattr(attributes, name) and argued.get(piece.kind) != name:
            changes: dict[str, Any] = {name: getattr(plain, name)}
            yield replace(piece, attributes=replace(attributes, **changes))
    for keys in (("grad", "grad_mode"), ("effects",), ("uses", "it"), ("rng",), ("bumps", "to")):
        if keys[0] in attributes.more:
            more = {k: v for k, v in attributes.more.items() if k not in keys}
            yield replace(piece, attributes=replace(attributes, more=MappingProxyType(more)))


# --- what is there before the first op ------------------------------------------


def lacking(program: Program) -> Lacking:
    """What some op needs, and neither its rank makes or receives nor has at first."""
    given: Lacking = set(program.details.held)
    needed: Lacking = set()
    op = 0
    for strand in apart(program):
        for piece in strand.pieces:
            rank = strand.rank
            needed |= {(rank, payload) for payload in data_needs(program, op)[0]}
            given |= {(rank, payload) for payload in _made(piece)}
            op += 1
    return needed - given


def _made(piece: Piece) -> Iterator[int]:
    if piece.kind is Kind.F:
        yield activation(piece.stage, piece.microbatch)
    if piece.kind in (Kind.B, Kind.I):
        yield gradient(piece.stage, piece.microbatch)
    yield from (end.payload for end in piece.ends if not end.send)


def _completed(cut: Program, before: Lacking) -> Program:
    """The cut program with what it lacks now, and did not before, there from the first;
    without what nobody needs any more."""
    details = cut.details
    held = frozenset(details.held | (lacking(cut) - before))
    bare = replace(cut, details=replace(details, held=frozenset()))
    return replace(cut, details=replace(details, held=held & frozenset(lacking(bare))))
