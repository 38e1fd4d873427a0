"""Why a cell of a torch CSV is refused: the first bad one, and its likely cause.

The reader works on whole blocks and only knows that something in one is wrong.
Here the same grammar is told cell by cell, slowly, with a reason for each way
in which a cell usually fails to be an action.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeproof.errors import InputError
from pipeproof.program.ops import MAX_ID, Kind

Words = Mapping[bytes, tuple[Kind, bool]]
"""The words of a dialect: what each is, and whether a message is a gradient's."""

OVERLAP = b"OVERLAP_F_B"
MAX_DIGITS = 10  # of an id: as many as the largest has
SHOWN = 40  # characters of a bad cell that a message repeats

_USUAL = "an action such as 0F1, 1SEND_B0 or 0UNSHARD"
_PAIR = "(action;action)OVERLAP_F_B"
_UNNUMBERED = (Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD)


def first_refusal(block: bytes, words: Words, line: int, column: int) -> InputError:
    """What is wrong with the first bad cell of a block that begins at line, column."""
    grammar = _Grammar.of(words)
    for row, cells in enumerate(block.decode("utf-8", "surrogatepass").split("\n")):
        for index, cell in enumerate(cells.split(",")):
            if grammar.cell.fullmatch(cell) is None or _too_large(cell):
                expected, cause = _explain(cell, grammar)
                shown = cell if len(cell) <= SHOWN else cell[: SHOWN - 3] + "..."
                return InputError(
                    f"found {shown!r}; expected {expected}",
                    cause=cause,
                    line=line + row,
                    column=index + (column if row == 0 else 1),
                )
    raise AssertionError("the block was refused, but each of its cells is good")


@dataclass(frozen=True, slots=True)
class _Grammar:
    """A dialect as regular expressions: a cell, and a member of an overlapped pair."""

    words: Words
    cell: re.Pattern[str]
    part: re.Pattern[str]

    @classmethod
    def of(cls, words: Words) -> _Grammar:
        numbered = "|".join(w.decode() for w in words if words[w][0] not in _UNNUMBERED)
        bare = "|".join(w.decode() for w in words if words[w][0] in _UNNUMBERED)
        compute = "|".join(w.decode() for w in words if words[w][0] <= Kind.W)
        number = rf"[0-9]{{1,{MAX_DIGITS}}}"
        part = f"{number}(?:{compute}){number}"
        return cls(
            words,
            re.compile(
                f"|{number}(?:{numbered}){number}|{number}(?:{bare})"
                rf"|\({part}(?:;{part})*\){OVERLAP.decode()}"
            ),
            re.compile(part),
        )


def _too_large(cell: str) -> bool:
    numbers: list[str] = re.findall("[0-9]+", cell)
    return any(len(n) > MAX_DIGITS or int(n) > MAX_ID for n in numbers)


def _explain(cell: str, grammar: _Grammar) -> tuple[str, str | None]:
    """(what was expected, the likely cause) for a cell that is no action."""
    words = grammar.words
    letters = re.search("[A-Za-z_]+", cell)
    word = letters.group() if letters else ""
    strange = next((c for c in cell if not c.isascii()), None)
    if strange is not None:
        return (
            f"{_USUAL}, in ASCII",
            f"It has the character U+{ord(strange):04X}: an editor or spreadsheet may have "
            "replaced a letter or added a symbol.",
        )
    if '"' in cell:
        return _USUAL, "Quotes may only enclose a whole cell. Was the file joined from several?"
    if _too_large(cell):
        return f"ids of at most {MAX_ID}", "Is a separator missing between two actions?"
    if re.search("(?<![0-9])-[0-9]", cell):
        return "a stage and a microbatch of 0 or more", "Negative ids name nothing."
    if re.search(r"[0-9]\.[0-9]", cell):
        return _USUAL, "Ids are whole numbers: a spreadsheet may have added a decimal point."
    if "(" in cell or ")" in cell or word == OVERLAP.decode():
        return _explain_pair(cell, grammar)
    if word.upper() == "BW" and b"BW" not in words:
        return (
            "F, I, W or B",
            "BW is the full backward of torch's older notation, in which B is the input "
            "gradient alone. If this file is in it, say so: --notation older.",
        )
    if word == "I" and b"I" not in words:
        return (
            "F, B, W or BW (older notation)",
            "I is the input gradient of torch's current notation; leave out --notation older.",
        )
    if ";" in cell:
        return _USUAL, "Are the cells separated by semicolons? Save the file with commas."
    if word.upper() != word and word.upper().encode() in words:
        return _USUAL, f"Letters are upper case: {word.upper()}."
    if word and word.encode() not in words:
        known = ", ".join(w.decode() for w in words)
        return f"one of {known}", f"{_cut(word)} is no action that torch writes."
    if re.fullmatch("[A-Z_]+[0-9]*", cell):
        return _USUAL, "The stage, before the letter, is missing."
    if word and re.fullmatch(f"[0-9]+{word}", cell):
        return _USUAL, "The microbatch, after the letter, is missing."
    if word and words[word.encode()][0] in _UNNUMBERED and re.fullmatch("[0-9]+.+[0-9]", cell):
        return _USUAL, f"{word} is of a whole stage and has no microbatch."
    if word and re.match(f"[0-9]+{word}", cell):
        return _USUAL, "Something trails the action; torch's own reader would skip it."
    return _USUAL, None


def _explain_pair(cell: str, grammar: _Grammar) -> tuple[str, str | None]:
    """The same for a cell that looks like an overlapped pair."""
    if cell.count("(") != cell.count(")"):
        return _PAIR, "A parenthesis is missing."
    inner = re.fullmatch(r"\(([^()]*)\)" + OVERLAP.decode(), cell)
    if inner is None:
        return _PAIR, "A pair is written in one pair of parentheses, with OVERLAP_F_B behind it."
    bad = next(p for p in inner.group(1).split(";") if not grammar.part.fullmatch(p))
    if not bad:
        return _PAIR, "An action of the pair is missing."
    if grammar.cell.fullmatch(bad):
        return _PAIR, f"Only compute actions overlap, and {bad} is none."
    expected, cause = _explain(bad, grammar)
    return f"{expected}, instead of {_cut(bad)!r}", cause


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
