"""The bubble rates of arXiv 2401.10241, tables 5 and 8: a claim a column.

Rate = 1 - m (F + I + W) / cost, all of a stage's ops in the numerator. The cost
is the makespan for 1F1B, interleaved and ZB-H1, and the longest time of a stage
from its first start to its last end for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from pipeproof.engines.timing_network import longest, network
from pipeproof.program.costs import Costs, exact
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.published.figures import Case, Figure, Outcome, Value, compared
from pipeproof.published.searched import Found, in_a_chain, in_a_v
from pipeproof.published.zoo import compute_only, made, timed
from pipeproof.spec.definition import Definition
from pipeproof.spec.placements import LOOPED, WAVE
from pipeproof.spec.running import run

DIGITS = 4
"""Decimals of the published rates."""

PLAIN = ("1f1b", "zb-h1", "zb-h2")
"""The schedules with one definite order and one stage a rank."""

_OVER_SPAN = ("zb-h2", "zb-1p", "zb-2p", "zb-v")


def label(row: Case) -> str:
    """A row of the tables in words."""
    return f"table {row['table']}: p={row['p']}, m={row['m']}, F={row['F']:g}"


def _costs(row: Case) -> Costs:
    return Costs(F=row["F"], I=row["I"], W=row["W"], comm=row["comm"])


def _rate(row: Case, cost: Fraction | float) -> float:
    work = row["m"] * sum(exact(row[letter]) for letter in ("F", "I", "W"))
    return round(float(1 - work / exact(cost)), DIGITS)


def _measured(row: Case, column: str, program: Program, chunks: int = 1) -> float:
    found = timed(program, _costs(row).divided(chunks))
    return _rate(row, max(found.span) if column in _OVER_SPAN else found.makespan)


# --- definite orders -------------------------------------------------------------


def one_f_one_b(row: Case) -> Iterator[Figure]:
    """1F1B, its gradient sent after the full backward."""
    yield _plain(row, "1f1b")


def zb_h1(row: Case) -> Iterator[Figure]:
    """ZB-H1."""
    yield _plain(row, "zb-h1")


def zb_h2(row: Case) -> Iterator[Figure]:
    """ZB-H2."""
    yield _plain(row, "zb-h2")


def _plain(row: Case, column: str) -> Figure:
    program = compute_only(made(column, p=row["p"], m=row["m"]))
    return compared(label(row), "", row["published"][column], _measured(row, column, program))


# --- interleaved, in two readings ------------------------------------------------


def interleaved(row: Case) -> Iterator[Figure]:
    """Interleaved 1F1B as it was published: see `_first_of_group`."""
    yield compared(label(row), "", row["published"]["interleaved"], as_published(row))


def interleaved_all_edges(row: Case) -> Iterator[Figure]:
    """Interleaved 1F1B where every input is waited for, as computing needs."""
    yield compared(label(row), "", row["interleaved_all_edges"], with_all_edges(row))


def _interleaved(row: Case) -> Program:
    return compute_only(made("interleaved", p=row["p"], m=row["m"], v=row["v_interleaved"]))


def with_all_edges(row: Case) -> float:
    """The rate with all dependencies."""
    return _measured(row, "interleaved", _interleaved(row), row["v_interleaved"])


def as_published(row: Case) -> float:
    """The rate where a chunk waits for the one before it, around the ranks, only in the
    first microbatch of each group of p: the later ones take their input as given."""
    program = _interleaved(row)
    net = network(program, _costs(row).divided(row["v_interleaved"]))
    assert net is not None, "interleaved has ops"
    consumer = net.op[net.inputs.consumer]
    producer = net.op[net.inputs.producer]
    p = row["p"]
    # Stages p c - 1 and p c are on the last and the first rank.
    lower = np.minimum(program.stage[consumer], program.stage[producer])
    crosses = (lower % p == p - 1) & (program.stage[consumer] != program.stage[producer])
    kept = ~crosses | (program.microbatch[consumer] % p == 0)
    start = longest(net.duration, net.bounds, net.to[kept], net.source[kept], net.lag[kept])
    assert start is not None, "fewer dependencies make no circle"
    last = Fraction(int((start + net.duration).max()), net.per_unit)
    return _rate(row, last)


RIVALS = ("zb-h1", "zb-h2")
FLIPS, FLIPS_OF_H2, FLIPS_OF_H1 = 6, 3, 3
"""How many rankings flip, in all, against zb-h2 (in the rows of p = 8 with F near 18.5)
and against zb-h1 (in those of table 8 with p = 16): the words of ``checked`` in the data."""


def rankings(case: Case) -> Iterator[Figure]:
    """Where interleaved is ahead of its rival as published, and behind it with all edges
    (or the other way round); the case is all rows."""
    flipped = []
    for row in case["rows"]:
        edges = with_all_edges(row)
        for rival in RIVALS:
            other = row["published"][rival]
            before, after = row["published"]["interleaved"] - other, edges - other
            if before * after < 0:
                flipped.append((row, rival))
                yield Figure(label(row), rival, _ahead(before), _ahead(after), Outcome.FINDING)
    yield compared("flips in all rows", "", FLIPS, len(flipped))
    near = [
        r for r, rival in flipped if rival == "zb-h2" and r["p"] == 8 and round(r["F"], 1) == 18.5
    ]
    yield compared("table 5: p=8, F near 18.5", "zb-h2", FLIPS_OF_H2, len(near))
    wide = [r for r, rival in flipped if rival == "zb-h1" and (r["table"], r["p"]) == (8, 16)]
    yield compared("table 8: p=16", "zb-h1", FLIPS_OF_H1, len(wide))


def _ahead(difference: float) -> Value:
    return f"{abs(difference):.{DIGITS}f} {'ahead' if difference < 0 else 'behind'}"


# --- orders that a search found --------------------------------------------------


def zb_1p(row: Case) -> Iterator[Figure]:
    """ZB-1p: within the memory of p activations."""
    if "zb-1p" in row["published"]:
        yield _searched(row, "zb-1p", [_chain(row, row["p"])])


def zb_2p(row: Case) -> Iterator[Figure]:
    """ZB-2p: within the memory of 2 p activations."""
    if "zb-2p" in row["published"]:
        yield _searched(row, "zb-2p", [_chain(row, 2 * row["p"])])


def zb_v(row: Case) -> Iterator[Figure]:
    """ZB-V: within the memory of p activations, which are 2 p of half a stage. Torch's
    order, and the same with weight gradients set into the gaps that these costs leave."""
    if "zb-v" not in row["published"]:
        return
    p, m = row["p"], row["m"]
    found = in_a_v(p, m, _costs(row).divided(2), 2 * p)
    orders = [made("zb-v", p=p, m=m, v=2)]
    if found is not None:
        orders.append(_schedule(found, p, m, 2))
    yield _searched(row, "zb-v", orders, 2)


def _chain(row: Case, room: int) -> Schedule:
    found = in_a_chain(row["p"], row["m"], _costs(row), room)
    assert found is not None, "one warm-up holds no more than p"
    return _schedule(found, row["p"], row["m"], 1)


def _schedule(found: Found, p: int, m: int, v: int) -> Schedule:
    """The rows that were found, as a schedule."""

    def rows(p: int, m: int, v: int) -> list[list[object]]:
        return [list(row) for row in found.rows]

    placement = WAVE if v > 1 else LOOPED
    definition = Definition("searched", rows, "", placement)
    schedule = run(definition, {"p": p, "m": m, "v": v})
    assert isinstance(schedule, Schedule)
    return schedule


def _searched(row: Case, column: str, orders: Sequence[Schedule], chunks: int = 1) -> Figure:
    """The best of our orders beside what theirs was: neither is the only right one."""
    ours = min(_measured(row, column, compute_only(order), chunks) for order in orders)
    published = row["published"][column]
    off = round(ours - published, DIGITS)
    note = f"{abs(off):.{DIGITS}f} {'better' if off < 0 else 'worse'}" if off else "equal"
    return Figure(label(row), "", published, ours, Outcome.SEARCHED, note)
