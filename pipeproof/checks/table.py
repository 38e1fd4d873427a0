"""The table of checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeproof.checks import coverage, deadlock, matching, memory, order, race
from pipeproof.checks.subject import Subject
from pipeproof.verdict import CheckResult


@dataclass(frozen=True, slots=True)
class Check:
    """A property: its name everywhere, one line on what it says, and how to ask."""

    name: str
    title: str
    run: Callable[[Subject], CheckResult]


CHECKS = (
    Check(coverage.NAME, coverage.TITLE, coverage.check),
    Check(order.NAME, order.TITLE, order.check),
    Check(matching.NAME, matching.TITLE, matching.check),
    Check(deadlock.NAME, deadlock.TITLE, deadlock.check),
    Check(race.NAME, race.TITLE, race.check),
    Check(memory.NAME, memory.TITLE, memory.check),
)

LATER = ("versions", "gradients")
"""Properties with a name and no check yet: a program that asks for one is
answered *undetermined*, never passed over."""
