"""Pairs of programs, one right and one wrong, and what must be said of the wrong one.

A fault states everything that a report must say about it; the right program,
which differs as little as possible, shows that it is this that was found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeproof.formats.program_json import read_program
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.judge.judge import judge_program, judge_schedule
from pipeproof.judge.options import Options
from pipeproof.program.transports import parse_transport
from pipeproof.verdict import Finding, Report, Status

Plan = str | dict[str, Any]
"""The text of a torch CSV, or a program as the program format writes it."""

Where = Sequence[tuple[Any, ...]]
"""(rank, op, row, cell) of a CSV, (rank, op, path) of a program."""


def judge(
    plan: Plan, *, microbatches: int | None = None, transport: str | None = None, **options: Any
) -> Report:
    """The report on a plan."""
    chosen = None if transport is None else parse_transport(transport)
    asked = Options(transport=chosen, **options)
    if isinstance(plan, dict):
        return judge_program("plan", read_program(json.dumps(plan), "plan"), asked)
    text = plan.replace(" ", "").strip("\n")
    return judge_schedule("plan", read_schedule(text, "plan", microbatches=microbatches), asked)


def places(finding: Finding) -> Where:
    """Where a finding points, as a fault states it."""
    if any(place.path is not None for place in finding.where):
        return [(p.rank, p.op, p.path or "") for p in finding.where]
    return [(p.rank, p.op, p.line, p.column) for p in finding.where]


@dataclass(frozen=True)
class Fault:
    """``right`` holds; of ``wrong``, ``check`` finds this one thing.

    ``says`` is part of the message, ``beside`` the other checks that object to
    the wrong program too. ``options`` are those of ``judge``.
    """

    name: str
    check: str
    right: Plan
    wrong: Plan
    verdict: str
    where: Where
    says: str
    count: int = 1
    beside: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)

    def verify(self) -> Finding:
        """Judge both programs; the finding on the wrong one."""
        right = judge(self.right, **self.options)
        assert right.findings == ()
        assert right.status is Status.HOLDS
        wrong = judge(self.wrong, **self.options)
        assert wrong.status is Status.VIOLATED
        found = [f for f in wrong.findings if f.check == self.check]
        assert len(found) == 1, [f.message for f in wrong.findings]
        (finding,) = found
        assert finding.verdict.value == self.verdict
        assert places(finding) == self.where
        assert self.says in finding.message
        assert finding.count == self.count
        assert finding.replayed
        assert {f.check for f in wrong.findings} == {self.check, *self.beside}
        for result in wrong.checks:
            violated = result.check == self.check or result.check in self.beside
            assert result.status is (Status.VIOLATED if violated else Status.HOLDS)
        return finding
