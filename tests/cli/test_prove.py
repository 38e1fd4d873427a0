"""``pipeproof prove``: its answers, and what it says of a spec that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

HEAD = "from pipeproof.spec import B, F, loop, schedule\n@schedule\n"


def test_a_known_schedule(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "gpipe.smt2"
    answer = run("prove", "gpipe", "--smtlib", script)
    assert answer.status == 0
    assert "holds for every size" in answer.out
    assert "for i_0 in 0 .. m - 1:" in answer.out
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    assert script.read_text().startswith("; gpipe, all sizes: p >= 1, m >= 1\n")
    assert "loops of every rank" not in run("prove", "--quiet", "gpipe").out
    (target,) = json.loads(run("prove", "--format", "json", "gpipe").out)["targets"]
    assert {c["status"] for c in target["checks"]} == {"holds"}


def test_what_has_no_loops_is_undetermined(run: Run) -> None:
    answer = run("prove", "chimera")
    assert answer.status == 3
    assert "not proved for all sizes" in " ".join(answer.out.split())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + "def f(p, m, rank):\n    yield F({0: 1}[p])\n", "raised KeyError at p=1, m=1"),
        (HEAD + "def f(p, m, rank):\n    yield F(len('ab', p))\n", "raised TypeError"),
        (HEAD + "def f(p, m, rank):\n    while 1: pass\n    yield F(0)\n", "takes longer than"),
        ("x = 1\n", "found no schedule in this file"),
    ],
)
def test_a_spec_that_fails_says_how(run: Run, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "spec.py"
    path.write_text(text)
    answer = run("prove", "--time-limit", 0.5, path)
    assert answer.status == 2
    assert says in answer.err


def test_inputs_of_one_size_are_refused(run: Run) -> None:
    assert run("prove").status == 2
    answer = run("prove", "specs/gpipe.csv")
    assert answer.status == 2
    assert "expected a definition" in answer.err
