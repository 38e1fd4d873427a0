"""Timing against a simple reference, and against closed forms."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from pipeproof.engines.timing import Timing, timing
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.program.costs import Costs
from pipeproof.program.programs import Program
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import build
from tests.programs import program
from tests.random_plans import random_plan
from tests.sequential import COMPUTES, Action, Rows, parse, write
from tests.torch_files import text

# --- the reference -------------------------------------------------------------


def reference(
    rows: Rows, cost: dict[str, Fraction], comm: Fraction
) -> dict[tuple[int, int], tuple[Fraction, Fraction]] | None:
    """(start, end) of each compute, by (rank, place in its row).

    Sweep over all ranks until nothing changes: an op starts when the one before
    it has ended, and its input, made by the first op of that name, has arrived.
    """
    lanes = [[a for a in row if a.word in COMPUTES] for row in rows]
    first: dict[tuple[int, str, int], tuple[int, int]] = {}
    for rank, lane in enumerate(lanes):
        for at, a in enumerate(lane):
            if a.word != "W":
                first.setdefault(
                    (a.stage, "F" if a.word == "F" else "B", a.microbatch), (rank, at)
                )
    times: dict[tuple[int, int], tuple[Fraction, Fraction]] = {}
    changed = True
    while changed:
        changed = False
        for rank, lane in enumerate(lanes):
            for at, a in enumerate(lane):
                if (rank, at) in times:
                    continue
                ready = [Fraction(0)]
                if at > 0:
                    if (rank, at - 1) not in times:
                        break
                    ready.append(times[rank, at - 1][1])
                source = _source(a, first)
                if source is not None:
                    if source not in times:
                        break
                    ready.append(times[source][1] + (comm if source[0] != rank else 0))
                times[rank, at] = (max(ready), max(ready) + cost[a.word])
                changed = True
    return times if len(times) == sum(map(len, lanes)) else None


def _source(
    a: Action, first: dict[tuple[int, str, int], tuple[int, int]]
) -> tuple[int, int] | None:
    if a.word == "W":
        return None
    if a.word == "F":
        return first.get((a.stage - 1, "F", a.microbatch))
    return first.get((a.stage + 1, "B", a.microbatch))


def built(rows: Rows) -> Program:
    return build(read_schedule(write(rows), "plan"), "naive", PRESETS["gloo"])


def agree(rows: Rows, costs: dict[str, Fraction]) -> None:
    """The figures equal the reference's, whatever issues the communication."""
    cost = {k: v for k, v in costs.items() if k != "comm"}
    expected = reference(rows, cost, costs["comm"])
    given_costs = Costs(**{k: float(v) for k, v in costs.items()})
    plan = read_schedule(write(rows), "plan")
    for recipe in ("naive", "torch", "grouped"):
        found = timing(build(plan, recipe, PRESETS["gloo"]), given_costs)
        if expected is None:
            assert found is None
            continue
        assert found is not None
        _compare(found, expected, len(rows))


def _compare(
    found: Timing, expected: dict[tuple[int, int], tuple[Fraction, Fraction]], ranks: int
) -> None:
    makespan = max(end for _, end in expected.values())
    assert found.makespan == pytest.approx(float(makespan), abs=1e-9)
    for rank in range(ranks):
        own = [times for (r, _), times in expected.items() if r == rank]
        busy = sum(end - start for start, end in own)
        span = max(end for _, end in own) - min(start for start, _ in own)
        assert found.busy[rank] == pytest.approx(float(busy), abs=1e-9)
        assert found.span[rank] == pytest.approx(float(span), abs=1e-9)
        assert found.idle[rank] == pytest.approx(float(makespan - busy), abs=1e-9)


whole = st.integers(0, 9).map(Fraction)
some = st.one_of(whole, st.fractions(0, 9, max_denominator=12))
costs_of = st.fixed_dictionaries(dict.fromkeys(("F", "I", "W", "B", "comm"), some))


@settings(max_examples=120)
@given(st.integers(0, 2**32 - 1), costs_of)
def test_random_plans(seed: int, costs: dict[str, Fraction]) -> None:
    rows = [row for row in random_plan(Random(seed)) if row]
    note(write(rows))
    agree(rows, costs)


@pytest.mark.parametrize(
    "name",
    [
        "InterleavedZeroBubble_4_8_2.comms.csv",
        "DualPipeV_4_8_2.comms.csv",
        "ZBVZeroBubble_4_8_2.comms.csv",
        "LoopedBFS_4_8_4.comms.csv",
    ],
)
def test_recorded_plans(name: str) -> None:
    rows = parse(text(name))
    third, seventh = Fraction(1, 3), Fraction(1, 7)
    for f, i, w, b, comm in ((1, 1, 1, 2, 0), (3, 2, 1, 4, 5), (third, seventh, 1, 2, 1)):
        costs = {"F": f, "I": i, "W": w, "B": b, "comm": comm}
        agree(rows, {key: Fraction(value) for key, value in costs.items()})


# --- closed forms --------------------------------------------------------------


def gpipe(p: int, m: int) -> Rows:
    return [[Action(s, word, i) for word in "FB" for i in range(m)] for s in range(p)]


def one_f_one_b(p: int, m: int) -> Rows:
    rows = []
    for s in range(p):
        warm = min(p - 1 - s, m)
        row = [Action(s, "F", i) for i in range(warm)]
        for i in range(m - warm):
            row += [Action(s, "F", warm + i), Action(s, "B", i)]
        rows.append(row + [Action(s, "B", i) for i in range(m - warm, m)])
    return rows


SIZES = [(1, 1), (1, 5), (2, 1), (2, 2), (3, 2), (4, 4), (4, 8), (5, 3), (8, 16)]


@pytest.mark.parametrize("plan", [gpipe, one_f_one_b], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_fill_and_drain(plan: object, p: int, m: int) -> None:
    """(m + p - 1) slots of F and B: p - 1 of them are idle on every rank."""
    rows = gpipe(p, m) if plan is gpipe else one_f_one_b(p, m)
    found = timing(built(rows), Costs())
    assert found is not None
    assert found.makespan == 3 * (m + p - 1)
    assert isinstance(found.makespan, int)
    assert found.busy == (3 * m,) * p and found.idle == (3 * (p - 1),) * p
    bubble = found.bubble
    assert bubble["idle_over_elapsed"] == pytest.approx((p - 1) / (m + p - 1))
    assert bubble["overhead_over_ideal"] == pytest.approx((p - 1) / m)
    # The first rank works from the first slot to the last.
    assert bubble["idle_over_span"] == pytest.approx((p - 1) / (m + p - 1))


def test_three_sevenths() -> None:
    found = timing(built(gpipe(4, 4)), Costs())
    assert found is not None
    assert found.bubble["idle_over_elapsed"] == pytest.approx(3 / 7)
    assert found.bubble["overhead_over_ideal"] == pytest.approx(3 / 4)


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_unequal_costs_and_latency(p: int, m: int) -> None:
    """All forwards, then all backwards: each phase waits for its own p - 1 hops."""
    f, b, comm = 2, 5, 3
    found = timing(built(gpipe(p, m)), Costs(F=f, B=b, comm=comm))
    assert found is not None
    assert found.makespan == (m + p - 1) * (f + b) + 2 * comm * (p - 1)


def test_a_message_on_one_rank_takes_no_time() -> None:
    found = timing(built([[Action(0, "F", 0), Action(1, "F", 0)]]), Costs(comm=100))
    assert found is not None and found.makespan == 2


# --- what has no time, and what has little ---------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        "1F0, 0F0",  # on one rank
        "0F0, 0B0, 0F1, 0B1\n1F0, 1F1, 1B0, 1B1",
        "0F0, 0B0\n2F0, 1F0, 2B0, 1B0",
    ],
)
def test_computes_in_a_circle_have_no_time(plan: str) -> None:
    rows = parse(plan.replace(" ", ""))
    assert timing(built(rows), Costs()) is None
    assert reference(rows, dict.fromkeys(COMPUTES, Fraction(1)), Fraction(0)) is None


def test_no_compute_has_no_time() -> None:
    assert timing(program([["X", "a"]], []), Costs()) is None


def test_a_rank_that_never_computes_is_idle() -> None:
    found = timing(program([["F", 0, 0]], [["X", "a"]], []), Costs(F=4))
    assert found is not None
    assert (found.makespan, found.busy, found.idle) == (4, (4, 0, 0), (0, 4, 4))
    assert found.bubble["idle_over_elapsed"] == pytest.approx(2 / 3)


def test_free_computes_have_no_bubble() -> None:
    found = timing(program([["F", 0, 0]]), Costs(F=0))
    assert found is not None and found.makespan == 0 and found.bubble == {}


def test_a_recompute_takes_the_time_of_a_forward_unless_given() -> None:
    recomputing = program([["F", 0, 0], ["R", 0, 0], ["B", 0, 0]])
    for costs, expected in ((Costs(), 4), (Costs(F=2, B=1), 5), (Costs(F=2, R=7, B=1), 10)):
        found = timing(recomputing, costs)
        assert found is not None and found.makespan == expected


def test_an_input_that_nobody_makes_is_there_from_the_start() -> None:
    found = timing(program([["F", 3, 0], ["B", 3, 0]]), Costs())
    assert found is not None and found.makespan == 3
