"""The recorded schedules that tests read, judged, and damaged."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pipeproof.judge.judge import judge_program
from pipeproof.judge.options import Options
from pipeproof.program.programs import Program
from pipeproof.program.transports import PRESETS
from pipeproof.verdict import Report, Status

FOLDER = Path(__file__).parents[1] / "data" / "traces"


def names(producer: str) -> list[str]:
    """The files of a producer's folder."""
    return sorted(path.name for path in (FOLDER / producer).iterdir())


def text(producer: str, name: str) -> str:
    """The text of one of them."""
    return (FOLDER / producer / name).read_text()


def judged(program: Program, transport: str | None = None) -> Report:
    """The report on a program, under its own transport or another preset."""
    return judge_program(
        program.name, program, Options(transport=None if transport is None else PRESETS[transport])
    )


def found(report: Report) -> list[tuple[str, str, int]]:
    """(check, verdict, how many) of every finding."""
    assert all(finding.replayed for finding in report.findings)
    assert (report.status is Status.HOLDS) == (not report.findings)
    return [(f.check, f.verdict.value, f.count) for f in report.findings]


def rows(report: Report) -> dict[str, Status]:
    """Whether it runs to its end, under each transport."""
    return {row.name: row.status for row in report.transports}


def peaks(report: Report) -> list[int]:
    """The most live activations of each rank."""
    assert report.metrics["memory_unit"] == "live activations"
    return list(report.metrics["peak_memory"].values())


HOLDS_EVERYWHERE = dict.fromkeys(PRESETS, Status.HOLDS)


# --- damage ------------------------------------------------------------------------

_OTHER: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    3,
    10**30,
    1.5,
    "",
    "F",
    [],
    {},
    [0],
    ["act", 0, 0],
    {"op": "F"},
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of everything below a value."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """A document with an entry of something taken away, doubled or replaced."""
    document = copy.deepcopy(document)
    holder, key = draw(st.sampled_from(list(_places(document))))
    match draw(st.integers(0, 3)):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        case 1:
            holder["unheard_of"] = 1
        case _:
            holder[key] = draw(st.sampled_from(_OTHER))
    return document
