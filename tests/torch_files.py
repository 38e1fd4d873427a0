"""The recorded torch files that tests read, and what their folder says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeproof.formats.torch_executed import read_executed
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule

FOLDER = Path(__file__).parent / "data" / "torch_csv"
DEFERRED = FOLDER / "deferred"

COMMS = sorted(path.name for path in FOLDER.glob("*.comms.csv"))
COMPUTE_ONLY = sorted(path.name for path in FOLDER.glob("*.compute_only.csv"))
EXECUTED = sorted(path.name for path in FOLDER.glob("*.executed.txt"))
INDEX: list[dict[str, Any]] = json.loads((DEFERRED / "INDEX.json").read_text())
"""What torch's plans with deferred receives do, one entry a file: recorded, not computed."""


def text(name: str) -> str:
    """The text of a file of the folder, or of its deferred ones."""
    folder = DEFERRED if ".deferred." in name else FOLDER
    return (folder / name).read_text()


def schedule(name: str) -> Schedule:
    """A CSV as a schedule."""
    return read_schedule(text(name), name)


def executed(name: str) -> Program:
    """A recording as a program."""
    return read_executed(text(name), name)
