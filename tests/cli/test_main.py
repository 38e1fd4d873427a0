"""The process: what it answers with, what it loads, and how it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

import pipeproof
from pipeproof.cli import check, main
from tests.cli.conftest import Run
from tests.torch_files import DEFERRED

ROOT = Path(__file__).parents[2]
VIOLATED = DEFERRED / "ZBVZeroBubble_2_3_2.deferred.comms.csv"


def process(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "pipeproof", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, timeout=120, **options)


# --- help --------------------------------------------------------------------------


def test_help(run: Run) -> None:
    for arguments in (["--help"], ["-h"]):
        answer = run(*arguments)
        assert answer.status == 0 and answer.err == ""
        assert re.search("check +Check schedules and programs", answer.out)
        assert re.search("convert +Write what a file holds", answer.out)
        assert "Exit status: 0 all hold, 1 something is violated" in answer.out
        assert all(len(line) <= 80 for line in answer.out.splitlines())


def test_version(run: Run) -> None:
    assert run("--version").out == f"pipeproof, version {pipeproof.__version__}\n"


def test_every_command_has_help(run: Run) -> None:
    for name in main.COMMANDS:
        answer = run(name, "--help")
        assert answer.status == 0 and answer.out.startswith("Usage: ")
        assert all(len(line) <= 80 for line in answer.out.splitlines())


def test_help_loads_nothing_heavy() -> None:
    """Nor does that of a command: numpy takes as long as all of the rest."""
    for arguments in (["--help"], ["check", "--help"], ["convert", "--help"]):
        code = (
            "import sys\n"
            "from pipeproof.cli.main import main\n"
            f"sys.argv = ['pipeproof', *{arguments!r}]\n"
            "try:\n"
            "    main()\n"
            "finally:\n"
            "    heavy = {'numpy', 'z3', 'torch', 'networkx', 'hypothesis'}\n"
            "    print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
        assert done.returncode == 0 and done.stdout
        assert done.stderr.decode().strip() == "[]"


# --- usage -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["--nonsense"], "No such option"),
        (["check"], "no FILE given; expected files, folders, or - for standard input"),
        (["check", "--nonsense", "a.csv"], "No such option"),
        ([], "Usage: "),
    ],
)
def test_bad_usage(run: Run, arguments: list[str], words: str) -> None:
    answer = run(*arguments)
    assert answer.status == 2
    assert words in answer.err
    assert answer.out == ""


# --- how it ends -------------------------------------------------------------------


def raising(error: BaseException) -> Any:
    def broken(*_: Any, **__: Any) -> NoReturn:
        raise error

    return broken


def test_an_interrupt(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "sources", raising(KeyboardInterrupt()))
    answer = run("check", "a.csv")
    assert answer.status == 130
    assert answer.out == "" and answer.err.strip() == ""


def test_an_interrupt_outside_of_click(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main.group, "main", raising(KeyboardInterrupt()))
    assert run("check", "a.csv").status == 130


@pytest.mark.parametrize("traceback", ["", "1"])
def test_a_crash(run: Run, monkeypatch: pytest.MonkeyPatch, traceback: str) -> None:
    monkeypatch.setenv("PIPEPROOF_TRACEBACK", traceback)
    monkeypatch.setattr(check, "sources", raising(RuntimeError("oh\nno")))
    answer = run("check", "a.csv")
    assert answer.status == 4
    assert answer.err.startswith("pipeproof: internal error: RuntimeError: oh")
    assert "a defect of pipeproof, not of your input" in answer.err
    assert ("Traceback" in answer.err) == bool(traceback)
    assert answer.out == ""


def test_the_process_answers_with_the_verdict() -> None:
    done = process("check", VIOLATED, capture_output=True)
    assert done.returncode == 1
    assert done.stderr == b""
    assert "▶" in done.stdout.decode("utf-8") or b">" in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["check", str(VIOLATED)]])
def test_a_reader_that_went_away(arguments: list[str]) -> None:
    """As with ``| head -1``: no traceback, and no verdict either."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        done = process(*arguments, stdout=gone, stderr=subprocess.PIPE)
    assert done.returncode == 130
    assert done.stderr == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        done = process("check", VIOLATED, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert b"the report cannot be written: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr and b"internal" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_closed_streams() -> None:
    command = f'"{sys.executable}" -m pipeproof check'
    closed = subprocess.run(
        f'{command} "{VIOLATED}" >&-', shell=True, cwd=ROOT, stderr=subprocess.PIPE
    )
    assert closed.returncode == 1 and closed.stderr == b""
    closed = subprocess.run(f"{command} - <&-", shell=True, cwd=ROOT, capture_output=True)
    assert closed.returncode == 2
    assert b"standard input cannot be read: bad file descriptor" in closed.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "zéro 界.csv"
    path.write_bytes(VIOLATED.read_bytes())
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = process("check", path, capture_output=True, env=environment)
    assert done.returncode == 1 and done.stderr == b""
    text = done.stdout.decode(encoding)
    assert "\x1b" not in text
    assert (text.isascii()) == (encoding != "utf-8")
    assert ("z\\xe9ro \\u754c.csv" in text) == (encoding != "utf-8")
    for line in text.splitlines():
        assert len(line) <= 80 or ".csv" in line
