"""The most a rank with several lanes can hold, over every legal timing.

What has happened at any moment is a down-set of happens-before: with every
event all that must come before it. The largest sum of allocations less frees
over such sets is a maximum-weight closure, and so a minimum cut (Picard, 1976):
an allocation may stand in the set without its own free, but not without the
frees that every execution puts before it. The cut is the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeproof.engines.events.graph import Event
from pipeproof.engines.events.ordering import Before


@dataclass(frozen=True, slots=True)
class Change:
    """``units`` more (or, if negative, fewer) from ``event`` on, by ``op``."""

    op: int
    event: Event
    units: int


@dataclass(frozen=True, slots=True)
class Closure:
    """``peak`` units at the moment when just ``chosen`` have happened; ``cut`` is the
    value of the minimum cut, and ``allocated - cut`` the peak."""

    peak: int
    chosen: tuple[Change, ...]
    allocated: int
    cut: int


def closure(changes: list[Change], before: Before) -> Closure:
    """The largest sum of changes over all down-sets."""
    takes = [c for c in changes if c.units > 0 and before.happens(c.event)]
    gives = [c for c in changes if c.units < 0 and before.happens(c.event)]
    needs = [
        [g for g, give in enumerate(gives) if before(give.event, take.event)] for take in takes
    ]
    allocated = sum(take.units for take in takes)
    flow, reached = _maximum_flow(
        [take.units for take in takes], [-give.units for give in gives], needs
    )
    chosen = [take for t, take in enumerate(takes) if reached[t]]
    forced = {g for t in range(len(takes)) if reached[t] for g in needs[t]}
    chosen.extend(gives[g] for g in sorted(forced))
    return Closure(allocated - flow, tuple(chosen), allocated, flow)


def _maximum_flow(
    takes: list[int], gives: list[int], needs: list[list[int]]
) -> tuple[int, list[bool]]:
    """Maximum flow from takes to the gives they need, by augmenting paths; and which
    takes the source still reaches, the source's side of a minimum cut."""
    left_take, left_give = list(takes), list(gives)
    sent: list[dict[int, int]] = [{} for _ in takes]  # flow from take to give
    back: list[dict[int, int]] = [{} for _ in gives]
    total = 0
    while True:
        path = _augmenting_path(left_take, left_give, needs, back)
        if path is None:
            break
        amount = min(left_take[path[0]], left_give[path[-1]])
        # Odd steps of the path go back along flow that was sent before.
        for i in range(1, len(path) - 1, 2):
            amount = min(amount, back[path[i]][path[i + 1]])
        for i in range(0, len(path) - 1, 2):
            take, give = path[i], path[i + 1]
            sent[take][give] = sent[take].get(give, 0) + amount
            back[give][take] = back[give].get(take, 0) + amount
        for i in range(1, len(path) - 1, 2):
            give, take = path[i], path[i + 1]
            sent[take][give] -= amount
            back[give][take] -= amount
        left_take[path[0]] -= amount
        left_give[path[-1]] -= amount
        total += amount
    reached = [left > 0 for left in left_take]
    frontier = [t for t, r in enumerate(reached) if r]
    while frontier:
        for give in needs[frontier.pop()]:
            for take, amount in back[give].items():
                if amount > 0 and not reached[take]:
                    reached[take] = True
                    frontier.append(take)
    return total, reached


def _augmenting_path(
    left_take: list[int], left_give: list[int], needs: list[list[int]], back: list[dict[int, int]]
) -> list[int] | None:
    """A shortest path take, give, take, ..., give along which more can flow."""
    came: dict[int, tuple[int, int]] = {}  # take -> (give, take before it)
    seen_give: set[int] = set()
    frontier = [t for t, left in enumerate(left_take) if left > 0]
    seen = set(frontier)
    while frontier:
        following = []
        for take in frontier:
            for give in needs[take]:
                if give in seen_give:
                    continue
                seen_give.add(give)
                if left_give[give] > 0:
                    path = [give, take]
                    while path[-1] in came:
                        path.extend(came[path[-1]])
                    return path[::-1]
                for other, amount in back[give].items():
                    if amount > 0 and other not in seen:
                        seen.add(other)
                        came[other] = (give, take)
                        following.append(other)
        frontier = following
    return None
