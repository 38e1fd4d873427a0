"""``pipeproof faults``: the table, its exit status, and what it writes."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeproof.checks.table import CHECKS
from pipeproof.cli.main import group
from pipeproof.faults import table as tables
from pipeproof.faults.sites import Rule
from pipeproof.verdict import CheckResult
from tests.faults.programs import DOCUMENTS

GPIPE = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The command switches the collector off; the other tests want it on."""
    yield
    gc.enable()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a schedule and the programs, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpipe.csv").write_text(GPIPE)
    for name, document in DOCUMENTS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return tmp_path


def faults(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(group, ["faults", *arguments], input=stdin, standalone_mode=False)


def test_a_schedule(folder: Path) -> None:
    printed = faults("--per-rule", "2", "gpipe.csv")
    assert (printed.return_value, printed.stderr) == (0, "")
    lines = printed.stdout.splitlines()
    assert lines[0] == "gpipe.csv"
    assert max(map(len, lines)) <= 80
    assert "B becomes I                      2      2      .    .  coverage* 2" in lines
    assert "\nHarmless: they change nothing, in any execution\n" in printed.stdout
    assert "every value is the same: 8 computes" in printed.stdout
    assert "no place for: drop a weight gradient," in printed.stdout


def test_json(folder: Path) -> None:
    printed = faults("--per-rule", "1", "--format", "json", "gpipe.csv", "exchange.json")
    document = json.loads(printed.stdout)
    assert document["exit_status"] == printed.return_value == 0
    schedule, program = document["targets"]
    assert (schedule["verdict"], program["file"]) == ("holds", "exchange.json")
    rows = {row["rule"]: row for row in program["rules"]}
    assert rows["drop a send"]["killed"] == rows["drop a send"]["seeded"] == 1
    assert rows["drop a send"]["caught_by"] == {"matching": 1, "deadlock": 1}
    assert rows["drop a STEP"] | {"must": []} == {
        "rule": "drop a STEP",
        "must": [],
        "places": 0,
        "seeded": 0,
        "killed": 0,
        "harmless": 0,
        "allowed": 0,
        "undetermined": 0,
        "survives": 0,
        "caught_by": {},
    }
    for mutant in [m for t in document["targets"] for m in t["mutants"]]:
        assert mutant["named"] == (mutant["fate"] == "killed")


def test_all(folder: Path) -> None:
    few = json.loads(faults("--per-rule", "1", "--format", "json", "exchange.json").stdout)
    every = json.loads(faults("--all", "--format", "json", "exchange.json").stdout)
    assert all(row["seeded"] <= 1 for row in few["targets"][0]["rules"])
    assert all(row["seeded"] == row["places"] for row in every["targets"][0]["rules"])


def test_undetermined_mutants_are_written(folder: Path) -> None:
    """A want that nothing compares is undetermined: 3, and the mutant is kept."""
    printed = faults("--write", "out", "gradients.json")
    assert printed.return_value == 3
    assert "Undetermined: a check cannot answer" in printed.stdout
    path, _ = (folder / "out").glob("*drop-a-step.json")
    assert f"out/{path.name}" in printed.stdout
    again = CliRunner().invoke(group, ["check", f"out/{path.name}"], standalone_mode=False)
    assert again.return_value == 3


def test_a_program_with_choice(folder: Path) -> None:
    """Every execution is judged: nothing survives, and nothing is left open."""
    ranks = '"0": [["RECV", "x", "any"]], "1": [["SEND", "x", 0]], "2": [["X", "x"]]'
    (folder / "choice.json").write_text(f'{{"programs": {{{ranks}}}}}')
    printed = faults("choice.json")
    assert printed.return_value == 0
    assert "Survivors" not in printed.stdout


def test_a_hole_in_the_checks_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its checks, a fault survives, is explained and written: exit status 1."""

    def deaf(program: object) -> tuple[CheckResult, ...]:
        (deadlock,) = (c for c in CHECKS if c.name == "deadlock")
        from pipeproof.checks.subject import Subject

        return (deadlock.run(Subject(program)),)  # type: ignore[arg-type]

    monkeypatch.setattr(tables, "judged", deaf)
    printed = faults("--write", "out", "gpipe.csv", "memory.json")
    assert printed.return_value == 1
    assert "Survivors: no check objects, and they are not shown harmless" in printed.stdout
    assert "some compute gets something else" in printed.stdout
    assert list((folder / "out").glob("*.csv")) and list((folder / "out").glob("*.json"))
    assert max(map(len, printed.stdout.splitlines())) <= 80


def test_a_check_that_no_rule_names_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = tuple(Rule(r.name, ("memory",), r.sites) for r in tables.PROGRAM_RULES)
    monkeypatch.setattr(tables, "PROGRAM_RULES", renamed)
    printed = faults("--per-rule", "1", "exchange.json")
    assert printed.return_value == 0
    assert "Caught, but by no check that the rule names:" in printed.stdout


def test_a_violated_target(folder: Path) -> None:
    (folder / "wrong.csv").write_text("0F0,0B0\n1F0\n")
    printed = faults("wrong.csv")
    assert printed.return_value == 1
    assert "It is violated as it is, so no fault was seeded" in printed.stdout
    assert "  - coverage: 1B0 never runs" in printed.stdout
    assert "See pipeproof check wrong.csv" in printed.stdout


def test_bad_inputs(folder: Path) -> None:
    printed = faults("missing.csv", "exchange.json")
    assert printed.return_value == 2
    assert printed.stderr.startswith("pipeproof: missing.csv")
    assert "exchange.json" in printed.stdout
    assert "no FILE given" in str(faults().exception)
    (folder / "taken").write_text("")
    printed = faults("--per-rule", "1", "--write", "taken", "exchange.json")
    assert printed.return_value == 2
    assert "mutants cannot be written there" in printed.stderr


def test_nothing_to_break(folder: Path) -> None:
    (folder / "empty.json").write_text('{"programs": {"0": []}}')
    printed = faults("empty.json")
    assert printed.return_value == 5
    assert "nothing to check, so no fault could be caught" in printed.stdout


def test_options_of_schedules(folder: Path) -> None:
    printed = faults(
        "--per-rule", "1", "--recipe", "naive", "--transport", "gloo", "-", stdin=GPIPE
    )
    assert printed.return_value == 0
    assert printed.stdout.startswith("-\n") or printed.stdout.startswith("<")
