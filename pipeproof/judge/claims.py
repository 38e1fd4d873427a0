"""Whether a schedule is what its definition claims, at the sizes of one report."""

from __future__ import annotations

import ast
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from pipeproof.engines.timing import timing
from pipeproof.errors import InputError
from pipeproof.program.costs import Costs, plain
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.recipes.issuing import issued
from pipeproof.spec.claims import BUBBLES, Claim, linear_form
from pipeproof.spec.definition import RANK, Definition, Sizes, evaluated, spelled
from pipeproof.verdict import (
    CheckResult,
    Counterexample,
    Finding,
    Measured,
    Report,
    Status,
    Verdict,
)

NAME = "claims"
ENGINE = "measuring"
TOLERANCE = 1e-9
"""Relative: times are sums of the costs as binary floating-point numbers."""

_NEEDS = ("coverage", "order", "matching", "race", "versions", "gradients")
"""The checks that together say which gradients are made."""

Judge = Callable[[str], Report]
"""The report of the same schedule on another transport, of its deadlock check only."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one claim."""

    claim: Claim
    status: Status
    text: str
    finding: Finding | None = None


def claims_result(
    definition: Definition,
    sizes: Sizes,
    schedule: Schedule | Program,
    report: Report,
    costs: Costs,
    judge: Judge,
) -> CheckResult:
    """The answer of the check ``claims`` for a definition at these sizes.

    ``report`` has the checks and metrics; ``judge`` asks for other transports.
    """
    begun = time.perf_counter()
    known = _known(sizes, costs)
    outcomes = [_outcome(c, known, schedule, report, costs, judge) for c in definition.claims]
    status = min((o.status for o in outcomes), default=Status.UNDETERMINED)
    bad = [o for o in outcomes if o.status is not Status.HOLDS]
    words = f"{len(outcomes)} claim{'s' if len(outcomes) != 1 else ''}"
    if bad:
        words = bad[0].text + (f" (and {len(bad) - 1} more)" if len(bad) > 1 else "")
    return CheckResult(
        check=NAME,
        status=status,
        scope=spelled(sizes),
        engine=ENGINE,
        summary=words,
        evidence={"claims": [{"claim": o.text, "status": o.status.word} for o in outcomes]},
        reason=words if status is Status.UNDETERMINED else None,
        findings=tuple(o.finding for o in outcomes if o.finding is not None),
        seconds=time.perf_counter() - begun,
    )


def _known(sizes: Sizes, costs: Costs) -> dict[str, Any]:
    return {**sizes, **_times(costs)}


def _times(costs: Costs) -> dict[str, Any]:
    """The names of times that a formula may take."""
    letters = {
        kind.name: plain(costs.of(kind)) for kind in (Kind.F, Kind.I, Kind.W, Kind.B, Kind.R)
    }
    return {**letters, "comm": plain(costs.delay(0))}


def _own_costs(claim: Claim, costs: Costs) -> Costs:
    """The cost model that a claim on time is about: times that its formula takes are
    those given, and what it does not name is as in its paper, F = I = W = 1 where it
    names no time, and messages that take none. Overlapped pairs take their sum."""
    taken = set(inspect.signature(claim.bound).parameters) if callable(claim.bound) else set()
    if taken.isdisjoint(_times(Costs())):
        return Costs()
    own = Costs(F=costs.F, I=costs.I, W=costs.W, B=costs.B, R=costs.R)
    if "comm" not in taken:
        return own
    return replace(
        own, comm=costs.comm, bandwidth=costs.bandwidth, message_bytes=costs.message_bytes
    )


def _outcome(
    claim: Claim,
    known: Mapping[str, Any],
    schedule: Schedule | Program,
    report: Report,
    costs: Costs,
    judge: Judge,
) -> _Outcome:
    if claim.figure == "deadlock_free":
        return _deadlock_free(claim, report, judge)
    if claim.figure == "same_gradients":
        return _same_gradients(claim, report)
    if claim.figure == "update_rule":
        return _update_rule(claim, report)
    return _bounded(claim, known, schedule, report, costs)


# --- properties ---------------------------------------------------------------


def _deadlock_free(claim: Claim, report: Report, judge: Judge) -> _Outcome:
    row = next((r for r in report.transports if r.name == claim.text), None)
    text = f"deadlock-free on {claim.text}"
    if row is not None and row.status is Status.HOLDS:
        return _Outcome(claim, Status.HOLDS, text)
    other = report if claim.text == report.transport["name"] else None
    if other is None and not (row is not None and row.name in ("blocking", "grouped")):
        other = judge(claim.text)
    if other is None:
        assert row is not None
        return _Outcome(claim, row.status, f"{text}: {row.status.word}")
    result = next(c for c in other.checks if c.check == "deadlock")
    if result.status is Status.HOLDS:
        return _Outcome(claim, Status.HOLDS, text)
    told = other is report  # the report has the finding already
    first = None if told or not result.findings else replace(result.findings[0], check=NAME)
    return _Outcome(claim, result.status, f"not {text}: {result.summary}", first)


def _same_gradients(claim: Claim, report: Report) -> _Outcome:
    text = "same gradients as the sequential step"
    by_name = {c.check: c.status for c in report.checks}
    absent = [n for n in _NEEDS[:4] if n not in by_name]
    if absent:
        return _Outcome(claim, Status.UNDETERMINED, f"{text}: {', '.join(absent)} was not asked")
    bad = [n for n in _NEEDS if by_name.get(n, Status.HOLDS) is not Status.HOLDS]
    if not bad:
        return _Outcome(claim, Status.HOLDS, text)
    return _Outcome(claim, min(by_name[n] for n in bad), f"not the {text}: see {', '.join(bad)}")


def _update_rule(claim: Claim, report: Report) -> _Outcome:
    found = _evidence(report).get("rule", "synchronous")
    if found.startswith(claim.text):
        return _Outcome(claim, Status.HOLDS, f"update rule: {found}")
    if any(c.check == "versions" and c.status is not Status.HOLDS for c in report.checks):
        return _Outcome(claim, Status.UNDETERMINED, f"update rule {claim.text}: see versions")
    text = f"the update rule is {found}; claimed is {claim.text}"
    measured = Measured("update_rule", text=claim.text)
    finding = Finding(NAME, Verdict.CLAIM, text, (), Counterexample(measured, (), ()))
    return _Outcome(claim, Status.VIOLATED, text, finding)


def _evidence(report: Report) -> Mapping[str, Any]:
    return next((c.evidence for c in report.checks if c.check == "versions"), {})


# --- figures ------------------------------------------------------------------


def _bounded(
    claim: Claim,
    known: Mapping[str, Any],
    schedule: Schedule | Program,
    report: Report,
    costs: Costs,
) -> _Outcome:
    timed = claim.figure in ("makespan", *BUBBLES)
    given, costs = costs, _own_costs(claim, costs) if timed else costs
    known = {**known, **_times(costs)}
    if costs == given:
        figures = list(_figures(claim, schedule, report))
    else:
        figures = list(_timed(claim, schedule, costs))
    relation = "=" if claim.equal else "at most"
    text = f"{claim.title} {relation} {formula(claim, known)}"
    if timed and not (costs.uniform and costs.uniform_delay):
        return _Outcome(
            claim, Status.UNDETERMINED, f"{text}: it is for stages that all take the same time"
        )
    if not figures:
        return _Outcome(claim, Status.UNDETERMINED, f"{text}: it could not be measured")
    for rank, found in figures:
        at = known if rank is None else {**known, RANK: rank}
        bound = claim.bound
        if callable(bound):
            bound = evaluated(bound, at)
        if isinstance(bound, bool) or not isinstance(bound, (int, float, Fraction)):
            raise InputError(f"the bound on {claim.title} is {bound!r}; expected a number")
        if not _breaks(found, bound, equal=claim.equal):
            continue
        on = "" if rank is None else f" on rank {rank}"
        message = f"{claim.title}{on}: found {_number(found)}, claimed {relation} {_number(bound)}"
        if callable(claim.bound) and formula(claim, at) != _number(bound):
            message += f" = {formula(claim, at)}"
        measured = Measured(claim.figure, float(found), float(bound), claim.equal, rank, costs)
        finding = Finding(
            NAME,
            Verdict.CLAIM,
            message,
            (),
            Counterexample(measured, (), ()),
            cause="Either the schedule is not what it is meant to be, or the claim is another's.",
        )
        return _Outcome(claim, Status.VIOLATED, message, finding)
    return _Outcome(claim, Status.HOLDS, text)


def _timed(
    claim: Claim, schedule: Schedule | Program, costs: Costs
) -> Iterator[tuple[None, float]]:
    """The time or bubble of a claim, under a cost model of its own."""
    found = timing(issued(schedule), costs)
    if found is None:
        return
    if claim.figure == "makespan":
        yield None, float(found.makespan)
    elif found.bubble:
        yield None, found.bubble[claim.figure]


def _figures(
    claim: Claim, schedule: Schedule | Program, report: Report
) -> Iterator[tuple[int | None, float]]:
    """(rank or None, value) of what a claim is about."""
    metrics = report.metrics
    if claim.figure == "makespan" and metrics.get("makespan") is not None:
        yield None, metrics["makespan"]
    elif claim.figure in BUBBLES and metrics.get("bubble"):
        yield None, metrics["bubble"][claim.figure]
    elif claim.figure == "messages":
        yield None, metrics["messages"]
    elif claim.figure == "peak_activations" and metrics.get("peak_memory"):
        yield from ((int(rank), peak) for rank, peak in metrics["peak_memory"].items())
    elif claim.figure == "peak_bytes" and metrics.get("peak_bytes"):
        yield from ((int(rank), peak) for rank, peak in metrics["peak_bytes"].items())
    elif claim.figure in ("staleness", "weight_versions"):
        key, none = ("staleness", 0) if claim.figure == "staleness" else ("versions_kept", 1)
        by_stage = _evidence(report).get(key, {})
        for rank in range(schedule.ranks):
            own = [s for s, hosts in enumerate(schedule.hosts) if rank in hosts]
            yield rank, max((by_stage.get(str(s), none) for s in own), default=none)


def _breaks(found: float, bound: Any, *, equal: bool) -> bool:
    room = TOLERANCE * max(1.0, abs(float(bound)))
    over = float(found) - float(bound)
    return over > room or (equal and over < -room)


def formula(claim: Claim, known: Mapping[str, Any]) -> str:
    """The bound as text: its linear form where it has one, otherwise its value."""
    if not callable(claim.bound):
        return _number(claim.bound)
    return _linear(claim.bound) or _number(evaluated(claim.bound, {RANK: 0, **known}))


def claim_text(claim: Claim) -> str:
    """A claim for any sizes: its bound as a linear form, or as it is written."""
    if claim.bound is None:
        return f"{claim.title}".replace("deadlock free", "deadlock-free on")
    bound = _number(claim.bound)
    if callable(claim.bound):
        bound = _linear(claim.bound) or _written(claim.bound)
    return f"{claim.title} {'=' if claim.equal else 'at most'} {bound}"


def _linear(bound: Callable[..., Any]) -> str | None:
    form = linear_form(bound)
    return None if form is None else str(form)


def _written(bound: Callable[..., Any]) -> str:
    """The expression of a lambda in its file, where it can be told."""
    try:
        tree = ast.parse(f"({inspect.getsource(bound).strip()})")
    except (OSError, TypeError, SyntaxError):
        return "a formula"
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    return ast.unparse(found[0].body) if len(found) == 1 else "a formula"


def _number(value: Any) -> str:
    if isinstance(value, Fraction):
        return str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
