"""Hanayo: stages that go down the ranks and up again, as often as there are waves."""

from __future__ import annotations

from typing import Any

from pipeproof.program.ops import Kind
from pipeproof.spec import (
    by_priority,
    deadlock_free,
    makespan,
    messages,
    peak_activations,
    same_gradients,
    schedule,
)
from pipeproof.spec.ops import Op
from pipeproof.spec.orders import Priorities


def _whole_waves(v: int) -> str | None:
    return "a wave has two chunks a rank, so v must be even" if v % 2 else None


def _oldest_backward_first(op: Op, rank: int) -> tuple[Any, ...]:
    return op.kind is Kind.F, op.microbatch, -op.chunk


@schedule(
    name="hanayo",
    paper="Hanayo, arXiv 2308.15762",
    placement="wave",
    recipe="torch",
    valid=_whole_waves,
    grid={"v": (2, 4)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        messages(equals=lambda p, m, v: 2 * m * v * (p - 1)),
        peak_activations(at_most=lambda p, m, v: min(m, p) * v),
        makespan(at_most=lambda p, m, v: 3 * v * (m + (p - 1) * -(-m // p))),
    ],
)
def hanayo(p: int, m: int, v: Any = 2) -> Priorities:
    """Waves of stages: v chunks a rank, down and up, v/2 waves, one copy of the weights.

    A rank runs a backward before a forward, and the oldest microbatch first; with
    as many microbatches as ranks a unit of the paper results, and with more of
    them a rank never holds more than a unit's activations. The order is that of
    a run with backwards twice as long as forwards, so it is listed for given sizes.
    """
    return by_priority(
        _oldest_backward_first,
        limit=lambda rank: p * v,
        # Chunks to come of the microbatches that are on their way.
        reserve=lambda op, rank: v - 1 - op.chunk,
    )
