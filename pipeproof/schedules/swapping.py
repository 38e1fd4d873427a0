"""Schedules that move activations to where there is room for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeproof.schedules.synchronous import one_f_one_b
from pipeproof.spec import (
    deadlock_free,
    makespan,
    messages,
    peak_activations,
    same_gradients,
    schedule,
)
from pipeproof.spec.ops import Op


def _held(p: int) -> int:
    """Activations that a rank holds at most: half of what 1F1B holds on the first rank
    and one more, rounded up."""
    return (p + 3) // 2


def _swaps(p: int, m: int) -> int:
    """Transfers to and fro: each activation that does not fit goes and comes back."""
    return sum(len(list(_moves(p, m, rank))) for rank in range(p // 2))


@schedule(
    name="bpipe",
    paper="BPipe: Memory-Balanced Pipeline Parallelism, ICML 2023",
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        peak_activations(lambda p, m: min(m, _held(p))),
        makespan(equals=lambda p, m, F, B: (m + p - 1) * (F + B)),
        messages(equals=lambda p, m: 2 * m * (p - 1) + _swaps(p, m)),
    ],
)
def bpipe(p: int, m: int) -> dict[str, Any]:
    """1F1B in which rank s gives activations that do not fit to rank p-1-s, which has
    room, and takes each back before its backward.

    The first half of the ranks evicts, blocking where it stands; a lane of its own
    on the other half stores and returns. Neighbouring sends and receives of a rank
    are posted together. A program with its communication: transfers go beyond
    neighbours and are part of what must be right.
    """
    lanes: dict[str, Any] = {}
    for rank in range(p):
        main = [op for ops in _steps(p, m, rank) for op in ops]
        lanes[str(rank)] = main
        if rank >= (p + 1) // 2:
            lanes[str(rank)] = {"main": main, "store": list(_store(p, m, rank))}
    return {
        "n_ranks": p,
        "stages": p,
        "m": m,
        "placement": {str(s): s for s in range(p)},
        "semantics": {"streams": "pair"},
        "budget": {str(r): min(m, _held(p)) for r in range(p)},
        "leak_check": True,
        "complete": True,
        "programs": lanes,
    }


def _order(p: int, m: int, rank: int) -> list[tuple[str, int]]:
    ops: list[Op] = list(one_f_one_b.function(p, m, rank))
    return [(op.kind.name, op.microbatch) for op in ops]


def _moves(p: int, m: int, rank: int) -> Iterator[tuple[int, str, int]]:
    """(place in the order, ``evict`` or ``load``, microbatch) of an evicting rank.

    What is needed last goes first: the newest activation.
    """
    here: set[int] = set()
    for place, (letter, i) in enumerate(_order(p, m, rank)):
        if i not in here:
            if len(here) == _held(p):
                newest = max(here)
                here.remove(newest)
                yield place, "evict", newest
            if letter == "B":
                yield place, "load", i
            here.add(i)
        if letter == "B":
            here.remove(i)


def _steps(p: int, m: int, rank: int) -> Iterator[list[Any]]:
    """The ops of a rank's main lane, in groups that stand together."""
    moves: dict[int, list[Any]] = {}
    for place, what, i in _moves(p, m, rank) if rank < p // 2 else ():
        other = p - 1 - rank
        if what == "evict":
            op = ["SEND", f"stash:{rank}:{i}", other, {"comm": "swap", "free": [f"a{i}"]}]
        else:
            op = ["RECV", f"stash:{rank}:{i}", other, {"comm": "swap", "alloc": {f"a{i}": 1}}]
        moves.setdefault(place, []).append(op)
    leaving: list[Any] = []  # sends of the op before
    for place, (letter, i) in enumerate(_order(p, m, rank)):
        forward = letter == "F"
        source = rank - 1 if forward else rank + 1
        target = rank + 1 if forward else rank - 1
        what = "act" if forward else "grad"
        arriving = [["RECV", what, source, i, source]] if 0 <= source < p else []
        together = [*leaving, *arriving]
        if together:
            yield [["GROUP", together]] if len(together) > 1 else together
        yield moves.get(place, [])
        memory = {"alloc": {f"a{i}": 1}} if forward else {"free": [f"a{i}"]}
        yield [[letter, rank, i, memory]]
        leaving = [["SEND", what, rank, i, target]] if 0 <= target < p else []
    yield leaving


def _store(p: int, m: int, rank: int) -> Iterator[Any]:
    """The lane that keeps what rank p-1-rank evicts."""
    other = p - 1 - rank
    for _, what, i in _moves(p, m, other):
        name = f"stash:{other}:{i}"
        if what == "evict":
            yield ["RECV", name, other, {"comm": "swap", "alloc": {f"x{i}": 1}}]
        else:
            yield ["SEND", name, other, {"comm": "swap", "free": [f"x{i}"]}]
