"""Rules about messages, waits and collectives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from pipeproof.faults.in_order import MESSAGES
from pipeproof.faults.sites import (
    Item,
    Listing,
    Site,
    Sites,
    Spot,
    attributes,
    carrying,
    carrying_more,
)
from pipeproof.program.ops import Kind, activation, gradient, is_gradient, stage_and_microbatch
from pipeproof.program.pieces import End, Piece
from pipeproof.program.programs import Program, Traits

# --- the ends of messages ------------------------------------------------------


def _ends(listing: Listing) -> Iterator[tuple[Spot, int, Piece, End]]:
    """Every message end of a program: its op's spot, its place in the op, both values."""
    for spot in listing.spots(*MESSAGES, Kind.GROUP):
        piece = listing.item(spot)
        for number, end in enumerate(piece.ends):
            yield spot, number, piece, end


def _with_end(piece: Piece, number: int, end: End | None) -> Piece:
    kept = () if end is None else (end,)
    return replace(piece, ends=(*piece.ends[:number], *kept, *piece.ends[number + 1 :]))


def _end_text(listing: Listing, end: End) -> str:
    """``0SEND_F1``, or the payload's own name."""
    verb = "SEND" if end.send else "RECV"
    if end.payload < 0:
        return f"{verb} {listing.program.details.names[-1 - end.payload]}"
    stage, microbatch = stage_and_microbatch(end.payload)
    if is_gradient(end.payload):
        return f"{stage if end.send else stage - 1}{verb}_B{microbatch}"
    return f"{stage if end.send else stage + 1}{verb}_F{microbatch}"


def end_dropped(send: bool) -> Callable[[Listing], Sites]:
    """A send (or receive) is left out, and so is the wait for it."""
    kind = Kind.SEND if send else Kind.RECV

    def sites(listing: Listing) -> Sites:
        for spot in listing.spots(kind):
            words = f"{listing.who(spot[0])} leaves out {listing.text(spot)}"
            yield listing.without(spot, words)
        for spot in listing.spots(Kind.GROUP):
            piece: Item = listing.item(spot)
            for number, end in enumerate(getattr(piece, "ends", ())):
                if end.send == send:
                    words = f"{listing.who(spot[0])} leaves out {_end_text(listing, end)}"
                    rest = _with_end(piece, number, None)
                    yield listing.instead(spot, words, *([rest] if rest.ends else []))

    return sites


def other_peer(listing: Listing) -> Sites:
    """One end of a message names another rank, where there is a third."""
    ranks = listing.target.ranks
    for spot, number, piece, end in _ends(listing):
        own = listing.rank(spot[0])
        others = [p % ranks for p in range(end.peer + 1, end.peer + ranks)]
        peer = next((p for p in others if p != own), None)
        if peer is not None and end.peer >= 0:
            way = "to" if end.send else "from"
            words = f"{listing.who(spot[0])} runs {_end_text(listing, end)} {way} rank {peer}"
            yield listing.instead(spot, words, _with_end(piece, number, replace(end, peer=peer)))


def other_payload(listing: Listing) -> Sites:
    """One end of a message names another microbatch."""
    for spot, number, piece, end in _ends(listing):
        if end.payload < 0:
            continue
        stage, microbatch = stage_and_microbatch(end.payload)
        payload = gradient if is_gradient(end.payload) else activation
        for change in (-1, 1):
            if microbatch + change >= 0:
                other = replace(end, payload=payload(stage, microbatch + change))
                words = (
                    f"{listing.who(spot[0])} runs {_end_text(listing, end)} as "
                    f"{_end_text(listing, other)}"
                )
                yield listing.instead(spot, words, _with_end(piece, number, other))


def other_comm(listing: Listing) -> Sites:
    """One end of a message uses another communicator, where there are several."""
    comms = listing.program.details.comms
    used = sorted({end.comm for *_, end in _ends(listing)})
    for spot, number, piece, end in _ends(listing):
        comm = next((c for c in used if c != end.comm), None)
        if comm is not None:
            name = comms[comm] or "the first one"
            words = f"{listing.who(spot[0])} runs {_end_text(listing, end)} on communicator {name}"
            yield listing.instead(spot, words, _with_end(piece, number, replace(end, comm=comm)))


def disagreeing(trait: str) -> Callable[[Listing], Sites]:
    """The two ends of a message state other tensors: ``trait`` is shape, dtype or count."""
    stated: tuple[Any, Any]
    stated = {"shape": ((1, 2), (2, 1)), "dtype": ("float32", "bfloat16"), "count": (1, 2)}[trait]

    def sites(listing: Listing) -> Sites:
        found = list(_ends(listing))
        mates = _mates(listing, found)
        for i, (spot, number, piece, end) in enumerate(found):
            if not end.send or i not in mates:
                continue
            there, other_number, other_piece, other = found[mates[i]]
            if there == spot:
                continue
            traits = (end.traits or Traits(), other.traits or Traits())
            changes: list[dict[str, Any]] = [{trait: value} for value in stated]
            own, its = (replace(t, **c) for t, c in zip(traits, changes, strict=True))
            changed = {spot: _with_end(piece, number, replace(end, traits=own))}
            changed[there] = _with_end(other_piece, other_number, replace(other, traits=its))
            words = (
                f"{listing.who(spot[0])} sends {_end_text(listing, end)} with {trait} {stated[0]}"
                f", {listing.who(there[0])} expects {stated[1]}"
            )
            yield Site(words, partial(_with_items, listing, changed))

    return sites


def _mates(listing: Listing, found: list[tuple[Spot, int, Piece, End]]) -> dict[int, int]:
    """For each send the receive that a healthy program gives it: the equally manieth of
    its payload on its channel."""
    sends: dict[tuple[int, ...], list[int]] = {}
    receives: dict[tuple[int, ...], list[int]] = {}
    for i, (spot, _, _, end) in enumerate(found):
        own = listing.rank(spot[0])
        ranks = (own, end.peer) if end.send else (end.peer, own)
        (sends if end.send else receives).setdefault((*ranks, end.comm, end.payload), []).append(i)
    return {
        s: r
        for key, listed in sends.items()
        for s, r in zip(listed, receives.get(key, ()), strict=False)
    }


def _with_items(listing: Listing, changed: dict[Spot, Piece]) -> Program:
    rows = {row: list(listing.rows[row]) for row, _ in changed}
    for (row, at), piece in changed.items():
        rows[row][at] = piece
    built = listing.with_rows(rows)
    assert isinstance(built, Program)
    return built


# --- their order ---------------------------------------------------------------


def swapped_receives(listing: Listing) -> Sites:
    """Two receives of a row that follow each other change places."""
    yield from _swapped(listing, Kind.RECV, "receives")


def swapped_sends(listing: Listing) -> Sites:
    """Two sends of a row that follow each other change places."""
    yield from _swapped(listing, Kind.SEND, "sends")


def _swapped(listing: Listing, kind: Kind, verb: str) -> Sites:
    for row, items in enumerate(listing.rows):
        places = [at for at, item in enumerate(items) if item.kind is kind]
        for i, j in pairwise(places):
            order = list(items)
            order[i], order[j] = items[j], items[i]
            one, other = listing.text((row, i)), listing.text((row, j))
            words = f"{listing.who(row)} {verb} {other} before {one}"
            yield from listing.ordered(row, order, words)


def receive_before_send(listing: Listing) -> Sites:
    """A receive moves before the send of its row that precedes it."""
    yield from _brought_forward(listing, Kind.RECV, "receives", Kind.SEND, "sends")


def send_before_receive(listing: Listing) -> Sites:
    """A send moves before the receive of its row that precedes it."""
    yield from _brought_forward(listing, Kind.SEND, "sends", Kind.RECV, "receives")


def _brought_forward(listing: Listing, kind: Kind, does: str, other: Kind, did: str) -> Sites:
    """Each message of ``kind`` moves before the last one of ``other`` that precedes it."""
    for row, items in enumerate(listing.rows):
        passed: int | None = None
        for at, item in enumerate(items):
            if item.kind is other:
                passed = at
            elif item.kind is kind and passed is not None:
                words = (
                    f"{listing.who(row)} {does} {listing.text((row, at))} before it {did} "
                    f"{listing.text((row, passed))}"
                )
                yield from listing.moved((row, at), passed, words)
                passed = None


def late_receive(listing: Listing) -> Sites:
    """A receive is posted some places later."""
    for spot in listing.spots(Kind.RECV):
        row, at = spot
        for by in (1, 2, 4, len(listing.rows[row])):
            words = f"{listing.who(row)} posts {listing.text(spot)} {by} places later"
            yield from listing.moved(spot, at + by, words)


def swapped_members(listing: Listing) -> Sites:
    """Two neighbouring members of a posted group change places."""
    for spot in listing.spots(Kind.GROUP):
        piece: Item = listing.item(spot)
        for i, (one, other) in enumerate(pairwise(piece.ends)):
            words = (
                f"{listing.who(spot[0])} lists {_end_text(listing, other)} before "
                f"{_end_text(listing, one)} in a group"
            )
            ends = (*piece.ends[:i], other, one, *piece.ends[i + 2 :])
            yield listing.instead(spot, words, replace(piece, ends=ends))


def taken_apart(listing: Listing) -> Sites:
    """The members of a blocking group are posted one after the other."""
    for spot in listing.spots(Kind.GROUP):
        piece: Item = listing.item(spot)
        if piece.posts >= 0 or len(piece.ends) < 2 or piece.attributes is not None:
            continue
        alone = [
            replace(piece, kind=Kind.SEND if end.send else Kind.RECV, ends=(end,))
            for end in piece.ends
        ]
        words = f"{listing.who(spot[0])} runs {listing.text(spot)} one by one"
        yield listing.instead(spot, words, *alone)


# --- waits ---------------------------------------------------------------------


def wait_dropped(listing: Listing) -> Sites:
    """An op does not wait for something that it should wait for."""
    posters = {listing.item(spot).posts: spot for spot in listing.spots()}
    for spot in listing.spots():
        piece: Item = listing.item(spot)
        for request in piece.waits:
            left = tuple(r for r in piece.waits if r != request)
            words = f"{listing.who(spot[0])} does not wait for {listing.text(posters[request])}"
            gone = piece.kind is Kind.WAIT and not left
            yield listing.instead(spot, words, *([] if gone else [replace(piece, waits=left)]))


def wait_at_once(listing: Listing) -> Sites:
    """What is posted is waited for at once."""
    for spot in listing.spots():
        piece: Item = listing.item(spot)
        row, at = spot
        following = listing.rows[row][at + 1 : at + 2]
        if piece.posts < 0 or any(piece.posts in other.waits for other in following):
            continue
        wait = Piece(Kind.WAIT, waits=(piece.posts,))
        words = f"{listing.who(row)} waits for {listing.text(spot)} as soon as it is posted"
        yield listing.instead(spot, words, piece, wait)


# --- collectives ---------------------------------------------------------------


def swapped_calls(listing: Listing) -> Sites:
    """Two collective calls of a row that follow each other change places."""
    yield from _swapped(listing, Kind.COLL, "calls")


def other_label(listing: Listing) -> Sites:
    """A collective is called with another label."""
    for spot in listing.spots(Kind.COLL):
        piece: Item = listing.item(spot)
        words = f"{listing.who(spot[0])} calls {listing.text(spot)} for something else"
        label = f"{attributes(piece).label}'"
        yield listing.instead(spot, words, carrying(piece, label=label))


def other_operation(listing: Listing) -> Sites:
    """A collective takes the sum instead of the mean, or the mean instead of the sum."""
    for spot in listing.spots(Kind.COLL):
        piece: Item = listing.item(spot)
        more = attributes(piece).more
        if more["kind"] in ("allreduce", "reducescatter") and "param" in more:
            other = "sum" if more.get("op") == "avg" else "avg"
            words = f"{listing.who(spot[0])} takes the {other} in {listing.text(spot)}"
            yield listing.instead(spot, words, carrying_more(piece, op=other))
