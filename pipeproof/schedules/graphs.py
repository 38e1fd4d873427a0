"""Pipelines whose stages are no chain, and pipelines that generate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipeproof.schedules.synchronous import one_f_one_b
from pipeproof.spec import (
    B,
    F,
    deadlock_free,
    least,
    loop,
    makespan,
    messages,
    peak_activations,
    same_gradients,
    schedule,
)


def _even(p: int) -> str | None:
    return None if p % 2 == 0 else "p must be even, half of the ranks for each part"


def _crossed(p: int) -> dict[int, Sequence[int]]:
    """Every decoder stage also takes the encoder's output."""
    half = p // 2
    return {
        stage: sorted({stage - 1, *((half - 1,) if stage >= half else ())})
        for stage in range(1, p)
    }


@schedule(
    name="encoder-decoder",
    paper="T5, arXiv 1910.10683, pipelined as in Megatron-LM, arXiv 2104.04473",
    graph=_crossed,
    valid=_even,
    grid={"p": (2, 4, 6)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        peak_activations(equals=lambda p, m, rank: least(m, p - rank)),
        makespan(equals=lambda p, m, F, B: (m + p - 1) * (F + B)),
        messages(equals=lambda p, m: 2 * m * (p - 1 + p // 2 - 1)),
    ],
)
def encoder_decoder(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """1F1B over an encoder on the first half of the ranks and a decoder on the
    second, whose stages all attend to the encoder's output."""
    yield from one_f_one_b.function(p, m, rank)


def _towers(p: int) -> dict[int, Sequence[int]]:
    """Two chains of half the stages each, and the last stage of the second joins
    them."""
    half = p // 2
    inputs: dict[int, Sequence[int]] = {
        stage: (stage - 1,) for stage in range(1, p) if stage != half
    }
    inputs[p - 1] = sorted({half - 1, *inputs.get(p - 1, ())})
    return inputs


@schedule(
    name="two-towers",
    paper="CLIP, arXiv 2103.00020 (the model); fill and drain as in GPipe, arXiv 1811.06965",
    graph=_towers,
    valid=_even,
    grid={"p": (2, 4, 6)},
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        peak_activations(equals=lambda m: m),
        messages(equals=lambda p, m: 2 * m * (p - 1)),
    ],
)
def two_towers(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """Two branches side by side, each on half of the ranks, that meet in the last
    stage: all forwards, then all backwards."""
    for i in loop(m):
        yield F(i)
    for i in loop(m):
        yield B(i)


@schedule(
    name="generation",
    paper="Megatron-LM, arXiv 2104.04473; token by token through a pipeline",
    slices="k",
    feedback=True,
    forward_only=True,
    grid={"k": (1, 2, 4)},
    claims=[
        deadlock_free("nccl"),
        peak_activations(equals=lambda: 1),
        messages(equals=lambda p, m, k: m * (k * (p - 1) + (k - 1 if p > 1 else 0))),
        makespan(lambda p, m, k, F: ((k - 1) * max(p, m) + m + p - 1) * F),
    ],
)
def generation(m: Any, rank: Any, k: Any = 4) -> Iterator[Any]:
    """Autoregressive inference: m sequences take turns, k tokens each, and the first
    stage takes every token that the last one made."""
    for token in loop(k):
        for sequence in loop(m):
            yield F(sequence, slice=token)
