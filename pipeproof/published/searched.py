"""Orders for any costs, where the published ones are the output of a search.

ZB-1p and ZB-2p (arXiv 2401.10241, section 3) are what the authors' heuristic and
integer program found for their costs, within the memory of p and of 2 p
activations; the orders are not printed. Here the forwards and input gradients
of a rank stand in a fixed order, and one walk in time sets a weight gradient
into every gap that is long enough for it, or where memory is used up. Of a few
warm-ups and of a few answers to "long enough" the shortest result is taken.

Memory counts as the authors' generator counts it: an input gradient gives back
half of an activation, its weight gradient the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipeproof.program.costs import Costs
from pipeproof.program.ops import Kind
from pipeproof.schedules.table import find
from pipeproof.spec.ops import Op

OVERRUNS = (0.0, 0.5, 1.0)
"""How much of a weight gradient may stick out of a gap: none, half, or all of it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The ops of every rank; ``span`` is the longest time of a rank from its first start
    to its last end."""

    span: float
    rows: tuple[tuple[Op, ...], ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """Stages in a line over ranks: ``stage(rank, chunk)`` and ``rank(stage)``."""

    stages: int
    stage: Callable[[int, int], int]
    rank: Callable[[int], int]


def in_a_chain(p: int, m: int, costs: Costs, room: int, owed: int = 1) -> Found | None:
    """The best order of a stage a rank that holds ``room`` activations or fewer; ``owed``
    halves of one are kept from its input gradient to its weight gradient."""
    first_gradient = costs.of(Kind.F) + costs.of(Kind.I) + 2 * costs.delay(0)

    def as_many_as_fit(beyond: int) -> int:
        """Forwards until the first gradient is back from ``beyond`` ranks further on."""
        return int(beyond * first_gradient / costs.of(Kind.F))

    line = _Line(p, lambda rank, chunk: rank, lambda stage: stage)
    orders = [
        [_one_f_one_i(m, min(warm_up(p - 1 - rank), room - 1)) for rank in range(p)]
        for warm_up in (lambda beyond: beyond, lambda beyond: 2 * beyond, as_many_as_fit)
    ]
    return _best(orders, line, costs, room, owed)


def in_a_v(p: int, m: int, costs: Costs, room: int) -> Found | None:
    """The best order of a V whose forwards and input gradients stand as in torch's ZB-V;
    ``costs`` and ``room`` are of half a stage."""
    order = [
        [
            op
            for op in find("zb-v").function(p=p, m=m, rank=rank, v=2)
            if isinstance(op, Op) and op.kind is not Kind.W
        ]
        for rank in range(p)
    ]
    line = _Line(
        2 * p,
        lambda rank, chunk: 2 * p - 1 - rank if chunk else rank,
        lambda stage: min(stage, 2 * p - 1 - stage),
    )
    return _best([order], line, costs, room, 1)


def _one_f_one_i(m: int, warm_up: int) -> list[Op]:
    warm_up = min(warm_up, m)
    row = [Op(Kind.F, i) for i in range(warm_up)]
    for i in range(m - warm_up):
        row += [Op(Kind.F, warm_up + i), Op(Kind.I, i)]
    return [*row, *(Op(Kind.I, i) for i in range(m - warm_up, m))]


def _best(
    orders: Sequence[Sequence[Sequence[Op]]], line: _Line, costs: Costs, room: int, owed: int
) -> Found | None:
    tried = (
        _Filling(order, line, costs, room, owed, overrun).run()
        for order in orders
        for overrun in OVERRUNS
    )
    return min((f for f in tried if f is not None), key=lambda f: f.span, default=None)


class _Filling:
    """One walk: each rank goes on until it needs what has not been made.

    What a rank decides depends on its own time and on when its next input
    arrives, so ranks may be walked in any order that has the inputs.
    """

    def __init__(
        self,
        order: Sequence[Sequence[Op]],
        line: _Line,
        costs: Costs,
        room: int,
        owed: int,
        overrun: float,
    ) -> None:
        self.order, self.line, self.room, self.kept = order, line, 2 * room, owed
        # Floats: what is compared are guesses of a heuristic; the result is timed exactly.
        self.takes = {k: float(costs.of(k)) for k in (Kind.F, Kind.I, Kind.W)}
        self.delay = float(costs.delay(0))
        self.gap = self.takes[Kind.W] * (1 - overrun)
        ranks = len(order)
        self.now = [0.0] * ranks
        self.began = [-1.0] * ranks
        self.held = [0] * ranks  # halves of activations
        self.owed: list[list[Op]] = [[] for _ in order]  # weight gradients, oldest first
        self.rows: list[list[Op]] = [[] for _ in order]
        self.end: dict[tuple[Kind, int, int], float] = {}

    def run(self) -> Found | None:
        """The order found; None where it does not fit into the room."""
        waiting: dict[tuple[Kind, int, int], int] = {}
        walks = [self._walk(rank) for rank in range(len(self.order))]
        ready = list(range(len(walks) - 1, -1, -1))
        while ready:
            rank = ready.pop()
            for name, made in walks[rank]:
                if not made:
                    waiting[name] = rank
                    break
                if name in waiting:
                    ready.append(waiting.pop(name))
        if waiting:
            return None
        for rank in range(len(walks)):
            while self.owed[rank]:
                self._weights(rank)
        spans = [now - began for now, began in zip(self.now, self.began, strict=True)]
        return Found(max(spans), tuple(map(tuple, self.rows)))

    def _walk(self, rank: int) -> Iterator[tuple[tuple[Kind, int, int], bool]]:
        """Yields (what it needs, False) until that is made, and (what it made, True)."""
        for op in self.order[rank]:
            stage = self.line.stage(rank, op.chunk)
            need = self._need(op.kind, stage, op.microbatch)
            arrives = 0.0
            if need is not None:
                while need not in self.end:
                    yield need, False
                remote = self.line.rank(need[1]) != rank
                arrives = self.end[need] + (self.delay if remote else 0.0)
            while op.kind is Kind.F and self.held[rank] + 2 > self.room:
                if not self.owed[rank]:
                    while True:  # no room, and nothing that would make some
                        yield (Kind.W, stage, op.microbatch), False
                self._weights(rank)
            while self.owed[rank] and arrives - self.now[rank] >= self.gap:
                if arrives <= self.now[rank]:
                    break  # no gap at all
                self._weights(rank)
            start = max(self.now[rank], arrives)
            if self.began[rank] < 0:
                self.began[rank] = start
            self.now[rank] = self.end[op.kind, stage, op.microbatch] = start + self.takes[op.kind]
            self.rows[rank].append(op)
            if op.kind is Kind.F:
                self.held[rank] += 2
            else:
                self.held[rank] -= 2 - self.kept
                self.owed[rank].append(op)
            yield (op.kind, stage, op.microbatch), True

    def _need(self, kind: Kind, stage: int, microbatch: int) -> tuple[Kind, int, int] | None:
        if kind is Kind.F:
            return (Kind.F, stage - 1, microbatch) if stage else None
        if stage == self.line.stages - 1:
            return Kind.F, stage, microbatch
        return Kind.I, stage + 1, microbatch

    def _weights(self, rank: int) -> None:
        op = self.owed[rank].pop(0)
        self.rows[rank].append(Op(Kind.W, op.microbatch, op.chunk))
        self.now[rank] += self.takes[Kind.W]
        self.held[rank] -= self.kept
