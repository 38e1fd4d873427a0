"""The recorded defects: each gets its verdict, its repair holds, and nothing is guessed.

A case (PROGRAM_FORMAT.md, "A file is either ...") is a real defect boiled
down, with the verdict that its model, its repaired program and variants of its
transport must get. What pipeproof cannot decide yet it must call undetermined.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipeproof.formats.program_json import read_program
from pipeproof.judge.judge import judge_program
from pipeproof.judge.options import Options
from pipeproof.verdict import Report, Status

FOLDER = Path(__file__).parent.parent / "data" / "cases"


class Variant(NamedTuple):
    """A program of a case: the words it must get, and those it may get beside."""

    name: str
    program: dict[str, Any]
    expected: set[str]
    allowed: set[str]


def variants() -> Iterator[Variant]:
    for path in sorted(FOLDER.glob("*.json")):
        case = json.loads(path.read_text())
        expected = case["expected"]
        also_reported = set(expected.get("also_reported", []))
        yield Variant(path.stem, case["model"], {expected["verdict"]}, also_reported)
        if "fixed_model" in case:
            word = case.get("fixed_expected", "ok")
            yield Variant(f"{path.stem}.fixed", case["fixed_model"], {word}, set())
        for number, change in enumerate(case.get("also", [])):
            program = copy.deepcopy(case[change.get("of", "model")])
            program.setdefault("semantics", {}).update(change["semantics"])
            name = f"{path.stem}.also{number}"
            yield Variant(name, program, {change["verdict"]}, also_reported)


VARIANTS = list(variants())

UNDECIDED = {
    # Memory of a rank with several lanes.
    "18_both_directions_on_one_comm_stream.also0",
    "18_both_directions_on_one_comm_stream.fixed",
}
"""What pipeproof calls undetermined today: may shrink, never grow."""


def judged(variant: Variant) -> Report:
    program = read_program(json.dumps(variant.program), variant.name)
    return judge_program(variant.name, program, Options())


def words(report: Report) -> set[str]:
    assert all(finding.replayed for finding in report.findings)
    found = {finding.verdict.value for finding in report.findings}
    return found or {"ok" if report.status is Status.HOLDS else "undetermined"}


def test_all_cases_are_there() -> None:
    assert len(list(FOLDER.glob("*.json"))) == 32
    assert len(VARIANTS) == 70
    assert {v.name for v in VARIANTS} >= UNDECIDED


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_a_case_gets_its_verdict(variant: Variant) -> None:
    report = judged(variant)
    found = words(report)
    if found == {"undetermined"}:
        assert variant.name in UNDECIDED, "this one was decided before"
        assert report.status is Status.UNDETERMINED
        reasons = [c.reason for c in report.checks if c.status is Status.UNDETERMINED]
        assert reasons and all(reasons)
        return
    assert variant.expected <= found <= variant.expected | variant.allowed
    assert report.status is (Status.HOLDS if found == {"ok"} else Status.VIOLATED)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_a_finding_says_where(variant: Variant) -> None:
    for finding in judged(variant).findings:
        for place in finding.where:
            assert place.path is not None and place.path.startswith("programs.")
