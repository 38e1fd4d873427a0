"""The peak of ranks with several lanes against every interleaving."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeproof.checks.subject import Subject
from pipeproof.judge.judge import judge_program
from pipeproof.judge.options import Options
from pipeproof.program.programs import Program
from pipeproof.replay.ledger import units_of
from pipeproof.replay.model import Model
from pipeproof.verdict import Status, Verdict
from tests.programs import program


@st.composite
def allocating(draw: st.DrawFn) -> Program:
    """One rank, two lanes that allocate, free and signal."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    lanes: dict[str, list[Any]] = {"a": [], "b": []}
    for name in names:
        lanes[draw(st.sampled_from("ab"))].append(["ALLOC", name, draw(st.integers(1, 3))])
    for lane in lanes.values():
        for event in draw(st.lists(st.sampled_from("pq"), max_size=2)):
            lane.insert(
                draw(st.integers(0, len(lane))),
                draw(st.sampled_from([["SIGNAL", event], ["AWAIT", event]])),
            )
    for name in names:
        if draw(st.booleans()):
            lane = lanes[draw(st.sampled_from("ab"))]
            lane.insert(draw(st.integers(0, len(lane))), ["FREE", name])
    return program(lanes)


def peak_of_all_interleavings(p: Program) -> int:
    model = Model(p, p.transport)
    start = model.initial()
    seen, stack, best = {start.key()}, [start], 0
    while stack:
        state = stack.pop()
        completed, begun = set[int](), set[int]()
        for number, lane in enumerate(p.lanes):
            completed.update(range(lane.first, state.at[number]))
            begun.update(range(lane.first, state.at[number] + bool(state.entered[number])))
        best = max(best, units_of(p, completed, begun))
        for move in model.moves(state):
            after = state.copy()
            model.apply(after, move)
            if after.key() not in seen:
                seen.add(after.key())
                stack.append(after)
    return best


@settings(max_examples=300)
@given(allocating())
def test_the_cut_is_the_peak_of_all_interleavings(p: Program) -> None:
    subject = Subject(p)
    for name, op in ((n, o) for o, a in p.details.attributes.items() for n in a.free):
        owner = next(o for o, a in p.details.attributes.items() if name in dict(a.alloc))
        from pipeproof.engines.events.ordering import end_of, start_of

        assume(subject.before(end_of(p, owner), start_of(p, op)))
    (peak,) = subject.peaks
    assert peak.closure.peak == peak_of_all_interleavings(p)


def test_a_lane_that_runs_ahead_exceeds_the_budget() -> None:
    """The allocating lane is not held back by the freeing one; with a signal it is."""
    ahead = [["ALLOC", "x", 1], ["SIGNAL", "x"], ["ALLOC", "y", 1], ["SIGNAL", "y"]]
    held = [*ahead[:2], ["AWAIT", "gone"], *ahead[2:]]
    frees = [["AWAIT", "x"], ["FREE", "x"], ["SIGNAL", "gone"], ["AWAIT", "y"], ["FREE", "y"]]
    loose = judge_program("-", program({"a": ahead, "b": frees}, budget={0: 1}), Options())
    assert [f.verdict for f in loose.findings] == [Verdict.MEMORY]
    assert "can hold 2 units, over its budget of 1" in loose.findings[0].message
    assert loose.findings[0].replayed
    tight = judge_program("-", program({"a": held, "b": frees}, budget={0: 1}), Options())
    assert tight.status is Status.HOLDS
