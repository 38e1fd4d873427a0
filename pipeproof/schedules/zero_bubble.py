"""Zero-bubble schedules of one stage a rank: weight gradients fill the bubble.

The backward is split in two: the gradient of the input, which the stage before
waits for, and the gradient of the weights, which nothing waits for.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pipeproof.spec import (
    F,
    I,
    W,
    bubble,
    deadlock_free,
    least,
    loop,
    makespan,
    messages,
    most,
    peak_activations,
    same_gradients,
    schedule,
)

_CLAIMS = (
    deadlock_free("nccl"),
    same_gradients(),
    messages(equals=lambda p, m: 2 * m * (p - 1)),
)


def _split_one_f_one_b(m: Any, warm_up: Any, lag: Any) -> Iterator[Any]:
    """``warm_up`` forwards first; weight gradients ``lag`` microbatches behind the
    input gradients; otherwise each letter in turn."""
    forwards = m - least(warm_up, m)  # that are left after the warm-up
    lag = least(lag, m)
    for i in loop(m - forwards):
        yield F(i)
    for i in loop(least(lag, forwards)):
        yield F(m - forwards + i)
        yield I(i)
    for i in loop(least(lag, forwards), forwards):
        yield F(m - forwards + i)
        yield I(i)
        yield W(i - lag)
    for i in loop(forwards, most(lag, forwards)):
        yield I(i)
    for i in loop(most(lag, forwards), m):
        yield I(i)
        yield W(i - lag)
    for i in loop(m - lag, m):
        yield W(i)


@schedule(
    name="zb-h1",
    paper="Zero bubble pipeline parallelism, arXiv 2401.10241, section 2.1",
    recipe="zero-bubble",
    claims=[
        *_CLAIMS,
        peak_activations(equals=lambda p, m: least(m, p)),
        makespan(equals=lambda p, m: 2 * m + most(m, p) + p - 1),
    ],
)
def zb_h1(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """1F1B with the backward split: a third of the bubble, the memory of rank 0.

    Every rank holds as many activations as rank 0 does in 1F1B.
    """
    yield from _split_one_f_one_b(m, p - 1 - rank, rank)


def _idle_of_a_short_run(p: int, m: int) -> Fraction:
    """Nothing, once there are microbatches enough for the warm-up of rank 0."""
    return 1 - Fraction(3 * m, 3 * m + max(0, 2 * p - 1 - m))


@schedule(
    name="zb-h2",
    paper="Zero bubble pipeline parallelism, arXiv 2401.10241, section 2.2",
    recipe="zero-bubble",
    claims=[
        *_CLAIMS,
        peak_activations(equals=lambda p, m: least(m, 2 * p - 1)),
        makespan(equals=lambda p, m: 3 * m + p - 1 + most(0, 2 * p - 1 - m) // 2),
        bubble("idle_over_span", equals=_idle_of_a_short_run),
    ],
)
def zb_h2(p: Any, m: Any, rank: Any) -> Iterator[Any]:
    """ZB-H1 with twice the warm-up: no bubble, for about twice the activations.

    No rank idles between its first and its last op; ranks start, and end, one
    after the other, so that the next step may fill what is left.
    """
    yield from _split_one_f_one_b(m, 2 * (p - 1 - rank), 2 * rank)
