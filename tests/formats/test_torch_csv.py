"""The torch action CSV: which texts are tables, what they say, and why others are not."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeproof.errors import InputError
from pipeproof.formats import torch_csv
from pipeproof.formats.torch_csv import WORDS, Actions, read_actions
from pipeproof.program.ops import MAX_ID, Kind
from tests import torch_files
from tests.formats import torch_tables
from tests.formats.torch_tables import Action, Bad


def rows_of(actions: Actions) -> list[Action]:
    columns = (
        actions.kind.tolist(),
        actions.stage.tolist(),
        actions.microbatch.tolist(),
        actions.backward.tolist(),
        actions.line.tolist(),
        actions.column.tolist(),
    )
    return [Action(*row) for row in zip(*columns, strict=True)]


def spelled(text: str, *, older: bool = False) -> list[tuple[str, int, int]]:
    """(kind, stage, microbatch) of every action, with _B for what is a gradient's."""
    return [
        (Kind(a.kind).name + ("_B" if a.backward else ""), a.stage, a.microbatch)
        for a in rows_of(read_actions(text, older=older))
    ]


def places(text: str) -> list[tuple[int, int]]:
    return [(a.line, a.column) for a in rows_of(read_actions(text))]


def refused(text: str, *, older: bool = False) -> InputError:
    with pytest.raises(InputError) as caught:
        read_actions(text, older=older)
    return caught.value


# --- what is read ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "action"),
    [
        ("0F0", ("F", 0, 0)),
        ("12I34", ("I", 12, 34)),
        ("1W2", ("W", 1, 2)),
        ("1B2", ("B", 1, 2)),
        ("3SEND_F4", ("SEND", 3, 4)),
        ("3RECV_F4", ("RECV", 3, 4)),
        ("3SEND_B4", ("SEND_B", 3, 4)),
        ("3RECV_B4", ("RECV_B", 3, 4)),
        ("5UNSHARD", ("UNSHARD", 5, -1)),
        ("5RESHARD", ("RESHARD", 5, -1)),
        ("5REDUCE_GRAD", ("REDUCE_GRAD", 5, -1)),
        ("007F010", ("F", 7, 10)),
        (f"{MAX_ID}F{MAX_ID}", ("F", MAX_ID, MAX_ID)),
    ],
)
def test_every_word(cell: str, action: tuple[str, int, int]) -> None:
    assert spelled(cell) == [action]


def test_every_word_is_tested() -> None:
    words = {"F", "I", "W", "B", *torch_tables.MESSAGES, *torch_tables.SHARDING}
    assert {w.decode() for w in WORDS} == words


def test_the_older_dialect() -> None:
    assert spelled("0F0,0B1,0W2,0BW3,(0F4;0BW5)OVERLAP_F_B", older=True) == [
        ("F", 0, 0),
        ("I", 0, 1),
        ("W", 0, 2),
        ("B", 0, 3),
        ("F", 0, 4),
        ("B", 0, 5),
    ]


@pytest.mark.parametrize("cell", ["(0F1;3B2)OVERLAP_F_B", " ( 0F1 ;\t3B2 ) OVERLAP_F_B "])
def test_overlapped_actions_share_their_cell(cell: str) -> None:
    assert spelled(f"0F0,{cell},0F2") == [("F", 0, 0), ("F", 0, 1), ("B", 3, 2), ("F", 0, 2)]
    assert places(f"0F0,{cell},0F2") == [(1, 1), (1, 2), (1, 2), (1, 3)]


def test_one_and_several_may_overlap() -> None:
    assert len(spelled("(0F1)OVERLAP_F_B")) == 1
    assert len(spelled("(0F1;0I0;0W0)OVERLAP_F_B")) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0F0,0F1\n1F0\n", [(1, 1), (1, 2), (2, 1)]),
        ("0F0,0F1\n1F0", [(1, 1), (1, 2), (2, 1)]),
        ("0F0,0F1\r\n1F0\r\n", [(1, 1), (1, 2), (2, 1)]),
        ("0F0,0F1\r1F0\r", [(1, 1), (1, 2), (2, 1)]),
        ("0F0\r\r\n\n1F0", [(1, 1), (4, 1)]),
        (",,0F0,,0F1,,\n,\n1F0", [(1, 3), (1, 5), (3, 1)]),
        ("\n\n0F0\n\n,1F0\n\n", [(3, 1), (5, 2)]),
        (" 0F0 ,\t0F1\t\n  1F0  ", [(1, 1), (1, 2), (2, 1)]),
        ("0F0, ,\t,0F1", [(1, 1), (1, 4)]),
        ('"0F0","0F1"\n"1F0"\n', [(1, 1), (1, 2), (2, 1)]),
        ('"",0F0, " 0F1 " ,""\r\n"(1F0;1B0)OVERLAP_F_B"', [(1, 2), (1, 3), (2, 1), (2, 1)]),
        ("", []),
        ("\n", []),
        (" ", []),
        ("\t\r\n , ,\n", []),
        (",", []),
        ('""', []),
    ],
)
def test_rows_and_cells(text: str, expected: list[tuple[int, int]]) -> None:
    assert places(text) == expected


def test_columns_have_their_types() -> None:
    actions = read_actions("0F0,0SEND_B1\n")
    assert actions.kind.dtype == np.uint8
    assert actions.backward.dtype == np.bool_
    for column in (actions.stage, actions.microbatch, actions.line, actions.column):
        assert column.dtype == np.int32


# --- what is refused ---------------------------------------------------------------

TRAILS = "trails the action"
MISSING = "microbatch, after the letter, is missing"


@pytest.mark.parametrize(
    ("text", "place", "words", "cause"),
    [
        # Words.
        ("0F0,0X1", (1, 2), "'0X1'; expected one of F, I, W, B, UNSHARD", "X is no action"),
        ("0F0\n\n1F0,,1NOOP0", (3, 3), "'1NOOP0'", "NOOP is no action"),
        ("0SEND0", (1, 1), "expected one of", "SEND is no action"),
        ("0SEND_FB0", (1, 1), "expected one of", "SEND_FB is no action"),
        ("0REDUCE_GRADS", (1, 1), "expected one of", "REDUCE_GRADS is no action"),
        ("0" + "F" * 99 + "0", (1, 1), f"'0{'F' * 36}...'; expected one of", "FFF... is no"),
        ("0f0", (1, 1), "'0f0'; expected an action such as 0F1", "upper case: F."),
        ("0send_b1", (1, 1), "'0send_b1'", "upper case: SEND_B."),
        ("0unshard", (1, 1), "'0unshard'", "upper case: UNSHARD."),
        ("hello", (1, 1), "'hello'", "hello is no action"),
        ("0BW0", (1, 1), "'0BW0'; expected F, I, W or B", "--notation older"),
        ("0bw0", (1, 1), "'0bw0'", "--notation older"),
        ("(0F0;1BW0)OVERLAP_F_B", (1, 1), "instead of '1BW0'", "--notation older"),
        # Ids.
        ("0F", (1, 1), "'0F'", MISSING),
        ("0SEND_F", (1, 1), "'0SEND_F'", MISSING),
        ("F0", (1, 1), "'F0'", "stage, before the letter, is missing"),
        ("UNSHARD", (1, 1), "'UNSHARD'", "stage, before the letter, is missing"),
        ("0UNSHARD1", (1, 1), "'0UNSHARD1'", "UNSHARD is of a whole stage"),
        ("0F-1", (1, 1), "'0F-1'; expected a stage and a microbatch of 0 or more", "Negative"),
        ("-1F0", (1, 1), "'-1F0'; expected a stage", "Negative"),
        ("0F1.0", (1, 1), "'0F1.0'", "decimal point"),
        ("1.5F0", (1, 1), "'1.5F0'", "decimal point"),
        ("0F1073741824", (1, 1), "ids of at most 1073741823", "separator missing"),
        ("1073741824F0", (1, 1), "ids of at most", "separator missing"),
        ("0F9999999999", (1, 1), "ids of at most", "separator missing"),
        ("0F" + "9" * 5000, (1, 1), "99...'; expected ids of at most", "separator missing"),
        ("0F00000000000", (1, 1), "ids of at most", "separator missing"),
        ("(0F0;0F1073741824)OVERLAP_F_B", (1, 1), "ids of at most", "separator missing"),
        ("(" + "0F0;" * 99 + "0F1073741824)OVERLAP_F_B", (1, 1), "ids of at", "separator"),
        ("12", (1, 1), "'12'", None),
        ("?", (1, 1), "'?'", None),
        # What stands behind, before or between.
        ("0F0xyz", (1, 1), "'0F0xyz'", TRAILS),
        ("0F0;", (1, 1), "'0F0;'", "semicolons"),
        ("0F0 0F1", (1, 1), "'0F0 0F1'", TRAILS),
        ("0F0" + " " * 300_000 + "x", (1, 1), "'0F0    ", TRAILS),
        ("0F0/0F1", (1, 1), "'0F0/0F1'", TRAILS),
        ("0F0-", (1, 1), "'0F0-'", TRAILS),
        ("0F0;0F1;0F2\n", (1, 1), "'0F0;0F1;0F2'", "Save the file with commas"),
        ("0F0\n0F1\x000", (2, 1), r"'0F1\x000'", TRAILS),
        ("0F0,\x0b", (1, 2), r"'\x0b'", None),
        ("0F0,0F1\x0c\n", (1, 2), r"'0F1\x0c'", TRAILS),
        ("0F0,0é1", (1, 2), "'0é1'; expected an action such as", "character U+00E9"),
        ("0F0\r\n,,0F\u200b1", (2, 3), r"'0F\u200b1'", "character U+200B"),
        ("0F0\n1F\u0661", (2, 1), "in ASCII", "character U+0661"),
        ("\ufeff0F0", (1, 1), r"'\ufeff0F0'", "character U+FEFF"),
        ("0F0,\ud800", (1, 2), r"'\ud800'", "character U+D800"),
        # Quotes.
        ('0F0,"0B0""', (1, 2), '\'"0B0""\'', "enclose a whole cell"),
        ('"0F0,0F1"', (1, 1), "'\"0F0'", "enclose a whole cell"),
        ('0"F"0', (1, 1), "'0\"F\"0'", "enclose a whole cell"),
        ('"0F0"0', (1, 1), "'\"0F0\"0'", "enclose a whole cell"),
        ("'0F0'", (1, 1), "\"'0F0'\"", None),
        # Overlapped pairs.
        ("(0F0;1B0", (1, 1), "'(0F0;1B0'; expected (action;action)", "parenthesis is missing"),
        ("0F0;1B0)OVERLAP_F_B", (1, 1), "expected (action;action)", "parenthesis is missing"),
        ("(0F0;1B0)", (1, 1), "expected (action;action)OVERLAP_F_B", "OVERLAP_F_B behind it"),
        ("(0F0;1B0)OVERLAP", (1, 1), "expected (action;action)OVERLAP_F_B", "behind it"),
        ("((0F0;1B0)OVERLAP_F_B)OVERLAP_F_B", (1, 1), "expected (action", "one pair of"),
        ("OVERLAP_F_B", (1, 1), "expected (action;action)OVERLAP_F_B", "OVERLAP_F_B behind"),
        ("0OVERLAP_F_B", (1, 1), "expected (action;action)OVERLAP_F_B", "OVERLAP_F_B behind"),
        ("()OVERLAP_F_B", (1, 1), "expected (action;action)", "action of the pair is missing"),
        ("(0F0;)OVERLAP_F_B", (1, 1), "expected (action", "action of the pair is missing"),
        ("(0F0;0SEND_F0)OVERLAP_F_B", (1, 1), "expected (action", "0SEND_F0 is none"),
        ("(0UNSHARD;0F0)OVERLAP_F_B", (1, 1), "expected (action", "0UNSHARD is none"),
        ("(0F0;0f1)OVERLAP_F_B", (1, 1), "instead of '0f1'", "upper case: F."),
        ("(0F0;1B0)OVERLAP_F_B1", (1, 1), "expected (action;action)", "one pair"),
        ("(0F0,1B0)OVERLAP_F_B", (1, 1), "'(0F0'; expected (action", "parenthesis is missing"),
    ],
)
def test_bad_cells(text: str, place: tuple[int, int], words: str, cause: str | None) -> None:
    error = refused(text)
    assert (error.line, error.column) == place
    assert words in error.message
    assert error.message.startswith("found ") and "; expected " in error.message
    assert len(error.message) < 250
    if cause is None:
        assert error.cause is None
    else:
        assert cause in str(error.cause)


@pytest.mark.parametrize(
    ("text", "words", "cause"),
    [
        ("0F0,0I0", "F, B, W or BW", "leave out --notation older"),
        ("(0F0;0I0)OVERLAP_F_B", "instead of '0I0'", "leave out --notation older"),
        ("0X0", "expected one of F, W, B, UNSHARD", "X is no action"),
    ],
)
def test_bad_cells_of_the_older_dialect(text: str, words: str, cause: str) -> None:
    error = refused(text, older=True)
    assert words in error.message and cause in str(error.cause)


def test_the_first_bad_cell_is_named() -> None:
    """Whatever is wrong with it, and however bad the later ones are."""
    bad = ["0X0", "é", '0"', "0F1073741824", "(", "0F"]
    for first in bad:
        for later in bad:
            error = refused(f"0F0,0F1\n0F2,{first},0F3\n{later},{later}")
            assert (error.line, error.column) == (2, 2), (first, later)


def test_a_cell_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_csv, "BLOCK", 8)
    monkeypatch.setattr(torch_csv, "LONGEST_CELL", 16)
    error = refused("0F0\n0F0,0F1," + "0F1 " * 20)
    assert "a cell of more than 16 characters" in error.message
    assert (error.line, error.column) == (2, 3)


# --- against the slow reader -------------------------------------------------------


@given(
    torch_tables.tables(),
    st.booleans(),
    st.sampled_from([1, 2, 5, 16, 40, torch_csv.BLOCK]),
)
@example('"0F0,0F1"', False, 1)
@example(", (0F0 ;1B0) OVERLAP_F_B ,0F1", False, 2)
@example("0F0,\r\n\r1F0", False, 1)
@example(" \t", False, torch_csv.BLOCK)
@example("0SEN,0D_F0", False, torch_csv.BLOCK)
def test_agrees_with_the_slow_reader(text: str, older: bool, block: int) -> None:
    with mock.patch.object(torch_csv, "BLOCK", block):
        try:
            expected = torch_tables.read(text, older)
        except Bad as bad:
            error = refused(text, older=older)
            assert (error.line, error.column) == bad.place
        else:
            assert rows_of(read_actions(text, older=older)) == expected


@pytest.mark.parametrize("name", [*torch_files.COMMS[::9], *torch_files.COMPUTE_ONLY[::9]])
def test_agrees_with_the_slow_reader_on_real_files(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = torch_files.text(name)
    expected = torch_tables.read(text)
    for block in (64, 1000, torch_csv.BLOCK):
        monkeypatch.setattr(torch_csv, "BLOCK", block)
        assert rows_of(read_actions(text)) == expected


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of many blocks, cut at rows and within them."""
    cells = [f"{s}{w}{m}" for m in range(1500) for s, w in ((0, "F"), (1, "SEND_B"), (0, "W"))]
    text = f"{','.join(cells)}\n" + "".join(f"{i}F{i},,{i}B{i}\n" for i in range(3000))
    monkeypatch.setattr(torch_csv, "BLOCK", 1 << 12)
    assert text.index("\n") > 4 * torch_csv.BLOCK
    assert rows_of(read_actions(text)) == torch_tables.read(text)


# --- whatever the input ------------------------------------------------------------


@given(st.text(max_size=60), st.booleans())
def test_any_text_is_read_or_refused(text: str, older: bool) -> None:
    try:
        rows = rows_of(read_actions(text, older=older))
    except InputError as error:
        assert error.line is not None and error.column is not None
        assert 1 <= error.line <= 1 + len(text) and 1 <= error.column <= 1 + len(text)
    else:
        assert rows == torch_tables.read(text, older)


@given(st.text(alphabet='0123456789FIWBSENDRCV_;(), \t\r\n"-', max_size=60))
def test_any_text_of_likely_characters(text: str) -> None:
    try:
        expected = torch_tables.read(text)
    except Bad as bad:
        error = refused(text)
        assert (error.line, error.column) == bad.place
    else:
        assert rows_of(read_actions(text)) == expected
