"""versions: every op reads the weight version that it should.

A backward must meet the weights that its forward used, whatever was stepped in
between: either nothing is (a synchronous step), or the forward's version is
kept for it (stashing). An op may also name the version that it needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from pipeproof.checks.apart import forward_uses, left_to_chance
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import SCOPE, finding, result, spell
from pipeproof.checks.weights import Change, History, Read, history, weight_uses
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import OBSERVED, Program
from pipeproof.verdict import (
    CheckResult,
    Finding,
    NoVersion,
    ReadsVersion,
    Status,
    Verdict,
)

NAME = "versions"
TITLE = "every op reads the weight version that it should"
ENGINE = "weight versions"


def applies(subject: Subject) -> bool:
    """Whether the program demands anything of weight versions."""
    program = subject.program
    if program.details.versions == OBSERVED:
        return True
    if program.details.versions is not None:
        kinds = np.unique(program.kind)
        if np.isin(kinds, (Kind.B, Kind.I, Kind.W, Kind.R)).any() and Kind.F in kinds:
            return True
    if (program.kind == Kind.ROLLBACK).any():
        return True
    return any(a.more.get("uses") or "wv" in a.more for a in program.details.attributes.values())


def check(subject: Subject) -> CheckResult:
    """Follow the versions of all weights and compare what is read with what should be."""
    program = subject.program
    chance = left_to_chance(subject, chain(weight_uses(program), forward_uses(program)))
    if chance is not None:
        return _open(chance)
    sequence = subject.sequence
    tale = history(program, sequence)
    pairs = _pairs(program, tale)
    demanded = pairs if program.details.versions == "fb-equal" else []
    found = [
        *_absent(subject, tale),
        *_unequal(subject, tale, demanded),
        *_unmet(subject, tale),
    ]
    ended = len(sequence) == 2 * program.ops
    named = sum(op.more.get("wv") is not None for op in program.details.attributes.values())
    returns = int((program.kind == Kind.ROLLBACK).sum())
    compared = len(demanded) + len(tale.demands) + named + returns
    watched = program.details.versions == OBSERVED
    if not found and (not ended or not (compared or watched)):
        reason = "the program gets stuck; what stands behind that was not compared"
        if ended:
            reason = "no backward has its forward on its rank, so there is nothing to compare"
        return _open(reason)
    rule = _rule(program, tale, pairs)
    parts = []
    if demanded:
        parts.append(f"{len(demanded)} ops read the version of their forward")
    if tale.demands:
        parts.append(f"{len(tale.demands)} demands for a version are met")
    if not parts and named + returns:
        parts.append("every version that is named has been made")
    if watched:
        parts.append("nothing is demanded of the versions")
    parts.append(f"update rule: {rule['rule']}")
    return result(
        subject,
        NAME,
        found,
        "; ".join(parts),
        evidence={
            "like_their_forward": len(demanded),
            "demands": len(tale.demands),
            "named": named + returns,
            **rule,
        },
        engine=ENGINE,
    )


def _open(reason: str) -> CheckResult:
    return CheckResult(
        check=NAME,
        status=Status.UNDETERMINED,
        scope=SCOPE,
        engine=ENGINE,
        summary=reason,
        reason=reason,
    )


def _pairs(program: Program, tale: History) -> list[tuple[Read, Read]]:
    """(the read of an op that builds on a forward, the read of that forward)."""
    kinds: list[int] = program.kind.tolist()
    stages: list[int] = program.stage.tolist()
    microbatches: list[int] = program.microbatch.tolist()
    forwards: dict[tuple[int, int, int], Read] = {}
    pairs = []
    for read in tale.reads:
        op = read.op
        key = read.rank, stages[op], microbatches[op]
        if kinds[op] == Kind.F:
            forwards[key] = read
        elif key in forwards:
            pairs.append((read, forwards[key]))
    return pairs


# --- the update rule ----------------------------------------------------------


@dataclass(slots=True)
class _Stage:
    """What the microbatches of a stage have seen."""

    agrees: bool = True
    older: bool = False  # a forward used another version than the one current then
    staleness: int = 0
    kept: int = 1
    ranks: set[int] = field(default_factory=set)


def _rule(program: Program, tale: History, pairs: list[tuple[Read, Read]]) -> dict[str, Any]:
    """The update rule found: its name, staleness and versions kept of each stage.

    The staleness of a microbatch is how many updates of its stage lie between
    the version that its forward used and the update that its backward is for.
    """
    stages: dict[int, _Stage] = defaultdict(_Stage)
    stage_of: list[int] = program.stage.tolist()
    for read, forward in pairs:
        stage = stages[stage_of[read.op]]
        stage.agrees &= read.version == forward.version
        stage.older |= forward.depth < forward.now
        stage.staleness = max(stage.staleness, read.now - forward.depth)
        stage.ranks.add(read.rank)
    for number, stage in stages.items():
        weights = [tale.weights[rank, f"w{number}"] for rank in stage.ranks]
        stage.kept = max(weight.kept(tale.end + 1) for weight in weights)
    ordered = sorted(stages.items())
    return {
        "rule": _rule_name(tale, ordered),
        "staleness": {str(n): stage.staleness for n, stage in ordered},
        "versions_kept": {str(n): stage.kept for n, stage in ordered},
    }


def _rule_name(tale: History, stages: list[tuple[int, _Stage]]) -> str:
    if not stages:
        return "no microbatch is complete"
    if not all(stage.agrees for _, stage in stages):
        return "inconsistent"
    if not any(tale.changes.values()):
        return "no update"
    stale = [stage.staleness for _, stage in stages]
    if not any(stale):
        return "synchronous"
    older = any(stage.older for _, stage in stages)
    if len(set(stale)) == 1 and (older or len(stale) > 1):
        return f"delayed by {stale[0]} on every stage"
    if len(stale) == 1:
        return f"stashed, staleness {stale[0]} on every stage"
    if len(stale) <= 8:
        return f"stashed, staleness {spell(stale)} on stages {spell(n for n, _ in stages)}"
    return f"stashed, staleness {min(stale)} to {max(stale)}"


# --- findings -----------------------------------------------------------------


def _absent(subject: Subject, tale: History) -> Iterator[Finding]:
    """Versions that are named and have never been made."""
    if not tale.absent:
        return
    program = subject.program
    op, parameter, version = tale.absent[0]
    does = "rolls back to" if program.kind[op] == Kind.ROLLBACK else "uses"
    yield finding(
        subject,
        NAME,
        Verdict.VERSION,
        f"rank {subject.rank[op]} at {op_text(program, op)} {does} version {version} of "
        f"{parameter}, which has not been made there",
        op,
        NoVersion(op, parameter, version),
        cause="Versions count from 0 on every rank, and each STEP makes the next.",
        count=len(tale.absent),
        where=[change.op for change in tale.absent[:4]],
    )


def _unequal(subject: Subject, tale: History, pairs: list[tuple[Read, Read]]) -> Iterator[Finding]:
    """Ops that read another version than the forward they build on."""
    program = subject.program
    absent = {change.op for change in tale.absent}
    wrong = [(r, f) for r, f in pairs if r.version != f.version and r.op not in absent]
    if not wrong:
        return
    read, forward = wrong[0]
    rank, parameter = read.rank, read.parameter
    op, first = op_text(program, read.op), op_text(program, forward.op)
    between = _between(tale, forward, read)
    cures: tuple[str, ...]
    back = [c for c in between if program.kind[c.op] == Kind.ROLLBACK]
    if back:
        cause = (
            f"{op_text(program, back[0].op)} takes back the version that {first} used, and the "
            "forward is not run again."
        )
        cures = (f"Run {first} again (redo) on the version that {op} uses.",)
    elif between:
        cause = (
            f"{op_text(program, between[0].op)} updates {parameter} while microbatch "
            f"{program.microbatch[read.op]} is between its forward and its backward, and no "
            "copy of the older weights is kept for it."
        )
        cures = (
            f"Keep version {forward.version} until {op} has used it (wv: {forward.version}).",
            "Or update only when no microbatch is under way.",
        )
    else:
        cause, cures = "The two name different versions (wv).", ("Name one version in both.",)
    yield finding(
        subject,
        NAME,
        Verdict.VERSION,
        f"rank {rank} runs {op} on version {read.version} of {parameter}; its forward {first} "
        f"used version {forward.version}",
        read.op,
        ReadsVersion(read.op, parameter, read.version, forward.version),
        cause=cause,
        cures=cures,
        count=len(wrong),
        where=[read.op, forward.op, *(c.op for c in between[:2])],
        steps=[
            (forward.op, f"{first} uses version {forward.version} of {parameter}"),
            *((c.op, f"{op_text(program, c.op)} sets version {c.version}") for c in between[-4:]),
            (read.op, f"{op} uses version {read.version}"),
        ],
    )


def _between(tale: History, forward: Read, read: Read) -> list[Change]:
    changes = tale.changes.get((read.rank, read.parameter), [])
    return changes[forward.changes : read.changes]


def _unmet(subject: Subject, tale: History) -> Iterator[Finding]:
    """Demands (``uses``) for another version than the current one."""
    program = subject.program
    wrong = [read for read in tale.demands if read.version != read.wanted]
    if not wrong:
        return
    read = wrong[0]
    assert read.wanted is not None
    op, rank = read.op, read.rank
    changes = tale.changes.get((rank, read.parameter), [])
    before = changes[read.changes - 1] if read.changes else None
    later = next((c for c in changes[read.changes :] if c.version == read.wanted), None)
    cause = f"Nothing on rank {rank} makes version {read.wanted}."
    cures: tuple[str, ...] = ()
    if later is not None:
        cause = f"Version {read.wanted} is there only after {op_text(program, later.op)}."
        cures = (f"Run {op_text(program, op)} after it.",)
    elif before is not None and read.wanted < read.version:
        cause = f"{op_text(program, before.op)} has replaced it with version {read.version}."
        cures = (f"Run {op_text(program, op)} before it, or keep version {read.wanted}.",)
    yield finding(
        subject,
        NAME,
        Verdict.VERSION,
        f"rank {rank} runs {op_text(program, op)} on version {read.version} of "
        f"{read.parameter}; it needs version {read.wanted}",
        op,
        ReadsVersion(op, read.parameter, read.version, read.wanted),
        cause=cause,
        cures=cures,
        count=len(wrong),
        where=[op, *(c.op for c in (later, before) if c is not None)],
    )
