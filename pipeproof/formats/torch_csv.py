"""PyTorch's action CSV: a row a rank, an action a cell.

The language, stricter than torch's own reader (which lets ``0F0xyz`` pass)::

    file  = row, row, ...          a blank row is no rank
    row   = cell "," cell "," ...  an empty cell is idle
    cell  = action | "(" compute ";" compute ... ")OVERLAP_F_B"
    action = STAGE LETTER MICROBATCH        F I W B SEND_F RECV_F SEND_B RECV_B
           | STAGE NAME                     UNSHARD RESHARD REDUCE_GRAD

Blanks around cells and quotes around whole cells are a spreadsheet's and mean
nothing. Ids have at most ten digits.

Source: ``_Action`` in torch.distributed.pipelining.schedules, torch 2.13. The
older dialect wrote ``B`` for the input gradient and ``BW`` for both; nothing in
a file without ``BW`` tells the two apart, so it is an option, never a guess.

A file is read in blocks of half a megabyte: each step below is one pass of
array code over a block that still sits in the processor's cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pipeproof.errors import InputError
from pipeproof.formats.torch_csv_refusal import MAX_DIGITS, OVERLAP, Words, first_refusal
from pipeproof.program.ops import MAX_ID, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeproof.program.programs import Bools, Bytes, Ints, Longs

BLOCK = 1 << 19
LONGEST_CELL = 1 << 19
"""A block is cut between cells; a cell longer than this is no cell of a table."""

# Each word once: what it is, and whether a message is a gradient's.
WORDS: Words = {
    b"F": (Kind.F, False),
    b"I": (Kind.I, False),
    b"W": (Kind.W, False),
    b"B": (Kind.B, False),
    b"UNSHARD": (Kind.UNSHARD, False),
    b"RESHARD": (Kind.RESHARD, False),
    b"REDUCE_GRAD": (Kind.REDUCE_GRAD, False),
    b"SEND_F": (Kind.SEND, False),
    b"RECV_F": (Kind.RECV, False),
    b"SEND_B": (Kind.SEND, True),
    b"RECV_B": (Kind.RECV, True),
}
OLDER_WORDS: Words = {
    **{w: k for w, k in WORDS.items() if w != b"I"},
    b"B": (Kind.I, False),
    b"BW": (Kind.B, False),
}
OVERLAP_CODE = 255  # a code no Kind has; such tokens close a pair and vanish
UNKNOWN = 254
LONGEST_WORD = 11

# Classes of bytes.
DIGIT, LETTER, CELL, LINE, OPEN, SEMICOLON, CLOSE, OTHER = range(8)
_CLASS = np.full(256, OTHER, np.uint8)
_CLASS[ord("0") : ord("9") + 1] = DIGIT
_CLASS[ord("A") : ord("Z") + 1] = LETTER
_CLASS[ord("_")] = LETTER
_LETTERS = np.zeros(256, np.int64)
_LETTERS[ord("A") : ord("Z") + 1] = np.arange(1, 27)
_LETTERS[ord("_")] = 27
_CLASS[[ord(c) for c in ",\n(;)"]] = [CELL, LINE, OPEN, SEMICOLON, CLOSE]

# What may stand between two boundaries: nothing, an action, or the name of an
# overlapped pair. The table is the grammar of cells.
EMPTY, ACTION, PART, CLOSING = 1, 2, 4, 8
_ALLOWED = np.zeros((8, 8), np.uint8)
for _left in (CELL, LINE):
    _ALLOWED[_left, [CELL, LINE]] = EMPTY | ACTION
    _ALLOWED[_left, OPEN] = EMPTY
    _ALLOWED[CLOSE, _left] = CLOSING
for _left in (OPEN, SEMICOLON):
    _ALLOWED[_left, [SEMICOLON, CLOSE]] = PART

_QUOTED = re.compile(rb'(^|,)[ \t]*"([^",\n]*)"[ \t]*(?=,|$)', re.MULTILINE)
# Blanks before a separator are looked for from the first of them only: trying
# each in turn is quadratic in a long run that no separator follows.
_BLANKS_AFTER = re.compile(rb"([,\n();])[ \t]+")
_BLANKS_BEFORE = re.compile(rb"(?<![ \t])[ \t]++(?=[,\n();])")
_SEPARATOR = re.compile(rb"[,\n]")


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of a file in reading order; ``line`` and ``column`` from 1."""

    kind: Bytes
    stage: Ints
    microbatch: Ints
    backward: Bools
    line: Ints
    column: Ints


def read_actions(text: str, *, older: bool = False) -> Actions:
    """Read the text of a torch action CSV; InputError names the first bad cell."""
    data = _plain(text)
    words = OLDER_WORDS if older else WORDS
    parts: list[tuple[NDArray[Any], ...]] = []
    line, column = 1, 1
    for block in _blocks(data):
        parts.append(_read_block(block, words, line, column))
        newlines = block.count(b"\n")
        line += newlines
        tail = block.count(b",", block.rfind(b"\n") + 1)
        column = tail + (column if newlines == 0 else 1)
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
    return Actions(*columns)


def _plain(text: str) -> bytes:
    """``\\n`` after every row, no quotes around cells and no blanks around anything.

    What is not ASCII stays, as bytes of no class: it is refused in its cell.
    """
    data = text.encode("utf-8", "surrogatepass")
    data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b'"' in data:
        data = _QUOTED.sub(rb"\1\2", data)
    if not data.endswith(b"\n"):
        data += b"\n"
    if b" " in data:  # a blank beside a comma, as most writers put it, goes without a search
        data = data.replace(b", ", b",").replace(b" ,", b",")
    if b" " in data or b"\t" in data:
        data = _BLANKS_BEFORE.sub(b"", _BLANKS_AFTER.sub(rb"\1", data.lstrip(b" \t")))
    return data


def _blocks(data: bytes) -> Iterator[bytes]:
    """Cut at rows, or at cells where a row is longer than a block."""
    start = 0
    while start < len(data):
        stop = len(data)
        if stop - start > BLOCK:
            stop = data.rfind(b"\n", start, start + BLOCK) + 1
            if stop == 0:
                stop = data.rfind(b",", start, start + BLOCK) + 1
            if stop == 0:
                far = _SEPARATOR.search(data, start + BLOCK, start + BLOCK + LONGEST_CELL)
                stop = far.end() if far else _refuse_long_cell(data, start)
        yield data[start:stop]
        start = stop


def _refuse_long_cell(data: bytes, start: int) -> NoReturn:
    row = data.rfind(b"\n", 0, start) + 1
    raise InputError(
        f"found a cell of more than {LONGEST_CELL} characters; expected an action such as 0F1",
        cause="This is not a table of actions.",
        line=data.count(b"\n", 0, row) + 1,
        column=data.count(b",", row, start) + 1,
    )


def _read_block(block: bytes, words: Words, line: int, column: int) -> tuple[NDArray[Any], ...]:
    text = np.frombuffer(block, np.uint8)
    classes = _CLASS[text]
    bounds = np.flatnonzero((classes >= CELL) & (classes < OTHER))
    right = classes[bounds]
    left = np.concatenate((np.array([CELL], np.uint8), right[:-1]))
    start = np.concatenate((np.array([0]), bounds[:-1] + 1))
    filled = np.flatnonzero(bounds > start)

    # One run of letters a token: the runs and the tokens must pair up.
    letters = classes == LETTER
    edges = np.flatnonzero(letters[1:] != letters[:-1]) + 1
    if letters[0]:
        edges = np.concatenate((np.array([0]), edges))
    run, run_stop = edges[::2], edges[1::2]
    token, token_stop = start[filled], bounds[filled]
    whole = (
        len(run) == len(filled)
        and bool((run >= token).all() and (run_stop <= token_stop).all())
        and not (classes == OTHER).any()
    )
    if not whole:
        raise first_refusal(block, words, line, column)

    padded = np.frombuffer(block + bytes(LONGEST_WORD), np.uint8)
    code, backward = _words(padded, run, run_stop, words)
    stage, stage_ok = _numbers(text, token, run)
    microbatch, microbatch_ok = _numbers(text, run_stop, token_stop)

    # Does every token have the numbers its word needs, and may it stand there?
    unnumbered = (code >= Kind.UNSHARD) & (code <= Kind.REDUCE_GRAD)
    closing = code == OVERLAP_CODE
    shape = np.full(len(start), EMPTY, np.uint8)
    shape[filled] = np.where(closing, CLOSING, np.where(code <= Kind.W, ACTION | PART, ACTION))
    numbered = np.where(
        closing,
        (token == run) & (token_stop == run_stop),
        (stage >= 0) & stage_ok & ((microbatch < 0) == unnumbered) & microbatch_ok,
    )
    known = code != UNKNOWN
    if not (known.all() and numbered.all() and (_ALLOWED[left, right] & shape).all()):
        raise first_refusal(block, words, line, column)

    separators = (right == CELL) | (right == LINE)
    cell = np.cumsum(separators) - separators  # number of the token's cell in the block
    new_line = right == LINE
    row = np.cumsum(new_line) - new_line
    row_start = np.concatenate((np.array([1 - column]), cell[new_line] + 1))
    keep = filled[~closing]
    kept = ~closing
    rows = row[keep]
    return (
        code[kept],
        stage[kept].astype(np.int32),
        microbatch[kept].astype(np.int32),
        backward[kept],
        (rows + line).astype(np.int32),
        (cell[keep] - row_start[rows] + 1).astype(np.int32),
    )


def _spelling(word: bytes) -> int:
    """A word as one number: five bits a letter, so that eleven letters fit."""
    return sum(int(_LETTERS[c]) << 5 * i for i, c in enumerate(word))


def _words(text: Bytes, run: Longs, run_stop: Longs, words: Words) -> tuple[Bytes, Bools]:
    """Code of every run of letters; UNKNOWN for a word that is none."""
    length = run_stop - run
    spelled = _LETTERS[text[run]]
    ends = {len(word) for word in (*words, OVERLAP)}
    left = np.arange(len(run))
    for i in range(1, LONGEST_WORD):
        if i in ends:
            left = left[length[left] > i]
        # What stands behind a shorter run is no letter, spells 0, and makes the
        # number that of no word.
        spelled[left] += _LETTERS[text[run[left] + i]] << 5 * i
    code = np.full(len(run), UNKNOWN, np.uint8)
    backward = np.zeros(len(run), np.bool_)
    for word, (kind, is_backward) in (*words.items(), (OVERLAP, (OVERLAP_CODE, False))):
        hit = spelled == _spelling(word)
        code[hit] = kind
        if is_backward:
            backward |= hit
    code[length > LONGEST_WORD] = UNKNOWN
    return code, backward


def _numbers(text: Bytes, start: Longs, stop: Longs) -> tuple[Longs, Bools]:
    """Decimal numbers in ``text[start:stop]``, -1 where empty, and whether each is
    within the largest id."""
    length = stop - start
    value = text[np.minimum(start, len(text) - 1)].astype(np.int64) - 48
    # Further digits are not read: such a number is refused by its length.
    here = np.flatnonzero(length > 1)
    for digit in range(1, min(int(length.max(initial=0)), MAX_DIGITS)):
        here = here[length[here] > digit]
        value[here] = value[here] * 10 + (text[start[here] + digit] - np.int64(48))
    value[length == 0] = -1
    return value, (value <= MAX_ID) & (length <= MAX_DIGITS)
