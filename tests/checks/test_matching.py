"""matching: every message arrives where it is expected, with the contents expected."""

from __future__ import annotations

from typing import Any

import pytest

from pipeproof.verdict import Status
from tests.checks.faults import Fault, judge, places
from tests.checks.plans import GPIPE, changed

Ops = list[Any]
MISMATCH = "mismatch"


def ranks(*programs: Ops, **stated: Any) -> dict[str, Any]:
    return {"programs": {str(rank): ops for rank, ops in enumerate(programs)}, **stated}


def ends(sent: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """One message, with what its two ends state about it."""
    return ranks([["SEND", "x", 1, sent]], [["RECV", "x", 0, expected]])


ON_A = {"req": "q", "comm": "a"}
ACTIVATION = [["SEND", "act", 0, 0, 1]]
FIFO = {"semantics": {"match": "fifo"}}
HELD = {"pre": {"0": ["act:0:0"]}, **FIFO}
SENDS = [["SEND", "x", 1], ["SEND", "y", 1]]
RECVS = [["RECV", "x", 0], ["RECV", "y", 0]]
ECHOED = [["SEND", "x", 0], ["SEND", "y", 0], ["RECV", "x", 0]]
FILL_X, FILL_Y = ["RECV", "x", 1, {"buf": "b"}], ["RECV", "y", 1, {"buf": "b"}]
FROM_B = ["SEND", "x", 1, {"buf": "b"}]
PEEK = ["X", "peek", {"r": [["b", "x"]]}]

FAULTS = [
    Fault(
        "two receives of a plan are crossed",
        "matching",
        changed(GPIPE, "1RECV_F0, 1F0, 1RECV_F1, 1F1", "1RECV_F0, 1RECV_F1, 1F0, 1F1"),
        changed(GPIPE, "1RECV_F0, 1F0, 1RECV_F1, 1F1", "1RECV_F1, 1RECV_F0, 1F0, 1F1"),
        MISMATCH,
        [(0, "0SEND_F0", 1, 2), (1, "1RECV_F1", 2, 1)],
        "2 messages cross: 0SEND_F0 (message 1 from rank 0 to rank 1) is received as 1RECV_F1",
        count=2,
    ),
    Fault(
        "two sends of a plan are crossed",
        "matching",
        GPIPE,
        changed(GPIPE, "1B0, 1SEND_B0, 1B1, 1SEND_B1", "1B0, 1B1, 1SEND_B1, 1SEND_B0"),
        MISMATCH,
        [(1, "1SEND_B1", 2, 7), (0, "0RECV_B0", 1, 5)],
        "2 messages cross: 1SEND_B1 (message 1 from rank 1 to rank 0) is received as 0RECV_B0",
        count=2,
    ),
    Fault(
        "without tags, one is taken for the other",
        "matching",
        ranks(SENDS, RECVS, **FIFO),
        ranks(SENDS, RECVS[::-1], **FIFO),
        MISMATCH,
        [(0, "SEND x to 1", "programs.0[0]"), (1, "RECV y from 0", "programs.1[0]")],
        "2 messages cross: SEND x to 1 (message 1 from rank 0 to rank 1)",
        count=2,
    ),
    Fault(
        "a gradient is taken for an activation",
        "matching",
        ranks(ACTIVATION, [["RECV", "act", 0, 0, 0]], **HELD),
        ranks(ACTIVATION, [["RECV", "grad", 1, 0, 0]], **HELD),
        MISMATCH,
        [(0, "0SEND_F0", "programs.0[0]"), (1, "0RECV_B0", "programs.1[0]")],
        "1 message crosses: 0SEND_F0",
    ),
    Fault(
        "another shape",
        "matching",
        ends({"shape": [2, 3]}, {"shape": [2, 3]}),
        ends({"shape": [2, 3]}, {"shape": [3, 2]}),
        MISMATCH,
        [(0, "SEND x to 1", "programs.0[0]"), (1, "RECV x from 0", "programs.1[0]")],
        "has shape [2, 3], but rank 1 receives it with shape [3, 2]",
    ),
    Fault(
        "another type",
        "matching",
        ends({"dtype": "bf16"}, {"dtype": "bf16"}),
        ends({"dtype": "bf16"}, {"dtype": "fp32"}),
        MISMATCH,
        [(0, "SEND x to 1", "programs.0[0]"), (1, "RECV x from 0", "programs.1[0]")],
        "has dtype bf16, but rank 1 receives it with dtype fp32",
    ),
    Fault(
        "another count, and another shape",
        "matching",
        ends({"count": 6, "shape": [6]}, {"count": 6, "shape": [6]}),
        ends({"count": 6, "shape": [6]}, {"count": 5, "shape": [5]}),
        MISMATCH,
        [(0, "SEND x to 1", "programs.0[0]"), (1, "RECV x from 0", "programs.1[0]")],
        "has shape [6], but rank 1 receives it with shape [5]",
        count=2,
    ),
    Fault(
        "a member of a batch has another shape",
        "matching",
        ranks(
            [["GROUP", [["SEND", "x", 1, {"shape": [2]}], ["SEND", "y", 1, {"shape": [1]}]]]],
            [["GROUP", [["RECV", "y", 0, {"shape": [1]}], ["RECV", "x", 0, {"shape": [2]}]]]],
        ),
        ranks(
            [["GROUP", [["SEND", "x", 1, {"shape": [2]}], ["SEND", "y", 1, {"shape": [1]}]]]],
            [["GROUP", [["RECV", "y", 0, {"shape": [2]}], ["RECV", "x", 0, {"shape": [2]}]]]],
        ),
        MISMATCH,
        [
            (0, "(SEND x to 1;SEND y to 1)GROUP", "programs.0[0]"),
            (1, "(RECV y from 0;RECV x from 0)GROUP", "programs.1[0]"),
        ],
        "SEND y to 1 on rank 0 has shape [1], but rank 1 receives it with shape [2]",
    ),
    Fault(
        "a posted send that nobody receives",
        "matching",
        ranks([["ISEND", "x", 1, {"req": "s"}]], [["RECV", "x", 0]]),
        ranks([["ISEND", "x", 1, {"req": "s"}]], []),
        MISMATCH,
        [(0, "SEND x to 1", "programs.0[0]")],
        "SEND x to 1 on rank 0 meets no receive on rank 1, and nothing waits for it",
    ),
    Fault(
        "a posted receive that nobody sends",
        "matching",
        ranks([["SEND", "x", 1]], [["IRECV", "x", 0, {"req": "r"}]]),
        ranks([], [["IRECV", "x", 0, {"req": "r"}]]),
        MISMATCH,
        [(1, "RECV x from 0", "programs.1[0]")],
        "RECV x from 0 on rank 1 meets no send on rank 0, and nothing waits for it",
    ),
    Fault(
        "a send into a slot that is never read",
        "matching",
        ranks(SENDS, RECVS, semantics={"p2p": {"buffered": 1}}),
        ranks(SENDS, RECVS[:1], semantics={"p2p": {"buffered": 1}}),
        MISMATCH,
        [(0, "SEND y to 1", "programs.0[1]")],
        "SEND y to 1 on rank 0 meets no receive on rank 1",
    ),
    Fault(
        "the payloads of two messages differ, by tag",
        "matching",
        ranks([["ISEND", "x", 1, {"req": "s"}]], [["IRECV", "x", 0, {"req": "r"}]]),
        ranks([["ISEND", "x", 1, {"req": "s"}]], [["IRECV", "z", 0, {"req": "r"}]]),
        MISMATCH,
        [(0, "SEND x to 1", "programs.0[0]"), (1, "RECV z from 0", "programs.1[0]")],
        "SEND x to 1 on rank 0 meets no receive on rank 1",
        count=2,
    ),
    Fault(
        "two ends on different communicators",
        "matching",
        ranks([["ISEND", "x", 1, ON_A]], [["IRECV", "x", 0, ON_A]]),
        ranks([["ISEND", "x", 1, ON_A]], [["IRECV", "x", 0, {**ON_A, "comm": "b"}]]),
        MISMATCH,
        [(0, "SEND x to 1", "programs.0[0]"), (1, "RECV x from 0", "programs.1[0]")],
        "SEND x to 1 on rank 0 meets no receive on rank 1",
        count=2,
    ),
    Fault(
        "a slot that was filled again",
        "matching",
        ranks([FILL_X, FROM_B, FILL_Y], ECHOED[:1] + ECHOED[2:] + ECHOED[1:2]),
        ranks([FILL_X, FILL_Y, FROM_B], ECHOED),
        MISMATCH,
        [(0, "SEND x to 1", "programs.0[2]"), (0, "RECV y from 1", "programs.0[1]")],
        "expects x in b, but that holds y since RECV y from 1",
    ),
    Fault(
        "a slot that is read before it is filled",
        "matching",
        ranks([["X", "fill", {"w": [["b", "x"]]}], PEEK]),
        ranks([PEEK, ["X", "fill", {"w": [["b", "x"]]}]]),
        MISMATCH,
        [(0, "X peek", "programs.0[0]")],
        "expects x in b, but that holds nothing yet",
    ),
    Fault(
        "a layer in the wrong place",
        "matching",
        ranks([], layers={"0": [0, 1], "1": [2]}, n_layers=3),
        ranks([], layers={"0": [0, 2], "1": [1]}, n_layers=3),
        MISMATCH,
        [],
        "stage 0 has layer 2 where layer 1 is due",
    ),
    Fault(
        "a layer too few",
        "matching",
        ranks([], layers={"0": [0, 1], "1": [2]}, n_layers=3),
        ranks([], layers={"0": [0, 1], "1": [2]}, n_layers=4),
        MISMATCH,
        [],
        "stage 1 has no further layer where layer 3 is due",
    ),
    Fault(
        "a layer twice, where their number is not stated",
        "matching",
        ranks([], layers={"0": [0, 1], "1": [2]}),
        ranks([], layers={"0": [0, 1], "1": [1]}),
        MISMATCH,
        [],
        "stage 1 has layer 1 where layer 2 is due",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults(fault: Fault) -> None:
    fault.verify()


def test_tags_tell_what_order_does_not() -> None:
    crossed = [["IRECV", "y", 0, {"req": "y"}], ["IRECV", "x", 0, {"req": "x"}]]
    assert judge(ranks(SENDS, crossed)).status is Status.HOLDS
    assert judge(ranks(SENDS, crossed, **FIFO)).status is Status.VIOLATED


def test_a_trait_that_one_end_leaves_open_differs_from_nothing() -> None:
    assert judge(ends({"shape": [2]}, {})).status is Status.HOLDS
    assert judge(ends({}, {"dtype": "bf16", "count": 4})).status is Status.HOLDS
    assert judge(ends({"shape": [2]}, {"count": 2})).status is Status.HOLDS


def test_a_send_that_nobody_receives_is_a_deadlock_where_something_waits_for_it() -> None:
    lost = [["ISEND", "x", 1, {"req": "s"}]]
    assert [f.check for f in judge(ranks(lost, [])).findings] == ["matching"]
    waited = [*lost, ["WAIT", "s"]]
    (found,) = judge(ranks(waited, [])).findings
    assert (found.check, found.verdict.value) == ("deadlock", "deadlock")
    # With a slot it completes, and nobody reads it.
    (found,) = judge(ranks(waited, [], semantics={"p2p": {"buffered": 1}})).findings
    assert found.check == "matching"
    assert places(found) == [(0, "SEND x to 1", "programs.0[0]")]


def test_what_is_left_over_is_told_only_where_nothing_is_stuck() -> None:
    stuck = ranks([["ISEND", "x", 1, {"req": "s"}], ["RECV", "z", 1]], [])
    (found,) = judge(stuck).findings
    assert found.check == "deadlock"


def test_crossed_messages_are_told_even_where_something_is_stuck() -> None:
    stuck = ranks([*SENDS, ["RECV", "z", 1]], RECVS[::-1], **FIFO)
    assert [f.check for f in judge(stuck).findings] == ["matching", "deadlock"]


# --- what never moves ----------------------------------------------------------

UNWAITED = ranks(
    [["ISEND", "x", 1, {"req": "s"}], ["IRECV", "y", 1, {"req": "r"}]],
    [["ISEND", "y", 0, {"req": "s"}], ["IRECV", "x", 0, {"req": "r"}]],
)


@pytest.mark.parametrize(
    ("streams", "count"), [("free", 0), ("directed", 0), ("pair", 4), ("rank", 4)]
)
def test_streams_that_block_each_other_while_nobody_waits(streams: str, count: int) -> None:
    """Every lane ends, but on one stream for both directions no message ever moves."""
    report = judge({**UNWAITED, "semantics": {"streams": streams}})
    assert [f.count for f in report.findings] == ([count] if count else [])
    if count:
        (found,) = report.findings
        assert (found.check, found.verdict.value) == ("matching", MISMATCH)
        assert "never moves" in found.message and found.replayed


@pytest.mark.parametrize("transport", ["nccl", "nccl-eager"])
def test_the_same_under_a_preset(transport: str) -> None:
    """The row of the preset holds, as its lanes end; that alone must not decide."""
    report = judge(UNWAITED, transport=transport)
    assert [(f.check, f.count) for f in report.findings] == [("matching", 4)]
    assert judge(UNWAITED, transport="gloo").status is Status.HOLDS


def test_a_batch_of_which_one_member_has_arrived() -> None:
    blocked = [["IRECV", "z", 1, {"req": "z"}], ["IRECV", "y", 0, {"req": "r"}]]
    batch = [["GROUP", [["SEND", "x", 1], ["SEND", "y", 2]], {"req": "g"}]]
    program = ranks(batch, [["RECV", "x", 0]], blocked, semantics={"streams": "rank"})
    (found,) = judge(program).findings
    assert found.count == 3  # both ends of y, and z: x has arrived
    assert places(found)[0] == (0, "(SEND x to 1;SEND y to 2)GROUP", "programs.0[0]")
    assert "SEND y to 2" in found.message and found.replayed


def test_sends_that_only_move_in_their_wait_need_one() -> None:
    lazy = {"semantics": {"isend_progress": "at-wait"}}
    sent, posted = [["ISEND", "x", 1, {"req": "s"}]], [["IRECV", "x", 0, {"req": "r"}]]
    (found,) = judge(ranks(sent, posted, **lazy)).findings
    assert (found.check, found.count) == ("matching", 2)
    assert judge(ranks([*sent, ["WAIT", "s"]], posted, **lazy)).status is Status.HOLDS
    # A blocking receive waits for ever.
    (found,) = judge(ranks(sent, [["RECV", "x", 0]], **lazy)).findings
    assert found.check == "deadlock"


def test_posted_calls_that_a_member_never_joins() -> None:
    """Nothing waits for the call, so nothing is stuck; it is left over all the same."""
    call = ["COLL", "allreduce", "world", "w", {"param": "w", "req": "c"}]
    again = ["COLL", "allreduce", "world", "w", {"param": "w", "req": "d"}]
    own = [call, ["WAIT", "c"]]
    Fault(
        name="one call more",
        check="matching",
        right={"n_ranks": 2, "programs": {"0": own, "1": own}},
        wrong={"n_ranks": 2, "programs": {"0": [*own, again], "1": own}},
        verdict="mismatch",
        where=[(0, "allreduce w", "programs.0[2]")],
        says="is call 2 of group world, which rank 1 never makes; nothing waits for it",
    ).verify()
