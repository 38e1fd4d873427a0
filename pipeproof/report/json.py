"""The JSON report. Its keys are a contract: more may be added, none change.

``schema`` 1: ``verdict``, ``exit_status`` and ``targets``, each with ``file``,
``name``, ``verdict``, ``transport``, ``sizes``, ``checks``, ``findings``,
``transports``, ``metrics``; a target that could not be read has ``error``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from fractions import Fraction
from typing import Any

from pipeproof.program.costs import plain
from pipeproof.program.notation import Place
from pipeproof.report.outcome import exit_status, verdict_word
from pipeproof.verdict import CheckResult, Counterexample, Finding, Report


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "schema": 1,
        "verdict": verdict_word(reports),
        "exit_status": exit_status(reports),
        "targets": [_target(r) for r in reports],
    }


def render(reports: Sequence[Report]) -> str:
    """The report as text."""
    return json.dumps(document(reports), indent=1, ensure_ascii=True) + "\n"


def _target(report: Report) -> dict[str, Any]:
    if report.error is not None:
        return {
            "file": report.file,
            "name": report.name,
            "verdict": "error",
            "error": dict(report.error),
            "checks": [],
            "findings": [],
        }
    return {
        "file": report.file,
        "name": report.name,
        "verdict": report.status.word,
        "transport": dict(report.transport),
        "sizes": dict(report.sizes),
        "checks": [_check(c) for c in report.checks],
        "findings": [_finding(f) for f in report.findings],
        "transports": {row.name: row.status.word for row in report.transports},
        "capacities": {row.name: row.capacity for row in report.transports if row.capacity != -1},
        "metrics": dict(report.metrics),
        "notes": list(report.notes),
    }


def _check(result: CheckResult) -> dict[str, Any]:
    out: dict[str, Any] = {
        "check": result.check,
        "status": result.status.word,
        "scope": result.scope,
        "engine": result.engine,
        "seconds": round(result.seconds, 6),
        "summary": result.summary,
        "evidence": dict(result.evidence),
    }
    if result.reason is not None:
        out["reason"] = result.reason
    return out


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "verdict": finding.verdict.value,
        "message": finding.message,
        "count": finding.count,
        "where": [_place(p) for p in finding.where],
        "cause": finding.cause,
        "cures": list(finding.cures),
        "counterexample": _counterexample(finding.counterexample),
        "replayed": finding.replayed,
    }


def _place(place: Place) -> dict[str, Any]:
    out: dict[str, Any] = {
        "rank": place.rank,
        "lane": place.lane,
        "index": place.index,
        "op": place.op,
        "line": place.line,
        "column": place.column,
    }
    if place.path is not None:
        out["path"] = place.path
    return out


def _plain(value: Any) -> Any:
    """A claim's field as JSON has it; of a cost model, what is given."""
    if isinstance(value, dict):
        return {name: _plain(own) for name, own in value.items() if own is not None}
    if isinstance(value, tuple):
        return [_plain(own) for own in value]
    if isinstance(value, Enum):
        return value.value
    return plain(value) if isinstance(value, Fraction) else value


def _counterexample(example: Counterexample) -> dict[str, Any]:
    claim = example.claim
    values = {name: _plain(value) for name, value in asdict(claim).items()}
    if "kind" in values:  # a compute op's letter; the claim's own kind stands beside it
        values["letter"] = values.pop("kind")
    return {
        "claim": {"kind": type(claim).__name__.lower(), **values},
        "moves": list(example.moves),
        "cyclic": example.cyclic,
        "steps": [{"where": _place(s.where), "text": s.text} for s in example.steps],
    }
