"""Claims on schedules that flush: fill-drain, 1F1B, interleaved, slices."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pipeproof.program.costs import Costs
from pipeproof.published.figures import Case, Figure, compared, spelled
from pipeproof.published.zoo import activations, clocked, made, messages
from pipeproof.recipes.issuing import issued

_MEGATRON = Costs(F=1, B=2)


def idle_fraction(case: Case) -> Iterator[Figure]:
    """Idle over elapsed time, of both orders."""
    for name in ("gpipe", "1f1b"):
        ratios = clocked(name, Costs(), p=case["p"], m=case["m"]).ratios
        yield compared(spelled(case), name, case["value"], ratios["idle_over_elapsed"])


def overhead(case: Case) -> Iterator[Figure]:
    """Idle over the time of the work, of both orders."""
    for name in ("gpipe", "1f1b"):
        ratios = clocked(name, Costs(), p=case["p"], m=case["m"]).ratios
        yield compared(spelled(case), name, case["value"], ratios["overhead_over_ideal"])


def interleaved(case: Case) -> Iterator[Figure]:
    """Times with F = 1 and B = 2 for all that a rank hosts, a v-th of it a stage."""
    sizes = {name: case[name] for name in ("p", "m", "v")}
    found = clocked("interleaved", _MEGATRON.divided(case["v"]), **sizes)
    label = spelled(case)
    yield compared(label, "makespan", case["makespan"], found.makespan)
    yield compared(label, "overhead", case["overhead"], found.ratios["overhead_over_ideal"])
    if "messages" in case:
        program = issued(made("interleaved", **sizes))
        yield compared(label, "messages", case["messages"], messages(program))


def interleaved_activations(case: Case) -> Iterator[Figure]:
    """The most that rank 0 holds, in activations of all that it hosts. Where a case names
    no m, two groups of p are enough to reach it."""
    p, v = case["p"], case["v"]
    m = case.get("m", 2 * p)
    held = activations("interleaved", p=p, m=m, v=v)
    label = spelled({**case, "m": m})
    yield compared(label, "activations on rank 0", case["value"], Fraction(held[0], v))


def one_f_one_b_activations(case: Case) -> Iterator[Figure]:
    """The most that each rank holds; of fill-drain, which the claim gives in words, m."""
    p, m = case["p"], case["m"]
    label = spelled(case)
    yield compared(label, "1f1b, by rank", case["value"], activations("1f1b", p=p, m=m))
    yield compared(label, "gpipe, by rank", [m] * p, activations("gpipe", p=p, m=m))


def idle_units(case: Case) -> Iterator[Figure]:
    """What the longest span of a stage has beyond its work, with F = I = W = 1, and the
    most activations of a rank."""
    for name, (idle, peak) in case.items():
        found = clocked(name, Costs(), p=4, m=8)
        yield compared(name, "idle units", idle, max(found.span) - max(found.busy))
        yield compared(name, "activations", peak, max(activations(name, p=4, m=8)))


def seq_one_f_one_b(case: Case) -> Iterator[Figure]:
    """Of k equal slices; an activation here is a slice's, k of them a microbatch."""
    p, m, k = case["p"], case["m"], case["k"]
    found = clocked("seq1f1b", Costs().divided(k), p=p, m=m, k=k)
    held = max(activations("seq1f1b", p=p, m=m, k=k))
    label = spelled(case)
    yield compared(label, "overhead", case["overhead"], found.ratios["overhead_over_ideal"])
    yield compared(label, "microbatches held", case["peak"], Fraction(held, k))


def breadth_first(case: Case) -> Iterator[Figure]:
    """Overhead, and the most activations of a chunk that a rank holds."""
    sizes = {name: case[name] for name in ("p", "m", "v")}
    found = clocked("breadth-first", Costs().divided(case["v"]), **sizes)
    held = max(activations("breadth-first", **sizes))
    label = spelled(case)
    yield compared(label, "overhead", case["overhead"], found.ratios["overhead_over_ideal"])
    yield compared(label, "chunks held", case["peak_chunks"], held)
