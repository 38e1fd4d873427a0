"""order: every op has its inputs when it runs."""

from __future__ import annotations

from typing import Any

import pytest

from pipeproof.verdict import Status
from tests.checks.faults import Fault, judge, places
from tests.checks.plans import GPIPE, REDUCED, SHARDED, SPLIT, changed

ORDER = "order-violation"


def two(first: list[Any], second: list[Any], **stated: Any) -> dict[str, Any]:
    """A program of two ranks, a stage each."""
    return {
        "programs": {"0": first, "1": second},
        "placement": {"0": 0, "1": 1},
        **stated,
    }


SENT = ["SEND", "act", 0, 0, 1]
TAKEN = ["RECV", "act", 0, 0, 0]
BACK = ["SEND", "grad", 1, 0, 0]
GOT = ["RECV", "grad", 1, 0, 1]

FAULTS = [
    Fault(
        "a weight gradient before its input gradient",
        "order",
        SPLIT,
        changed(SPLIT, "0I1, 0W1", "0W1, 0I1"),
        ORDER,
        [(0, "0W1", 1, 9), (0, "0I1", 1, 10)],
        "rank 0 runs 0W1 without 0I1, which stands behind it",
    ),
    Fault(
        "a backward on the last stage before its forward",
        "order",
        GPIPE,
        changed(GPIPE, "1F1, 1B0, 1SEND_B0, 1B1", "1B1, 1F1, 1B0, 1SEND_B0"),
        ORDER,
        [(1, "1B1", 2, 4), (1, "1F1", 2, 5)],
        "rank 1 runs 1B1 without 1F1, which stands behind it",
    ),
    Fault(
        "a backward on the last stage without its forward",
        "order",
        GPIPE,
        changed(GPIPE, "1F0, ", ""),
        ORDER,
        [(1, "1B0", 2, 4)],
        "rank 1 runs 1B0 without 1F0, which never runs on this rank",
        beside=frozenset({"coverage"}),
    ),
    Fault(
        "a forward before its activation is received",
        "order",
        GPIPE,
        changed(GPIPE, "1RECV_F1, 1F1", "1F1, 1RECV_F1"),
        ORDER,
        [(1, "1F1", 2, 3), (1, "1RECV_F1", 2, 4)],
        "needs the output of stage 0 for microbatch 1 (act:0:1), which it only has after 1RECV_F1",
    ),
    Fault(
        "a backward before its gradient is received",
        "order",
        GPIPE,
        changed(GPIPE, "0RECV_B1, 0B1", "0B1, 0RECV_B1"),
        ORDER,
        [(0, "0B1", 1, 7), (0, "0RECV_B1", 1, 8)],
        "needs the gradient of stage 1 for microbatch 1 (grad:1:1), which it only has after",
    ),
    Fault(
        "a send before the forward that makes it",
        "order",
        GPIPE,
        changed(GPIPE, "0F1, 0SEND_F1", "0SEND_F1, 0F1"),
        ORDER,
        [(0, "0SEND_F1", 1, 3), (0, "0F1", 1, 4)],
        "rank 0 runs 0SEND_F1, which sends the output of stage 0 for microbatch 1 (act:0:1)",
    ),
    Fault(
        "an input that neither end lists",
        "order",
        GPIPE,
        changed(changed(GPIPE, "1RECV_F1, ", ""), "0SEND_F1, ", ""),
        ORDER,
        [(1, "1F1", 2, 3)],
        "needs the output of stage 0 for microbatch 1 (act:0:1), which never reaches it",
    ),
    Fault(
        "a stage that follows on the same rank runs first",
        "order",
        "0F0, 1F0, 1B0, 0B0",
        "1F0, 0F0, 1B0, 0B0",
        ORDER,
        [(0, "1F0", 1, 1), (0, "0F0", 1, 2)],
        "needs the output of stage 0 for microbatch 0 (act:0:0), which it only has after 0F0",
    ),
    Fault(
        "backwards of two stages of a rank, the wrong way round",
        "order",
        "0F0, 1F0, 1B0, 0B0",
        "0F0, 1F0, 0B0, 1B0",
        ORDER,
        [(0, "0B0", 1, 3), (0, "1B0", 1, 4)],
        "needs the gradient of stage 1 for microbatch 0 (grad:1:0), which it only has after 1B0",
    ),
    Fault(
        "a gradient is reduced before the last two are made",
        "order",
        REDUCED,
        changed(
            changed(REDUCED, ", 0REDUCE_GRAD", ""), "0RECV_B0, 0B0", "0REDUCE_GRAD, 0RECV_B0, 0B0"
        ),
        ORDER,
        [(0, "0B0", 1, 7)],
        "its gradient comes after the stage's REDUCE_GRAD and is lost",
        count=2,
    ),
    Fault(
        "a gradient is reduced before the last one is made",
        "order",
        REDUCED,
        changed(
            changed(REDUCED, ", 1REDUCE_GRAD", ""), "1B1, 1SEND_B1", "1REDUCE_GRAD, 1B1, 1SEND_B1"
        ),
        ORDER,
        [(1, "1B1", 2, 8)],
        "its gradient comes after the stage's REDUCE_GRAD and is lost",
    ),
    Fault(
        "a gradient is reduced twice",
        "order",
        REDUCED,
        REDUCED.rstrip() + ", 1REDUCE_GRAD\n",
        ORDER,
        [(1, "1REDUCE_GRAD", 2, 10)],
        "the stage's gradients are reduced already",
    ),
    Fault(
        "parameters are given up too early",
        "order",
        SHARDED,
        changed(changed(SHARDED, ", 0RESHARD", ""), "0RECV_B1, 0B1", "0RESHARD, 0RECV_B1, 0B1"),
        ORDER,
        [(0, "0B1", 1, 10)],
        "the stage's parameters are not gathered (no UNSHARD before)",
    ),
    Fault(
        "a stage is never gathered",
        "order",
        SHARDED,
        changed(SHARDED, "1UNSHARD, ", ""),
        ORDER,
        [(1, "1F0", 2, 2)],
        "the stage's parameters are not gathered (no UNSHARD before)",
    ),
    Fault(
        "no stage is ever gathered",
        "order",
        SHARDED,
        changed(changed(SHARDED, "1UNSHARD, ", ""), "0UNSHARD, ", ""),
        ORDER,
        [(0, "0F0", 1, 1), (1, "1F0", 2, 2)],
        "the stage's parameters are not gathered (no UNSHARD before)",
        count=2,
    ),
    Fault(
        "a stage is gathered twice",
        "order",
        SHARDED,
        changed(SHARDED, "0UNSHARD, 0F0,", "0UNSHARD, 0F0, 0UNSHARD,"),
        ORDER,
        [(0, "0UNSHARD", 1, 3)],
        "the stage's parameters are gathered already",
    ),
    Fault(
        "a stage is given up twice",
        "order",
        SHARDED,
        SHARDED.rstrip() + ", 1RESHARD\n",
        ORDER,
        [(1, "1RESHARD", 2, 12)],
        "the stage's parameters are not gathered",
    ),
    Fault(
        "a gather that nothing uses",
        "order",
        SHARDED,
        SHARDED.rstrip() + ", 1UNSHARD, 1RESHARD\n",
        ORDER,
        [(1, "1RESHARD", 2, 13)],
        "nothing has computed on the stage since its UNSHARD",
    ),
    Fault(
        "a send of what the rank does not have",
        "order",
        two([["F", 0, 0], SENT], [TAKEN, ["F", 1, 0]]),
        two([SENT, ["F", 0, 0]], [TAKEN, ["F", 1, 0]]),
        ORDER,
        [(0, "0SEND_F0", "programs.0[0]"), (0, "0F0", "programs.0[1]")],
        "rank 0 runs 0SEND_F0, which sends the output of stage 0",
    ),
    Fault(
        "a member of a batch that the rank does not have",
        "order",
        two([["F", 0, 0], ["GROUP", [SENT]]], [["GROUP", [TAKEN]], ["F", 1, 0]]),
        two([["GROUP", [SENT]], ["F", 0, 0]], [["GROUP", [TAKEN]], ["F", 1, 0]]),
        ORDER,
        [(0, "(0SEND_F0)GROUP", "programs.0[0]"), (0, "0F0", "programs.0[1]")],
        "which sends the output of stage 0",
    ),
    Fault(
        "a backward without the gradient",
        "order",
        two([["F", 0, 0], SENT, GOT, ["B", 0, 0]], [TAKEN, ["F", 1, 0], ["B", 1, 0], BACK]),
        two([["F", 0, 0], SENT, ["B", 0, 0], GOT], [TAKEN, ["F", 1, 0], ["B", 1, 0], BACK]),
        ORDER,
        [(0, "0B0", "programs.0[2]"), (0, "0RECV_B0", "programs.0[3]")],
        "needs the gradient of stage 1 for microbatch 0 (grad:1:0), which it only has after",
    ),
    Fault(
        "a recompute of a forward that never ran",
        "order",
        {"programs": {"0": [["F", 0, 0], ["R", 0, 0]]}},
        {"programs": {"0": [["R", 0, 0], ["F", 0, 0]]}},
        ORDER,
        [(0, "0R0", "programs.0[0]"), (0, "0F0", "programs.0[1]")],
        "rank 0 runs 0R0 without 0F0, which stands behind it",
    ),
    Fault(
        "a forward on another rank is not this rank's",
        "order",
        {"programs": {"0": [["F", 0, 0], ["B", 0, 0]], "1": []}},
        {"programs": {"0": [["F", 0, 0]], "1": [["B", 0, 0]]}},
        ORDER,
        [(1, "0B0", "programs.1[0]")],
        "rank 1 runs 0B0 without 0F0, which never runs on this rank",
    ),
    Fault(
        "a resource that is not made yet",
        "order",
        {"programs": {"0": [["MAKE", "comm"], ["X", "use", {"needs": ["comm"]}]]}},
        {"programs": {"0": [["X", "use", {"needs": ["comm"]}], ["MAKE", "comm"]]}},
        ORDER,
        [(0, "X use", "programs.0[0]")],
        "needs comm, but comm does not exist there",
    ),
    Fault(
        "a resource that was dropped",
        "order",
        {
            "programs": {"0": [["X", "use", {"needs": ["p"]}], ["DROP", "p"]], "1": []},
            "pre_res": {"0": ["p"]},
        },
        {
            "programs": {"0": [["DROP", "p"], ["X", "use", {"needs": ["p"]}]], "1": []},
            "pre_res": {"0": ["p"]},
        },
        ORDER,
        [(0, "X use", "programs.0[1]")],
        "needs p, but p does not exist there",
    ),
    Fault(
        "a resource of another rank",
        "order",
        {"programs": {"0": [["MAKE", "c"], ["DROP", "c"]], "1": []}},
        {"programs": {"0": [["MAKE", "c"]], "1": [["DROP", "c"]]}},
        ORDER,
        [(1, "DROP c", "programs.1[0]")],
        "needs c, but c does not exist there",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults(fault: Fault) -> None:
    fault.verify()


def test_all_are_counted_and_the_first_is_told() -> None:
    report = judge(SPLIT.replace("0I0, 0W0", "0W0, 0I0").replace("0I1, 0W1", "0W1, 0I1"))
    (found,) = report.findings
    assert (found.count, places(found)[0]) == (2, (0, "0W0", 1, 6))


def test_what_exists_before_the_first_op() -> None:
    fragment = {"programs": {"0": [SENT], "1": [TAKEN, ["F", 1, 0]]}, "stages": 2}
    assert judge(fragment).status is Status.VIOLATED
    assert judge({**fragment, "pre": {"0": ["act:0:0"]}}).status is Status.HOLDS
    # It has to be there on that rank, and be that payload.
    assert judge({**fragment, "pre": {"1": ["act:0:0"]}}).status is Status.VIOLATED
    assert judge({**fragment, "pre": {"0": ["grad:0:0"]}}).status is Status.VIOLATED
    assert judge({**fragment, "pre": {"0": ["act:0:1"]}}).status is Status.VIOLATED


def test_ops_that_need_nothing() -> None:
    lone = {"programs": {"0": [["F", 1, 0]]}, "stages": 2}
    assert judge(lone).status is Status.VIOLATED
    lone["programs"] = {"0": [["F", 1, 0, {"nodeps": True}], ["W", 1, 0, {"nodeps": True}]]}
    assert judge(lone).status is Status.HOLDS


def test_the_last_stage_needs_no_gradient_and_the_first_no_activation() -> None:
    assert judge("0F0, 0B0").status is Status.HOLDS
    # With a stage above, the same backward does.
    assert judge({"programs": {"0": [["F", 0, 0], ["B", 0, 0]]}, "stages": 2}).findings != ()


def test_an_older_message_of_the_same_name_is_no_input_of_another_microbatch() -> None:
    wrong = two([["F", 0, 0], SENT], [TAKEN, ["F", 1, 1, {}]], m=2)
    (found,) = judge(wrong).findings
    assert found.check == "order" and "act:0:1" in found.message


def test_a_payload_that_a_rank_was_sent_may_be_sent_on() -> None:
    program = {
        "programs": {
            "0": [["F", 0, 0], ["SEND", "act", 0, 0, 1]],
            "1": [["RECV", "act", 0, 0, 0], ["SEND", "act", 0, 0, 2]],
            "2": [["RECV", "act", 0, 0, 1], ["F", 1, 0]],
        },
        "stages": 2,
    }
    assert judge(program).status is Status.HOLDS
    program["programs"]["1"].reverse()  # type: ignore[index]
    assert {f.check for f in judge(program).findings} == {"order"}
