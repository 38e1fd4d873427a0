"""Programs and schedules taken apart and put together again."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeproof.cli.reading import Reading, read
from pipeproof.formats.sources import Source, gather
from pipeproof.program.actions import Action, rows_of, with_rows
from pipeproof.program.ops import Kind
from pipeproof.program.pieces import apart, together, waits_in_time
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import build
from tests.faults.programs import program

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ["specs", "tests/data/cases", "tests/data/traces"]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, arrays and their types included."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if is_dataclass(one):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return bool(one == other)


def test_put_together_they_are_the_same() -> None:
    count = 0
    for source in gather([str(ROOT / f) for f in FOLDERS], format=None, stdin=lambda: b""):
        if not isinstance(source, Source):
            continue
        for target in read(source, Reading()) if source.format != "spec" else ():
            if isinstance(target, Schedule):
                again = with_rows(target, rows_of(target))
                # Cells are counted anew, and overlap as before.
                assert same(replace(again, column=target.column), target)
                assert same(np.diff(again.column) == 0, np.diff(target.column) == 0)
                target = build(target, "torch", PRESETS["nccl"])
            assert isinstance(target, Program)
            assert same(together(target, apart(target)), target)
            count += 1
    assert count > 50


def test_a_request_that_is_not_posted_is_not_waited_for() -> None:
    whole = program("memory")
    strands = list(apart(whole))
    kept = tuple(piece for piece in strands[1].pieces if piece.kind is not Kind.RECV)
    strands[1] = replace(strands[1], pieces=kept)
    cut = together(whole, strands)
    assert cut.ops == whole.ops - 4  # both receives, and both waits for them
    assert cut.details.requests == ("s0", "s1")
    assert len(cut.waits.op) == 2


def test_a_request_that_is_posted_twice_is_two() -> None:
    whole = program("memory")
    strands = list(apart(whole))
    pieces = strands[0].pieces
    strands[0] = replace(strands[0], pieces=(*pieces, pieces[2]))
    more = together(whole, strands)
    assert more.details.requests == ("s0", "s1", "s0'", "r0", "r1")
    assert sorted(more.request[more.request >= 0].tolist()) == [0, 1, 2, 3, 4]
    assert more.waits.request.tolist() == [0, 1, 3, 4]


def test_waits_in_time() -> None:
    pieces = apart(program("memory"))[0].pieces
    assert waits_in_time(pieces)
    assert not waits_in_time((pieces[6], *pieces[:6]))


def test_actions_are_told_as_torch_does() -> None:
    told = [
        str(Action(Kind.F, 0, 1)),
        str(Action(Kind.SEND, 0, 1)),
        str(Action(Kind.RECV, 0, 1, backward=True)),
        str(Action(Kind.UNSHARD, 3, -1)),
    ]
    assert told == ["0F1", "0SEND_F1", "0RECV_B1", "3UNSHARD"]
