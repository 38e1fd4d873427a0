"""PipeDream's weight versions: what they say, what is refused, and what is found in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from pipeproof.errors import InputError
from pipeproof.formats.pipedream import read_pipedream
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.verdict import CheckResult
from tests.formats import trace_files
from tests.formats.trace_files import damaged, found, judged

STASHING, DOUBLE = "pipedream_versions.json", "pipedream_2bw_versions.json"

Document = dict[str, Any]


def document(name: str) -> Document:
    stated: Document = json.loads(trace_files.text("pipedream", name))
    return stated


def programs(name: str) -> dict[str, Program]:
    """The program of each configuration."""
    read = read_pipedream(trace_files.text("pipedream", name), name)
    return {own.name.removeprefix(f"{name} [").removesuffix("]"): own for own in read}


def read(stated: Document) -> list[Program]:
    return read_pipedream(json.dumps(stated), "x")


def used(own: Program, kind: Kind) -> dict[tuple[int, int], int]:
    """(stage, minibatch) -> the version that its op of a kind uses."""
    attributes = own.details.attributes
    return {
        (int(own.stage[op]), int(own.microbatch[op])): attributes[op].more["wv"]
        for op in np.flatnonzero(own.kind == kind).tolist()
    }


def disagreeing(own: Program) -> dict[int, list[int]]:
    """Stage -> the minibatches whose backward uses another version than their forward."""
    forward, backward = used(own, Kind.F), used(own, Kind.B)
    assert forward.keys() == backward.keys()
    stages: dict[int, list[int]] = {}
    for stage, minibatch in sorted(forward):
        if forward[stage, minibatch] != backward[stage, minibatch]:
            stages.setdefault(stage, []).append(minibatch)
    return stages


def versions(own: Program) -> CheckResult:
    (result,) = (c for c in judged(own).checks if c.check == "versions")
    return result


# --- what the recordings show ----------------------------------------------------------


def test_every_configuration_is_a_program() -> None:
    assert trace_files.names("pipedream") == [DOUBLE, STASHING]
    assert list(programs(STASHING)) == ["macroFalse_p4", "macroTrue_p4"]
    assert list(programs(DOUBLE)) == ["p4_m4", "p4_m8", "p4_m2", "p8_m8", "p2_m2", "p4_m3"]


def test_every_version_is_as_recorded() -> None:
    stated = document(STASHING)
    for part, own in programs(STASHING).items():
        for kind, key in ((Kind.F, "fwd"), (Kind.B, "bwd")):
            assert used(own, kind) == {
                (s, int(minibatch)): version
                for s in range(4)
                for minibatch, version in stated[f"{part}_s{s}"][key].items()
            }
        for s, lane in enumerate(own.lanes):
            ran = [
                [Kind(int(own.kind[op])).name, int(own.microbatch[op])]
                for op in range(lane.first, lane.stop)
                if own.kind[op] <= Kind.B
            ]
            assert ran == [op[:2] for op in stated[f"{part}_s{s}"]["order"]]
    stated = document(DOUBLE)
    for part, own in programs(DOUBLE).items():
        for kind in (Kind.F, Kind.B):
            assert used(own, kind) == {
                (s, int(minibatch)): version
                for s in range(own.stages)
                for minibatch, version in stated[f"{part}_r{s}"][kind.name].items()
            }


def test_stashing_keeps_p_minus_s_versions() -> None:
    own = programs(STASHING)["macroFalse_p4"]
    assert disagreeing(own) == {}
    assert found(judged(own)) == []
    evidence = versions(own).evidence
    assert evidence["like_their_forward"] == 48
    assert evidence["versions_kept"] == {"0": 4, "1": 3, "2": 2, "3": 1}
    assert evidence["staleness"] == {"0": 3, "1": 2, "2": 1, "3": 0}
    kept = [document(STASHING)[f"macroFalse_p4_s{s}"]["num_versions"] for s in range(4)]
    assert list(evidence["versions_kept"].values()) == kept
    assert own.notes[0].endswith("stage by stage: 4, 3, 2, 1.")


def test_two_versions_are_too_few_for_an_update_every_two() -> None:
    own = programs(STASHING)["macroTrue_p4"]
    assert disagreeing(own) == {0: [4, 6, 8, 10], 2: [3, 5, 7, 9, 11]}
    assert found(judged(own)) == [("versions", "version-violation", 9)]
    (finding,) = versions(own).findings
    assert "its forward" in finding.message


def test_double_buffered_weights_are_one_update_late() -> None:
    for part, own in programs(DOUBLE).items():
        m = int(part.partition("_m")[2])
        for kind in (Kind.F, Kind.B):
            for (_, minibatch), version in used(own, kind).items():
                assert version == max(0, minibatch // m - 1)
        assert disagreeing(own) == {}
        assert found(judged(own)) == []
        evidence = versions(own).evidence
        assert evidence["rule"] == "delayed by 1 on every stage"
        assert set(evidence["versions_kept"].values()) == {2}


@pytest.mark.parametrize("name", [STASHING, DOUBLE])
def test_updates_stand_after_backwards(name: str) -> None:
    for own in programs(name).values():
        made = dict.fromkeys(range(own.stages), 0)
        for lane in own.lanes:
            last = None
            for op in range(lane.first, lane.stop):
                if own.kind[op] == Kind.STEP:
                    made[lane.rank] += 1
                    assert last == Kind.B
                    assert op_text(own, op) == f"STEP w{lane.rank}"
                elif own.kind[op] <= Kind.B:
                    last = own.kind[op]
                    assert own.details.attributes[op].more["wv"] <= made[lane.rank]
        assert all(made.values())


def test_a_version_that_no_backward_can_have_made() -> None:
    stated = {
        "a_s0": {
            "num_versions": 1,
            "fwd": {"0": 1},
            "bwd": {"0": 1},
            "order": [["F", 0, 1], ["B", 0, 1]],
        }
    }
    (own,) = read(stated)
    (finding,) = judged(own).findings
    assert "uses version 1 of w0, which has not been made there" in finding.message


# --- what is refused ------------------------------------------------------------------------


def _set(*keys: Any) -> Callable[[Document], None]:
    """Set the entry at a path to the last of the values."""

    def change(stated: Any) -> None:
        *path, key, value = keys
        for step in path:
            stated = stated[step]
        stated[key] = value

    return change


S0, R0 = "macroFalse_p4_s0", "p4_m4_r0"


@pytest.mark.parametrize(
    ("name", "change", "path", "words"),
    [
        (STASHING, _set("other", 1), "other", "expected a stage of a configuration"),
        (STASHING, _set("macroFalse_p4_s9", {}), S0, "not stage 4; expected stages 0 to 9"),
        (STASHING, _set(S0, []), S0, "expected a stage, an object"),
        (STASHING, _set(S0, "unheard", 1), f"{S0}.unheard", "unknown key"),
        (STASHING, _set(S0, "num_versions", 0), f"{S0}.num_versions", "1 or more"),
        (STASHING, _set(S0, "fwd", "x", 0), f"{S0}.fwd.x", "expected a minibatch"),
        (STASHING, _set(S0, "fwd", "0", -1), f"{S0}.fwd.0", "a version"),
        (STASHING, _set(S0, "fwd", "4", 0), f"{S0}.order[5][2]", "the version that fwd states, 0"),
        (STASHING, _set(S0, "bwd", "99", 0), f"{S0}.order", "found no B of minibatch 99"),
        (STASHING, _set(S0, "order", 0, 0, "W"), f"{S0}.order[0][0]", 'expected "F" or "B"'),
        (STASHING, _set(S0, "order", 0, ["F"]), f"{S0}.order[0]", "an op [F or B, minibatch,"),
        (STASHING, _set(S0, "order", 0, 1, 77), f"{S0}.order[0][2]", "fwd states, none"),
        (DOUBLE, _set(R0, {"F": {}}), R0, '"B" is missing'),
        (DOUBLE, _set(R0, "F", "0", "0"), f"{R0}.F.0", "a version"),
        (DOUBLE, _set(R0, "num_versions", 2), f"{R0}.num_versions", "unknown key"),
    ],
)
def test_refusals(name: str, change: Callable[[Document], None], path: str, words: str) -> None:
    stated = document(name)
    change(stated)
    with pytest.raises(InputError) as caught:
        read(stated)
    assert words in f"{caught.value.message} {caught.value.cause}"
    assert caught.value.path == path


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "{"])
def test_no_recording_at_all(text: str) -> None:
    with pytest.raises(InputError):
        read_pipedream(text, "x")


@given(damaged({k: v for k, v in document(STASHING).items() if "True" in k}))
def test_damaged_recordings_are_read_or_refused(stated: Document) -> None:
    try:
        (own,) = read(stated)
    except InputError as error:
        assert error.message and (error.path or error.line)
        return
    judged(own)


def test_a_stage_that_lacks_a_minibatch_shows() -> None:
    stated = document(DOUBLE)
    del stated[R0]["B"]["15"]
    own = read(stated)[0]
    assert ("coverage", "order-violation", 1) in found(judged(own))
