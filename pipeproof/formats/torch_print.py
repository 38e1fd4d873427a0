"""A Program as a torch action CSV, and what of it no such CSV can say.

A CSV lists compute, sharding, and the activations and gradients that go between
neighbouring stages: a row a rank, every stage on one rank. All of that is kept,
in order. How messages are issued (groups, requests, waits), and everything
else, is left out and named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pipeproof.errors import InputError
from pipeproof.formats.torch_schedule import print_schedule, read_schedule
from pipeproof.program.ops import SHARDING, Kind, is_gradient, stage_and_microbatch
from pipeproof.program.programs import Attributes, Details, Program, Traits
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import PRESETS, Transport

_SHARDING = re.compile(rf"([0-9]{{1,10}})({'|'.join(kind.name for kind in SHARDING)})")
_HELD = ("held", "resources", "budget", "leak_check", "may_remain", "layers", "n_layers")
_DEMANDS = ("groups", "want", "replicas", "want_effects", "versions", "alias")

_MESSAGES = (Kind.SEND, Kind.RECV, Kind.GROUP)


class _Action(NamedTuple):
    kind: Kind
    stage: int
    microbatch: int
    backward: bool = False


def print_torch(program: Program) -> tuple[str, list[str]]:
    """The CSV of a program, and what it leaves out, a line each.

    InputError where no CSV can hold what is left of it.
    """
    printer = _Printer(program)
    rows = printer.rows()
    for rank, row in enumerate(rows):
        if not row:
            raise InputError(
                f"rank {rank} has no op that torch-csv can hold; expected one on every rank",
                cause="A row without actions is no rank there, so the next would take its place.",
            )
    text = print_schedule(_schedule(program, rows, printer.host))
    try:
        again = read_schedule(text, program.name)
    except InputError as error:
        raise InputError(
            f"no torch-csv can hold this program: {error.message}", cause=error.cause
        ) from None
    left_out = [*printer.left_out(), *_undeclared(program)]
    if again.microbatches != program.microbatches:
        left_out.append(
            f"its number of microbatches: say --microbatches {program.microbatches}, or it is "
            f"taken to be {again.microbatches}"
        )
    return text, left_out


def _schedule(program: Program, rows: list[list[_Action]], host: dict[int, int]) -> Schedule:
    flat = [action for row in rows for action in row]
    kind, stage, microbatch, backward = zip(*flat, strict=True)
    first = [0]
    for row in rows:
        first.append(first[-1] + len(row))
    nowhere = np.zeros(len(flat), np.int32)  # in cells of their own: nothing overlaps
    stages = max(host) + 1
    return Schedule(
        name=program.name,
        ranks=len(rows),
        stages=stages,
        microbatches=program.microbatches,
        kind=np.array(kind, np.uint8),
        stage=np.array(stage, np.int32),
        microbatch=np.array(microbatch, np.int32),
        backward=np.array(backward, np.bool_),
        line=nowhere,
        column=nowhere,
        first=tuple(first),
        host=np.array([host.get(s, -1) for s in range(stages)], np.int32),
        lists_communication=any(action.kind in _MESSAGES for action in flat),
    )


class _Printer:
    """Takes the ops of a program one by one, and counts what it cannot say."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lost: Counter[str] = Counter()
        for one, other in pairwise(program.lanes):
            if one.rank == other.rank:
                raise InputError(
                    f"rank {one.rank} has several lanes ({one.name} and {other.name}); expected "
                    "one lane a rank, which is all that torch-csv can hold",
                    cause="Ops of different lanes run at the same time; a row is one after the "
                    "other.",
                )
        self.host: dict[int, int] = {}
        self._settle()
        m = program.messages
        self.ends = list(
            zip(
                m.send.tolist(),
                m.rank.tolist(),
                m.peer.tolist(),
                m.payload.tolist(),
                strict=True,
            )
        )

    def _settle(self) -> None:
        """Where each stage lives: on the only rank that computes it."""
        program = self.program
        for lane in program.lanes:
            for op in range(lane.first, lane.stop):
                if program.kind[op] > Kind.W:
                    continue
                stage = int(program.stage[op])
                rank = self.host.setdefault(stage, lane.rank)
                if rank != lane.rank:
                    raise InputError(
                        f"stage {stage} computes on ranks {rank} and {lane.rank}; expected every "
                        "stage on one rank, which is all that torch-csv can hold",
                        cause="There a stage lives on the rank in whose row it appears.",
                    )
        if not self.host:
            raise InputError(
                "found no F, B, I or W; expected some, as torch-csv is a schedule of them",
                cause="What is left is communication without compute, which torch does not read.",
            )

    def rows(self) -> list[list[_Action]]:
        """The actions of each rank."""
        rows: list[list[_Action]] = [[] for _ in range(self.program.ranks)]
        for lane in self.program.lanes:
            for op in range(lane.first, lane.stop):
                rows[lane.rank].extend(self._actions(op))
        return rows

    def _actions(self, op: int) -> Iterator[_Action]:
        program = self.program
        kind, stage = Kind(int(program.kind[op])), int(program.stage[op])
        if kind <= Kind.W:
            yield _Action(kind, stage, int(program.microbatch[op]))
        elif kind in SHARDING:
            yield _Action(kind, stage, -1)
        elif kind in _MESSAGES:
            if kind is Kind.GROUP:
                self.lost["GROUP (its messages stand one by one)"] += 1
            for row in program.rows_of(op):
                yield from self._message(row)
        elif kind is Kind.X and (named := _SHARDING.fullmatch(self._label(op))):
            # How a program in JSON writes what its format has no op for.
            yield _Action(Kind[named[2]], int(named[1]), -1)
        else:
            self.lost["WAIT" if kind is Kind.WAIT else kind.name] += 1

    def _label(self, op: int) -> str:
        attributes = self.program.details.attributes.get(op)
        return (attributes.label or "") if attributes is not None else ""

    def _message(self, row: int) -> Iterator[_Action]:
        send, rank, peer, payload = self.ends[row]
        if payload < 0:
            self.lost["messages of other payloads than activations and gradients"] += 1
            return
        producer, microbatch = stage_and_microbatch(payload)
        consumer = producer + (-1 if is_gradient(payload) else 1)
        stage, other = (producer, consumer) if send else (consumer, producer)
        if self.host.get(stage) != rank or self.host.get(other) != peer:
            self.lost["messages between other ranks than those of neighbouring stages"] += 1
            return
        kind = Kind.SEND if send else Kind.RECV
        yield _Action(kind, stage, microbatch, is_gradient(payload))

    def left_out(self) -> Iterator[str]:
        """What the ops and messages have beyond the actions, with how often."""
        program = self.program
        for what, count in self.lost.items():
            yield f"{what}: {count}"
        posted = int((program.request[program.messages.op] >= 0).sum())
        if self.ends:
            yield (
                f"how messages are issued ({posted} posted, {len(self.ends) - posted} blocking): "
                "a recipe decides"
            )
        details = self.program.details
        stated: Counter[str] = Counter()
        for op, attributes in details.attributes.items():
            if program.kind[op] <= Kind.R or program.kind[op] in _MESSAGES:
                stated.update(_set_fields(attributes))
                stated.update(attributes.more.keys())
        for traits in details.traits.values():
            stated.update(_set_fields(traits))
        for name, count in stated.items():
            yield f"attribute {_WRITTEN.get(name, name)}: {count}"


_WRITTEN = {"writes": "w", "reads": "r", "held": "pre", "resources": "pre_res"}
"""Fields by the names that programs in JSON give them, where those differ."""


def _set_fields(value: Attributes | Traits) -> Iterator[str]:
    """The attributes that are not at their default."""
    for field in fields(value):
        if field.name not in ("label", "more") and getattr(value, field.name) not in (
            None,
            False,
            (),
        ):
            yield field.name


def _undeclared(program: Program) -> Iterator[str]:
    """What a program states beside its ops, and a CSV cannot."""
    details, plain = program.details, Details()
    stated = [n for n in (*_HELD, *_DEMANDS) if getattr(details, n) != getattr(plain, n)]
    if stated:
        yield f"what it states beside its ops: {', '.join(_WRITTEN.get(n, n) for n in stated)}"
    if len(details.comms) > 1:
        yield f"communicators: {', '.join(name for name in details.comms if name)}"
    if not _alike(program.transport, PRESETS["nccl"]):
        yield f"its transport ({program.transport.name}): say --transport"
    if not program.complete:
        yield "that it may be a fragment: a CSV is a whole step"


def _alike(one: Transport, other: Transport) -> bool:
    return replace(one, name="") == replace(other, name="")
