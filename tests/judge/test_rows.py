"""Rows side by side: what one run implies about the others is so.

``schedule_rows`` and ``program_rows`` run as few plans as they can; here every
row is run on its own, and every capacity tried one after the other.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from pipeproof.engines.events.build import build
from pipeproof.engines.events.pairing import pair
from pipeproof.engines.events.run import run
from pipeproof.engines.meetings import all_meet
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.judge.judge import judge_program, judge_schedule
from pipeproof.judge.options import Options
from pipeproof.judge.rows import SideBySide, program_rows, schedule_rows, smallest
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Lane, Program, Waits
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import PRESETS, Grouping, Match, Progress, Transport
from pipeproof.recipes import issuing
from pipeproof.replay.model import Model
from pipeproof.verdict import Status
from tests.engines.test_lanes import synchronised
from tests.exhaustive import explore
from tests.programs import ALL_TRANSPORTS, programs, transports
from tests.programs import program as lanes_of
from tests.random_plans import random_plan
from tests.sequential import write, wrongs_of
from tests.torch_files import COMMS, COMPUTE_ONLY, INDEX, schedule


def ends(program: Program, transport: Transport) -> bool:
    graph = build(program, transport)
    return run(graph).finished(graph)


def capacity(program: Program, transport: Transport) -> int | None:
    """The smallest number of slots that is enough, by trying all."""
    if not ends(program, transport.with_capacity(None)):
        return None
    return next(
        k for k in range(len(program.messages.op) + 1) if ends(program, transport.with_capacity(k))
    )


def directly(plan: Schedule, recipe: str) -> dict[str, tuple[bool, int | None]]:
    """Every row of a schedule, each built and run on its own."""
    asked = {name: (recipe, preset) for name, preset in PRESETS.items()}
    asked["blocking"], asked["grouped"] = ("naive", PRESETS["gloo"]), ("grouped", PRESETS["gloo"])
    rows = {}
    for name, (how, transport) in asked.items():
        program = issuing.build(plan, how, transport)
        rows[name] = (ends(program, transport), capacity(program, transport))
    return rows


def told(side: SideBySide) -> dict[str, tuple[bool, int | None]]:
    return {row.name: (row.status is Status.HOLDS, row.capacity) for row in side.rows}


def rows_of(plan: Schedule, recipe: str, transport: Transport) -> SideBySide:
    program = issuing.build(plan, recipe, transport)
    return schedule_rows(plan, program, pair(program.messages, transport.match))


seeds = st.integers(0, 2**32 - 1).map(Random)


@settings(max_examples=60)
@given(seeds, st.booleans(), st.sampled_from(issuing.RECIPES), st.sampled_from(list(PRESETS)))
def test_rows_of_random_plans(random: Random, listed: bool, recipe: str, name: str) -> None:
    text = write(random_plan(random, communication=listed))
    note(text)
    plan = read_schedule(text, "random")
    side = rows_of(plan, recipe, PRESETS[name])
    assert told(side) == directly(plan, recipe)
    # A verdict that another row shows is one that this row shows.
    assert set(side.shown_by) == {name for name, (holds, _) in told(side).items() if holds}
    # Slots do not change the rows, which are for rendezvous.
    assert told(rows_of(plan, recipe, PRESETS[name].with_capacity(2))) == told(side)


SMALL = [
    name
    for name in [*COMMS, *COMPUTE_ONLY, *(str(entry["file"]) for entry in INDEX)]
    if len(schedule(name).kind) <= 100
]


@pytest.mark.parametrize("name", SMALL)
def test_rows_of_small_files(name: str) -> None:
    plan = schedule(name)
    for recipe in issuing.RECIPES:
        assert told(rows_of(plan, recipe, PRESETS["nccl"])) == directly(plan, recipe)


@settings(max_examples=100)
@given(seeds, st.sampled_from(list(PRESETS)))
def test_random_plans_are_judged_as_they_compute(random: Random, name: str) -> None:
    """The oracle of the seeded faults, on plans that nobody wrote."""
    rows = random_plan(random)
    text = write(rows)
    note(text)
    plan = read_schedule(text, "random")
    report = judge_schedule("random", plan, Options(transport=PRESETS[name]))
    assert all(finding.replayed for finding in report.findings)
    wrongs = wrongs_of(rows, plan.stages, plan.microbatches, name)
    note([f.message for f in report.findings])
    assert (report.status is Status.HOLDS) == (not wrongs), wrongs


# --- programs ------------------------------------------------------------------


@settings(max_examples=60)
@given(programs(), transports())
def test_rows_of_random_programs(program: Program, transport: Transport) -> None:
    program = replace(program, transport=transport)
    holds = ends(program, transport)
    side = program_rows(program, holds=holds)
    for row in side.rows:
        if row.name in PRESETS:
            own = transport.on_streams_of(PRESETS[row.name])
        elif row.name == "grouped":
            continue
        elif row.name == "independent groups":
            own = replace(transport, group=Grouping.INDEPENDENT)
            assert row.status is Status.HOLDS and ends(program, own)
            continue
        elif row.name == "background progress":
            own = replace(transport, isend_progress=Progress.ASYNC)
            assert row.status is Status.HOLDS and ends(program, own)
            continue
        else:
            own = replace(transport, capacity=0)
        assert (row.status is Status.HOLDS) == ends(program, own)
        assert row.capacity == capacity(program, own)
    posted = bool((program.request >= 0).any())
    assert {row.name for row in side.rows} >= (set(PRESETS) if posted else set())


@settings(max_examples=80)
@given(programs(), st.sampled_from([t for t in ALL_TRANSPORTS if t.capacity == 0]))
def test_presets_grow_stricter(program: Program, transport: Transport) -> None:
    """What holds on the streams of one preset holds on those of all before it, also
    with more slots."""
    held = [ends(program, transport.on_streams_of(preset)) for preset in PRESETS.values()]
    assert held == sorted(held, reverse=True)
    slots = [ends(program, transport.with_capacity(k)) for k in (0, 1, 2, 3, 9, None)]
    assert slots == sorted(slots)


@settings(max_examples=80)
@given(programs(), transports(), st.sampled_from(list(PRESETS)))
def test_a_verdict_under_a_preset_is_that_of_the_model(
    program: Program, transport: Transport, name: str
) -> None:
    program = replace(program, transport=transport)
    report = judge_program("random", program, Options(transport=PRESETS[name]))
    outcome = Model(program, transport.on_streams_of(PRESETS[name])).run()
    words = {finding.check for finding in report.findings}
    assert ("deadlock" in words) == bool(outcome.stuck)
    if not outcome.stuck:
        crossed = any("cross" in f.message for f in report.findings)
        assert ("matching" in words) == (crossed or bool(outcome.unmatched))


# --- several lanes -------------------------------------------------------------

# Two lanes of rank 0 talk to rank 1. On one stream whoever comes first blocks the other.
TWO_LANES = lanes_of(
    {
        "out": [["ISEND", "x", 1, {"req": "s"}], ["WAIT", "s"]],
        "in": [["IRECV", "y", 1, {"req": "r"}], ["WAIT", "r"]],
    },
    [
        ["IRECV", "x", 0, {"req": "r"}],
        ["WAIT", "r"],
        ["ISEND", "y", 0, {"req": "s"}],
        ["WAIT", "s"],
    ],
)


def test_lanes_that_share_a_stream_by_chance() -> None:
    assert {row.name: row.status for row in program_rows(TWO_LANES, holds=True).rows} == {
        "gloo": Status.HOLDS,
        "nccl-directed": Status.HOLDS,
        "nccl": Status.UNDETERMINED,
        "nccl-eager": Status.UNDETERMINED,
    }
    for name, preset in PRESETS.items():
        safe = not any(outcome.stuck for outcome in explore(TWO_LANES, preset).outcomes)
        assert safe == (name in ("gloo", "nccl-directed"))
        report = judge_program("lanes", replace(TWO_LANES, transport=preset), Options())
        assert report.status is (Status.HOLDS if safe else Status.VIOLATED)
        assert [f.check for f in report.findings] == ([] if safe else ["race"])
        assert safe == ("smallest_safe_capacity" in report.metrics)


@settings(max_examples=60)
@given(synchronised(), transports())
def test_rows_of_programs_with_lanes(tested: Program, transport: Transport) -> None:
    tested = replace(tested, transport=transport)
    for row in program_rows(tested, holds=True).rows:
        explored = explore(tested, transport.on_streams_of(PRESETS[row.name]), limit=3000)
        stuck = [bool(outcome.stuck) for outcome in explored.outcomes]
        if row.status is Status.HOLDS:
            assert not any(stuck)
        elif row.status is Status.VIOLATED and not explored.truncated:
            assert any(stuck)


# --- the strictest reading -----------------------------------------------------


def blocking(program: Program) -> Program:
    """The same messages, each an op of its own that blocks."""
    rank = program.messages.rank.tolist()
    lanes, first = [], 0
    for r in range(program.ranks):
        lanes.append(Lane(r, "main", first, first + rank.count(r)))
        first += rank.count(r)
    count = len(rank)
    none = np.full(count, -1, np.int32)
    send = program.messages.send
    return replace(
        program,
        lanes=tuple(lanes),
        kind=np.where(send, Kind.SEND, Kind.RECV).astype(np.uint8),
        stage=none,
        microbatch=none,
        request=none,
        messages=replace(program.messages, op=np.arange(count, dtype=np.int32)),
        waits=Waits(none[:0], none[:0]),
    )


@settings(max_examples=150)
@given(programs(messages=6, ends=6), st.sampled_from(list(Match)))
def test_all_meet_is_the_naive_recipe(program: Program, match: Match) -> None:
    found = all_meet(program.messages, pair(program.messages, match).match, program.ranks)
    transport = Transport(match=match)
    naive = blocking(program)
    outcome = Model(naive, transport).run()
    assert found == (not outcome.stuck) == ends(naive, transport)


@settings(max_examples=100)
@given(programs(messages=6, ends=6), st.sampled_from(list(Match)))
def test_what_meets_ends_under_every_transport(program: Program, match: Match) -> None:
    """However it is posted and grouped, as long as nothing holds it back on purpose:
    whole batches and sends that only move in their wait are not implied."""
    if not all_meet(program.messages, pair(program.messages, match).match, program.ranks):
        return
    for transport in ALL_TRANSPORTS:
        free = transport.group is Grouping.INDEPENDENT
        if free and transport.isend_progress is Progress.ASYNC and transport.match is match:
            assert ends(program, transport)
            assert not Model(program, transport).run().unmatched


# --- the smallest capacity -----------------------------------------------------


@pytest.mark.parametrize("largest", [0, 1, 2, 3, 7, 8, 9, 33])
def test_smallest_is_a_linear_search(largest: int) -> None:
    for needed in (*range(largest + 1), None):

        def holds(slots: int | None, needed: int | None = needed) -> bool:
            return needed is not None and (slots is None or slots >= needed)

        assert smallest(holds, largest) == needed
