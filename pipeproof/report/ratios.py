"""Bubbles in words, where they are what the textbook says."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pipeproof.verdict import Report, Status


def in_words(report: Report) -> list[str]:
    """A phrase or two where the idle time is that of filling and draining the pipeline.

    p ranks and m microbatches idle (p-1)/(m+p-1) of the elapsed time (GPipe, arXiv
    1811.06965), which is (p-1)/m over the ideal (Megatron-LM, arXiv 2104.04473); with
    v stages a rank, m is v m. A ratio is explained only where it is that, exactly, and
    where nothing is violated: what is broken is no example of it.
    """
    bubble = report.metrics.get("bubble")
    sizes = report.sizes
    if not bubble or report.status is Status.VIOLATED:
        return []
    if sizes["ranks"] < 2 or not sizes["microbatches"]:
        return []
    return list(_ratios(bubble, sizes["ranks"], sizes["microbatches"], sizes["stages"]))


def _ratios(bubble: dict[str, float], p: int, m: int, stages: int) -> Iterator[str]:
    chunks = stages // p if stages % p == 0 else 1
    for v, slots in ((1, "m"), (chunks, "v m")):
        idle = Fraction(p - 1, v * m + p - 1)
        # Each is the float next to the exact ratio: equal where the ratios are.
        if bubble.get("idle_over_elapsed") != float(idle):
            continue
        of = f"p = {p}, m = {m}" + (f", v = {v}" if v > 1 else "")
        yield f"idle over elapsed {_percent(idle)} = (p-1)/({slots}+p-1), fill and drain ({of})"
        over = Fraction(p - 1, v * m)
        if bubble.get("overhead_over_ideal") == float(over):
            short = slots if v == 1 else f"({slots})"
            yield f"overhead over ideal {_percent(over)} = (p-1)/{short}"
        return


def _percent(ratio: Fraction) -> str:
    return f"{100 * float(ratio):.1f} %"
