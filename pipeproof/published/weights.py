"""Claims on schedules without a flush: which weight versions they use and keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pipeproof.program.programs import Program
from pipeproof.published.figures import Case, Figure, Outcome, compared, spelled
from pipeproof.published.zoo import check, made
from pipeproof.recipes.issuing import issued
from pipeproof.schedules.table import find
from pipeproof.spec.running import run
from pipeproof.verdict import Status

_UPDATES = 3
"""Updates of a run that is long enough for the first delayed one to be past."""


def _by_stage(evidence: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """Figures of the versions check, none where it is violated."""
    found = evidence.get(name, {})
    return tuple(found[stage] for stage in sorted(found, key=int))


def pipedream(case: Case) -> Iterator[Figure]:
    """Versions kept and staleness of each stage. Forward and backward agree where the
    versions check holds; stages do not, where their staleness differs."""
    p = case["p"]
    m = _UPDATES * p
    result = check(issued(made("pipedream", p=p, m=m)), "versions")
    evidence = result.evidence
    label = spelled({"p": p, "m": m})
    versions, stale = _by_stage(evidence, "versions_kept"), _by_stage(evidence, "staleness")
    yield compared(label, "versions, by stage", case["versions"], versions)
    yield compared(label, "staleness, by stage", case["staleness"], stale)
    agree = result.status is Status.HOLDS and evidence["like_their_forward"] == p * m
    yield compared(label, "F and B agree", True, agree)
    yield compared(label, "vertical sync", False, len(set(stale)) == 1)


def pipedream_2bw(case: Case) -> Iterator[Figure]:
    """Versions kept and the delay, with m microbatches an update; and how few of them
    are enough for two versions in this order."""
    p, a = case["p"], case["m"]
    result = check(_of_batches(p, a), "versions")
    evidence = result.evidence
    label = spelled(case)
    versions, stale = _by_stage(evidence, "versions_kept"), _by_stage(evidence, "staleness")
    yield compared(label, "versions, by stage", case["versions"], versions)
    yield compared(label, "delay, by stage", [1] * p, stale)
    rule = str(evidence.get("rule")).startswith("delayed by 1")
    yield compared(label, "W(t+1) = W(t) - lr grad(W(t-1))", True, rule)
    yield compared(label, "runs with m = p", True, result.status is Status.HOLDS)
    least = min(
        own
        for own in range(1, p + 1)
        if check(_of_batches(p, own), "versions").status is Status.HOLDS
    )
    note = (
        "m of p or more is enough, as published. In the order of 1F1B one less is enough too: "
        "the backward that completes an update stands right before the first forward that "
        "needs it. With fewer, a forward asks for a version that is not made yet."
    )
    if least < p:
        yield Figure(f"p={p}", "least m that works", p, least, Outcome.FINDING, note)


def _of_batches(p: int, a: int) -> Program:
    """2BW with ``a`` microbatches an update, which may be fewer than the paper asks for."""
    definition = replace(find("pipedream-2bw"), valid=None)
    m = a * -(-_UPDATES * p // a)  # whole updates
    return issued(run(definition, {"p": p, "m": m, "v": 1, "a": a}))
