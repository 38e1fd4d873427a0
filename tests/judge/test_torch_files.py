"""Every recorded torch file gets the verdict that its folder states.

``tests/data/torch_csv`` holds torch 2.13's own plans, with and without
communication, and what its classes really execute: all are right, but for one
export that is wrong in its last row. ``deferred`` holds plans whose receives
were moved past each other; what they do is recorded in their index.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeproof.engines.events.build import build as build_graph
from pipeproof.engines.events.run import run
from pipeproof.judge.judge import judge_program, judge_schedule
from pipeproof.judge.options import Options
from pipeproof.program.programs import Program
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import build
from pipeproof.replay.model import Model
from pipeproof.verdict import Report, Status
from tests.torch_files import COMMS, COMPUTE_ONLY, EXECUTED, INDEX, executed, schedule

DEFERRED = [entry["file"] for entry in INDEX]
WRONG_EXPORTS = [name for name in COMPUTE_ONLY if name.startswith("1F1B")]
SMALL = 400
"""Actions up to which the step-by-step model runs a plan in every way; of the
larger ones a few are taken."""


def words(report: Report) -> list[tuple[str, str]]:
    assert all(finding.replayed for finding in report.findings)
    return [(f.check, f.verdict.value) for f in report.findings]


def rows_of(report: Report) -> dict[str, Status]:
    return {row.name: row.status for row in report.transports}


def test_all_files_are_there() -> None:
    assert (len(COMMS), len(COMPUTE_ONLY), len(EXECUTED)) == (105, 114, 18)
    assert (len(WRONG_EXPORTS), len(DEFERRED)) == (9, 44)


@pytest.mark.parametrize("name", COMMS)
def test_plans_with_communication_hold_everywhere(name: str) -> None:
    report = judge_schedule(name, schedule(name), Options())
    assert report.status is Status.HOLDS and words(report) == []
    assert rows_of(report) == dict.fromkeys((*PRESETS, "blocking", "grouped"), Status.HOLDS)
    assert {c.check for c in report.checks} >= {"coverage", "order", "matching", "deadlock"}


@pytest.mark.parametrize("name", COMPUTE_ONLY)
def test_compute_only_plans_hold_as_torch_issues_them(name: str) -> None:
    report = judge_schedule(name, schedule(name), Options())
    rows = rows_of(report)
    assert {rows[preset] for preset in PRESETS} == {Status.HOLDS}
    if name not in WRONG_EXPORTS:
        assert report.status is Status.HOLDS and words(report) == []


@pytest.mark.parametrize("name", WRONG_EXPORTS)
def test_torch_exports_1f1b_with_a_wrong_last_row(name: str) -> None:
    report = judge_schedule(name, schedule(name), Options())
    assert words(report) == [("coverage", "order-violation")] * 2 + [("order", "order-violation")]
    # Its forwards run microbatches 1 to m in place of 0 to m - 1.
    last, m = report.sizes["ranks"] - 1, report.sizes["microbatches"]
    assert [[(p.rank, p.op, p.line, p.column) for p in f.where] for f in report.findings] == [
        [(last, f"{last}F{m}", last + 1, 2 * m - 1)],
        [(last, f"{last}B{m - 1}", last + 1, 2 * m)],
        [(last, f"{last}B0", last + 1, 2)],
    ]
    beyond, missing, no_forward = report.findings
    assert [f.count for f in report.findings] == [1, 1, 1]
    assert f"the step has no microbatch {m}" in beyond.message
    assert f"{last}F0 never runs" in missing.message
    assert f"{last}B0 without {last}F0" in no_forward.message


@pytest.mark.parametrize("name", EXECUTED)
def test_what_torch_executes_holds(name: str) -> None:
    report = judge_program(name, executed(name), Options())
    assert report.status is Status.HOLDS and words(report) == []
    assert rows_of(report) == dict.fromkeys(PRESETS, Status.HOLDS)


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: str(entry["file"]))
def test_deferred_plans_do_what_is_recorded(entry: dict[str, Any]) -> None:
    plan = schedule(entry["file"])
    recorded = {"gloo": entry["async"], "nccl": entry["pair"], "nccl-eager": entry["serial"]}
    for preset in PRESETS:
        report = judge_schedule(entry["file"], plan, Options(transport=PRESETS[preset]))
        found = {f.check: f for f in report.findings}
        crossed = found["matching"].count if "matching" in found else 0
        assert crossed == entry["fifo_mismatch"]
        rows = rows_of(report)
        for name, does in recorded.items():
            assert rows[name] is (Status.HOLDS if does == "ok" else Status.VIOLATED)
        assert ("deadlock" in found) == (rows[preset] is Status.VIOLATED)
        assert set(found) <= {"matching", "deadlock"}


# --- the model agrees ----------------------------------------------------------


def agree(program: Program) -> bool:
    """Whether the program runs to its end: by the event graph, and so by the model."""
    graph = build_graph(program, program.transport)
    ran = run(graph)
    outcome = Model(program, program.transport).run()
    done = tuple(ran.progress[c] // 2 for c in range(1, graph.lanes + 1))
    assert done == outcome.completed
    assert ran.finished(graph) == (not outcome.stuck)
    return not outcome.stuck


SAMPLED = [
    name
    for number, name in enumerate([*COMMS, *COMPUTE_ONLY, *DEFERRED])
    if len(schedule(name).kind) <= SMALL or number % 13 == 0
]


@pytest.mark.parametrize("name", SAMPLED)
def test_the_model_agrees_with_every_row(name: str) -> None:
    plan = schedule(name)
    rows = rows_of(judge_schedule(name, plan, Options()))
    for preset in PRESETS:
        holds = agree(build(plan, "torch", PRESETS[preset]))
        assert rows[preset] is (Status.HOLDS if holds else Status.VIOLATED)
    for row, recipe in (("blocking", "naive"), ("grouped", "grouped")):
        holds = agree(build(plan, recipe, PRESETS["gloo"]))
        assert rows[row] is (Status.HOLDS if holds else Status.VIOLATED)


@pytest.mark.parametrize("name", EXECUTED)
def test_the_model_agrees_on_what_torch_executes(name: str) -> None:
    program = executed(name)
    for transport in PRESETS.values():
        assert agree(replace(program, transport=transport))
