"""race: nothing is used, freed or filled again while a message still uses it."""

from __future__ import annotations

from typing import Any

import pytest

from pipeproof.verdict import Status
from tests.checks.faults import Fault, judge

Ops = list[Any]

SENT = [["F", 0, 0], ["SEND", "act", 0, 0, 1]]
POST = ["IRECV", "act", 0, 0, 0, {"req": "r"}]
TAKEN = ["WAIT", "r"]
USE = ["F", 1, 0]


def ranks(*programs: Ops) -> dict[str, Any]:
    """A program of these ranks; stage s lives on rank s."""
    return {
        "programs": {str(rank): ops for rank, ops in enumerate(programs)},
        "placement": {"0": 0, "1": 1},
    }


def with_wait_last(ops: Ops) -> Ops:
    """The same ops, the only WAIT at their end."""
    (wait,) = [op for op in ops if op[0] == "WAIT"]
    return [*(op for op in ops if op is not wait), wait]


def without_wait(ops: Ops) -> Ops:
    return [op for op in ops if op[0] != "WAIT"]


def fault(
    name: str,
    right: dict[str, Any],
    wrong: dict[str, Any],
    where: list[tuple[int, str, str]],
    says: str,
    **more: Any,
) -> Fault:
    return Fault(name, "race", right, wrong, "race", where, says, **more)


# --- payloads ------------------------------------------------------------------

FORWARD = [POST, TAKEN, USE]
OTHER = ["IRECV", "x", 0, {"req": "x"}]
BATCH = [["GROUP", [["RECV", "act", 0, 0, 0]], {"req": "g"}], ["WAIT", "g"], USE]
PASSED_ON = [POST, TAKEN, ["SEND", "act", 0, 0, 2]]
BOTH_SENT = [["F", 0, 0], ["F", 0, 1], ["SEND", "act", 0, 0, 1], ["SEND", "act", 0, 1, 1]]
BOTH_USED = [
    POST,
    ["IRECV", "act", 0, 1, 0, {"req": "s"}],
    ["WAIT", "r", "s"],
    USE,
    ["F", 1, 1],
]

EARLY = [(1, "1F0", "programs.1[1]"), (1, "1RECV_F0", "programs.1[0]")]

PAYLOADS = [
    fault(
        "a forward before the wait for its input",
        ranks(SENT, FORWARD),
        ranks(SENT, with_wait_last(FORWARD)),
        EARLY,
        "rank 1 runs 1F0, which uses act:0:0 while its receive is still in flight",
    ),
    fault(
        "a forward with no wait for its input at all",
        ranks(SENT, FORWARD),
        ranks(SENT, without_wait(FORWARD)),
        EARLY,
        "rank 1 runs 1F0, which uses act:0:0 while its receive is still in flight",
    ),
    fault(
        "a wait for another request",
        ranks([["SEND", "x", 1], *SENT], [OTHER, POST, ["WAIT", "x", "r"], USE]),
        ranks([["SEND", "x", 1], *SENT], [OTHER, POST, ["WAIT", "x"], USE, TAKEN]),
        [(1, "1F0", "programs.1[3]"), (1, "1RECV_F0", "programs.1[1]")],
        "which uses act:0:0 while its receive is still in flight",
    ),
    fault(
        "a payload passed on before it has arrived",
        ranks(SENT, PASSED_ON, [["RECV", "act", 0, 0, 1]]),
        ranks(SENT, with_wait_last(PASSED_ON), [["RECV", "act", 0, 0, 1]]),
        [(1, "0SEND_F0", "programs.1[1]"), (1, "1RECV_F0", "programs.1[0]")],
        "which sends act:0:0 while its receive is still in flight",
    ),
    fault(
        "an input out of a batch that is not waited for",
        ranks(SENT, BATCH),
        ranks(SENT, with_wait_last(BATCH)),
        [(1, "1F0", "programs.1[1]"), (1, "(1RECV_F0)GROUP", "programs.1[0]")],
        "which uses act:0:0 while its receive is still in flight",
    ),
    fault(
        "two inputs used too early",
        ranks(BOTH_SENT, BOTH_USED),
        ranks(BOTH_SENT, with_wait_last(BOTH_USED)),
        [(1, "1F0", "programs.1[2]"), (1, "1RECV_F0", "programs.1[0]")],
        "uses act:0:0",
        count=2,
    ),
]

# --- buffers -------------------------------------------------------------------


def isend(name: str, request: str, **attributes: Any) -> Ops:
    return ["ISEND", name, 1, {"req": request, **attributes}]


def irecv(name: str, request: str, peer: int) -> Ops:
    return ["IRECV", name, peer, {"req": request, "buf": "b"}]


def takes(*names: str) -> Ops:
    return [["RECV", name, 0] for name in names]


ALLOC, FREE = ["ALLOC", "b", 1], ["FREE", "b"]
SEND_X, DONE_X = isend("x", "s", buf="b"), ["WAIT", "s"]
DONE_BOTH = ["WAIT", "s", "t"]
FREED = [ALLOC, SEND_X, DONE_X, FREE]
FILL_X, FILL_Y = ["RECV", "x", 1, {"buf": "b"}], ["RECV", "y", 1, {"buf": "b"}]
REFILLED = [FILL_X, SEND_X, DONE_X, FILL_Y]
ECHO = [["SEND", "x", 0], *takes("x"), ["SEND", "y", 0]]
SENDS = [["SEND", "x", 0], ["SEND", "y", 0]]
WRITTEN = [["X", "a", {"w": [["b", "x"]]}], SEND_X, DONE_X, ["X", "c", {"w": [["b", "y"]]}]]
READ = [irecv("x", "r", 0), ["WAIT", "r"], ["X", "use", {"r": [["b", "x"]]}]]

FREED_EARLY = [(0, "FREE b", "programs.0[2]"), (0, "SEND x to 1", "programs.0[1]")]


def exchange(slot: str) -> dict[str, Any]:
    """Two ranks swap x and y in a batch each; rank 0 sends x from ``slot`` and fills b."""
    members = [["SEND", "x", 1, {"buf": slot}], ["RECV", "y", 1, {"buf": "b"}]]
    return ranks([["GROUP", members]], [["GROUP", [["RECV", "x", 0], ["SEND", "y", 0]]]])


BUFFERS = [
    fault(
        "freed while it is sent",
        ranks(FREED, takes("x")),
        ranks(with_wait_last(FREED), takes("x")),
        FREED_EARLY,
        "frees b while SEND x to 1 still uses it",
    ),
    fault(
        "freed while it is sent, and the send is never waited for",
        ranks(FREED, takes("x")),
        ranks(without_wait(FREED), takes("x")),
        FREED_EARLY,
        "frees b while SEND x to 1 still uses it",
    ),
    fault(
        "freed by a posted op, which may complete before the send",
        ranks([ALLOC, SEND_X, DONE_X, isend("y", "t", free=["b"])], takes("x", "y")),
        ranks([ALLOC, SEND_X, isend("y", "t", free=["b"]), DONE_BOTH], takes("x", "y")),
        [(0, "SEND y to 1", "programs.0[2]"), (0, "SEND x to 1", "programs.0[1]")],
        "b while SEND x to 1 still uses it",
    ),
    fault(
        "sent while an op posted before it may free it",
        ranks([ALLOC, isend("y", "t"), SEND_X, DONE_BOTH], takes("y", "x")),
        ranks([ALLOC, isend("y", "t", free=["b"]), SEND_X, DONE_BOTH], takes("y", "x")),
        [(0, "SEND x to 1", "programs.0[2]"), (0, "SEND y to 1", "programs.0[1]")],
        "b while SEND y to 1 still uses it",
    ),
    fault(
        "filled again before it was sent",
        ranks(REFILLED, ECHO),
        ranks(with_wait_last(REFILLED), ECHO),
        [(0, "RECV y from 1", "programs.0[2]"), (0, "SEND x to 1", "programs.0[1]")],
        "b while SEND x to 1 still uses it",
    ),
    fault(
        "filled by two receives at once",
        ranks([irecv("x", "s", 1), DONE_X, irecv("y", "t", 1), ["WAIT", "t"]], SENDS),
        ranks([irecv("x", "s", 1), irecv("y", "t", 1), DONE_BOTH], SENDS),
        [(0, "RECV y from 1", "programs.0[1]"), (0, "RECV x from 1", "programs.0[0]")],
        "b while RECV x from 1 still uses it",
    ),
    fault(
        "sent and filled by one batch",
        exchange("a"),
        exchange("b"),
        [(0, "(SEND x to 1;RECV y from 1)GROUP", "programs.0[0]")],
        "uses b twice at once",
        beside=frozenset({"matching"}),  # y is there before x was
    ),
    fault(
        "written while it is sent",
        ranks(WRITTEN, takes("x")),
        ranks(with_wait_last(WRITTEN), takes("x")),
        [(0, "X c", "programs.0[2]"), (0, "SEND x to 1", "programs.0[1]")],
        "writes b while SEND x to 1 still uses it",
    ),
    fault(
        "read while it is filled",
        ranks([["SEND", "x", 1]], READ),
        ranks([["SEND", "x", 1]], with_wait_last(READ)),
        [(1, "X use", "programs.1[1]"), (1, "RECV x from 0", "programs.1[0]")],
        "reads b while RECV x from 0 still uses it",
        beside=frozenset({"matching"}),
    ),
]


@pytest.mark.parametrize("fault", PAYLOADS, ids=lambda fault: fault.name)
def test_payloads(fault: Fault) -> None:
    fault.verify()


@pytest.mark.parametrize("fault", BUFFERS, ids=lambda fault: fault.name)
def test_buffers(fault: Fault) -> None:
    fault.verify()


def test_what_may_be_used_at_once() -> None:
    # Two sends of one buffer, and a free by the op that waits for both.
    shared = [ALLOC, SEND_X, isend("y", "t", buf="b")]
    freeing = ["WAIT", "s", "t", {"free": ["b"]}]
    assert judge(ranks([*shared, freeing], takes("x", "y"))).status is Status.HOLDS
    # The same name on another rank is another buffer.
    elsewhere = [ALLOC, FREE, *takes("x", "y")]
    assert judge(ranks([*shared, DONE_BOTH], elsewhere)).status is Status.HOLDS


def test_a_posted_receive_of_another_payload_is_no_race() -> None:
    other = [["IRECV", "act", 0, 1, 0, {"req": "r"}], ["RECV", "act", 0, 0, 0], USE, TAKEN]
    sent = [["F", 0, 0], ["F", 0, 1], ["SEND", "act", 0, 1, 1], ["SEND", "act", 0, 0, 1]]
    assert judge(ranks(sent, other)).status is Status.HOLDS


def test_a_payload_that_came_another_way_is_there() -> None:
    # A second copy is on its way, but the first has arrived.
    twice = [["F", 0, 0], ["SEND", "act", 0, 0, 1], ["SEND", "act", 0, 0, 1]]
    taken = [["RECV", "act", 0, 0, 0], POST, USE, TAKEN]
    assert judge(ranks(twice, taken)).status is Status.HOLDS
