"""``pipeproof shrink``: a case that check reads again, and that fails the same way."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pipeproof.cli.main import group

HANGS = "0F0,0F1,0RECV_B0,0SEND_F0,0SEND_F1,0B0,0RECV_B1,0B1\n"
HANGS += "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The command switches the collector off; the other tests want it on."""
    yield
    gc.enable()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hangs.csv").write_text(HANGS)
    (tmp_path / "holds.csv").write_text("0F0,0B0\n")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group, arguments, standalone_mode=False)


def test_to_a_file(folder: Path) -> None:
    printed = run("shrink", "--recipe", "naive", "hangs.csv", "-o", "small.json")
    assert (printed.return_value, printed.stdout) == (0, "")
    assert printed.stderr.splitlines()[0] == (
        "pipeproof: hangs.csv: deadlock: 2 ranks, 2 microbatches, 2 stages, 16 ops"
    )
    assert printed.stderr.splitlines()[1].startswith("  cut to 2 ranks, 1 microbatch, 2 stages, ")
    checked = run("check", "-q", "small.json")
    assert (checked.return_value, checked.stdout) == (1, "small.json: deadlock\n")
    case = json.loads((folder / "small.json").read_text())
    assert case["note"].startswith("Cut from hangs.csv: 2 ranks, ")
    assert case["expected"]["verdict"] == "deadlock"
    assert "rank 0: 0RECV_B0" in case["expected"]["where"]


def test_to_stdout(folder: Path) -> None:
    printed = run("shrink", "--recipe", "naive", "--only", "deadlock", "hangs.csv")
    assert json.loads(printed.stdout)["expected"]["verdict"] == "deadlock"


def test_nothing_to_cut(folder: Path) -> None:
    printed = run("shrink", "holds.csv")
    assert (printed.return_value, printed.stdout) == (5, "")
    assert "nothing is violated, so there is nothing to cut" in printed.stderr
    printed = run("shrink", "--only", "race", "holds.csv")
    assert "race finds nothing" in printed.stderr


def test_bad_inputs(folder: Path) -> None:
    printed = run("shrink", "missing.csv")
    assert printed.return_value == 2 and printed.stderr.startswith("pipeproof: missing.csv")
    printed = run("shrink", "--recipe", "naive", "hangs.csv", "-o", "no/such/folder.json")
    assert printed.return_value == 2 and "it cannot be written" in printed.stderr
    (folder / "sharded.csv").write_text("0UNSHARD,0F0,0B0\n")
    printed = run("shrink", "sharded.csv")
    assert printed.return_value == 2
    assert "cannot be written as a program in JSON" in printed.stderr


def test_a_program_over_another_transport(folder: Path) -> None:
    run("convert", "hangs.csv", "--recipe", "naive", "-o", "program.json")
    printed = run("shrink", "--transport", "gloo", "program.json")
    assert json.loads(printed.stdout)["model"]["semantics"]["p2p"] == "rendezvous"
