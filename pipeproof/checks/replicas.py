"""Replicas: ranks that hold the same parameter and must update it alike.

The history of a parameter on a rank is what its updates were, in order: the
form of every STEP with the rule that applied it (``opt``), and every ROLLBACK.
Replicas that start equal stay equal exactly if their histories are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pipeproof.checks.accumulators import Reading, Unknown, Value, storages
from pipeproof.checks.linear import told
from pipeproof.checks.rounds import Event
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.verdict import Diverged, Finding, Verdict


class Update(NamedTuple):
    """One change of a parameter: by a form and a rule, or back to a version."""

    op: int
    value: Value | int
    rule: str | None


class Split(NamedTuple):
    """Two ranks part: ``number`` is the first update (from 1) in which they differ."""

    name: str
    ranks: tuple[int, int]
    number: int
    updates: tuple[Update | None, Update | None]

    @property
    def kind(self) -> str:
        """In what they differ: ``number`` of updates, ``form`` or ``rule``."""
        one, other = self.updates
        if one is None or other is None:
            return "number"
        return "form" if one.value != other.value else "rule"


class Replicas(NamedTuple):
    """Which parameters agree on all their ranks, where others part, and what is open."""

    agreeing: Mapping[str, tuple[int, ...]]
    splits: tuple[Split, ...]
    gaps: tuple[str, ...]


def replicas(
    program: Program, read: Sequence[Reading], sequence: Sequence[Event], ended: bool
) -> Replicas:
    """Compare the histories; where the program gets stuck, as far as they go."""
    agreeing: dict[str, tuple[int, ...]] = {}
    splits: list[Split] = []
    gaps: list[str] = []
    if not program.details.replicas:
        return Replicas(agreeing, (), ())
    storage = storages(program.details.alias)
    histories = _histories(program, read, sequence, storage)
    for name, ranks in program.details.replicas.items():
        own = [histories.get((rank, storage.get(name, name)), []) for rank in ranks]
        unknown = next((u.value.why for h in own for u in h if isinstance(u.value, Unknown)), None)
        if unknown is not None:
            gaps.append(f"the updates of {name} are open: {unknown}")
            continue
        if ended and not any(own):
            gaps.append(f"{name} is to agree on its replicas, but is never updated")
            continue
        parted = [
            split
            for rank, history in zip(ranks[1:], own[1:], strict=True)
            if (split := _split(name, (ranks[0], rank), own[0], history, ended))
        ]
        splits += parted[:1]
        if not parted:
            agreeing[name] = ranks
    return Replicas(agreeing, tuple(splits), tuple(gaps))


def _histories(
    program: Program,
    read: Sequence[Reading],
    sequence: Sequence[Event],
    storage: Mapping[str, str],
) -> dict[tuple[int, str], list[Update]]:
    attributes = program.details.attributes
    updates = [
        (r.rank, r.name, Update(r.op, r.value, attributes[r.op].more.get("opt")))
        for r in read
        if program.kind[r.op] == Kind.STEP
    ]
    if (program.kind == Kind.ROLLBACK).any():
        for op, completed in sequence:
            if completed and program.kind[op] == Kind.ROLLBACK:
                own = attributes[op]
                update = Update(op, int(own.more["version"]), None)
                updates.append((program.rank_of(op), str(own.label), update))
        updates.sort(key=lambda entry: entry[2].op)
    histories: dict[tuple[int, str], list[Update]] = {}
    for rank, name, update in updates:
        histories.setdefault((rank, storage.get(name, name)), []).append(update)
    return histories


def _split(
    name: str, ranks: tuple[int, int], one: list[Update], other: list[Update], ended: bool
) -> Split | None:
    for number, pair in enumerate(zip(one, other, strict=False), 1):
        if pair[0][1:] != pair[1][1:]:
            return Split(name, ranks, number, pair)
    if len(one) == len(other) or not ended:
        return None
    number = min(len(one), len(other))
    left = one[number] if number < len(one) else None
    right = other[number] if number < len(other) else None
    return Split(name, ranks, number + 1, (left, right))


# --- telling ------------------------------------------------------------------


def diverged(subject: Subject, check: str, copies: Replicas) -> Iterator[Finding]:
    """The findings: one for all parameters whose replicas part in the same way."""
    alike: dict[str, list[Split]] = {}
    for split in copies.splits:
        alike.setdefault(split.kind, []).append(split)
    for kind, splits in alike.items():
        split = splits[0]
        name, (one, other) = split.name, split.ranks
        ops = [u.op for u in split.updates if u is not None]
        yield finding(
            subject,
            check,
            Verdict.NUMERIC,
            f"the replicas of {name} on ranks {one} and {other} part at update {split.number}: "
            f"{_told(split.updates[0], one, kind)}, {_told(split.updates[1], other, kind)}",
            ops[0],
            Diverged(name, split.ranks),
            cause=_CAUSES[kind],
            cures=(_CURES[kind].format(name=name, one=one, other=other),),
            count=len(splits),
            where=ops,
        )


def _told(update: Update | None, rank: int, kind: str) -> str:
    if update is None:
        return f"rank {rank} makes none"
    if isinstance(update.value, int):
        return f"rank {rank} goes back to version {update.value}"
    if kind == "rule":
        rule = f"by {update.rule}" if update.rule else "by a rule that is not named"
        return f"rank {rank} steps {rule}"
    assert not isinstance(update.value, Unknown)
    return f"rank {rank} steps on {told(update.value)}"


_CAUSES = {
    "rule": "The gradients agree and the optimizers do not: what chooses the optimizer, a tag "
    "or a name, is set on one replica only.",
    "form": "The replicas step on gradients that were not reduced with each other, or not "
    "completely.",
    "number": "A rank steps more often than its replica: it skips a step alone, or steps twice.",
}
_CURES = {
    "rule": "Give {name} the same optimizer on ranks {one} and {other}.",
    "form": "All-reduce {name} over its replicas before it is stepped.",
    "number": "Let all replicas of {name} decide together whether they step.",
}
