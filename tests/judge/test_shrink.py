"""The shrinker: smaller, and wrong in the same way and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeproof.cli.reading import Reading, read
from pipeproof.errors import InputError
from pipeproof.formats.program_json import read_program
from pipeproof.formats.program_print import print_program
from pipeproof.formats.program_text import program_text
from pipeproof.formats.sources import Source, gather
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.judge.cuts import units, without_end_stage, without_microbatch, without_rank
from pipeproof.judge.judge import judged
from pipeproof.judge.shrink import Shrunk, shrink, sort_of
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import build
from pipeproof.verdict import Finding, Status
from tests.faults.programs import program

ROOT = Path(__file__).parent.parent.parent
CASES = sorted((ROOT / "tests/data/cases").glob("*.json"))


def programs(file: str) -> list[Program]:
    """What a file of the repository holds, issued where it is a schedule."""
    (source,) = gather([str(ROOT / file)], format=None, stdin=lambda: b"")
    assert isinstance(source, Source)
    found = read(source, Reading())
    return [build(t, "torch", PRESETS["nccl"]) if isinstance(t, Schedule) else t for t in found]


def findings(tested: Program) -> list[Finding]:
    return [finding for result in judged(tested) for finding in result.findings]


def cut(file: str) -> Shrunk:
    """The smallest form of the first finding of a file."""
    (found,) = [p for p in programs(file) if findings(p)]
    return shrink(found, findings(found)[0])


def size(tested: Program) -> tuple[int, ...]:
    return (tested.ranks, tested.microbatches, tested.stages, tested.ops)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_cases_get_no_larger_and_fail_the_same_way(path: Path) -> None:
    whole = read_program(path.read_text(), path.name)
    before = {r.check for r in judged(whole) if r.status is Status.VIOLATED}
    for finding in findings(whole):
        found = shrink(whole, finding)
        assert all(a <= b for a, b in zip(size(found.program), size(whole), strict=True))
        assert sort_of(found.finding) == sort_of(finding)
        assert found.finding.replayed
        # What is written is read again, and is wrong in no other way.
        again = read_program(program_text(found.program), "again")
        assert sort_of(finding) in [sort_of(f) for f in findings(again)]
        assert {f.check for f in findings(again)} <= before


@pytest.mark.parametrize(
    ("file", "smallest"),
    [
        ("tests/data/torch_csv/deferred/Interleaved1F1B_2_4_2.deferred.comms.csv", (2, 2, 3, 4)),
        ("tests/data/traces/pipedream/pipedream_versions.json", (1, 1, 1, 3)),
        ("tests/data/torch_csv/1F1B_2_4_1.compute_only.csv", (1, 1, 1, 1)),
    ],
)
def test_recorded_defects(file: str, smallest: tuple[int, ...]) -> None:
    found = cut(file)
    assert size(found.program) == smallest
    assert found.tries < 1000


@pytest.mark.parametrize(
    ("file", "entry"),
    [
        ("interleaved_batch_p2_m4_v2", "matching/megatron-batched-crossing"),
        ("interleaved_overlap_p2_m4_v2", "race/megatron-output-freed-in-flight"),
    ],
)
def test_two_entries_of_the_collection_are_its_work(file: str, entry: str) -> None:
    found = cut(f"tests/data/traces/megatron/{file}.jsonl")
    case = json.loads((ROOT / "counterexamples" / entry / "case.json").read_text())
    # Nothing more can be cut from it.
    assert size(shrink(found.program, found.finding).program) == size(found.program)
    assert case["model"] == print_program(found.program)
    assert case["expected"]["verdict"] == found.finding.verdict.value


def test_later_findings_can_be_cut_too() -> None:
    """Each finding is cut to its own smallest form."""
    text = '{"programs": {"0": [["F", 0, 0], ["F", 0, 0], ["RECV", "x", 1]], "1": [["X", "x"]]}}'
    whole = read_program(text, "two")
    by_check = {f.check: shrink(whole, f).program for f in findings(whole)}
    assert size(by_check["coverage"]) == (1, 1, 1, 2)
    assert print_program(by_check["deadlock"])["programs"]["0"] == [["RECV", "x", 1]]


def test_what_json_cannot_say_is_refused() -> None:
    schedule = read_schedule("0UNSHARD,0F0,0B0\n", "sharded")
    whole = build(schedule, "torch", PRESETS["nccl"])
    (finding,) = findings(whole)
    assert finding.check == "memory"
    with pytest.raises(InputError, match="the finding of memory cannot be written") as caught:
        shrink(whole, finding)
    assert "actions on sharded parameters" in (caught.value.cause or "")


# --- cuts ----------------------------------------------------------------------


def document(tested: Program | None) -> dict[str, Any]:
    assert tested is not None
    return print_program(tested)


def test_a_rank_goes_with_its_ends() -> None:
    left = document(without_rank(program("groups"), 0))
    assert left["n_ranks"] == 2
    assert left["placement"] == {"1": 0, "2": 1}
    assert left["pre"] == {"0": ["act:0:0"]}
    assert left["programs"]["0"][:2] == [["F", 1, 0], ["BI", 1, 0, {"nodeps": True}]]
    assert left["programs"]["0"][2] == ["GROUP", [["SEND", "act", 1, 0, 1], ["RECV", "token", 1]]]


def test_a_microbatch_goes_and_ids_close_up() -> None:
    left = document(without_microbatch(program("memory"), 0))
    assert left["m"] == 1
    assert ["F", 0, 0, {"w": [["out1", "act:0:0"]]}] in left["programs"]["0"]
    assert not any(op[:4] == ["ISEND", "act", 0, 1] for op in left["programs"]["0"])
    assert without_microbatch(read_program('{"m": 1, "programs": {"0": []}}', "p"), 0) is None


def test_an_end_stage_goes_with_its_messages() -> None:
    left = document(without_end_stage(program("lanes"), True))
    assert left["stages"] == 1 and left["placement"] == {"0": 1}
    assert left["programs"]["1"] == [["F", 0, 0], ["F", 0, 1], ["B", 0, 0], ["B", 0, 1]]
    # Weights are called by their stage: they would become those of another.
    assert without_end_stage(program("gradients"), True) is None
    assert document(without_end_stage(program("gradients"), False))["stages"] == 1


def test_units_go_whole() -> None:
    """A message has two ends, a collective all its calls, a signal those who await it."""
    tested = program("groups")
    kinds = {len(unit) for unit in units(tested)}
    assert kinds == {1, 2, 3}  # computes and waits, messages, calls
    lanes = units(program("lanes"))
    assert [unit for unit in lanes if len(unit) == 2 and unit[0][1] is None]


def test_coverage_keeps_what_else_is_there() -> None:
    """Leaving out more would be more of the same: only whole microbatches go."""
    schedule = read_schedule("0F0,0F1,0B0,0B1\n1F0,1F1,1B0\n", "gap")
    whole = build(schedule, "torch", PRESETS["nccl"])
    found = next(f for f in findings(whole) if f.check == "coverage")
    smallest = shrink(whole, found)
    assert smallest.program.complete
    assert smallest.finding.message.startswith("0B0 never runs")
    assert [int(k) for k in smallest.program.kind] == [0]
