"""PipeDream's weight versions, recorded from its code (JSON).

Which version of its stage's weights the forward and the backward of every
minibatch used. A file holds several configurations, and each is a program:

``CONFIGURATION_sSTAGE``: ``fwd`` and ``bwd`` map minibatches to versions,
``order`` lists ``[F or B, minibatch, version]`` as the stage ran them, and
``num_versions`` is how many versions its code keeps. When the weights were
updated is not recorded: each update stands right after the last backward
before the first op that uses the new version.

``pP_mM_rSTAGE`` (2BW): ``F`` and ``B`` map minibatches to versions. The order
is not recorded: it is 1F1B, at most M forwards ahead, and the weights are
updated after every M-th backward.

Every op names its version (``wv``), and the demand is that a backward uses the
version of its forward. Messages are not recorded either; see ``side_by_side``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pipeproof.formats.json_text import parse_json
from pipeproof.formats.json_values import (
    child,
    entries,
    integer,
    items,
    quoted,
    refusal,
    shown,
    word,
    wrong,
)
from pipeproof.formats.recordings import entry, record
from pipeproof.formats.side_by_side import Compute, SideBySide
from pipeproof.program.ops import MAX_ID, Kind
from pipeproof.program.programs import Attributes, Program

_STASHING = re.compile(r"(?P<name>.{1,64})_s(?P<stage>0|[1-9][0-9]{0,5})")
_DOUBLE = re.compile(
    r"(?P<name>p[0-9]{1,6}_m(?P<m>[1-9][0-9]{0,8}))_r(?P<stage>0|[1-9][0-9]{0,5})"
)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_STAGE = ("num_versions", "fwd", "bwd", "order")
_LETTERS = {"F": Kind.F, "B": Kind.B}
_A_KEY = 'a stage of a configuration, such as "macroFalse_p4_s0" or "p4_m8_r0"'

_NO_MESSAGES = (
    "No messages are recorded: each is put beside the ops it joins, and neighbours are posted "
    "together (the grouped recipe)."
)
_ORDERED = (
    "When weights were updated is not recorded: each update stands after the last backward "
    "before the new version's first use."
)
_UNORDERED = (
    "The order of the ops is not recorded: it is taken to be 1F1B, with an update after the "
    "last backward of every batch."
)


@dataclass(frozen=True, slots=True)
class _Op:
    kind: Kind
    minibatch: int
    version: int
    path: str


@dataclass(slots=True)
class _Stage:
    """The ops of a stage in order; ``kept`` is how many versions its code says it
    keeps, ``batch`` how many minibatches an update takes, where they are stated."""

    ops: list[_Op]
    kept: int | None = None
    batch: int | None = None


def read_pipedream(text: str, name: str) -> list[Program]:
    """Read a recording, a program a configuration, named ``NAME [CONFIGURATION]``.

    InputError has the JSON path of what is wrong.
    """
    found = parse_json(text)
    if not isinstance(found, dict) or not found:
        raise refusal("", f"found {shown(found)}, expected {_A_KEY}, or several")
    stages: dict[str, dict[int, str]] = {}
    for key in found:
        match = _DOUBLE.fullmatch(key) or _STASHING.fullmatch(key)
        if match is None:
            raise refusal(child("", key), f"found the key {quoted(key)}, expected {_A_KEY}")
        stages.setdefault(match["name"], {})[int(match["stage"])] = key
    return [_program(found, listed, name, part) for part, listed in stages.items()]


def _program(found: dict[str, Any], keys: dict[int, str], name: str, part: str) -> Program:
    """The program of one configuration; ``keys`` are those of its stages."""
    count = len(keys)
    missing = next((number for number in range(count) if number not in keys), None)
    if missing is not None:
        raise refusal(
            child("", next(iter(keys.values()))),
            f"found {count} of the stages of {part}, but not stage {missing}; expected stages "
            f"0 to {max(keys)}",
            "the recording may have been cut off",
        )
    stages = [_stage(found, keys[number], number, count) for number in range(count)]
    computes: list[Compute] = [
        (op.kind, number, op.minibatch) for number, stage in enumerate(stages) for op in stage.ops
    ]
    made = SideBySide(count, lambda number, _: number, computes)
    for number, stage in enumerate(stages):
        made.lane(number)
        step = Attributes(label=f"w{number}")
        for op, updates in zip(stage.ops, _updates(stage), strict=True):
            attributes = Attributes(more=MappingProxyType({"wv": op.version}))
            made.compute((op.kind, number, op.minibatch), op.path, attributes)
            for _ in range(updates):
                made.other(Kind.STEP, op.path, step)
    return made.program(
        f"{name} [{part}]",
        microbatches=1 + max((minibatch for _, _, minibatch in computes), default=-1),
        hosts=tuple((number,) for number in range(count)),
        details={"versions": "fb-equal"},
        notes=tuple(_notes(stages)),
    )


def _notes(stages: Sequence[_Stage]) -> Iterator[str]:
    kept = [stage.kept for stage in stages if stage.kept is not None]
    if kept:
        listed = ", ".join(map(str, kept))
        yield f"Versions of the weights that its code keeps, stage by stage: {listed}."
    yield _UNORDERED if stages[0].batch is not None else _ORDERED
    yield _NO_MESSAGES


def _updates(stage: _Stage) -> list[int]:
    """How many updates follow each op of a stage."""
    following = [0] * len(stage.ops)
    version, done, latest = 0, 0, -1
    for i, op in enumerate(stage.ops):
        if stage.batch is None:
            if op.version > version and latest >= 0:
                following[latest] += op.version - version
                version = op.version
            latest = i if op.kind is Kind.B else latest
        elif op.kind is Kind.B:
            done += 1
            following[i] = int(done % stage.batch == 0)
    return following


# --- stages --------------------------------------------------------------------


def _stage(found: dict[str, Any], key: str, number: int, count: int) -> _Stage:
    path = child("", key)
    double = _DOUBLE.fullmatch(key)
    if double is None:
        return _recorded(record(found[key], path, _STAGE, "a stage"), path)
    stated = record(found[key], path, tuple(_LETTERS), "a stage")
    forward, backward = (_versions(stated, letter, path) for letter in _LETTERS)
    batch = int(double["m"])
    # A forward may use the version that the batch before the last one made, so
    # no more than a batch runs ahead.
    ahead = min(count - 1 - number, batch)
    order = _one_forward_one_backward(list(forward), list(backward), ahead)
    versions = {Kind.F: forward, Kind.B: backward}
    ops = [
        _Op(kind, mb, versions[kind][mb], entry(path, kind.name, str(mb))) for kind, mb in order
    ]
    return _Stage(ops, batch=batch)


def _one_forward_one_backward(
    forwards: list[int], backwards: list[int], ahead: int
) -> Iterator[tuple[Kind, int]]:
    """The order of 1F1B: ``ahead`` forwards first, then a forward and a backward in turn."""
    for i in range(max(len(forwards), len(backwards) + ahead)):
        if i < len(forwards):
            yield Kind.F, forwards[i]
        if 0 <= i - ahead < len(backwards):
            yield Kind.B, backwards[i - ahead]


def _recorded(stated: dict[str, Any], path: str) -> _Stage:
    kept = integer(stated, "num_versions", path, "a number of versions, 1 or more", 1)
    used = {Kind.F: _versions(stated, "fwd", path), Kind.B: _versions(stated, "bwd", path)}
    listed, where = items(stated, "order", path, "a list of ops"), child(path, "order")
    ops: list[_Op] = []
    for i in range(len(listed)):
        at = child(where, i)
        op = items(listed, i, where, "an op [F or B, minibatch, version]")
        if len(op) != 3:
            raise wrong(listed, i, where, "an op [F or B, minibatch, version]")
        kind = _LETTERS[word(op, 0, at, tuple(_LETTERS))]
        minibatch = integer(op, 1, at, "a minibatch, a whole number from 0", 0, MAX_ID)
        version = _version(op, 2, at)
        if used[kind].get(minibatch) != version:
            table = "fwd" if kind is Kind.F else "bwd"
            said = used[kind].get(minibatch, "none")
            raise wrong(op, 2, at, f"the version that {table} states, {said}")
        ops.append(_Op(kind, minibatch, version, at))
    run = {(op.kind, op.minibatch) for op in ops}
    for kind, minibatches in used.items():
        for minibatch in minibatches:
            if (kind, minibatch) not in run:
                message = f"found no {kind.name} of minibatch {minibatch}, expected one"
                raise refusal(where, message, "fwd and bwd name every op of the order")
    return _Stage(ops, kept=kept)


def _versions(stated: dict[str, Any], key: str, path: str) -> dict[int, int]:
    """Minibatch -> version, in the order of minibatches."""
    found = entries(stated, key, path, 'an object such as {"0": 0}')
    where = child(path, key)
    versions = {}
    for name in found:
        if not _NUMBER.fullmatch(name):
            raise refusal(child(where, name), f"found {quoted(name)}, expected a minibatch")
        versions[int(name)] = _version(found, name, where)
    return dict(sorted(versions.items()))


def _version(holder: Any, key: Any, path: str) -> int:
    return integer(holder, key, path, "a version, a whole number from 0", 0, MAX_ID)
