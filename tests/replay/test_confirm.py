"""Claims: each confirmed where it is so, and refuted by a sentence where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from pipeproof.program.ops import Kind, activation, gradient
from pipeproof.program.programs import Program
from pipeproof.program.transports import Grouping, Match, Transport
from pipeproof.replay.confirm import confirm
from pipeproof.replay.model import Unsupported
from pipeproof.verdict import (
    Claim,
    Counterexample,
    Crossed,
    Exceeds,
    Illegal,
    InFlight,
    Lacks,
    Misplaced,
    Partition,
    Ran,
    Remains,
    Sharding,
    Stuck,
    TakesEither,
    Unjoined,
    Unmatched,
)
from tests.programs import program

TAG, FIFO = Transport(), Transport(match=Match.FIFO)


def refuted(
    tested: Program, claim: Claim, moves: tuple[int, ...] = (), transport: Transport = TAG
) -> str | None:
    """What the model has to say against the claim."""
    answer = confirm(tested, transport, Counterexample(claim, moves, ()))
    assert answer is None or answer.endswith(".")
    return answer


# --- claims that need a run ---------------------------------------------------


def test_calls_that_nobody_joins() -> None:
    call = ["COLL", "allreduce", "world", "w", {"param": "w", "req": "c"}]
    alone = program([call], [["X", "x"]])
    assert refuted(alone, Unjoined(0)) is None
    both = program([call], [call])
    assert refuted(both, Unjoined(0)) == "rank 0 allreduce w completes."
    stuck = program([[*call[:4], {"param": "w"}]], [["X", "x"]])
    assert (refuted(stuck, Unjoined(0)) or "").startswith("The program does not reach its end")


CROSS = program(
    [["F", 0, 0], ["SEND", "x0", 1], ["RECV", "x1", 1]],
    [["SEND", "x1", 0], ["RECV", "x0", 0]],
)


def test_stuck() -> None:
    assert refuted(CROSS, Stuck((1, 3)), (1, 0)) is None
    assert refuted(CROSS, Stuck((3, 1)), (1, 0)) is None
    assert refuted(CROSS, Stuck((1,)), (1, 0)) == (
        "The run is stuck at rank 0 SEND x0 to 1, rank 1 SEND x1 to 0, not at rank 0 SEND x0 to 1."
    )
    assert refuted(CROSS, Stuck((1, 3)), (0, 0)) == (
        "Before it is stuck, the lanes complete 1, 0 ops, not 0, 0."
    )
    assert refuted(CROSS, Stuck((1, 3)), (1, 0), TAG.with_capacity(1)) == (
        "The program runs to its end: nothing is stuck."
    )


def test_unmatched() -> None:
    unread = program([["SEND", "x", 1], ["SEND", "y", 1]], [["RECV", "y", 0]])
    buffered = TAG.with_capacity(2)
    assert refuted(unread, Unmatched(0), (), buffered) is None
    assert refuted(unread, Unmatched(1), (), buffered) == "SEND y to 1 meets its counterpart."
    assert refuted(unread, Unmatched(0)) == (
        "The program does not reach its end: stuck at rank 0 SEND x to 1, rank 1 RECV y from 0."
    )


def test_crossed() -> None:
    swapped = program(
        [["SEND", "x", 1, {"count": 2, "shape": [2]}], ["SEND", "y", 1, {"dtype": "f4"}]],
        [["RECV", "y", 0, {"count": 3, "shape": [2]}], ["RECV", "x", 0]],
    )
    assert refuted(swapped, Crossed(0, 2, "payload"), (), FIFO) is None
    assert refuted(swapped, Crossed(0, 2, "count"), (), FIFO) is None
    assert refuted(swapped, Crossed(0, 2, "shape"), (), FIFO) == (
        "The two ends of SEND x to 1 agree in shape."
    )
    # An end that states nothing agrees with everything.
    assert refuted(swapped, Crossed(1, 3, "dtype"), (), FIFO) is not None
    assert refuted(swapped, Crossed(0, 2, "color"), (), FIFO) is not None
    assert refuted(swapped, Crossed(2, 0, "payload"), (), FIFO) is not None
    assert refuted(swapped, Crossed(0, 2, "payload")) == (
        "SEND x to 1 meets RECV x from 0, not RECV y from 0."
    )
    assert refuted(program([["SEND", "x", 1]], [["RECV", "y", 0]]), Crossed(0, 1, "payload")) == (
        "SEND x to 1 meets nothing, not RECV y from 0."
    )


def test_a_run_needs_a_meaning() -> None:
    atomic = Transport(group=Grouping.ATOMIC)
    anyone = program([["GROUP", [["RECV", "x", "any"]]], ["F", 0, 0], ["F", 0, 0]])
    with pytest.raises(Unsupported):
        refuted(anyone, Stuck((0,)), (), atomic)
    assert refuted(anyone, Ran(Kind.F, 0, 0, 2, 1), (), atomic) is None


ANYONE = program([["RECV", "x", "any"], ["RECV", "x", 1]], [["SEND", "x", 0]], [["SEND", "x", 0]])


def test_stuck_where_messages_are_taken() -> None:
    assert refuted(ANYONE, Stuck((1, 3), ((0, 2),)), (1, 1, 0)) is None
    assert refuted(ANYONE, Stuck((1, 3), ((0, 3),)), (1, 1, 0)) == (
        "The run goes on: RECV x from 1 can take SEND x to 0."
    )
    assert refuted(ANYONE, Stuck((1, 3), ((0, 3), (1, 2))), ()) == (
        "The program runs to its end: nothing is stuck."
    )
    assert refuted(ANYONE, Stuck((1, 3), ((1, 2),)), ()) == (
        "No execution has these receives take these messages in this order."
    )
    assert refuted(ANYONE, Unmatched(0, ((1, 2),)), ()) is not None


def test_takes_either() -> None:
    assert refuted(ANYONE, TakesEither(0, ((0, 2),), ((0, 3),)), ()) is None
    assert refuted(ANYONE, TakesEither(0, ((0, 2),), ((0, 2),)), ()) == (
        "RECV x from any takes messages of one sender."
    )
    assert refuted(ANYONE, TakesEither(1, ((0, 2),), ((0, 3),)), ()) is not None
    assert refuted(ANYONE, TakesEither(0, ((0, 2),), ()), ()) is not None
    assert refuted(ANYONE, TakesEither(0, ((0, 2),), ((1, 2), (0, 3))), ()) is not None


def test_crossed_where_messages_are_taken() -> None:
    fifo = Transport(match=Match.FIFO)
    mixed = program([["RECV", "x", "any"]], [["SEND", "y", 0]], [["SEND", "x", 0]])
    assert refuted(mixed, Crossed(1, 0, "payload", ((0, 1),)), (), fifo) is None
    assert refuted(mixed, Crossed(2, 0, "payload", ((0, 2),)), (), fifo) is not None
    assert refuted(mixed, Crossed(1, 0, "payload", ((0, 2),)), (), fifo) is not None
    assert refuted(mixed, Crossed(1, 0, "payload", ((0, 1), (0, 1))), (), fifo) is not None


# --- claims that are counted --------------------------------------------------


def test_ran() -> None:
    twice = program(
        [["F", 0, 0], ["F", 0, 0], ["F", 0, 0, {"redo": True}], ["B", 0, -1], ["B", 0, 0]]
    )
    assert refuted(twice, Ran(Kind.F, 0, 0, 2, 1)) is None
    assert refuted(twice, Ran(Kind.W, 0, 0, 0, 1)) is None
    assert refuted(twice, Ran(Kind.B, 0, -1, 1, 0)) is None
    assert refuted(twice, Ran(Kind.F, 0, 0, 3, 1)) == "0F0 runs 2 times, not 3."
    assert refuted(twice, Ran(Kind.F, 0, 0, 2, 2)) == "No step needs 0F0 2 times."
    assert refuted(twice, Ran(Kind.B, 0, 0, 1, 1)) == "0B0 runs 1 times, as expected."
    assert refuted(twice, Ran(Kind.B, 0, 9, 0, 1)) is not None


def test_misplaced() -> None:
    moved = program(
        [["F", 0, 0], ["F", 1, 0], ["F", 1, 1, {"anywhere": True}], ["F", 2, 0], ["X"]],
        placement=[0, 1],
    )
    assert refuted(moved, Misplaced(1)) is None
    for op in (0, 2, 3, 4):
        assert refuted(moved, Misplaced(op)) is not None


def test_partition() -> None:
    gap = program([], layers=((0, 1), (3,)), n_layers=4)
    assert refuted(gap, Partition()) is None
    whole = program([], layers=((0, 1), (2, 3)), n_layers=4)
    assert refuted(whole, Partition()) == "The layers of the stages are 0 to 3, once each."
    assert refuted(program([]), Partition()) is not None


# --- claims about one lane ----------------------------------------------------


def lacks(tested: Program, op: int, missing: int | Kind) -> str | None:
    """What is said against the claim that op lacks a payload, or a compute before it."""
    if isinstance(missing, Kind):
        return refuted(tested, Lacks(op, kind=missing))
    return refuted(tested, Lacks(op, payload=missing))


def test_payloads_come_by_computing_and_receiving() -> None:
    stages = program(
        [
            ["F", 0, 0],
            ["SEND", "act", 0, 0, 1],
            ["B", 0, 0],
            ["RECV", "grad", 1, 0, 1],
            ["B", 0, 0],
            ["SEND", "act", 0, 1, 1],
        ],
        [],
        stages=2,
    )
    assert lacks(stages, 2, gradient(1, 0)) is None
    assert lacks(stages, 5, activation(0, 1)) is None
    assert lacks(stages, 4, gradient(1, 0)) == "When 0B0 is reached, its rank has grad:1:0."
    assert lacks(stages, 1, activation(0, 0)) is not None
    assert lacks(stages, 0, activation(0, 0)) == "0F0 does not need act:0:0."


def test_an_asynchronous_receive_gives_its_payload_when_waited_for() -> None:
    receiving = program(
        [],
        [
            ["IRECV", "act", 0, 0, 0, {"req": "a"}],
            ["F", 1, 0],
            ["F", 1, 0, {"wait": ["a"]}],
            ["F", 1, 0],
            ["F", 1, 1, {"nodeps": True}],
        ],
    )
    assert lacks(receiving, 1, activation(0, 0)) is None
    assert lacks(receiving, 2, activation(0, 0)) is not None
    assert lacks(receiving, 3, activation(0, 0)) is not None
    assert lacks(receiving, 4, activation(0, 1)) is not None
    assert refuted(receiving, InFlight(1, 0)) is None
    assert refuted(receiving, InFlight(2, 0)) == (
        "When 1F0 is reached, nothing is pending that 1RECV_F0 posted."
    )
    assert refuted(receiving, InFlight(0, 0)) is not None


def test_payloads_may_be_there_before_the_first_op() -> None:
    fragment = program([], [["F", 1, 0], ["F", 1, 1]], held={1: ["act:0:0"]})
    assert lacks(fragment, 0, activation(0, 0)) is not None
    assert lacks(fragment, 1, activation(0, 1)) is None


def test_computes_that_come_first() -> None:
    computing = program(
        [["B", 0, 0], ["F", 0, 0], ["W", 0, 0], ["B", 0, 0], ["R", 0, 0], ["W", 0, 0], ["R", 0, 1]]
    )
    assert lacks(computing, 0, Kind.F) is None
    assert lacks(computing, 3, Kind.F) == "0F0 ran before 0B0."
    assert lacks(computing, 2, Kind.I) is None
    assert lacks(computing, 5, Kind.I) is None  # a full backward is no input gradient
    assert lacks(computing, 4, Kind.F) is not None
    assert lacks(computing, 6, Kind.F) is None
    assert lacks(computing, 2, Kind.F) == "0W0 does not need 0F0."
    assert refuted(computing, Lacks(0)) is not None


def test_other_lanes_of_the_rank_count_as_far_as_they_came() -> None:
    lanes = program({"receive": [["RECV", "act", 0, 0, 1]], "compute": [["F", 1, 0]]}, [])
    claim = Lacks(1, payload=activation(0, 0))
    assert refuted(lanes, claim, (0, 0, 0)) is None
    assert refuted(lanes, claim, (1, 0, 0)) is not None


@pytest.mark.parametrize(
    ("ops", "wrong"),
    [
        ([["UNSHARD", 0], ["F", 0, 0], ["B", 0, 0], ["RESHARD", 0], ["REDUCE_GRAD", 0]], []),
        ([["UNSHARD", 0], ["F", 0, 0], ["F", 1, 0]], [2]),  # 1 is sharded
        ([["UNSHARD", 0], ["UNSHARD", 0], ["F", 0, 0]], [1]),
        ([["UNSHARD", 0], ["F", 0, 0], ["UNSHARD", 0]], [2]),
        ([["UNSHARD", 0], ["RESHARD", 0], ["F", 0, 0]], [1]),  # still pending: gathered
        ([["UNSHARD", 0], ["F", 0, 0], ["RESHARD", 0], ["RESHARD", 0], ["B", 0, 0]], [3, 4]),
        ([["F", 0, 0], ["UNSHARD", 0]], [0, 1]),
        ([["F", 0, 0], ["RESHARD", 0]], [0, 1]),  # given up, but never gathered
        ([["F", 0, 0], ["B", 0, 0]], []),  # nothing is sharded in this program
        ([["REDUCE_GRAD", 0], ["REDUCE_GRAD", 0]], [1]),
        ([["REDUCE_GRAD", 0], ["B", 0, 0], ["W", 0, 0], ["BI", 0, 0], ["B", 1, 0]], [1, 2]),
    ],
)
def test_sharding(ops: list[list[Any]], wrong: list[int]) -> None:
    tested = program(ops)
    assert [n for n in range(len(ops)) if refuted(tested, Sharding(n)) is None] == wrong


def test_exceeds_counts_allocations() -> None:
    allocating = program(
        [
            ["F", 0, 0, {"alloc": {"a": 1}}],
            ["ALLOC", "b", 2],
            ["X", "t", {"alloc": {"t": 4}, "free": ["t", "a"]}],
            ["FREE", "b"],
            ["X"],
        ]
    )
    for op, units in enumerate([1, 3, 7, 2, 0]):
        assert refuted(allocating, Exceeds(op, units, units - 1)) is None
        assert refuted(allocating, Exceeds(op, units, units)) is not None
        assert refuted(allocating, Exceeds(op, units + 1, units)) is not None


def test_an_asynchronous_op_frees_when_it_is_waited_for() -> None:
    sending = program(
        [
            ["ALLOC", "a", 1],
            ["ISEND", "x", 1, {"req": "s", "free": ["a"]}],
            ["ALLOC", "b", 1],
            ["ALLOC", "c", 1, {"wait": ["s"]}],
            ["ISEND", "y", 1, {"req": "t", "free": ["b"]}],
        ],
        [["RECV", "x", 0], ["RECV", "y", 0]],
    )
    assert refuted(sending, Exceeds(2, 2, 1)) is None
    assert refuted(sending, Exceeds(3, 2, 1)) is None
    assert refuted(sending, Remains(0, "a")) is not None
    assert refuted(sending, Remains(0, "b")) is not None  # in the end y has arrived
    assert refuted(sending, Remains(0, "c")) is None


def test_exceeds_counts_activations_where_nothing_is_allocated() -> None:
    split = program(
        [
            ["F", 0, 0],
            ["F", 0, 1],
            ["B", 0, 0],
            ["F", 0, 2],
            ["BI", 0, 1],
            ["F", 1, 0],
            ["W", 0, 1],
            ["X"],
        ]
    )
    for op, units in enumerate([1, 2, 2, 2, 2, 3, 3, 2]):
        assert refuted(split, Exceeds(op, units, 0)) is None


def test_illegal_frees_and_resources() -> None:
    using = program(
        [
            ["ALLOC", "a", 1],
            ["X", "", {"free": ["a"]}],
            ["FREE", "a"],
            ["MAKE", "r"],
            ["X", "", {"needs": ["r", "p"]}],
            ["DROP", "r"],
            ["DROP", "r"],
            ["X", "", {"needs": ["r"]}],
        ],
        resources={0: ["p"]},
    )
    assert refuted(using, Illegal(2, "a")) is None
    assert refuted(using, Illegal(6, "r")) is None
    assert refuted(using, Illegal(7, "r")) is None
    assert refuted(using, Illegal(1, "a")) == "When X is reached, a is as it expects."
    for op, what in [(3, "r"), (4, "r"), (4, "p"), (5, "r")]:
        assert refuted(using, Illegal(op, what)) is not None
    assert refuted(using, Illegal(0, "z")) == "ALLOC does not free, drop, need or read z."


def test_illegal_slots() -> None:
    slots = program(
        [
            ["X", "", {"w": [["h", "act:0:0"]]}],
            ["SEND", "act", 0, 0, 1, {"buf": "h"}],
            ["SEND", "act", 0, 1, 1, {"buf": "h"}],
            ["COPY", "h", "d"],
            ["X", "", {"r": [["d", "act:0:0"], ["h", "other"]]}],
            ["IRECV", "x", 1, {"req": "r", "buf": "d"}],
            ["X", "", {"r": [["d", "x"]]}],
            ["X", "", {"r": [["d", "x"]], "wait": ["r"]}],
            ["ICOPY", "d", "e", {"req": "c"}],
            ["X", "", {"w": [["d", "new"]]}],
            ["X", "", {"r": [["e", "x"]], "wait": ["c"]}],
        ],
        [],
    )
    broken = [(2, "slot h"), (4, "slot h"), (6, "slot d")]
    for op, what in broken:
        assert refuted(slots, Illegal(op, what)) is None
    for op, what in [(1, "slot h"), (4, "slot d"), (7, "slot d"), (10, "slot e")]:
        assert refuted(slots, Illegal(op, what)) is not None


def test_remains() -> None:
    leaking = program(
        [["ALLOC", "a", 1], ["ALLOC", "b", 1], ["FREE", "b"], ["ALLOC", "c", 1]],
        [["UNSHARD", 0], ["F", 0, 0], ["UNSHARD", 1], ["F", 1, 0], ["RESHARD", 1]],
        leak_check=True,
        may_remain=frozenset({"c"}),
    )
    assert refuted(leaking, Remains(0, "a")) is None
    assert refuted(leaking, Remains(1, "parameters of stage 0")) is None
    assert refuted(leaking, Remains(0, "b")) == "Rank 0 does not end with b."
    assert refuted(leaking, Remains(0, "c")) == "c may remain."
    assert refuted(leaking, Remains(1, "parameters of stage 1")) is not None
    assert refuted(leaking, Remains(1, "a")) is not None
