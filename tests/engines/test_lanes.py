"""Several lanes a rank, signals and collectives: the event graph against the
model, and happens-before against all interleavings."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeproof.engines.events.build import build
from pipeproof.engines.events.ordering import Before, contended, end_of, start_of
from pipeproof.engines.events.run import run
from pipeproof.engines.events.times import times
from pipeproof.program.programs import Program
from pipeproof.program.transports import Transport
from pipeproof.proofs.schedule_of_events import EventTimes, verify
from pipeproof.replay.model import Model
from tests.exhaustive import explore
from tests.programs import program, transports


@st.composite
def synchronised(draw: st.DrawFn) -> Program:
    """Two or three ranks with one or two lanes that send, call and signal."""
    ranks = draw(st.integers(2, 3))
    placed: list[dict[str, list[Any]]] = []
    for rank in range(ranks):
        lanes: dict[str, list[Any]] = {}
        for name in ("a", "b")[: draw(st.integers(1, 2))]:
            ops: list[Any] = []
            waits: list[str] = []
            for number in range(draw(st.integers(0, 3))):
                what = draw(st.sampled_from(["send", "recv", "call", "signal", "await", "wait"]))
                peer = (rank + draw(st.integers(1, ranks - 1))) % ranks
                request = f"{name}{number}" if draw(st.booleans()) else None
                extra: dict[str, Any] = {"comm": name} if draw(st.booleans()) else {}
                extra |= {"req": request} if request else {}
                prefix = "I" if request else ""
                payload = draw(st.sampled_from("xy"))
                if what == "send":
                    ops.append([prefix + "SEND", payload, peer, extra])
                elif what == "recv":
                    ops.append([prefix + "RECV", payload, peer, extra])
                elif what == "call":
                    group = draw(st.sampled_from(["world", "pair"]))
                    if group == "pair" and rank > 1:
                        continue
                    call = {"req": request} if request else {}
                    ops.append(["COLL", "allreduce", group, "g", call])
                elif what == "signal":
                    ops.append(["SIGNAL", draw(st.sampled_from("pq"))])
                    continue
                elif what == "await":
                    ops.append(["AWAIT", draw(st.sampled_from("pq"))])
                    continue
                else:
                    if waits:
                        ops.append(["WAIT", waits.pop()])
                    continue
                if request:
                    waits.append(request)
            if waits:
                ops.append(["WAIT", *waits])
            lanes[name] = ops
        placed.append(lanes)
    return program(*placed, groups={"pair": (0, 1)})


def settled(p: Program, transport: Transport) -> bool:
    graph = build(p, transport)
    return not list(contended(p, transport.streams, Before(graph, run(graph))))


@settings(max_examples=1000)
@given(synchronised(), transports())
def test_the_greedy_run_ends_where_the_model_does(p: Program, transport: Transport) -> None:
    assume(settled(p, transport))
    graph = build(p, transport)
    finished = run(graph)
    done = tuple(finished.progress[c] // 2 for c in range(1, graph.lanes + 1))
    outcome = Model(p, transport).run()
    assert (done, finished.finished(graph)) == (outcome.completed, not outcome.stuck)
    if finished.finished(graph):
        columns = times(p, graph, finished)
        assert verify(p, transport, EventTimes(*(tuple(c.tolist()) for c in columns))) is None


@settings(max_examples=200)
@given(synchronised(), transports())
def test_happens_before_is_what_every_interleaving_agrees_on(
    p: Program, transport: Transport
) -> None:
    assume(0 < p.ops <= 9 and settled(p, transport))
    graph = build(p, transport)
    before = Before(graph, run(graph))
    seen = orders(p, transport)
    assume(seen is not None and seen)
    for one in range(p.ops):
        for other in range(p.ops):
            if one == other or p.lane_of(one) == p.lane_of(other):
                continue
            for first, mark in ((start_of(p, one), one), (end_of(p, one), p.ops + one)):
                second = start_of(p, other)
                if not before.happens(second):
                    continue
                assert seen is not None
                always = all(
                    mark in order and order.index(mark) < order.index(other)
                    for order in seen
                    if other in order
                )
                assert before(first, second) == always, (one, other, mark)


def orders(p: Program, transport: Transport, limit: int = 1500) -> list[list[int]] | None:
    """Every order in which ops are entered (op) and left (ops + op); None if too many."""
    model = Model(p, transport)
    found: set[tuple[int, ...]] = set()
    seen: set[tuple[Any, tuple[int, ...]]] = set()
    stack = [(model.initial(), ())]
    while stack:
        state, order = stack.pop()
        key = (state.key(), order)
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > limit * 20 or len(found) > limit:
            return None
        moves = model.moves(state)
        if not moves:
            found.add(order)
        for move in moves:
            after = state.copy()
            op = after.at[move.number] if move.what in ("enter", "leave") else -1
            model.apply(after, move)
            longer = order
            if move.what == "enter":
                longer = (*order, op)
            elif move.what == "leave":
                longer = (*order, p.ops + op)
            stack.append((after, longer))
    return [list(order) for order in found]


@settings(max_examples=200)
@given(synchronised(), transports())
def test_every_interleaving_ends_alike(p: Program, transport: Transport) -> None:
    assume(settled(p, transport))
    explored = explore(p, transport, limit=20_000)
    assume(not explored.truncated)
    assert len({o.completed for o in explored.outcomes}) == 1
