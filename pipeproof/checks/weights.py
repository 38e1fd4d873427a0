"""Which version of its weights every op reads, along one order of the events.

A weight is a parameter on a rank. It starts at version 0; STEP makes a version
with a number of its own, ROLLBACK returns to one, a collective with ``bumps``
sets one when it completes, or when its request is first waited for. Compute ops
of stage S read the current version of wS, or the one they name (``wv``).

Versions form a tree: each is made from another, and *depth* counts the updates
between it and version 0. What was rolled back does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pipeproof.checks.apart import Use
from pipeproof.checks.rounds import Event, rounds
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Attributes, Program

Key = tuple[int, str]
"""(rank, parameter)."""

_PLAIN = Attributes()


class Read(NamedTuple):
    """An op uses a version; ``now`` is the depth of the version current then.

    ``changes`` counts those of the weight before; ``wanted`` is the version that
    the op demands, None where it takes what is there.
    """

    op: int
    rank: int
    parameter: str
    version: int
    depth: int
    now: int
    changes: int
    wanted: int | None = None


class Change(NamedTuple):
    """An op made ``version`` the current one."""

    op: int
    parameter: str
    version: int


@dataclass(slots=True)
class Weight:
    """One parameter on one rank, as its versions go by.

    ``depth`` holds the versions there have been. ``made`` and ``needed`` say
    when each was made and until when it had to be there, in numbers of events.
    """

    version: int = 0
    depth: dict[int, int] = field(default_factory=lambda: {0: 0})
    made: dict[int, int] = field(default_factory=lambda: {0: 0})
    needed: dict[int, int] = field(default_factory=dict)

    def unused(self) -> int:
        """The next number that no version has had."""
        number = self.version + 1
        while number in self.depth:
            number += 1
        return number

    def replace(self, version: int, now: int) -> None:
        """Make a version the current one."""
        self.needed[self.version] = max(self.needed.get(self.version, 0), now)
        if version in self.depth:
            self.needed[version] = now
        else:
            self.depth[version] = self.depth[self.version] + 1
            self.made[version] = now
        self.version = version

    def kept(self, end: int) -> int:
        """The most versions that had to be there at once, up to ``end``."""
        self.needed[self.version] = max(self.needed.get(self.version, 0), end)
        # What ends where another begins is replaced in place: ends come first.
        marks = [(now, 1) for now in self.made.values()]
        marks += [(self.needed[version], -1) for version in self.made]
        most = count = 0
        for _, change in sorted(marks):
            count += change
            most = max(most, count)
        return most


@dataclass(slots=True)
class History:
    """What happened to the weights.

    ``reads`` has what compute ops read, in order; ``demands`` what ``uses``
    demands; ``absent`` the uses of versions that their rank has never had.
    """

    weights: dict[Key, Weight] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    demands: list[Read] = field(default_factory=list)
    absent: list[Change] = field(default_factory=list)
    changes: dict[Key, list[Change]] = field(default_factory=dict)
    end: int = 0


def history(program: Program, sequence: Sequence[Event]) -> History:
    """Follow every weight along ``sequence``."""
    tale = History()
    met = rounds(program, sequence)
    attributes = program.details.attributes
    kinds: list[int] = program.kind.tolist()
    requests: list[int] = program.request.tolist()
    stages: list[int] = program.stage.tolist()
    ranks = [lane.rank for lane in program.lanes for _ in range(lane.first, lane.stop)]
    for op, completed in sequence:
        if completed == (op in met.number):
            # A call is reached when it starts; any other op when what it waits for is done.
            if completed and requests[op] < 0:
                _bump(tale, attributes[op], op, ranks[op])
            continue
        tale.end += 1
        rank, own = ranks[op], attributes.get(op, _PLAIN)
        for call in met.collected.get(op, ()):
            _bump(tale, attributes[call], op, rank)
        for parameter in own.more.get("uses", ()):
            tale.demands.append(_read(tale, op, rank, parameter, None, own.more["it"]))
        kind = kinds[op]
        if kind <= Kind.R:
            tale.reads.append(_read(tale, op, rank, f"w{stages[op]}", own.more.get("wv")))
        elif kind == Kind.STEP:
            _change(tale, op, rank, str(own.label), None)
        elif kind == Kind.ROLLBACK:
            _roll_back(tale, op, rank, str(own.label), own.more["version"])
    return tale


def weight_uses(program: Program) -> Iterator[Use]:
    """What reads and changes weights."""
    attributes = program.details.attributes
    waiter = program.waiters()
    for op in np.flatnonzero(program.kind <= Kind.R).tolist():
        yield Use(f"w{program.stage[op]}", op, op, writes=False)
    for op, own in attributes.items():
        for parameter in own.more.get("uses", ()):
            yield Use(parameter, op, op, writes=False)
        if program.kind[op] in (Kind.STEP, Kind.ROLLBACK):
            yield Use(str(own.label), op, op, writes=True)
        request = int(program.request[op])
        for parameter in own.more.get("bumps", ()):
            yield Use(parameter, op, op if request < 0 else waiter.get(request), writes=True)


def _weight(tale: History, rank: int, parameter: str) -> Weight:
    weight = tale.weights.get((rank, parameter))
    if weight is None:
        weight = tale.weights[rank, parameter] = Weight()
    return weight


def _read(
    tale: History,
    op: int,
    rank: int,
    parameter: str,
    version: int | None,
    wanted: int | None = None,
) -> Read:
    weight = _weight(tale, rank, parameter)
    if version is None:
        version = weight.version
    now = weight.depth[weight.version]
    if version in weight.depth:
        weight.needed[version] = tale.end
    else:
        tale.absent.append(Change(op, parameter, version))
    changes = len(tale.changes.get((rank, parameter), ()))
    depth = weight.depth.get(version, now)
    return Read(op, rank, parameter, version, depth, now, changes, wanted)


def _change(tale: History, op: int, rank: int, parameter: str, version: int | None) -> None:
    weight = _weight(tale, rank, parameter)
    weight.replace(weight.unused() if version is None else version, tale.end)
    change = Change(op, parameter, weight.version)
    tale.changes.setdefault((rank, parameter), []).append(change)


def _roll_back(tale: History, op: int, rank: int, parameter: str, version: int) -> None:
    if version not in _weight(tale, rank, parameter).depth:
        tale.absent.append(Change(op, parameter, version))
    _change(tale, op, rank, parameter, version)


def _bump(tale: History, call: Attributes, op: int, rank: int) -> None:
    for parameter in call.more.get("bumps", ()):
        _change(tale, op, rank, parameter, call.more.get("to"))
