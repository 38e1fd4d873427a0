"""The collection of real defects: each is found, told as its report says, and cured."""

from __future__ import annotations

import copy
import gc
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeproof.cli.main import group
from pipeproof.formats.program_json import read_program
from pipeproof.judge.judge import judge_program
from pipeproof.judge.options import Options
from pipeproof.verdict import Report, Status

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "counterexamples"
CHECKS = ("coverage", "order", "matching", "deadlock", "race", "memory", "versions", "gradients")
REFERENCE = re.compile(r"\b[\w.-]+/[\w.-]+#[0-9]+\b")
ROW = re.compile(
    r"\| (?P<check>\w+) \| \[(?P<slug>[\w-]+)\]\((?P<link>[\w/-]+)/\) \| (?P<line>[^|]+)"
    r" \| \[(?P<reference>[^]]+)\]\((?P<url>[^)]+)\) \|"
)

ENTRIES = sorted(f"{path.parent.name}/{path.name}" for path in FOLDER.glob("*/*"))
CASES = [entry for entry in ENTRIES if (FOLDER / entry / "case.json").exists()]


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A check switches the collector off; the other tests want it on."""
    yield
    gc.enable()


def subject(entry: str) -> str:
    """The program or schedule of an entry, as a user at the repository's root names it."""
    name = "case.json" if entry in CASES else "schedule.csv"
    return f"counterexamples/{entry}/{name}"


def case(entry: str) -> dict[str, Any]:
    """The case of an entry."""
    document: dict[str, Any] = json.loads((ROOT / subject(entry)).read_text())
    return document


def check(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """``pipeproof check`` at the repository's root; it returns the exit status."""
    monkeypatch.chdir(ROOT)
    return CliRunner().invoke(
        group, ["check", *arguments], standalone_mode=False, catch_exceptions=False
    )


def words(report: Report) -> set[str]:
    """The verdicts of a report's findings, all of them replayed; what it comes to without any."""
    assert all(finding.replayed for finding in report.findings)
    found = {finding.verdict.value for finding in report.findings}
    return found or {"ok" if report.status is Status.HOLDS else "undetermined"}


def test_entries_are_there() -> None:
    """Every check has an entry, and folders are named after checks."""
    assert len(ENTRIES) >= 35 and len(ENTRIES) - len(CASES) == 1
    assert {entry.split("/")[0] for entry in ENTRIES} == set(CHECKS)


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_has_these_files(entry: str) -> None:
    """A program, its story, its report, and nothing else."""
    assert (ROOT / subject(entry)).exists()
    names = {path.name for path in (FOLDER / entry).iterdir()}
    assert names == {"README.md", "report.txt", Path(subject(entry)).name}


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_check_of_its_folder_finds_it(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defect is found by the check it is filed under, and its finding is replayed."""
    printed = check(monkeypatch, "--format", "json", subject(entry))
    assert printed.return_value == 1
    (target,) = json.loads(printed.stdout)["targets"]
    own = entry.split("/")[0]
    assert own in [row["check"] for row in target["checks"] if row["status"] == "violated"]
    assert own in [finding["check"] for finding in target["findings"]]
    assert all(finding["replayed"] for finding in target["findings"])


@pytest.mark.parametrize("entry", ENTRIES)
def test_its_report_is_what_is_printed(
    entry: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """``report.txt`` is the text of the command, byte for byte."""
    printed = check(monkeypatch, subject(entry)).stdout_bytes
    report = FOLDER / entry / "report.txt"
    if request.config.getoption("--regenerate"):
        report.write_bytes(printed)
    assert printed == report.read_bytes()


@pytest.mark.parametrize("entry", CASES)
def test_its_repair_holds(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repaired twin passes every check."""
    assert case(entry)["fixed_expected"] == "ok"
    repaired = check(monkeypatch, "--fixed", subject(entry))
    assert (repaired.return_value, repaired.stderr) == (0, "")


@pytest.mark.parametrize("entry", CASES)
def test_it_gets_its_words(entry: str) -> None:
    """The program gets the verdict it expects, and every variant its own."""
    document = case(entry)
    expected = document["expected"]
    beside = set(expected.get("also_reported", []))
    programs = [(document["model"], expected["verdict"])]
    for variant in document.get("also", []):
        program = copy.deepcopy(document[variant.get("of", "model")])
        program.setdefault("semantics", {}).update(variant["semantics"])
        programs.append((program, variant["verdict"]))
    for program, word in programs:
        report = judge_program(entry, read_program(json.dumps(program), entry), Options())
        assert {word} <= words(report) <= {word} | beside


@pytest.mark.parametrize("entry", ENTRIES)
def test_its_story_names_a_public_reference(entry: str) -> None:
    """The README has a title and a reference: the case's own, where there is a case."""
    story = (FOLDER / entry / "README.md").read_text()
    assert re.match(r"# [^\n]+\n\n[\w`]", story)
    assert max(map(len, story.splitlines()[1:])) <= 80
    references = REFERENCE.findall(story)
    assert references
    if entry in CASES:
        document = case(entry)
        assert document["source"] in references and document["note"]
        assert document["id"] == entry.split("/")[1]
        repository, number = document["source"].split("#")
        assert re.fullmatch(
            rf"https://github\.com/{repository}/(issues|pull)/{number}", document["url"]
        )


def test_the_index_lists_every_entry() -> None:
    """One row an entry, by check and name, with the entry's reference."""
    index = (FOLDER / "README.md").read_text()
    rows = list(ROW.finditer(index))
    listed = [row["link"] for row in rows]
    assert listed == sorted(ENTRIES, key=lambda e: (CHECKS.index(e.split("/")[0]), e))
    assert f"\n{len(ENTRIES)} real defects" in index
    assert index.count("\n|") == len(rows) + 2
    for row in rows:
        assert row["link"] == f"{row['check']}/{row['slug']}"
        assert row["reference"] in (FOLDER / row["link"] / "README.md").read_text()
        assert re.fullmatch(
            r"https://github\.com/{}/(issues|pull)/{}".format(*row["reference"].split("#")),
            row["url"],
        )
