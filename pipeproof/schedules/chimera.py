"""Chimera: two pipelines in opposite directions that fill each other's gaps.

Every rank hosts a stage of either direction, so that the weights of a stage are
on two ranks, which sum their gradients before the update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pipeproof.spec import (
    B,
    F,
    allreduce,
    deadlock_free,
    makespan,
    messages,
    peak_activations,
    same_gradients,
    schedule,
)
from pipeproof.spec.ops import Op

_CLAIMS = (
    deadlock_free("nccl"),
    same_gradients(),
    messages(equals=lambda p, m: 2 * m * (p - 1)),
)


def _whole_units(p: int, m: int) -> str | None:
    if p % 2:
        return "p must be even, as two pipelines meet in the middle"
    return f"a unit has p={p} microbatches, so m must be a multiple of it" if m % p else None


def _concatenated(p: int, m: int, F: Any, B: Any) -> Any:
    """Units fit each other without a gap only where a forward is as long as a
    backward; what they differ by opens one gap more for every unit that follows."""
    return m * (F + B) + (p - 2) * (max(F, B) + (m // p - 1) * abs(B - F))


@schedule(
    name="chimera",
    paper="Chimera, arXiv 2107.06925, sections 3.2 and 3.5 (direct concatenation)",
    placement="two-way",
    recipe="grouped",
    valid=_whole_units,
    grid={"p": (2, 4, 6), "m": (2, 4, 6, 8, 12)},
    claims=[
        *_CLAIMS,
        peak_activations(equals=lambda p, rank: p // 2 + 1 + min(rank, p - 1 - rank)),
        makespan(equals=_concatenated),
    ],
)
def chimera(p: int, m: int, rank: int) -> Iterator[Any]:
    """Half of the microbatches down the ranks, half up: half the bubble of 1F1B.

    Slots are of equal length, a forward or a backward each. In a unit of p
    microbatches every direction starts one at every other slot; those of the
    two directions fall on slots of opposite parity. Units follow each other,
    each filling the bubble of the one before. A stage's gradients of a unit
    are summed in the first slot that nothing else needs.
    """
    slots: dict[int, Op] = {}
    sums: list[tuple[int, Op]] = []
    for unit in range(m // p):
        for way in (0, 1):
            stage = p - 1 - rank if way else rank
            for n in range(p // 2):
                start = 2 * (unit * p + n)
                microbatch = unit * p + way * (p // 2) + n
                slots[start + stage] = F(microbatch, way=way)
                slots[start + 2 * p - 1 - stage] = B(microbatch, way=way)
            sums.append((start + 2 * p - 1 - stage, allreduce(f"unit {unit}", way=way)))
    for slot, op in sorted(sums, key=lambda entry: entry[0]):
        while slot in slots:
            slot += 1
        slots[slot] = op
    for slot in sorted(slots):
        yield slots[slot]


def _whole_double_units(p: int, m: int) -> str | None:
    if p % 2:
        return "p must be even, as two pipelines meet in the middle"
    if m % (2 * p):
        return f"a unit has 2 p={2 * p} microbatches, so m must be a multiple of it"
    return None


@schedule(
    name="chimera-doubling",
    paper="Chimera, arXiv 2107.06925, section 3.5 (forward doubling, backward halving)",
    placement="two-way",
    recipe="torch",
    valid=_whole_double_units,
    grid={"p": (2, 4, 6), "m": (4, 8, 12, 16, 24)},
    claims=[
        *_CLAIMS,
        peak_activations(at_most=lambda p: 2 * p),
        makespan(at_most=lambda p, m: 3 * m + 2 * (p - 2)),
    ],
)
def chimera_doubling(p: int, m: int) -> list[list[Any]]:
    """Chimera whose forwards take two microbatches at once, as long as one backward.

    All slots are then of equal length with backwards twice as long as forwards,
    and units follow each other without a gap, for about twice the activations.
    Backward halving is the same order: there m counts the halves.

    In every slot each rank runs, of the ops whose inputs are there, the one that
    would come first if its direction had the ranks to itself; no rank holds more
    than 2 p activations. So the order is the outcome of a run, listed for given
    sizes.
    """
    rows: list[list[Any]] = [[] for _ in range(p)]
    end: dict[tuple[Any, ...], int] = {}  # (kind, way, stage, number) -> first slot after it
    begun: Counter[tuple[str, int, int]] = Counter()  # by kind, way and stage
    held: Counter[int] = Counter()  # by rank
    half = m // 2  # microbatches of a direction; a forward takes 2 n and 2 n + 1
    left = p * 2 * (half // 2 + half)
    slot = 0

    def ready(kind: str, way: int, stage: int) -> tuple[int, int] | None:
        """(its slot if nothing else ran, its number) of the next op, if it may run."""
        n = begun[kind, way, stage]
        if n == (half // 2 if kind == "F" else half):
            return None
        if kind == "F":
            if held[p - 1 - stage if way else stage] + 2 > 2 * p:
                return None
            needs = [("F", way, stage - 1, n)] if stage else []
            alone = 3 * n + stage
        else:
            needs = [("F", way, stage, n // 2)]
            needs += [("B", way, stage + 1, n)] if stage < p - 1 else []
            alone = 3 * (n // 2) + n % 2 + 2 * p - 1 - stage
        return (alone, n) if all(end.get(need, slot + 1) <= slot for need in needs) else None

    while left:
        for rank in range(p):
            open_ops = [
                (*found, kind, way, stage)
                for way, stage in ((0, rank), (1, p - 1 - rank))
                for kind in ("F", "B")
                if (found := ready(kind, way, stage)) is not None
            ]
            if not open_ops:
                continue
            _, n, kind, way, stage = min(open_ops)
            begun[kind, way, stage] += 1
            end[kind, way, stage, n] = slot + 1
            held[rank] += 2 if kind == "F" else -1
            left -= 1
            first = way * half
            if kind == "F":
                rows[rank] += [F(first + 2 * n, way=way), F(first + 2 * n + 1, way=way)]
            else:
                rows[rank].append(B(first + n, way=way))
        slot += 1
    for rank, row in enumerate(rows):
        row += [allreduce("", way=int(stage != rank)) for stage in sorted((rank, p - 1 - rank))]
    return rows
