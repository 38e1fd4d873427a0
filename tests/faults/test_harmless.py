"""The oracle of harmlessness: each reason to refuse a mutant, and the twins it lets pass."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeproof.faults.harmless import ALLOWED, HARMLESS, UNSHOWN, Oracle, Shown
from pipeproof.formats.program_json import read_program
from tests.faults.programs import DOCUMENTS, program

Change = Callable[[Any], object]
"""Changes the ``programs`` of a document in place."""


def shown(name: str, change: Change) -> Shown:
    """What the oracle says of a program after a change."""
    document = copy.deepcopy(DOCUMENTS[name])
    change(document["programs"])
    return Oracle(program(name)).shown(read_program(json.dumps(document), "mutant"))


def move(at: int, to: int, rank: str = "0", lane: str | None = None) -> Change:
    """The op at a place put in another place."""

    def change(programs: Any) -> None:
        ops = programs[rank] if lane is None else programs[rank][lane]
        ops.insert(to, ops.pop(at))

    return change


def drop(at: int, rank: str = "0", lane: str | None = None) -> Change:
    """The op at a place left out."""
    return lambda programs: (programs[rank] if lane is None else programs[rank][lane]).pop(at)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_program_does_what_it_does(name: str) -> None:
    same = shown(name, lambda programs: None)
    assert same.fate == HARMLESS
    assert same.reason.startswith("every value is the same: ")


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("gradients", drop(3), "it hangs at "),
        ("exchange", lambda p: p["0"].append(["ISEND", "z", 1, {"req": "z"}]), "meets nothing"),
        ("exchange", lambda p: p["0"][3][1].reverse(), "two messages cross"),
        ("memory", lambda p: p["0"][2][5].update(shape=[3]), "differ in shape"),
        ("gradients", lambda p: p["1"][-2].__setitem__(3, "other"), "two different calls meet"),
        ("gradients", move(2, 4), "0SEND_F0 lacks an input"),
        ("gradients", move(6, 2), "0R0 comes before what it follows"),
        ("memory", drop(7), "X look reads something else in out0"),
        ("memory", drop(0, "1"), "1F0 lacks graph"),
        ("memory", lambda p: p["0"][1][3].update(w=[]), "finds something else in out0"),
        ("memory", drop(9), "a0 is never freed"),
        ("memory", move(9, 0), "FREE a0 frees a0, which is not there"),
        ("memory", lambda p: p["0"][3].__setitem__(2, 2), "the rank exceeds its budget"),
        ("versions", lambda p: p["0"][8][3].update(wv=9), "0B1 names version 9, which there"),
        ("versions", lambda p: p["0"][8].pop(), "another weight version than its forward"),
        ("versions", lambda p: p["0"][10][2].update(it=1), "another version of w0 than it"),
        ("gradients", lambda p: p["1"][12].__setitem__(2, "1/3"), "w1 is not what is wanted"),
        ("gradients", drop(13), "nothing compares w0 with what is wanted"),
        ("gradients", drop(17), "the replicas of tied differ"),
        ("gradients", lambda p: p["1"][4][3].pop("effects"), "log happens another number of"),
        ("gradients", lambda p: p["0"][6][3].update(rng="z"), "other random numbers than its"),
        ("gradients", lambda p: p["0"].append(["F", 0, 0]), "some compute gets something else"),
        ("memory", move(7, 6), "0SEND_F0 and X reuse may overlap"),
        ("lanes", lambda p: p["0"]["comp"][0].__setitem__(2, 2), "is out of range"),
        ("lanes", lambda p: p["1"].append(["F", 0, 0]), "on a rank that does not host its stage"),
    ],
)
def test_what_does_harm_is_not_shown(name: str, change: Change, reason: str) -> None:
    found = shown(name, change)
    assert found.fate == UNSHOWN
    assert reason in found.reason


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gradients", move(1, 2)),  # zeroed after the forward: nothing was added yet
        ("memory", move(9, 11)),  # freed later
        ("exchange", lambda p: p["1"][2][1].append(p["1"][2][1].pop(0))),
        ("memory", move(3, 8, "1")),  # nothing of the forward is used yet
    ],
)
def test_what_changes_nothing_is_harmless(name: str, change: Change) -> None:
    assert shown(name, change).fate == HARMLESS


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("gradients", drop(6), "does not state that a forward is recomputed"),
        ("gradients", lambda p: p["0"][13].append({"opt": "z"}), "updates, reports and effects"),
        ("memory", drop(8, "1"), "this fragment has the compute that is missing"),
        (
            "groups",
            lambda p: p["0"][4].__setitem__(0, "B"),
            "the weight gradient to others",
        ),
        ("versions", lambda p: p["1"].insert(0, ["STEP", "w1"]), "updates, reports and effects"),
    ],
)
def test_what_is_not_stated_is_allowed(name: str, change: Change, reason: str) -> None:
    found = shown(name, change)
    assert found.fate == ALLOWED and reason in found.reason


def test_lanes_that_take_turns_by_chance() -> None:
    def second_sender(programs: Any) -> None:
        programs["0"]["more"] = [["AWAIT", "f1"], ["SEND", "x", 1]]
        programs["1"].append(["RECV", "x", 0])

    found = shown("lanes", second_sender)
    assert (found.fate, found.reason) == (UNSHOWN, "two lanes take turns in no fixed order")
