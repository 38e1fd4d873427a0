"""The event graph against the step-by-step model, and its certificates against
their checker, on random small programs."""

from __future__ import annotations

from hypothesis import given, note, settings
from hypothesis import strategies as st

from pipeproof.engines.events.build import build
from pipeproof.engines.events.run import run
from pipeproof.engines.events.times import times
from pipeproof.program.programs import Program
from pipeproof.program.transports import Transport
from pipeproof.proofs.schedule_of_events import EventTimes, verify
from pipeproof.replay.model import Model
from tests.exhaustive import explore
from tests.programs import programs, transports


def engine_outcome(program: Program, transport: Transport) -> tuple[tuple[int, ...], bool]:
    """(ops completed a lane, whether all of them) by the event graph."""
    graph = build(program, transport)
    finished = run(graph)
    done = tuple(finished.progress[c] // 2 for c in range(1, graph.lanes + 1))
    return done, finished.finished(graph)


def certificate(program: Program, transport: Transport) -> EventTimes:
    graph = build(program, transport)
    return EventTimes(*(tuple(a.tolist()) for a in times(program, graph, run(graph))))


@settings(max_examples=1500)
@given(programs(), transports())
def test_the_greedy_run_ends_where_the_model_does(program: Program, transport: Transport) -> None:
    done, finished = engine_outcome(program, transport)
    outcome = Model(program, transport).run()
    note(f"{transport}")
    assert (done, finished) == (outcome.completed, not outcome.stuck)


@settings(max_examples=500)
@given(programs(messages=4, ends=3), transports())
def test_every_interleaving_ends_where_the_greedy_run_does(
    program: Program, transport: Transport
) -> None:
    explored = explore(program, transport)
    done, _ = engine_outcome(program, transport)
    assert not explored.truncated
    assert {o.completed for o in explored.outcomes} == {done}


@settings(max_examples=1000)
@given(programs(), transports())
def test_every_certificate_verifies(program: Program, transport: Transport) -> None:
    if engine_outcome(program, transport)[1]:
        assert verify(program, transport, certificate(program, transport)) is None


@settings(max_examples=1000)
@given(programs(), transports(), st.data())
def test_no_times_satisfy_the_rules_of_a_stuck_program(
    program: Program, transport: Transport, data: st.DataObject
) -> None:
    """Whatever times are tried on a program that cannot end, the checker refuses."""
    if engine_outcome(program, transport)[1]:
        return
    ops, rows = program.ops, len(program.messages.op)
    time = st.integers(0, 2 * ops + 2)
    start = data.draw(st.lists(time, min_size=ops, max_size=ops))
    order = sorted(start)
    tries = [start, order, [3 * i for i in range(ops)]]
    for posted in tries:
        late = [t + 1 for t in posted]
        done = [posted[op] + 1 for op in program.messages.op.tolist()]
        for times_ in (
            EventTimes(tuple(posted), tuple(posted), tuple(late), tuple(done)),
            EventTimes(tuple(posted), tuple(posted), tuple(posted), tuple(done[:rows])),
        ):
            assert verify(program, transport, times_) is not None
