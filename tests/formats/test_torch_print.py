"""Programs as torch CSVs: what is kept, what is named, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeproof.errors import InputError
from pipeproof.formats.program_json import read_program
from pipeproof.formats.torch_print import print_torch
from pipeproof.program.programs import Program

TWO: dict[str, Any] = {
    "semantics": {"match": "fifo", "streams": "pair"},
    "complete": True,
    "programs": {
        "0": [["F", 0, 0], ["SEND", "act", 0, 0, 1], ["RECV", "grad", 1, 0, 1], ["B", 0, 0]],
        "1": [["RECV", "act", 0, 0, 0], ["F", 1, 0], ["B", 1, 0], ["SEND", "grad", 1, 0, 0]],
    },
}
ISSUED = "how messages are issued (0 posted, 4 blocking): a recipe decides"


def program(**changes: Any) -> Program:
    return read_program(json.dumps({**TWO, **changes}), "x")


def with_ops(rank: int, *ops: Any) -> Program:
    """The program with further ops on a rank."""
    listed = {**TWO["programs"]}
    listed[str(rank)] = [*listed[str(rank)], *ops]
    return program(programs=listed)


def test_all_that_fits() -> None:
    text, left_out = print_torch(program())
    assert text == "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"
    assert left_out == [ISSUED]


def test_letters_and_sharding() -> None:
    ops = [["X", "0UNSHARD"], ["F", 0, 0], ["BI", 0, 0], ["W", 0, 0], ["X", "0REDUCE_GRAD"]]
    text, left_out = print_torch(program(programs={"0": ops}))
    assert text == "0UNSHARD,0F0,0I0,0W0,0REDUCE_GRAD\n"
    assert left_out == []


@pytest.mark.parametrize(
    ("ops", "line"),
    [
        ([["X", "0UNSHARDED"]], "X: 1"),
        ([["X", "UNSHARD"], ["X", "load"]], "X: 2"),
        ([["R", 0, 0]], "R: 1"),
        ([["SEND", "skip", 1]], "messages of other payloads than activations and gradients: 1"),
        (
            [["SEND", "grad", 0, 0, 1]],
            "messages between other ranks than those of neighbouring stages: 1",
        ),
        (
            [["SEND", "act", 1, 0, 1]],
            "messages between other ranks than those of neighbouring stages: 1",
        ),
        ([["COLL", "barrier", "world", "a"], ["ALLOC", "a", 1]], "COLL: 1"),
        ([["STEP", "w0"]], "STEP: 1"),
    ],
)
def test_ops_without_words(ops: list[Any], line: str) -> None:
    text, left_out = print_torch(with_ops(0, *ops))
    assert text == print_torch(program())[0]
    assert line in left_out


def test_groups_requests_and_waits() -> None:
    ops = [
        ["GROUP", [["SEND", "act", 0, 0, 1], ["RECV", "grad", 1, 0, 1]], {"req": "a"}],
        ["WAIT", "a"],
    ]
    listed = {**TWO["programs"], "0": [["F", 0, 0], *ops, ["B", 0, 0]]}
    text, left_out = print_torch(program(programs=listed))
    assert text == print_torch(program())[0]
    assert left_out == [
        "GROUP (its messages stand one by one): 1",
        "WAIT: 1",
        "how messages are issued (2 posted, 2 blocking): a recipe decides",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"complete": False}, "that it may be a fragment: a CSV is a whole step"),
        ({"semantics": {}}, "its transport (rendezvous): say --transport"),
        ({"semantics": {"p2p": {"buffered": 1}, "match": "fifo"}}, "its transport (buffered:1,"),
        ({"budget": {"0": 3}, "leak_check": True}, "what it states beside its ops: budget, leak"),
        ({"pre": {"0": ["act:0:0"]}}, "what it states beside its ops: pre"),
        ({"versions": "fb-equal"}, "what it states beside its ops: versions"),
        ({"m": 3}, "its number of microbatches: say --microbatches 3, or it is taken to be 1"),
    ],
)
def test_statements_without_words(changes: dict[str, Any], line: str) -> None:
    text, left_out = print_torch(program(**changes))
    assert text == print_torch(program())[0]
    assert any(stated.startswith(line) for stated in left_out)


def test_attributes_without_words() -> None:
    listed = json.loads(json.dumps(TWO["programs"]))
    listed["0"][0].append({"alloc": {"a": 1}, "w": [["s", "c"]], "wv": 7, "redo": True})
    listed["0"][1].append({"shape": [1], "buf": "b", "comm": "other"})
    listed["1"][0].append({"comm": "other"})
    _, left_out = print_torch(program(programs=listed))
    for name in ("redo", "alloc", "w", "wv", "shape", "buf"):
        assert f"attribute {name}: 1" in left_out
    assert "communicators: other" in left_out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"programs": {"0": [["X", "a"]]}}, "found no F, B, I or W"),
        ({"programs": {"0": []}}, "found no F, B, I or W"),
        ({"n_ranks": 3}, "rank 2 has no op"),
        ({"programs": {"0": {"a": [["F", 0, 0]], "b": []}}}, "rank 0 has several lanes (a and b)"),
        (
            {"programs": {"0": [["F", 0, 0]], "1": [["F", 0, 1]]}},
            "stage 0 computes on ranks 0 and 1",
        ),
        ({"programs": {"0": [["F", 0, 7]]}}, "no torch-csv can hold this program: found"),
    ],
)
def test_refusals(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        print_torch(program(**changes))
    assert words in caught.value.message
    assert caught.value.cause
