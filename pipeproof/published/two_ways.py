"""Claims on Chimera, DualPipe and the V-shaped schedules."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pipeproof.program.costs import Costs, Release
from pipeproof.program.programs import Program
from pipeproof.published.figures import Case, Figure, compared, same, spelled
from pipeproof.published.zoo import activations, clocked, made, messages, peaks, timed
from pipeproof.recipes.issuing import issued

PAIR = Costs(pair=3, release=Release.COMMIT)
"""F = I = W = 1, an overlapped pair takes 3, and messages leave with the next batch."""

AT_ONCE = Costs(pair=3, release=Release.OP)
"""The same, but every message leaves when the op that makes it ends."""

_AT_ONCE_66 = (63, 3)
"""What the 66 and 6 of p=8, m=20 become then, in the words of the claim."""


def issued_as_produced(name: str, p: int, m: int) -> Program:
    """``dualpipe`` or ``dualpipe-v`` with its messages in its producer's batches."""
    return issued(made(name, p=p, m=m), "dualpipe")


def chimera(case: Case) -> Iterator[Figure]:
    """Idle fraction and length with a backward as long as a forward."""
    yield from _chimera(case, Costs(F=1, B=1))


def chimera_twice(case: Case) -> Iterator[Figure]:
    """Idle fraction and length with a backward of twice a forward."""
    yield from _chimera(case, Costs(F=1, B=2))


def _chimera(case: Case, costs: Costs) -> Iterator[Figure]:
    found = clocked("chimera", costs, p=case["D"], m=case["N"])
    label = spelled(case)
    yield compared(label, "idle fraction", case["value"], found.ratios["idle_over_elapsed"])
    yield compared(label, "length", case["makespan"], found.makespan)


def chimera_activations(case: Case) -> Iterator[Figure]:
    """The most that each device holds, of a unit of D = 8 microbatches."""
    label = spelled({"D": 8, "N": 8})
    yield compared(label, "by device", case["value"], activations("chimera", p=8, m=8))


def dualpipe(case: Case) -> Iterator[Figure]:
    """Length, idle units of every rank, the most activations, messages."""
    yield from _paired("dualpipe", case["p"], case)


def dualpipe_v(case: Case) -> Iterator[Figure]:
    """The same of the V, where an op is half as long: it is of half the layers."""
    yield from _paired("dualpipe-v", case["ranks"], case)


def _paired(name: str, p: int, case: Case) -> Iterator[Figure]:
    program = issued_as_produced(name, p, case["m"])
    found = timed(program, PAIR)
    label = spelled(case)
    yield compared(label, "length", case["length"], found.makespan)
    yield compared(label, "idle on every rank", case["idle"], same(found.idle))
    yield compared(label, "activations", case["peak"], max(peaks(program)))
    yield compared(label, "messages", case["messages"], messages(program))


def dualpipe_idle(case: Case) -> Iterator[Figure]:
    """Idle units for several m; at p = 8, m = 20 also with messages that leave at once."""
    p = case["p"]
    for m in (2 * p, 2 * p + 4, 4 * p):
        found = timed(issued_as_produced("dualpipe", p, m), PAIR)
        label = spelled({"p": p, "m": m})
        yield compared(label, "idle on every rank", case["value"], same(found.idle))
    if p == 8:
        found = timed(issued_as_produced("dualpipe", 8, 20), AT_ONCE)
        length, idle = _AT_ONCE_66
        label = "p=8, m=20, sent at once"
        yield compared(label, "length", length, found.makespan)
        yield compared(label, "idle on every rank", idle, same(found.idle))


def v_activations(case: Case) -> Iterator[Figure]:
    """The most that any rank holds, in microbatches: both of a rank's halves together."""
    for name in ("v-half", "v-min"):
        for p, expected in zip(case["p"], case[name], strict=True):
            held = max(activations(name, p=p, m=2 * p, v=2))
            label = spelled({"p": p, "m": 2 * p})
            yield compared(label, f"{name} microbatches", expected, Fraction(held, 2))
