"""What every accumulator holds, followed along one order of the events.

An accumulator is one storage of one rank: ``alias`` gives a storage several
names. An op is *reached* when what it waits for has completed; then what it
carries (``grad``) is done, and then its own business:

=============  ==========================================================
ZERO           clears the accumulator
SCALE          multiplies it
STEP           uses it, then clears it
REPORT         uses it
COLL           hands over its ``param`` when it starts, and takes what the
               members' calls add up to when it completes, or when its
               request is first waited for: ``allreduce`` on every member,
               ``reducescatter`` on the owner; other kinds touch nothing
=============  ==========================================================

A storage that is touched while its reduction is in flight holds one thing or
another, by chance: its value is then *unknown*, and so is what the reduction
gives to all members. That it is touched is a race, and for ``race`` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pipeproof.checks.apart import Use
from pipeproof.checks.linear import Form, add, normal, scaled
from pipeproof.checks.rounds import Event, rounds
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import NOTHING, Attributes, Program

REDUCTIONS = ("allreduce", "reducescatter")
"""Collectives that change accumulators."""


class Unknown(NamedTuple):
    """A value that the program does not determine, and why."""

    why: str


Value = Form | Unknown


class Reading(NamedTuple):
    """What a STEP or REPORT finds in the accumulator that it names."""

    op: int
    rank: int
    name: str
    value: Value


def storages(alias: Mapping[str, str]) -> Mapping[str, str]:
    """For each name that shares its storage, the storage's: one name of them all."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.get(name, name) != name:
            name = parent[name]
        return name

    for name, other in alias.items():
        parent[root(name)] = root(other)
    return {name: root(name) for name in (*alias, *alias.values())}


class Share(NamedTuple):
    """One member's side of a reduction."""

    storage: str
    mean: bool
    takes: bool | None  # None: nobody is named to take it


def share_of(attributes: Attributes, rank: int, storage: Mapping[str, str]) -> Share | None:
    """What a collective call hands over and takes; None where it is no reduction."""
    more = attributes.more
    param = more.get("param")
    if param is None or more.get("kind") not in REDUCTIONS:
        return None
    takes = True if more["kind"] == "allreduce" else None
    if takes is None and "owner" in more:
        takes = more["owner"] == rank
    return Share(storage.get(param, param), more.get("op") == "avg", takes)


def touches(program: Program, op: int, storage: Mapping[str, str]) -> list[str]:
    """The storages whose value op uses or changes beside its own reduction."""
    attributes = program.details.attributes.get(op)
    if attributes is None:
        return []
    names = list(attributes.more.get("grad", NOTHING))
    if program.kind[op] in (Kind.ZERO, Kind.SCALE, Kind.STEP, Kind.REPORT):
        names.append(str(attributes.label))
    return [storage.get(name, name) for name in names]


def accumulator_uses(program: Program) -> Iterator[Use]:
    """What reads and changes accumulators."""
    storage = storages(program.details.alias)
    waiter = program.waiters()
    for op, attributes in program.details.attributes.items():
        for name in touches(program, op, storage):
            looks = program.kind[op] == Kind.REPORT and "grad" not in attributes.more
            yield Use(name, op, op, writes=not looks)
        share = share_of(attributes, program.rank_of(op), storage)
        if share is not None:
            request = int(program.request[op])
            yield Use(share.storage, op, op if request < 0 else waiter.get(request), writes=True)


def readings(program: Program, sequence: Sequence[Event]) -> list[Reading]:
    """What the STEPs and REPORTs that happen find, in order."""
    books = _Books(program, sequence)
    for op, completed in sequence:
        books.go_on(op, completed)
    return books.readings


class _Books:
    """All accumulators, between two events."""

    def __init__(self, program: Program, sequence: Sequence[Event]) -> None:
        self.readings: list[Reading] = []
        self._program = program
        self._kind: list[int] = program.kind.tolist()
        self._rank = [lane.rank for lane in program.lanes for _ in range(lane.first, lane.stop)]
        self._attributes = program.details.attributes
        self._storage = storages(program.details.alias)
        self._rounds = rounds(program, sequence)
        self._value: dict[tuple[int, str], Value] = {}
        self._shares = {
            op: share
            for op in self._rounds.number
            if (share := share_of(self._attributes[op], self._rank[op], self._storage))
        }
        self._disturbed = self._find_disturbed(sequence)
        self._flying: dict[tuple[int, str], list[int]] = {}  # calls in flight
        self._handed: dict[int, Value] = {}  # by call, what it handed over
        self._sums: dict[int, Value] = {}  # by round

    def _asynchronous(self, call: int) -> bool:
        return bool(self._program.request[call] >= 0)

    def _find_disturbed(self, sequence: Sequence[Event]) -> set[int]:
        """Reductions in flight while an op of their rank touches what they reduce."""
        disturbed: set[int] = set()
        flying: dict[tuple[int, str], list[int]] = {}
        for op in self._rounds.reached(sequence) if self._shares else ():
            rank, share = self._rank[op], self._shares.get(op)
            for call in self._rounds.collected.get(op, ()):
                if call in self._shares:
                    flying[rank, self._shares[call].storage].remove(call)
            touched = touches(self._program, op, self._storage)
            if self._kind[op] == Kind.REPORT:
                touched = touched[:-1]  # it only looks
            if share is not None:
                touched.append(share.storage)
                if self._asynchronous(op):
                    if flying.get((rank, share.storage)):
                        disturbed.add(op)
                    flying.setdefault((rank, share.storage), []).append(op)
            for storage in touched:
                disturbed.update(c for c in flying.get((rank, storage), ()) if c != op)
        return disturbed

    # --- events ------------------------------------------------------------------

    def go_on(self, op: int, completed: bool) -> None:
        """The next event: op starts or completes."""
        if op in self._rounds.number:
            if not completed:
                self._reach(op)
                self._hand_over(op)
            elif not self._asynchronous(op):
                self._take(op)
        elif completed:
            self._reach(op)
            self._act(op)

    def _reach(self, op: int) -> None:
        """What op waits for is done, and what it carries."""
        for call in self._rounds.collected.get(op, ()):
            if call in self._shares:
                self._flying[self._rank[op], self._shares[call].storage].remove(call)
            self._take(call)
        attributes = self._attributes.get(op)
        if attributes is None or "grad" not in attributes.more:
            return
        assigns = attributes.more.get("grad_mode") == "set"
        for name, form in attributes.more["grad"].items():
            value = self._touch(op, name)
            if not isinstance(value, Unknown) and not assigns:
                add(value, form)
            elif assigns and not self._in_flight(op, name):
                self._put(op, name, normal(form))

    def _act(self, op: int) -> None:
        """The op's own business."""
        kind = self._kind[op]
        if kind not in (Kind.ZERO, Kind.SCALE, Kind.STEP, Kind.REPORT):
            return
        attributes = self._attributes[op]
        name = str(attributes.label)
        value = self._touch(op, name)
        if kind == Kind.SCALE:
            if not isinstance(value, Unknown):
                self._put(op, name, scaled(value, attributes.more["factor"]))
            return
        if kind in (Kind.STEP, Kind.REPORT):
            kept = value.copy() if kind == Kind.REPORT and isinstance(value, dict) else value
            self.readings.append(Reading(op, self._rank[op], name, kept))
        if kind != Kind.REPORT and not self._in_flight(op, name):
            self._put(op, name, {})

    def _key(self, op: int, name: str) -> tuple[int, str]:
        return self._rank[op], self._storage.get(name, name)

    def _in_flight(self, op: int, name: str) -> list[int]:
        return self._flying.get(self._key(op, name), [])

    def _touch(self, op: int, name: str) -> Value:
        """The value that op finds, which it may change where it is known."""
        flying = self._in_flight(op, name)
        if flying:
            why = f"{op_text(self._program, flying[0])} is still in flight there"
            self._put(op, name, Unknown(why))
        return self._value.setdefault(self._key(op, name), {})

    def _put(self, op: int, name: str, value: Value) -> None:
        self._value[self._key(op, name)] = value

    # --- collectives -------------------------------------------------------------

    def _hand_over(self, call: int) -> None:
        share = self._shares.get(call)
        if share is None:
            return
        value = self._touch(call, share.storage)
        self._handed[call] = value.copy() if isinstance(value, dict) else value
        if self._asynchronous(call):
            self._flying.setdefault((self._rank[call], share.storage), []).append(call)

    def _take(self, call: int) -> None:
        share = self._shares.get(call)
        if share is None or share.takes is False:
            return
        number = self._rounds.number[call]
        total = self._sum(number)
        if share.takes is None:
            total = Unknown(f"{op_text(self._program, call)} names no owner")
        elif not isinstance(total, Unknown):
            members = len(self._rounds.calls[number])
            total = scaled(total, Fraction(1, members)) if share.mean else total.copy()
        self._put(call, share.storage, total)

    def _sum(self, number: int) -> Value:
        """What the members of a round have handed over, together."""
        if number not in self._sums:
            total: Form = {}
            self._sums[number] = total
            for call in self._rounds.calls[number]:
                if call is None or call not in self._shares:
                    continue
                handed = self._handed.pop(call)
                if call in self._disturbed:
                    text, rank = op_text(self._program, call), self._rank[call]
                    handed = Unknown(f"rank {rank} touches it while {text} is in flight")
                if isinstance(handed, Unknown):
                    self._sums[number] = handed
                    break
                add(total, handed)
        return self._sums[number]
