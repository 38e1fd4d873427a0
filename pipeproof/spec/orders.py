"""Orders that are not written op by op: start times, priorities, other producers.

A definition without the parameter ``rank`` may return one of these.
"""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pipeproof.errors import InputError
from pipeproof.program.costs import Costs
from pipeproof.program.ops import Kind
from pipeproof.program.schedules import Schedule
from pipeproof.spec.ops import Op
from pipeproof.spec.placements import Placement


@runtime_checkable
class Order(Protocol):
    """Something that says in which order each rank runs its ops."""

    def rows(self, sizes: Mapping[str, int], placement: Placement) -> list[list[Op]]:
        """The ops of every rank, in order."""


@dataclass(frozen=True, slots=True)
class Starts:
    """An order by start times: (rank, op, start), in any order. Ops of one rank that
    start together stand as listed."""

    starts: tuple[tuple[int, Op, Any], ...]

    def rows(self, sizes: Mapping[str, int], placement: Placement) -> list[list[Op]]:
        """The ops of every rank by their starts."""
        rows: list[list[tuple[Any, int, Op]]] = [[] for _ in range(sizes["p"])]
        for number, (rank, op, start) in enumerate(self.starts):
            if not 0 <= rank < len(rows):
                raise InputError(f"found {op} on rank {rank}; expected a rank below {len(rows)}")
            rows[rank].append((start, number, op))
        return [[op for _, _, op in sorted(row, key=lambda e: e[:2])] for row in rows]


def by_start(starts: Iterable[tuple[int, Op, Any]]) -> Starts:
    """The order in which a solver or a recording starts ops: (rank, op, start)."""
    return Starts(tuple(starts))


@dataclass(frozen=True, slots=True)
class Priorities:
    """The order of a greedy run: whenever a rank is free it starts, of the ops whose
    inputs have arrived, the one of least priority value (then of least start).

    ``priority(op, rank)`` values an op; ``limit(rank)``, where given, is how many
    activations a rank may hold: no forward is started beyond it. ``reserve(op, rank)``
    is how many of those a forward must leave free, for the forwards of later chunks
    that the ones before it wait for. ``split`` runs I and W instead of B.
    """

    priority: Callable[[Op, int], Any]
    costs: Costs
    limit: Callable[[int], int] | None = None
    split: bool = False
    reserve: Callable[[Op, int], int] | None = None

    def rows(self, sizes: Mapping[str, int], placement: Placement) -> list[list[Op]]:
        """The greedy run; InputError where it gets stuck at its limits."""
        return _Greedy(self, sizes, placement).rows()


def by_priority(
    priority: Callable[[Op, int], Any],
    *,
    costs: Costs | None = None,
    limit: Callable[[int], int] | None = None,
    split: bool = False,
    reserve: Callable[[Op, int], int] | None = None,
) -> Priorities:
    """A dynamic order: see `Priorities`."""
    return Priorities(priority, costs or Costs(), limit, split, reserve)


class _Greedy:
    """An event simulation over ranks that each run one op at a time."""

    def __init__(self, order: Priorities, sizes: Mapping[str, int], placement: Placement) -> None:
        if placement.ways > 1:
            raise InputError("priorities are for schedules that go one way")
        self.order = order
        self.p, self.m, self.v = sizes["p"], sizes["m"], sizes["v"]
        self.last = self.p * self.v - 1
        self.at = {
            placement.stage(rank, chunk, 0, self.p): (rank, chunk)
            for rank in range(self.p)
            for chunk in range(self.v)
        }
        self.backward = Kind.I if order.split else Kind.B
        self.ready: dict[int, list[tuple[Kind, int, int]]] = defaultdict(list)
        self.held = [0] * self.p

    def rows(self) -> list[list[Op]]:
        rows: list[list[Op]] = [[] for _ in range(self.p)]
        busy = [False] * self.p
        arrivals: list[tuple[Any, int, int, tuple[Kind, int, int]]] = []
        free: list[tuple[Any, int]] = []
        count = 0
        for microbatch in range(self.m):
            self.ready[self.at[0][0]].append((Kind.F, 0, microbatch))
        now: Any = 0
        left = self.m * (self.last + 1) * (3 if self.order.split else 2)
        while left:
            for rank in range(self.p):
                chosen = None if busy[rank] else self._choose(rank)
                if chosen is None:
                    continue
                self.ready[rank].remove(chosen)
                kind, stage, microbatch = chosen
                rows[rank].append(self._op(chosen))
                end = now + self.order.costs.of(kind)
                busy[rank] = True
                left -= 1
                heapq.heappush(free, (end, rank))
                self.held[rank] += (kind is Kind.F) - (kind in (Kind.B, Kind.W))
                for following in self._after(kind, stage, microbatch):
                    other = self.at[following[1]][0]
                    delay = self.order.costs.comm if other != rank else 0
                    count += 1
                    heapq.heappush(arrivals, (end + delay, count, other, following))
            times = [queue[0][0] for queue in (arrivals, free) if queue]
            if left and not times:
                raise InputError(
                    "the greedy run gets stuck: no rank may start anything",
                    cause="The limit of some rank is too small for its forwards.",
                )
            if not times:
                break
            now = min(times)
            while free and free[0][0] <= now:
                busy[heapq.heappop(free)[1]] = False
            while arrivals and arrivals[0][0] <= now:
                _, _, rank, item = heapq.heappop(arrivals)
                self.ready[rank].append(item)
        return rows

    def _op(self, item: tuple[Kind, int, int]) -> Op:
        kind, stage, microbatch = item
        return Op(kind, microbatch, chunk=self.at[stage][1])

    def _choose(self, rank: int) -> tuple[Kind, int, int] | None:
        open_items = [i for i in self.ready[rank] if i[0] is not Kind.F or self._fits(i, rank)]
        if not open_items:
            return None
        return min(
            open_items, key=lambda i: (self.order.priority(self._op(i), rank), i[2], i[1], i[0])
        )

    def _fits(self, item: tuple[Kind, int, int], rank: int) -> bool:
        """Whether a rank has room for a forward."""
        limit, reserve = self.order.limit, self.order.reserve
        if limit is None:
            return True
        left = reserve(self._op(item), rank) if reserve is not None else 0
        return self.held[rank] + left < limit(rank)

    def _after(self, kind: Kind, stage: int, microbatch: int) -> list[tuple[Kind, int, int]]:
        """What an op makes ready."""
        if kind is Kind.F:
            if stage < self.last:
                return [(Kind.F, stage + 1, microbatch)]
            return [(self.backward, stage, microbatch)]
        if kind is Kind.W:
            return []
        found = [(self.backward, stage - 1, microbatch)] if stage else []
        if kind is Kind.I:
            found.append((Kind.W, stage, microbatch))
        return found


def read(path: str) -> Schedule:
    """A torch action CSV that another producer has written, for a definition to return.

    A relative path is taken from the folder of the file that calls, or the
    current one where there is none.
    """
    from pipeproof.formats.sources import decode
    from pipeproof.formats.torch_schedule import read_schedule

    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{path} cannot be read: {reason}") from None
    return read_schedule(decode(data), os.path.basename(path))
