"""Recordings of what torch's own classes execute: batches, waits, and bad rows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.errors import InputError
from pipeproof.formats.torch_executed import read_executed
from pipeproof.program.ops import MAX_ID, Kind
from pipeproof.program.transports import PRESETS
from tests import torch_files
from tests.telling import check_columns, messages, told, unanswered

SMALL = (
    "0UNSHARD 0F0 POST#0{0SEND_F0} 0F1 WAIT#0 POST#1{0SEND_F1;0RECV_B0} WAIT#1 0B0\n"
    "POST#0{1RECV_F0} WAIT#0 1F0 1I0 1W0 POST#1{1SEND_B0;1RECV_F1} WAIT#1 1F1\n"
)


def refused(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read_executed(text, "x")
    return caught.value


# --- what is read ------------------------------------------------------------------


def test_a_recording() -> None:
    program = read_executed(SMALL, "small")
    check_columns(program)
    assert told(program) == [
        [
            "0UNSHARD",
            "0F0",
            "0SEND_F0 =POST#0",
            "0F1",
            "WAIT <POST#0",
            "(0SEND_F1;0RECV_B0)GROUP =POST#1",
            "WAIT <POST#1",
            "0B0",
        ],
        [
            "1RECV_F0 =POST#0",
            "WAIT <POST#0",
            "1F0",
            "1I0",
            "1W0",
            "(1SEND_B0;1RECV_F1)GROUP =POST#1",
            "WAIT <POST#1",
            "1F1",
        ],
    ]
    assert messages(program) == [
        "0SEND_F0 0>1",
        "0SEND_F1 0>1",
        "0RECV_B0 1>0",
        "1RECV_F0 0>1",
        "1SEND_B0 1>0",
        "1RECV_F1 0>1",
    ]
    assert not unanswered(program)
    assert program.name == "small" and program.recipe == "executed"
    assert (program.ranks, program.stages, program.microbatches) == (2, 2, 2)
    assert program.hosts == ((0,), (1,))
    assert program.transport == PRESETS["nccl"]
    assert program.complete and not program.forward_only
    assert program.origin.line.tolist() == [1] * 8 + [2] * 8
    assert program.origin.column.tolist() == [*range(1, 9), *range(1, 9)]
    # A group has no letter of its own.
    assert program.stage.tolist()[5] == program.microbatch.tolist()[5] == -1
    assert program.stage.tolist()[2] == program.microbatch.tolist()[2] == 0


def test_forward_only() -> None:
    assert read_executed("0F0 0F1", "x").forward_only


@pytest.mark.parametrize(
    "text",
    ["0F0 0F1\n1F0\n", "0F0 0F1\r\n1F0", "0F0  0F1\r1F0\r", "\n \t\n\t0F0\t0F1 \n\n 1F0"],
)
def test_rows_and_tokens(text: str) -> None:
    program = read_executed(text, "x")
    assert told(program) == [["0F0", "0F1"], ["1F0"]]
    assert program.origin.column.tolist() == [1, 2, 1]
    assert program.origin.line.tolist()[-1] == len(re.split("\r\n|\r|\n", text.rstrip()))


def test_a_batch_number_may_come_again_after_its_wait() -> None:
    row = "0F0 POST#0{0SEND_F0} WAIT#0 0F1 POST#0{0SEND_F1} WAIT#0\n1F0 1F1"
    assert read_executed(row, "x").waits.request.tolist() == [0, 1]


@pytest.mark.parametrize("name", torch_files.EXECUTED)
def test_real_files(name: str) -> None:
    program = torch_files.executed(name)
    text = torch_files.text(name)
    check_columns(program)
    p, m, v = (int(n) for n in re.findall(r"_(\d+)", name.partition(".")[0]))
    assert (program.ranks, program.stages, program.microbatches) == (p, p * v, m)
    assert program.ops == len(text.split())
    assert len(program.messages.op) == text.count("SEND_") + text.count("RECV_")
    assert not unanswered(program)
    # Everything that is posted is waited for, once.
    assert sorted(program.waits.request.tolist()) == list(range(text.count("POST#")))
    computes = [t for line in told(program) for t in line if re.fullmatch(r"\d+[FB]\d+", t)]
    assert sorted(computes) == sorted(
        f"{s}{w}{b}" for s in range(p) for b in range(m) for w in "FB"
    )
    assert [t.partition(" ")[0] for t in told(program)[0] if "WAIT" not in t] == [
        re.sub(r"POST#\d+\{(.*)\}", lambda f: f"({f[1]})GROUP" if ";" in f[1] else f[1], t)
        for t in text.split("\n")[0].split()
        if "WAIT" not in t
    ]


# --- what is refused ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "words", "cause"),
    [
        ("", None, "found no action", "empty"),
        (" \n\t\n", None, "found no action", "empty"),
        ("0UNSHARD", None, "found no compute action", "filtered"),
        ("POST#0{0SEND_F0} WAIT#0", None, "found no compute action", "filtered"),
        ("0F0 hello", (1, 2), "found 'hello'; expected an action, POST#k", "blanks"),
        ("0F0\n\n1F0 0F0,0F1", (3, 2), "found '0F0,0F1'", "blanks"),
        ("0F0\u00a00F1", (1, 1), r"found '0F0\xa00F1'", "blanks"),
        ("0F0\u20280F1", (1, 1), r"found '0F0\u20280F1'", "blanks"),
        ("0F0 \x0b0F1", (1, 2), r"found '\x0b0F1'", "blanks"),
        ("0f0", (1, 1), "found '0f0'", "blanks"),
        ("0F\u0661", (1, 1), "found '0F\u0661'", "blanks"),
        ("0F-1", (1, 1), "found '0F-1'", "blanks"),
        ("0F0 0SEND_F0", (1, 2), "found '0SEND_F0'; expected", "blanks"),
        ("0UNSHARD1", (1, 1), "found '0UNSHARD1'", "blanks"),
        ("0F0 POST#{0SEND_F0}", (1, 2), "found 'POST#{0SEND_F0}'", "blanks"),
        ("0F0 POST#0{0SEND_F0; 0RECV_B0}", (1, 2), "'POST#0{0SEND_F0;'", "none inside"),
        ("0F0 POST#0{}", (1, 2), "found '' in a batch; expected a message", "semicolons"),
        ("0F0 POST#0{0SEND_F0,0RECV_B0}", (1, 2), "in a batch", "semicolons"),
        ("0F0 POST#0{0SEND_F0;}", (1, 2), "found '' in a batch", "semicolons"),
        ("0F0 POST#0{0F0}", (1, 2), "found '0F0' in a batch", "semicolons"),
        ("0F0 POST#1{0SEND_F0} POST#1{0SEND_F1}\n1F0", (1, 3), "batch 1 is posted twice", "count"),
        ("0F0 WAIT#0", (1, 2), "found WAIT#0, but this rank has posted no batch 0", "after"),
        ("0F0 WAIT#0 POST#0{0SEND_F0}\n1F0", (1, 2), "posted no batch 0", "after its post"),
        ("0F0 POST#0{0SEND_F0} WAIT#0 WAIT#0\n1F0", (1, 4), "posted no batch 0", "after"),
        ("0F0 POST#0{0SEND_F0}\n1F0 WAIT#0", (2, 2), "posted no batch 0", "same row"),
        ("0F0\n1F0 0F1", (2, 2), "stage 0 on rank 1 and on rank 0", "digit"),
        ("0F0 0RESHARD\n0UNSHARD 1F0", (2, 1), "stage 0 on rank 1 and on rank 0", "digit"),
        (f"0F{MAX_ID + 1}", (1, 1), "expected ids of at most", "typing"),
        (f"{MAX_ID + 1}UNSHARD", (1, 1), "expected ids of at most", "typing"),
        ("0F99999999999", (1, 1), "found '0F99999999999'", "blanks"),
        (f"0F0 POST#0{{0SEND_F{MAX_ID + 1}}}\n1F0", (1, 2), "expected ids of at most", "typing"),
        ("0F0 POST#0{0RECV_B0;9999999999SEND_F0}\n1F0", (1, 2), "ids of at most", "typing"),
        ("0F0 5F1", (1, 2), "stage 5 in a recording of 2 actions", "blank missing"),
        ("0F0 0F1073741823", (1, 2), "microbatch 1073741823 in a recording of 2", "blank"),
        ("0F0 POST#0{0SEND_F0}", (1, 2), "0SEND_F0, but stage 0 is the last", "Activations"),
        (
            "0F0 POST#0{0SEND_F0;0SEND_B0}\n1F0",
            (1, 2),
            "0SEND_B0, but stage 0 is the first",
            "grad",
        ),
        ("0F0 POST#0{0SEND_F0} 0F1\n2F0", (1, 2), "but stage 1 is on no row", "Activations"),
        ("0F0\n1F0 POST#0{0SEND_F0}", (2, 2), "0SEND_F0 on rank 1, but stage 0 is on", "acts"),
        ("1F0 POST#0{0SEND_F0}", (1, 2), "0SEND_F0 on rank 0, but stage 0 computes", "acts"),
        ("0F0 0F1 POST#0{1RECV_F0}", (1, 3), "1RECV_F0 on rank 0, but stage 1 computes", "acts"),
    ],
)
def test_refusals(text: str, place: tuple[int, int] | None, words: str, cause: str) -> None:
    error = refused(text)
    assert words in error.message
    assert cause in str(error.cause)
    assert (error.line, error.column) == (place or (None, None))
    assert len(error.message) < 200


# --- whatever the input ------------------------------------------------------------

_tokens = st.one_of(
    st.builds("{}{}{}".format, st.integers(0, 3), st.sampled_from("FBIW"), st.integers(0, 3)),
    st.builds("WAIT#{}".format, st.integers(0, 2)),
    st.builds(
        "POST#{}{{{}}}".format,
        st.integers(0, 2),
        st.lists(
            st.builds(
                "{}{}_{}{}".format,
                st.integers(0, 3),
                st.sampled_from(["SEND", "RECV"]),
                st.sampled_from("FB"),
                st.integers(0, 3),
            ),
            max_size=3,
        ).map(";".join),
    ),
    st.sampled_from(["0UNSHARD", "1REDUCE_GRAD", "0F", "POST#0", "\x85", "99999999999F0"]),
)
_rows = st.lists(_tokens, max_size=6).map(" ".join)


def read_or_refused(text: str) -> None:
    try:
        program = read_executed(text, "x")
    except InputError as error:
        assert error.message and error.cause
        return
    check_columns(program)
    assert (program.kind[program.messages.op] >= Kind.SEND).all()
    assert program.microbatches <= program.ops and program.stages <= program.ops
    assert program.stage.max() < program.stages


@given(st.one_of(st.lists(_rows, max_size=3).map("\n".join), st.text(max_size=60)))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refused(text)


@given(st.sampled_from(["1F1B_2_4_1.executed.txt", "GPipe_2_2_1.executed.txt"]), st.data())
def test_damaged_real_files_are_read_or_refused(name: str, data: st.DataObject) -> None:
    rows = [line.split(" ") for line in torch_files.text(name).splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.sampled_from(rows))
        at = data.draw(st.integers(0, len(row)))
        row[at : at + data.draw(st.integers(0, 2))] = data.draw(st.lists(_tokens, max_size=1))
    read_or_refused("\n".join(" ".join(row) for row in rows))
