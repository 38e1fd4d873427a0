"""Every command in the README is executed, and prints what the README says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeproof.cli.main import group

ROOT = Path(__file__).parent.parent
PAGES = ("README.md",)
BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]+)\n(?P<printed>.*?)```", re.DOTALL)


def run(command: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "pipeproof"
    return CliRunner().invoke(group, arguments).stdout


@pytest.mark.parametrize("page", PAGES)
def test_printed_commands_print_that(
    page: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / page).read_text()
    assert BLOCK.search(text)
    fresh = BLOCK.sub(
        lambda found: f"```console\n$ {found['command']}\n{run(found['command'])}```", text
    )
    if request.config.getoption("--regenerate"):
        (ROOT / page).write_text(fresh)
    assert fresh == text or request.config.getoption("--regenerate")
