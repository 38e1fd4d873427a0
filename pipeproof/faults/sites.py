"""What a rule is made of: the listing it breaks, and the places where it can."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeproof.program.actions import Action, rows_of, with_rows
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.pieces import Piece, Strand, apart, together, waits_in_time
from pipeproof.program.programs import Attributes, Program
from pipeproof.program.schedules import Schedule

Target = Program | Schedule
Item = Any
"""A ``Piece`` of a program or an ``Action`` of a schedule. Both have a kind, a stage
and a microbatch, and most rules ask no more of them."""

Spot = tuple[int, int]
"""(row, place in it) of an item; a row is a lane of a program, a rank of a schedule."""


@dataclass(frozen=True, slots=True)
class Site:
    """One place where a rule can put its fault: what it does there, in words, and the
    broken target, made when it is asked for."""

    words: str
    build: Callable[[], Target]


Sites = Iterator[Site]


@dataclass(frozen=True, slots=True)
class Listing:
    """A target as rows of items. ``first`` is the number of each row's first op."""

    target: Target
    strands: tuple[Strand, ...]  # of a program
    rows: tuple[tuple[Item, ...], ...]
    first: tuple[int, ...]

    @property
    def is_program(self) -> bool:
        """Whether the target is a program; otherwise it is a schedule."""
        return isinstance(self.target, Program)

    @property
    def program(self) -> Program:
        """The target, which must be a program: rules over programs alone ask for it."""
        if not isinstance(self.target, Program):
            raise TypeError(f"{self.target.name} is a schedule; the rule is over programs")
        return self.target

    def spots(self, *kinds: Kind) -> Iterator[Spot]:
        """Where items of these kinds stand (of all kinds, if none is named)."""
        for row, items in enumerate(self.rows):
            for at, item in enumerate(items):
                if not kinds or item.kind in kinds:
                    yield row, at

    def item(self, spot: Spot) -> Item:
        """The item at a spot."""
        return self.rows[spot[0]][spot[1]]

    def rank(self, row: int) -> int:
        """The rank that a row belongs to."""
        return self.strands[row].rank if self.strands else row

    def who(self, row: int) -> str:
        """``rank 1``, or ``rank 1 (lane comm)`` where the lane has a name."""
        if self.strands and self.strands[row].name != "main":
            return f"rank {self.rank(row)} (lane {self.strands[row].name})"
        return f"rank {self.rank(row)}"

    def text(self, spot: Spot) -> str:
        """The item at a spot, in PyTorch's notation as far as it has one."""
        row, at = spot
        if isinstance(self.target, Program):
            return op_text(self.target, self.first[row] + at)
        return str(self.rows[row][at])

    def with_rows(self, changed: Mapping[int, Sequence[Item]]) -> Target:
        """The target with other items in some rows."""
        if isinstance(self.target, Program):
            strands = [
                replace(strand, pieces=tuple(changed.get(row, strand.pieces)))
                for row, strand in enumerate(self.strands)
            ]
            return together(self.target, strands)
        rows = [changed.get(row, items) for row, items in enumerate(self.rows)]
        return with_rows(self.target, rows)

    def fits(self, items: Sequence[Item]) -> bool:
        """Whether a row can be written: nothing waits for what is posted only later."""
        return not self.strands or waits_in_time(items)

    # --- one edit each ---------------------------------------------------------------

    def without(self, spot: Spot, words: str) -> Site:
        """The item left out."""
        row, at = spot
        items = self.rows[row]
        return Site(words, lambda: self.with_rows({row: items[:at] + items[at + 1 :]}))

    def instead(self, spot: Spot, words: str, *other: Item) -> Site:
        """Other items where one stood."""
        row, at = spot
        items = self.rows[row]
        return Site(words, lambda: self.with_rows({row: (*items[:at], *other, *items[at + 1 :])}))

    def ordered(self, row: int, items: Sequence[Item], words: str) -> Sites:
        """The row in another order, where there is such a row."""
        if self.fits(items):
            yield Site(words, lambda: self.with_rows({row: items}))

    def moved(self, spot: Spot, to: int, words: str) -> Sites:
        """The item moved to another place of its row (a place in the row without it)."""
        row, at = spot
        items = self.rows[row]
        rest = items[:at] + items[at + 1 :]
        to = min(max(to, 0), len(rest))
        if to != at:
            yield from self.ordered(row, (*rest[:to], items[at], *rest[to:]), words)


def listing_of(target: Target) -> Listing:
    """The rows of a target."""
    if isinstance(target, Program):
        strands = apart(target)
        rows: tuple[tuple[Item, ...], ...] = tuple(strand.pieces for strand in strands)
        return Listing(target, strands, rows, tuple(lane.first for lane in target.lanes))
    return Listing(target, (), rows_of(target), target.first[:-1])


NO_ATTRIBUTES = Attributes()


def attributes(item: Item) -> Attributes:
    """What an item carries beside its arguments; nothing, if it is an action."""
    if isinstance(item, Piece) and item.attributes is not None:
        return item.attributes
    return NO_ATTRIBUTES


def carrying(piece: Piece, **changes: Any) -> Piece:
    """The piece with other attributes."""
    return replace(piece, attributes=replace(attributes(piece), **changes))


def carrying_more(piece: Piece, **changes: Any) -> Piece:
    """The piece with other entries among its further attributes."""
    return carrying(piece, more={**attributes(piece).more, **changes})


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to break a target. ``must`` names the checks of which one has to catch
    every mutant that is not harmless."""

    name: str
    must: tuple[str, ...]
    sites: Callable[[Listing], Sites]


__all__ = [
    "Action",
    "Item",
    "Listing",
    "Rule",
    "Site",
    "Sites",
    "Spot",
    "Target",
    "attributes",
    "carrying",
    "carrying_more",
    "listing_of",
]
