"""Unequal stages, latencies, overlapped pairs and releases against the simulator."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from pipeproof.engines.timing import Timing, timing
from pipeproof.engines.timing_network import network
from pipeproof.engines.timing_path import explain
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.program.costs import Costs, Release
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import build
from tests.programs import program
from tests.random_schedules import random_plan
from tests.simulated import Cells, Simulated, paired, write_cells

LETTERS = ("F", "B", "I", "W")
times = st.one_of(st.integers(0, 9).map(Fraction), st.fractions(0, 9, max_denominator=12))


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    """Costs for up to 6 stages: a list a letter, a delay a boundary, a pair, a release."""
    each = {word: draw(st.lists(times, min_size=6, max_size=6)) for word in LETTERS}
    return {
        "cost": each,
        "delay": draw(st.lists(times, min_size=6, max_size=6)),
        "pair": draw(st.none() | times),
        "release": draw(st.sampled_from(("op", "block", "commit"))),
    }


def costs_of(model: dict[str, Any], stages: int) -> Costs:
    """A model as the engine takes it."""
    listed = {word: tuple(values[:stages]) for word, values in model["cost"].items()}
    return Costs(
        **listed,
        comm=tuple(model["delay"][: stages - 1]),
        pair=model["pair"],
        release=Release(model["release"]),
    )


def random_cells(seed: int) -> Cells:
    random = Random(seed)
    return paired([row for row in random_plan(random) if row], random)


def built(plan: Cells, recipe: str = "naive") -> Program:
    return build(read_schedule(write_cells(plan), "plan"), recipe, PRESETS["gloo"])


def times_of(own: Program, found: Timing) -> dict[str, tuple[Fraction, Fraction]]:
    """(start, end) of each op, by its text."""
    return {
        op_text(own, op): (Fraction(s) / found.per_unit, Fraction(e) / found.per_unit)
        for op, s, e in zip(
            found.op.tolist(), found.start.tolist(), found.end.tolist(), strict=True
        )
    }


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), models(), st.sampled_from(("naive", "torch", "grouped")))
def test_every_op_runs_when_the_simulator_says(
    seed: int, model: dict[str, Any], recipe: str
) -> None:
    plan = random_cells(seed)
    note(write_cells(plan))
    expected = Simulated(plan, **model)
    own = built(plan, recipe)
    found = timing(own, costs_of(model, own.stages))
    if not expected.run():
        assert found is None
        return
    assert found is not None and found.start.dtype == np.int64  # exact
    assert times_of(own, found) == {
        str(a): (expected.start[a], expected.end[a]) for a in expected.end
    }
    assert Fraction(found.last) / found.per_unit == expected.makespan


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), models())
def test_slack_is_how_much_later_an_op_may_end(seed: int, model: dict[str, Any]) -> None:
    """Lengthened by its slack an op delays nothing; by a little more, everything."""
    plan = random_cells(seed)
    note(write_cells(plan))
    expected = Simulated(plan, **model)
    if not expected.run():
        return
    own = built(plan)
    found = explain(own, costs_of(model, own.stages))
    assert found is not None
    assert min(found.slack) == 0
    slack = dict(zip((op_text(own, op) for op in found.op.tolist()), found.slack, strict=True))
    actions = [(rank, a) for rank, row in enumerate(plan) for cell in row for a in cell]
    rank, action = Random(seed).choice([(r, a) for r, a in actions if str(a) in slack])
    own_slack = Fraction(int(slack[str(action)])) / found.per_unit
    for more, same in ((Fraction(0), True), (Fraction(1, 7), False)):
        longer = Simulated(plan, **model, extra={(rank, action): own_slack + more})
        assert longer.run()
        assert (longer.makespan == expected.makespan) is same


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), models())
def test_the_critical_path_has_no_gap(seed: int, model: dict[str, Any]) -> None:
    plan = random_cells(seed)
    note(write_cells(plan))
    own = built(plan)
    costs = costs_of(model, own.stages)
    found, measured = explain(own, costs), timing(own, costs)
    if found is None or measured is None:
        assert found is None and measured is None
        return
    assert found.path[0].start == 0 and found.path[-1].end == measured.last
    for hop, following in zip(found.path, found.path[1:], strict=False):
        assert hop.end == following.start
    slack = dict(zip(found.op.tolist(), found.slack.tolist(), strict=True))
    run = dict(
        zip(measured.op.tolist(), zip(measured.start, measured.end, strict=True), strict=True)
    )
    for hop in found.path:
        if hop.to is None:
            assert slack[hop.op] == 0 and run[hop.op] == (hop.start, hop.end)
        else:
            assert own.rank_of(hop.op) != own.rank_of(hop.to)


# --- by hand -------------------------------------------------------------------


def text(plan: str, **more: Any) -> Program:
    return build(read_schedule(plan.replace(" ", ""), "plan"), "naive", PRESETS["gloo"], **more)


def test_unequal_stages() -> None:
    """One microbatch through stages of 1, 5 and 2: forwards 8, backwards twice that."""
    found = timing(text("0F0,0B0\n1F0,1B0\n2F0,2B0"), Costs(F=(1, 5, 2), B=(2, 10, 4)))
    assert found is not None
    assert found.makespan == 24 and found.busy == (3, 15, 6) and found.idle == (21, 9, 18)
    assert found.span == (24, 21, 6)


def test_bytes_take_time() -> None:
    """Latency 1, and 30 or 60 bytes at 20 a unit."""
    own = text("0F0,0B0\n1F0,1B0\n2F0,2B0")
    costs = Costs(comm=1, bandwidth=20, message_bytes=(30, 60))
    found = timing(own, costs)
    assert found is not None and found.makespan == 9 + 2 * (1 + 1.5) + 2 * (1 + 3)


PAIR = "0F0, (0F1;0B0)OVERLAP_F_B, 0B1\n1F0, 1B0, 1F1, 1B1"


def test_a_pair_takes_its_own_time() -> None:
    """Rank 0: F0 to 1; rank 1: F0, B0 to 4; the pair waits for its B from 4."""
    own = text(PAIR)
    for costs, makespan in (
        (Costs(), 9),  # F1 from 1, B0 from 4 to 6; rank 1: F1, B1 from 4 to 7; B1 7 to 9
        (Costs(release=Release.BLOCK), 12),  # the pair from 4 to 7, F1 comes at 7
        (Costs(pair=2), 9),  # B0 takes what F1 leaves of it, 1
        (Costs(pair=2, release=Release.BLOCK), 11),
        (Costs(pair=0.5, release=Release.BLOCK), 9.5),
    ):
        found = timing(own, costs)
        assert found is not None and found.makespan == makespan, costs


def test_a_block_is_busy_once() -> None:
    found = timing(text(PAIR), Costs(pair=2, release=Release.BLOCK))
    assert found is not None and found.busy == (1 + 2 + 2, 6)
    start, end = found.start.tolist(), found.end.tolist()
    assert (start[1], end[1]) == (start[2], end[2]) == (4, 6)


def test_a_send_leaves_with_the_batch_it_is_listed_in() -> None:
    """0SEND_F0 stands behind 0F1: released by then, not when 0F0 ends."""
    plan = "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    plan += "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1"
    for release, first in ((Release.OP, 1), (Release.BLOCK, 1), (Release.COMMIT, 2)):
        own = text(plan)
        found = timing(own, Costs(release=release))
        assert found is not None
        assert times_of(own, found)["1F0"] == (first, first + 1)


def test_marks_of_a_recording_make_a_pair() -> None:
    ops = [["F", 0, 0], ["X", "FB_begin"], ["F", 0, 1], ["B", 0, 0], ["X", "FB_end"]]
    own = program([*ops, ["B", 0, 1]])
    for costs, makespan in ((Costs(), 6), (Costs(pair=1), 4), (Costs(pair=1.5), 4.5)):
        found = timing(own, costs)
        assert found is not None and found.makespan == makespan


def test_what_cannot_overlap_runs_as_it_stands() -> None:
    """A forward and its own backward, and three in a cell."""
    for plan in ("(0F0;0B0)OVERLAP_F_B", "0F0,0F1,(0F2;0B0;0B1)OVERLAP_F_B,0B2"):
        own = text(plan)
        found = timing(own, Costs(pair=0, release=Release.BLOCK))
        assert found is not None and found.makespan == found.busy[0] == 3 * own.microbatches


# --- stages hosted twice, several lanes ------------------------------------------


def test_a_stage_on_two_ranks() -> None:
    """Stage 0 runs on ranks 0 and 1; stage 1, on rank 2, gets microbatch 0 from rank 1."""
    send = [["F", 0, 0], ["SEND", "act", 0, 0, 2]]
    own = program(
        [["F", 0, 0]],
        [["X", "a"], ["F", 0, 1], *send],
        [["RECV", "act", 0, 0, 1], ["F", 1, 0]],
    )
    found = timing(own, Costs(comm=1))
    assert found is not None and times_of(own, found)["1F0"] == (3, 4)
    # Without a message, what the rank makes itself is what it uses.
    own = program([["F", 0, 0]], [["F", 0, 1], ["F", 0, 0], ["F", 1, 0]])
    found = timing(own, Costs(comm=5))
    assert found is not None and times_of(own, found)["1F0"] == (2, 3)


def test_lanes_wait_for_their_own_stage() -> None:
    """A weight gradient on a lane of its own starts when its input gradient has ended."""
    own = program({"main": [["F", 0, 0], ["I", 0, 0], ["F", 0, 1]], "w": [["W", 0, 0]]})
    found = timing(own, Costs(W=4))
    assert found is not None
    assert times_of(own, found)["0W0"] == (2, 6) and found.makespan == 6


# --- numbers -------------------------------------------------------------------


def test_decimals_are_exact() -> None:
    """0.1 is a tenth: three of them are 0.3."""
    own = text("0F0,0F1,0F2")
    found = timing(own, Costs(F=0.1))
    assert found is not None and found.makespan == 0.3 and found.per_unit == 10
    found = timing(own, Costs(F=Fraction(1, 3)))
    assert found is not None and found.makespan == 1 and isinstance(found.makespan, int)


def test_without_a_common_unit_times_are_floats() -> None:
    own = text("0F0,0F1,0F2")
    found = timing(own, Costs(F=1 / 3, W=1e15))
    assert found is not None and found.start.dtype == np.float64 and found.per_unit == 1
    assert found.makespan == pytest.approx(1)
    path = explain(own, Costs(F=1 / 3, W=1e15))
    assert path is not None and len(path.path) == 3


def test_the_arrays_of_a_network() -> None:
    own = text("0F0,0B0\n1F0,1B0")
    net = network(own, Costs(comm=2))
    assert net is not None
    assert own.kind[net.op].tolist() == [Kind.F, Kind.B, Kind.F, Kind.B]
    assert net.to.tolist() == [1, 2] and net.source.tolist() == [3, 0]
    assert net.lag.tolist() == [4, 3] and net.delay.tolist() == [2, 2]
