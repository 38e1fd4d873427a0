"""Tables of torch actions for tests: a slow reader of the language, and strategies.

`read` is the grammar of ``torch_csv`` written a second time, cell by cell with
one regular expression, so that the array reader has something to disagree with.
The strategies draw texts of good and nearly good cells, and whole schedules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import strategies as st

from pipeproof.program.ops import MAX_ID, Kind

LETTERS = {"F": Kind.F, "I": Kind.I, "W": Kind.W, "B": Kind.B}
OLDER_LETTERS = {"F": Kind.F, "B": Kind.I, "W": Kind.W, "BW": Kind.B}
MESSAGES = {
    "SEND_F": (Kind.SEND, False),
    "RECV_F": (Kind.RECV, False),
    "SEND_B": (Kind.SEND, True),
    "RECV_B": (Kind.RECV, True),
}
SHARDING = {n: Kind[n] for n in ("UNSHARD", "RESHARD", "REDUCE_GRAD")}

# --- the slow reader ---------------------------------------------------------------


class Action(NamedTuple):
    """One row of the reader's columns."""

    kind: int
    stage: int
    microbatch: int
    backward: bool
    line: int
    column: int


class Bad(Exception):
    """The place of the first cell that is no cell."""

    def __init__(self, line: int, column: int) -> None:
        super().__init__(line, column)
        self.place = (line, column)


def read(text: str, older: bool = False) -> list[Action]:
    """The actions of a table in reading order."""
    found: list[Action] = []
    for line, row in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        for column, cell in enumerate(row.split(","), 1):
            actions = _cell(cell, older)
            if actions is None:
                raise Bad(line, column)
            found += [Action(*action, line, column) for action in actions]
    return found


def _cell(text: str, older: bool) -> list[tuple[int, int, int, bool]] | None:
    text = text.strip(" \t")
    if re.fullmatch('"[^"]*"', text):
        text = text[1:-1].strip(" \t")
    text = re.sub(r"[ \t]*([();])[ \t]*", r"\1", text)
    if not text:
        return []
    letters = OLDER_LETTERS if older else LETTERS
    pair = re.fullmatch(r"\((.*)\)OVERLAP_F_B", text, re.DOTALL)
    actions = [_action(t, letters) for t in (pair[1].split(";") if pair else [text])]
    if None in actions or (pair and any(a and a[0] > Kind.W for a in actions)):
        return None
    return [a for a in actions if a]


def _action(text: str, letters: dict[str, Kind]) -> tuple[int, int, int, bool] | None:
    found = re.fullmatch("([0-9]{1,10})([A-Z_]+)([0-9]{0,10})", text)
    if found is None:
        return None
    stage, word, digits = int(found[1]), found[2], found[3]
    microbatch = int(digits) if digits else -1
    if max(stage, microbatch) > MAX_ID:
        return None
    if word in letters:
        kind, backward = letters[word], False
    elif word in MESSAGES:
        kind, backward = MESSAGES[word]
    elif word in SHARDING:
        kind, backward = SHARDING[word], False
    else:
        return None
    if (word in SHARDING) != (not digits):
        return None
    return int(kind), stage, microbatch, backward


# --- texts -------------------------------------------------------------------------

_ids = st.sampled_from(["0", "1", "7", "10", "007", "0000000001", "1073741823"])
_bad_ids = st.sampled_from(["", "-1", "1.0", "1073741824", "9999999999", "00000000001", "x", " "])
_words = st.sampled_from([*LETTERS, *MESSAGES, "BW"])
_bad_words = st.sampled_from(
    ["", "f", "R", "SEND", "SEND_", "SEND_FF", "REDUCE_GRADS", "F_", "WAIT", "OVERLAP_F_B"]
)


_computes = st.builds("{}{}{}".format, _ids, st.sampled_from("FIWB"), _ids)
_messages = st.builds("{}{}{}".format, _ids, st.sampled_from(list(MESSAGES)), _ids)
_sharding = st.builds("{}{}".format, _ids, st.sampled_from(list(SHARDING)))
_pairs = st.lists(_computes, min_size=1, max_size=4).map(
    lambda actions: f"({';'.join(actions)})OVERLAP_F_B"
)
good_cells = st.one_of(st.just(""), _computes, _messages, _sharding, _pairs)


@st.composite
def _nearly_good(draw: st.DrawFn) -> str:
    """A good cell after one small slip, or a word or an id that is none."""
    if draw(st.booleans()):
        ids, words = st.one_of(_ids, _bad_ids), st.one_of(_words, _bad_words)
        return f"{draw(ids)}{draw(words)}{draw(ids)}"
    cell = draw(good_cells)
    at = draw(st.integers(0, len(cell)))
    put = draw(st.sampled_from(["", *"(); \t\"'.0Fx_é\0\x0b\ufeff\u00a0", "(0F0)"]))
    return cell[:at] + put + cell[at + draw(st.integers(0, 2)) :]


_blanks = st.sampled_from(["", "", "", " ", "\t", "  "])


@st.composite
def _dressed(draw: st.DrawFn, cells: st.SearchStrategy[str]) -> str:
    """A cell as a spreadsheet may write it: with blanks, or in quotes."""
    cell = draw(cells)
    if draw(st.integers(0, 4)) == 0:
        cell = draw(_blanks) + f'"{cell}"'
    return draw(_blanks) + cell + draw(_blanks)


@st.composite
def tables(draw: st.DrawFn) -> str:
    """A text of good cells, and in half of the texts of a few that are not."""
    cells = _dressed(good_cells)
    if draw(st.booleans()):
        cells = st.one_of(cells, cells, cells, _dressed(_nearly_good()))
    rows = draw(st.lists(st.lists(cells, min_size=1, max_size=6), max_size=6))
    ends = st.sampled_from(["\n", "\n", "\r\n", "\r", ",\n", "\n\n"])
    return "".join(",".join(row) + draw(ends) for row in rows) + draw(st.sampled_from(["", ","]))


# --- schedules ---------------------------------------------------------------------


@st.composite
def schedule_texts(draw: st.DrawFn, communication: bool | None = None) -> str:
    """A CSV that ``read_schedule`` accepts: any actions, each on its stage's row.

    With ``communication`` every row may list messages; without, none does.
    """
    ranks = draw(st.integers(1, 4))
    stages = draw(st.integers(ranks, 2 * ranks))
    host = [s if s < ranks else draw(st.integers(0, ranks - 1)) for s in range(stages)]
    if communication is None:
        communication = draw(st.booleans())
    rows = [draw(_row([s for s in range(stages) if host[s] == r])) for r in range(ranks)]
    if communication:
        for row, text in draw(_some_messages(host)):
            rows[row].insert(draw(st.integers(0, len(rows[row]))), text)
    return "".join(",".join(row) + "\n" for row in rows)


def _row(stages: list[int]) -> st.SearchStrategy[list[str]]:
    """Cells of a rank's stages; every stage runs once at least, so that it is hosted."""
    compute = st.builds(
        "{}{}{}".format, st.sampled_from(stages), st.sampled_from("FFFBBIW"), st.integers(0, 2)
    )
    sharding = st.builds("{}{}".format, st.sampled_from(stages), st.sampled_from([*SHARDING]))
    pair = st.tuples(compute, compute).map(lambda p: f"({p[0]};{p[1]})OVERLAP_F_B")
    cells = st.lists(st.one_of(compute, compute, compute, pair, sharding, st.just("")), max_size=8)
    needed = [f"{s}F{m}" for s in stages for m in range(3)]  # enough actions for every id
    return cells.map(lambda drawn: [*drawn, *needed])


@st.composite
def _some_messages(draw: st.DrawFn, host: list[int]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for stage, send, word in _ends(len(host)):
        for microbatch in draw(st.lists(st.integers(0, 2), max_size=2)):
            text = f"{stage}{'SEND' if send else 'RECV'}_{word}{microbatch}"
            found.append((host[stage], text))
    return found


def _ends(stages: int) -> Iterator[tuple[int, bool, str]]:
    for stage in range(stages - 1):
        yield stage, True, "F"
        yield stage, False, "B"
        yield stage + 1, False, "F"
        yield stage + 1, True, "B"
