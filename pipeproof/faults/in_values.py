"""Rules about what a program computes with and on: gradients, versions, slots, memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from pipeproof.faults.sites import (
    Item,
    Listing,
    Sites,
    Spot,
    attributes,
    carrying,
    carrying_more,
)
from pipeproof.program.ops import Kind
from pipeproof.program.pieces import Piece

# --- gradients -----------------------------------------------------------------


def wrong_scale(listing: Listing) -> Sites:
    """An accumulator is scaled by twice the factor."""
    for spot in listing.spots(Kind.SCALE):
        piece: Item = listing.item(spot)
        factor = 2 * attributes(piece).more["factor"]
        words = f"{listing.who(spot[0])} runs {listing.text(spot)} with factor {factor}"
        yield listing.instead(spot, words, carrying_more(piece, factor=factor))


def wrong_coefficient(listing: Listing) -> Sites:
    """A contribution to an accumulator counts twice."""
    for spot, name, form in _contributions(listing):
        piece: Item = listing.item(spot)
        doubled = {symbol: 2 * Fraction(c) for symbol, c in form.items()}
        grad = {**attributes(piece).more["grad"], name: doubled}
        words = f"{listing.who(spot[0])} adds twice as much to {name} in {listing.text(spot)}"
        yield listing.instead(spot, words, carrying_more(piece, grad=grad))


def dropped_contribution(listing: Listing) -> Sites:
    """A contribution to an accumulator is left out."""
    for spot, name, _ in _contributions(listing):
        piece: Item = listing.item(spot)
        grad = {n: f for n, f in attributes(piece).more["grad"].items() if n != name}
        words = f"{listing.who(spot[0])} adds nothing to {name} in {listing.text(spot)}"
        yield listing.instead(spot, words, carrying_more(piece, grad=grad))


def _contributions(
    listing: Listing,
) -> list[tuple[Spot, str, Mapping[str, Fraction]]]:
    return [
        (spot, name, form)
        for spot in listing.spots()
        for name, form in attributes(listing.item(spot)).more.get("grad", {}).items()
    ]


def assigned(listing: Listing) -> Sites:
    """An op assigns to its accumulators instead of adding."""
    for spot in listing.spots():
        piece: Item = listing.item(spot)
        more = attributes(piece).more
        if more.get("grad") and more.get("grad_mode") != "set":
            words = f"{listing.who(spot[0])} assigns in {listing.text(spot)} instead of adding"
            yield listing.instead(spot, words, carrying_more(piece, grad_mode="set"))


def other_optimizer(listing: Listing) -> Sites:
    """A step uses another rule of update."""
    for spot in listing.spots(Kind.STEP):
        piece: Item = listing.item(spot)
        opt = f"{attributes(piece).more.get('opt', 'opt')}'"
        words = f"{listing.who(spot[0])} runs {listing.text(spot)} with another rule of update"
        yield listing.instead(spot, words, carrying_more(piece, opt=opt))


def other_random_state(listing: Listing) -> Sites:
    """A recompute draws other random numbers than its forward."""
    for spot in listing.spots(Kind.R):
        piece: Item = listing.item(spot)
        state = attributes(piece).more.get("rng")
        if state is not None:
            words = f"{listing.who(spot[0])} runs {listing.text(spot)} with another random state"
            yield listing.instead(spot, words, carrying_more(piece, rng=_other(state)))


def _other(state: Any) -> Any:
    return state + 1 if isinstance(state, int) else f"{state}'"


def repeated_effect(listing: Listing) -> Sites:
    """A side effect happens twice."""
    yield from _effects(listing, 2, "twice")


def dropped_effect(listing: Listing) -> Sites:
    """A side effect does not happen."""
    yield from _effects(listing, 0, "not at all")


def _effects(listing: Listing, times: int, how: str) -> Sites:
    for spot in listing.spots():
        piece: Item = listing.item(spot)
        effects = attributes(piece).more.get("effects", ())
        for i, effect in enumerate(effects):
            changed = (*effects[:i], *[effect] * times, *effects[i + 1 :])
            words = f"{listing.who(spot[0])} has effect {effect} {how} in {listing.text(spot)}"
            yield listing.instead(spot, words, carrying_more(piece, effects=changed))


# --- versions ------------------------------------------------------------------


def wrong_version(key: str, what: str) -> Callable[[Listing], Sites]:
    """A version that an op states is one more: ``key`` is wv, it or to."""

    def sites(listing: Listing) -> Sites:
        for spot in listing.spots():
            piece: Item = listing.item(spot)
            version = attributes(piece).more.get(key)
            if version is not None:
                words = (
                    f"{listing.who(spot[0])} {what} version {version + 1}, not {version}, in "
                    f"{listing.text(spot)}"
                )
                yield listing.instead(spot, words, carrying_more(piece, **{key: version + 1}))

    return sites


def wrong_rollback(listing: Listing) -> Sites:
    """A rollback goes to another version."""
    for spot in listing.spots(Kind.ROLLBACK):
        piece: Item = listing.item(spot)
        version = attributes(piece).more["version"]
        words = f"{listing.who(spot[0])} rolls back to version {version + 1}, not {version}"
        yield listing.instead(spot, words, carrying_more(piece, version=version + 1))


def forgotten_version(listing: Listing) -> Sites:
    """A compute uses the current weights instead of the stashed version it should."""
    for spot in listing.spots():
        piece: Item = listing.item(spot)
        more = attributes(piece).more
        if "wv" in more:
            left = {k: v for k, v in more.items() if k != "wv"}
            words = f"{listing.who(spot[0])} runs {listing.text(spot)} on the current weights"
            yield listing.instead(spot, words, carrying(piece, more=left))


# --- slots ---------------------------------------------------------------------


def wrong_content(listing: Listing) -> Sites:
    """An op writes something else into a slot."""
    for spot in listing.spots():
        piece: Item = listing.item(spot)
        writes = attributes(piece).writes
        for i, (slot, content) in enumerate(writes):
            changed = (*writes[:i], (slot, f"{content}'"), *writes[i + 1 :])
            words = (
                f"{listing.who(spot[0])} writes something else to {slot} in {listing.text(spot)}"
            )
            yield listing.instead(spot, words, carrying(piece, writes=changed))


def wrong_slot(listing: Listing) -> Sites:
    """A copy goes to another slot, or a message uses another one of the rank's."""
    slots: dict[int, dict[str, None]] = {}
    for row, at in listing.spots():
        for end in listing.item((row, at)).ends:
            if end.traits is not None and end.traits.buf is not None:
                slots.setdefault(listing.rank(row), {})[end.traits.buf] = None
    for spot in listing.spots(Kind.SEND, Kind.RECV, Kind.GROUP):
        piece: Item = listing.item(spot)
        for i, end in enumerate(piece.ends):
            own = end.traits.buf if end.traits is not None else None
            if own is None:
                continue
            other = next((s for s in slots[listing.rank(spot[0])] if s != own), None)
            if other is not None:
                traits = replace(end.traits, buf=other)
                ends = (*piece.ends[:i], replace(end, traits=traits), *piece.ends[i + 1 :])
                words = (
                    f"{listing.who(spot[0])} uses slot {other}, not {own}, in {listing.text(spot)}"
                )
                yield listing.instead(spot, words, replace(piece, ends=ends))


# --- memory --------------------------------------------------------------------


def missing_free(listing: Listing) -> Sites:
    """What must not remain, or counts against a budget, is never freed."""
    details = listing.program.details
    for spot in listing.spots():
        piece: Item = listing.item(spot)
        free = attributes(piece).free
        for name in free:
            leaks = details.leak_check and name not in details.may_remain
            if not leaks and listing.rank(spot[0]) not in details.budget:
                continue  # it may stay where it is
            words = f"{listing.who(spot[0])} never frees {name}"
            yield _with_free(listing, spot, tuple(n for n in free if n != name), words)


def _with_free(listing: Listing, spot: Spot, free: tuple[str, ...], words: str) -> Any:
    piece: Piece = listing.item(spot)
    if piece.kind is Kind.FREE and not free:
        return listing.without(spot, words)
    return listing.instead(spot, words, carrying(piece, free=free))


def early_free(listing: Listing) -> Sites:
    """Memory is given back one op earlier: before its last use, where that is the op
    before, and before its allocation at the latest."""
    for spot in listing.spots(Kind.FREE):
        words = f"{listing.who(spot[0])} runs {listing.text(spot)} one op earlier"
        yield from listing.moved(spot, spot[1] - 1, words)
    for spot in listing.spots():
        row, at = spot
        piece: Item = listing.item(spot)
        if piece.kind is Kind.FREE or not at:
            continue
        for name in attributes(piece).free:
            before = listing.rows[row][at - 1]
            left = carrying(piece, free=tuple(n for n in attributes(piece).free if n != name))
            gives = carrying(before, free=(*attributes(before).free, name))
            order = (*listing.rows[row][: at - 1], gives, left, *listing.rows[row][at + 1 :])
            words = (
                f"{listing.who(row)} frees {name} one op earlier than after {listing.text(spot)}"
            )
            yield from listing.ordered(row, order, words)


def free_at_start(listing: Listing) -> Sites:
    """Memory is given back before it is allocated."""
    for spot in listing.spots(Kind.FREE):
        words = f"{listing.who(spot[0])} runs {listing.text(spot)} first of all"
        yield from listing.moved(spot, 0, words)


def double_free(listing: Listing) -> Sites:
    """Memory is given back twice."""
    for spot in listing.spots():
        row, _ = spot
        for name in attributes(listing.item(spot)).free:
            again = Piece(Kind.FREE, attributes=replace(_FREE, free=(name,)))
            words = f"{listing.who(row)} frees {name} a second time at its end"
            items = (*listing.rows[row], again)
            yield from listing.ordered(row, items, words)


_FREE = attributes(None)


def larger_allocation(listing: Listing) -> Sites:
    """An allocation takes all of its rank's budget, and one unit more."""
    budget = listing.program.details.budget
    for spot in listing.spots():
        piece: Item = listing.item(spot)
        limit = budget.get(listing.rank(spot[0]))
        alloc = attributes(piece).alloc
        for i, (name, _) in enumerate(alloc if limit is not None else ()):
            changed = (*alloc[:i], (name, (limit or 0) + 1), *alloc[i + 1 :])
            words = f"{listing.who(spot[0])} allocates {(limit or 0) + 1} units for {name}"
            yield listing.instead(spot, words, carrying(piece, alloc=changed))
