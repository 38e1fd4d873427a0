"""The outcome of several targets together: one word and one exit status."""

from __future__ import annotations

from collections.abc import Sequence

from pipeproof.verdict import Report, Status

HOLDS, VIOLATED, BAD_INPUT, UNDETERMINED, INTERNAL, NOTHING, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
"""Exit statuses; of several the worst counts, in the order 4, 2, 1, 3, 0."""


def exit_status(reports: Sequence[Report]) -> int:
    """What the process answers with. A target that no check applies to passes nothing."""
    if not any(r.checks or r.error is not None for r in reports):
        return NOTHING
    if any(r.error is not None and r.error.get("internal") for r in reports):
        return INTERNAL
    if any(r.error is not None for r in reports):
        return BAD_INPUT
    worst = min(r.status for r in reports)
    return {Status.VIOLATED: VIOLATED, Status.UNDETERMINED: UNDETERMINED, Status.HOLDS: HOLDS}[
        worst
    ]


def verdict_word(reports: Sequence[Report]) -> str:
    """The worst verdict; nothing is determined of what could not be read."""
    known = [Status.UNDETERMINED if r.error is not None else r.status for r in reports]
    return min(known, default=Status.UNDETERMINED).word
