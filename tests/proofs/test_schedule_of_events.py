"""Certificates of deadlock freedom: every one that is given verifies, and none is
accepted that no execution has.

The oracle plays a certificate back on the step-by-step model, each move at the
time that the certificate gives it. Where a move cannot be made by then, the
certificate is a lie, and the checker must say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pipeproof.engines.events.build import build
from pipeproof.engines.events.run import run
from pipeproof.engines.events.times import times
from pipeproof.program.programs import Program
from pipeproof.program.transports import PRESETS, Grouping, Match, Progress, Streams, Transport
from pipeproof.proofs.schedule_of_events import NEVER, EventTimes, verify
from pipeproof.recipes import issuing
from pipeproof.replay.model import Model
from pipeproof.replay.state import Move
from tests.programs import ALL_TRANSPORTS, program
from tests.random_messages import random_messages
from tests.torch_files import COMMS, EXECUTED, executed, schedule

RENDEZVOUS = Transport()
FIELDS = ("posted", "start", "complete", "done")


def certificate(tested: Program, transport: Transport) -> EventTimes | None:
    """What the engine gives for a program that ends."""
    graph = build(tested, transport)
    ran = run(graph)
    if not ran.finished(graph):
        return None
    return EventTimes(*(tuple(a.tolist()) for a in times(tested, graph, ran)))


# --- the oracle ----------------------------------------------------------------


def plays(tested: Program, transport: Transport, given: EventTimes) -> bool:
    """Whether the model can make every move at the time the certificate gives it."""
    model = Model(tested, transport)
    state = model.initial()
    agenda: dict[int, list[tuple[Move, int]]] = {}

    def at(time: int, move: Move, op: int) -> None:
        if time < NEVER:
            agenda.setdefault(time, []).append((move, op))

    streams = transport.streams is not Streams.FREE
    for number, lane in enumerate(tested.lanes):
        for op in range(lane.first, lane.stop):
            posted = bool(tested.request[op] >= 0)
            at(given.posted[op], Move("enter", number), op)
            at((given.posted if posted else given.complete)[op], Move("leave", number), op)
            if posted and streams and len(tested.rows_of(op)):
                at(given.start[op], Move("start", op), op)
    for row, done in enumerate(given.done):
        at(done, Move("finish", row), int(tested.messages.op[row]))
    for _, due in sorted(agenda.items()):
        while due:
            # A lane's moves speak of the op it has come to.
            ready = [
                (move, op)
                for move, op in due
                if (move.what not in ("enter", "leave") or state.at[move.number] == op)
                and model.enabled(state, move)
            ]
            if not ready:
                return False
            model.apply(state, ready[0][0])
            due.remove(ready[0])
    return state.at == [lane.stop for lane in tested.lanes]


def changed(given: EventTimes, name: str, index: int, value: int) -> EventTimes:
    column = list(getattr(given, name))
    column[index] = value
    return replace(given, **{name: tuple(column)})


def neighbours(given: EventTimes) -> Iterator[EventTimes]:
    """Every certificate that differs in one entry: by one, or by another event's time."""
    known = sorted({t for name in FIELDS for t in getattr(given, name)} | {0, NEVER})
    for name in FIELDS:
        for index, time in enumerate(getattr(given, name)):
            for value in {*known, time - 1, time + 1} - {time}:
                yield changed(given, name, index, value)


def scrambled(random: Random, given: EventTimes) -> EventTimes:
    """Several entries changed at once, or a stretch of time moved elsewhere."""
    columns = {name: list(getattr(given, name)) for name in FIELDS}
    known = sorted({t for column in columns.values() for t in column})
    if random.random() < 0.5:
        low, high, by = random.choice(known), random.choice(known), random.choice((-5, -2, -1, 1))
        columns = {
            name: [t + by if min(low, high) <= t <= max(low, high) < NEVER else t for t in column]
            for name, column in columns.items()
        }
    else:
        for _ in range(random.randint(2, 4)):
            column = random.choice([c for c in columns.values() if c])
            column[random.randrange(len(column))] = random.choice(known)
    return EventTimes(**{name: tuple(column) for name, column in columns.items()})


# --- accepted means legal --------------------------------------------------------

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_accepted_can_be_played(seed: int) -> None:
    random = Random(seed)
    found = None
    while found is None:
        tested = random_messages(random, ranks=3, messages=4)
        transport = random.choice(ALL_TRANSPORTS)
        found = certificate(tested, transport)
    assert verify(tested, transport, found) is None
    assert plays(tested, transport, found)
    refused = 0
    for other in neighbours(found):
        if verify(tested, transport, other) is None:
            assert plays(tested, transport, other), (transport, other)
        else:
            refused += 1
    assert refused
    for _ in range(100):
        other = scrambled(random, found)
        if verify(tested, transport, other) is None:
            assert plays(tested, transport, other), (transport, other)


@pytest.mark.parametrize("seed", range(12))
def test_a_certificate_for_another_transport_is_none_for_a_stuck_program(seed: int) -> None:
    """What ends on a laxer transport has times; where the program hangs, they break a rule."""
    random = Random(1000 + seed)
    tried = 0
    while tried < 40:
        tested = random_messages(random)
        strict = random.choice(ALL_TRANSPORTS)
        if not Model(tested, strict).run().stuck:
            assert verify(tested, strict, _given(tested, strict)) is None
            continue
        for lax in _laxer(strict):
            found = certificate(tested, lax)
            if found is not None:
                tried += 1
                assert verify(tested, lax, found) is None
                assert verify(tested, strict, found) is not None, (strict, lax)


def _given(tested: Program, transport: Transport) -> EventTimes:
    found = certificate(tested, transport)
    assert found is not None
    return found


def _laxer(strict: Transport) -> Iterator[Transport]:
    """The same transport with one rule, or all of them, relaxed."""
    yield replace(strict, streams=Streams.FREE)
    yield replace(strict, capacity=None)
    yield replace(strict, capacity=(strict.capacity or 0) + 1)
    yield replace(strict, group=Grouping.INDEPENDENT)
    yield replace(strict, isend_progress=Progress.ASYNC)
    for match in Match:
        yield replace(strict, match=match)
    yield Transport("lax", Streams.FREE, None, strict.match)


# --- each rule -------------------------------------------------------------------


def refused(tested: Program, transport: Transport, good: EventTimes, **entry: Any) -> str:
    """The objection to a certificate that is good but for one entry, named ``done_1=3``."""
    assert verify(tested, transport, good) is None
    assert plays(tested, transport, good)
    for key, value in entry.items():
        name, _, index = key.partition("_")
        good = changed(good, name, int(index), value)
    assert not plays(tested, transport, good)
    objection = verify(tested, transport, good)
    assert objection is not None
    return objection


PINGED = program([["SEND", "x", 1], ["X", "end"]], [["X", "begin"], ["RECV", "x", 0]])
# Rank 0 sends at 1; rank 1 receives at 3; both ends are done at 4.
PING = EventTimes(posted=(1, 5, 1, 3), start=(1, 5, 1, 3), complete=(4, 6, 2, 4), done=(4, 4))


def test_lanes_run_in_order() -> None:
    said = refused(PINGED, RENDEZVOUS, PING, posted_1=3, start_1=3)
    assert said == "X end (rank 0) is reached before SEND x to 1 (rank 0) is passed"
    assert "blocks its lane" in str(verify(PINGED, RENDEZVOUS, changed(PING, "posted", 0, 0)))
    assert "completes before it starts" in refused(PINGED, RENDEZVOUS, PING, complete_1=4)
    assert "never passed" in refused(PINGED, RENDEZVOUS, PING, complete_1=NEVER)


def test_a_blocking_op_ends_with_its_message() -> None:
    assert "is done outside the time" in refused(PINGED, RENDEZVOUS, PING, complete_0=3)
    assert "is done outside the time" in refused(PINGED, RENDEZVOUS, PING, complete_3=3)
    assert "is done outside the time" in refused(PINGED, RENDEZVOUS, PING, done_1=5)


def test_a_rendezvous_needs_both_ends() -> None:
    assert "although its receive has not started" in refused(
        PINGED, RENDEZVOUS, PING, done_0=2, complete_0=2
    )
    early = program([["X", "late"], ["SEND", "x", 1]], [["RECV", "x", 0]])
    good = EventTimes((1, 3, 1), (1, 3, 1), (2, 4, 4), (3, 3))
    assert "done before its send has started" in refused(early, RENDEZVOUS, good, done_1=2)


def test_slots() -> None:
    late = program(
        [["SEND", n, 1] for n in "abc"], [["X", "late"], *(["RECV", n, 0] for n in "abc")]
    )
    one = RENDEZVOUS.with_capacity(1)
    # a into the slot; b when a is read at 11, c when b is read at 13.
    good = EventTimes(
        posted=(1, 3, 12, 9, 11, 13, 15),
        start=(1, 3, 12, 9, 11, 13, 15),
        complete=(2, 11, 13, 10, 12, 14, 16),
        done=(1, 11, 13, 11, 13, 15),
    )
    assert "no slot is free" in refused(late, one, good, done_1=10)
    assert "no slot is free" in refused(late, one, good, done_2=12)
    assert verify(late, RENDEZVOUS, good) is not None
    assert verify(late, RENDEZVOUS.with_capacity(2), good) is None
    assert verify(late, RENDEZVOUS.with_capacity(2), changed(good, "done", 1, 3)) is None
    # A receive that is read later leaves the slot later.
    assert "no slot is free" in refused(late, one, good, done_3=12)


def test_waits() -> None:
    waiting = program([["ISEND", "x", 1, {"req": "s"}], ["WAIT", "s"]], [["RECV", "x", 0]])
    good = EventTimes(posted=(1, 2, 3), start=(1, 2, 3), complete=(4, 4, 4), done=(3, 3))
    assert "goes on before" in refused(waiting, RENDEZVOUS, good, complete_1=2)
    # Nothing waits for it: then it may never be done.
    loose = program([["ISEND", "x", 1, {"req": "s"}]], [])
    never = EventTimes(posted=(1,), start=(1,), complete=(NEVER,), done=(NEVER,))
    assert verify(loose, RENDEZVOUS, never) is None
    assert "no slot is free" in refused(loose, RENDEZVOUS, never, done_0=5, complete_0=5)
    assert verify(loose, RENDEZVOUS.with_capacity(1), changed(never, "done", 0, 5)) is None


STREAMED = program(
    [["ISEND", "x", 1, {"req": "s"}], ["IRECV", "y", 1, {"req": "r"}], ["WAIT", "s", "r"]],
    [["IRECV", "x", 0, {"req": "r"}], ["ISEND", "y", 0, {"req": "s"}], ["WAIT", "s", "r"]],
)


@pytest.mark.parametrize("streams", [Streams.PAIR, Streams.RANK])
def test_streams_take_turns(streams: Streams) -> None:
    transport = Transport(streams=streams)
    good = EventTimes(
        posted=(1, 2, 3, 1, 2, 3),
        start=(1, 5, 3, 1, 5, 3),
        complete=(4, 6, 7, 4, 6, 7),
        done=(4, 6, 4, 6),
    )
    assert "leaves the stream" in refused(STREAMED, transport, good, start_1=3)
    assert "leaves the stream" in refused(STREAMED, transport, good, start_4=3, start_1=3)
    for laxer in (Streams.FREE, Streams.DIRECTED):
        at_once = changed(changed(good, "start", 1, 2), "start", 4, 2)
        assert verify(STREAMED, Transport(streams=laxer), at_once) is None


def test_sends_that_move_in_their_wait() -> None:
    lazy = Transport(isend_progress=Progress.AT_WAIT)
    tested = program(
        [["ISEND", "x", 1, {"req": "s"}], ["X", "work"], ["WAIT", "s"]], [["RECV", "x", 0]]
    )
    good = EventTimes((1, 2, 5, 1), (1, 2, 5, 1), (6, 3, 6, 6), (6, 6))
    assert "moves outside the wait" in refused(tested, lazy, good, done_0=4)
    assert "done before its send has started" in refused(tested, lazy, good, done_1=4)
    assert verify(tested, RENDEZVOUS, changed(good, "done", 0, 4)) is None


ATOMIC = Transport(group=Grouping.ATOMIC)
WHOLE = program(
    [["GROUP", [["SEND", "x", 1], ["RECV", "y", 2]]]],
    [["RECV", "x", 0]],
    [["X", "late"], ["SEND", "y", 0]],
)


def test_batches_start_whole() -> None:
    good = EventTimes((1, 1, 1, 8), (1, 1, 1, 8), (9, 9, 7, 9), (8, 8, 8, 8))
    assert refused(WHOLE, ATOMIC, good, done_0=2)
    assert refused(WHOLE, ATOMIC, good, done_2=2)
    assert verify(WHOLE, RENDEZVOUS, changed(good, "done", 2, 2)) is None


def test_a_full_slot_is_no_way_around_a_batch_that_is_not_whole() -> None:
    """b meets a receive in a batch that waits for c, which waits for what follows b."""
    tested = program(
        [["SEND", "a", 1], ["SEND", "b", 1], ["SEND", "go", 2]],
        [["GROUP", [["RECV", "b", 0], ["RECV", "c", 2]]], ["RECV", "a", 0]],
        [["RECV", "go", 0], ["SEND", "c", 1]],
    )
    one = replace(ATOMIC, capacity=1)
    assert Model(tested, one).run().stuck
    laxer = Transport(capacity=1)
    assert verify(tested, one, _given(tested, laxer)) is not None
    # b is sent at 5, when its receive is posted: but that takes it at 15, with c.
    lie = EventTimes(
        posted=(1, 3, 6, 1, 17, 1, 15),
        start=(1, 3, 6, 1, 17, 1, 15),
        complete=(2, 5, 7, 16, 18, 7, 16),
        done=(1, 5, 7, 15, 15, 18, 7, 15),
    )
    assert verify(tested, laxer, lie) is None
    assert not plays(tested, one, lie)
    assert verify(tested, one, lie) is not None
    # With a second slot b needs no meeting.
    roomy = replace(ATOMIC, capacity=2)
    assert verify(tested, roomy, _given(tested, roomy)) is None


def test_sizes_must_agree() -> None:
    for name in FIELDS:
        short = replace(PING, **{name: getattr(PING, name)[1:]})
        assert (
            verify(PINGED, RENDEZVOUS, short) == "the certificate is for a program of another size"
        )
    assert verify(program([]), RENDEZVOUS, EventTimes((), (), (), ())) is None


# --- circles ---------------------------------------------------------------------


def constant(tested: Program, time: int) -> EventTimes:
    """Everything at once."""
    ops, rows = (time,) * tested.ops, (time,) * len(tested.messages.op)
    return EventTimes(ops, ops, ops, rows)


def test_all_at_once_is_no_way_out_of_a_circle() -> None:
    crossing = program([["SEND", "x", 1], ["RECV", "y", 1]], [["SEND", "y", 0], ["RECV", "x", 0]])
    circles = [
        (crossing, RENDEZVOUS),
        (program([["SEND", "x", 0], ["RECV", "x", 0]]), RENDEZVOUS),
        (STREAMED, Transport(streams=Streams.PAIR)),
        (WHOLE, ATOMIC),
    ]
    for tested, transport in circles:
        for time in (0, 1, NEVER):
            assert verify(tested, transport, constant(tested, time)) is not None
    for seed in range(200):
        random = Random(seed)
        tested, transport = random_messages(random), random.choice(ALL_TRANSPORTS)
        if any(lane.stop - lane.first > 1 for lane in tested.lanes):
            assert verify(tested, transport, constant(tested, 1)) is not None


# --- recorded plans --------------------------------------------------------------


@pytest.mark.parametrize("name", [*COMMS[::9], *EXECUTED[::4]])
def test_recorded_plans(name: str) -> None:
    for preset in PRESETS.values():
        if name.endswith(".txt"):
            tested = replace(executed(name), transport=preset)
        else:
            tested = issuing.build(schedule(name), "torch", preset)
        found = _given(tested, preset)
        assert verify(tested, preset, found) is None
        # The first receive a moment before its send.
        row = int((~tested.messages.send).nonzero()[0][0])
        start = found.start[int(tested.messages.op[row])]
        send = int(build(tested, preset).match[row])
        before = min(start, found.start[int(tested.messages.op[send])]) - 1
        assert verify(tested, preset, changed(found, "done", row, before)) is not None
