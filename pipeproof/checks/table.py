"""The table of checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeproof.checks import (
    coverage,
    deadlock,
    gradients,
    matching,
    memory,
    order,
    race,
    versions,
)
from pipeproof.checks.subject import Subject
from pipeproof.verdict import CheckResult


def _always(subject: Subject) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Check:
    """A property: its name everywhere, one line on what it says, and how to ask.

    A check that ``applies`` not is left out of the report: there is nothing that
    it could hold of.
    """

    name: str
    title: str
    run: Callable[[Subject], CheckResult]
    applies: Callable[[Subject], bool] = _always


CHECKS = (
    Check(coverage.NAME, coverage.TITLE, coverage.check),
    Check(order.NAME, order.TITLE, order.check),
    Check(matching.NAME, matching.TITLE, matching.check),
    Check(deadlock.NAME, deadlock.TITLE, deadlock.check),
    Check(race.NAME, race.TITLE, race.check),
    Check(memory.NAME, memory.TITLE, memory.check),
    Check(versions.NAME, versions.TITLE, versions.check, versions.applies),
    Check(gradients.NAME, gradients.TITLE, gradients.check, gradients.applies),
)
