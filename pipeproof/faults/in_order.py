"""Rules about which ops run, where and in which order; over schedules and programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from pipeproof.faults.sites import Listing, Site, Sites, Spot
from pipeproof.program.ops import LETTER, Kind

COMPUTES = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R)
BACKWARDS = (Kind.B, Kind.I)
MESSAGES = (Kind.SEND, Kind.RECV)

FAR = 3
"""How many places an item moves where a rule moves it."""


def dropped(*kinds: Kind) -> Callable[[Listing], Sites]:
    """An op is left out."""

    def sites(listing: Listing) -> Sites:
        for spot in listing.spots(*kinds):
            words = f"{listing.who(spot[0])} leaves out {listing.text(spot)}"
            yield listing.without(spot, words)

    return sites


def repeated(*kinds: Kind) -> Callable[[Listing], Sites]:
    """An op runs a second time, at once or at the end of its row."""

    def sites(listing: Listing) -> Sites:
        for spot in listing.spots(*kinds):
            row, at = spot
            items, item = listing.rows[row], listing.item(spot)
            words = f"{listing.who(row)} runs {listing.text(spot)} twice"
            yield listing.instead(spot, words, item, item)
            if at < len(items) - 1:
                yield _at_end(listing, spot, f"{words}, the second time at its end")

    return sites


def _at_end(listing: Listing, spot: Spot, words: str) -> Site:
    row, _ = spot
    items = (*listing.rows[row], listing.item(spot))
    return Site(words, lambda: listing.with_rows({row: items}))


def swapped_neighbours(listing: Listing) -> Sites:
    """Two neighbours change places."""
    for row, items in enumerate(listing.rows):
        for at, (one, other) in enumerate(pairwise(items)):
            if one == other:
                continue
            words = (
                f"{listing.who(row)} runs {listing.text((row, at + 1))} before "
                f"{listing.text((row, at))}"
            )
            order = (*items[:at], other, one, *items[at + 2 :])
            yield from listing.ordered(row, order, words)


def moved(by: int, *kinds: Kind) -> Callable[[Listing], Sites]:
    """An op runs some places earlier (``by`` negative) or later."""
    when = f"{abs(by)} places {'earlier' if by < 0 else 'later'}"

    def sites(listing: Listing) -> Sites:
        for spot in listing.spots(*kinds):
            words = f"{listing.who(spot[0])} runs {listing.text(spot)} {when}"
            yield from listing.moved(spot, spot[1] + by, words)

    return sites


def wrong_microbatch(listing: Listing) -> Sites:
    """A compute, or a message of a schedule, names a neighbouring microbatch."""
    kinds = COMPUTES if listing.is_program else (*COMPUTES, *MESSAGES)
    for spot in listing.spots(*kinds):
        item = listing.item(spot)
        for change in (-1, 1):
            if item.microbatch + change >= 0:
                other = replace(item, microbatch=item.microbatch + change)
                words = (
                    f"{listing.who(spot[0])} runs {listing.text(spot)} on microbatch "
                    f"{other.microbatch}"
                )
                yield listing.instead(spot, words, other)


def wrong_stage(listing: Listing) -> Sites:
    """A compute names a neighbouring stage."""
    for spot in listing.spots(*COMPUTES):
        item = listing.item(spot)
        for change in (-1, 1):
            if 0 <= item.stage + change < listing.target.stages:
                other = replace(item, stage=item.stage + change)
                words = (
                    f"{listing.who(spot[0])} runs {listing.text(spot)} as one of stage "
                    f"{other.stage}"
                )
                yield listing.instead(spot, words, other)


def relettered(old: Kind, new: Kind) -> Callable[[Listing], Sites]:
    """A compute has another letter."""

    def sites(listing: Listing) -> Sites:
        for spot in listing.spots(old):
            words = f"{listing.who(spot[0])} runs {listing.text(spot)} as {LETTER[new]}"
            yield listing.instead(spot, words, replace(listing.item(spot), kind=new))

    return sites


def stage_relettered(listing: Listing) -> Sites:
    """All full backwards of a stage compute the input gradient only."""
    for stage in sorted({listing.item(spot).stage for spot in listing.spots(Kind.B)}):
        rows = {
            row: tuple(
                replace(item, kind=Kind.I) if (item.kind, item.stage) == (Kind.B, stage) else item
                for item in items
            )
            for row, items in enumerate(listing.rows)
        }
        words = f"stage {stage} computes no weight gradient: its B are I"
        yield Site(words, partial(listing.with_rows, rows))


def warm_up(more: bool) -> Callable[[Listing], Sites]:
    """One forward more, or fewer, stands before the first backward of a row."""

    def sites(listing: Listing) -> Sites:
        for row, items in enumerate(listing.rows):
            backward = next((i for i, x in enumerate(items) if x.kind in BACKWARDS), None)
            if backward is None:
                continue
            if more:
                after = range(backward + 1, len(items))
                at = next((i for i in after if items[i].kind is Kind.F), None)
                to, what = backward, "one more forward"
            else:
                before = range(backward - 1, -1, -1)
                at = next((i for i in before if items[i].kind is Kind.F), None)
                to, what = backward, "one forward fewer"
            if at is not None:
                words = (
                    f"{listing.who(row)} warms up with {what}: {listing.text((row, at))} "
                    f"{'before' if more else 'after'} {listing.text((row, backward))}"
                )
                yield from listing.moved((row, at), to, words)

    return sites


def wrong_placement(listing: Listing) -> Sites:
    """A compute runs on the next rank."""
    rows = len(listing.rows)
    for spot in listing.spots(*COMPUTES):
        row, at = spot
        others = [r % rows for r in range(row + 1, row + rows)]
        there = next((r for r in others if listing.rank(r) != listing.rank(row)), None)
        if there is None:
            return
        items, item = listing.rows[row], listing.item(spot)
        if getattr(item, "waits", ()):
            # A rank waits for its own requests only: the wait stays behind.
            item = replace(item, waits=())
        goal = listing.rows[there]
        to = min(at, len(goal))
        home = f"which is rank {listing.rank(row)}'s"
        words = f"{listing.who(there)} runs {listing.text(spot)}, {home}"
        changed = {row: items[:at] + items[at + 1 :], there: (*goal[:to], item, *goal[to:])}
        yield Site(words, partial(listing.with_rows, changed))
