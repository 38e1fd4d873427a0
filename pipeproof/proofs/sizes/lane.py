"""What every rank runs, as phases: loops over a straight line of ops.

A *view* is the lane at one rank, given as a form, in one *case*: every least or
greatest of several forms is one of them, and the case says which, and under which
conditions. So all forms of a view are linear.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from pipeproof.program.ops import COMPUTE, Kind
from pipeproof.spec.definition import RANK, Definition
from pipeproof.spec.ops import Op
from pipeproof.spec.sizes import Extreme, Form, NotLoops
from pipeproof.spec.tracing import Action, Loop, Loops

Forms = tuple[Form, ...]
"""Conditions: each is 0 or more."""


def number(value: int) -> Form:
    """A form that is a number."""
    return Form(constant=value)


def unknown(name: str) -> Form:
    """A form that is an unknown."""
    return Form(((name, 1),))


def minus(one: Form, other: Form, more: int = 0) -> Form:
    """``one - other + more``."""
    return one.plus(other, -1).plus(number(more))


def equal(one: Form, other: Form) -> Forms:
    """The conditions that two forms are equal."""
    return minus(one, other), minus(other, one)


@dataclass(frozen=True, slots=True)
class Phase:
    """``ops`` once for every index from ``start`` to below ``stop``."""

    index: str
    start: Form
    stop: Form
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """The phases of every rank. ``extremes`` are all that occur, parts before wholes;
    ``domain`` are conditions on the sizes, ``free`` the sizes that may be any."""

    phases: tuple[Phase, ...]
    extremes: tuple[Extreme, ...]
    free: tuple[str, ...]
    domain: Forms


def lane_of(definition: Definition, loops: Loops) -> Lane:
    """The phases of a definition's loops; `NotLoops` says why it has none.

    What the method does not reach (loops within loops, several chunks a rank,
    overlapped ops, slices, stage graphs) is refused here, never guessed.
    """
    if definition.placement.ways > 1 or loops.fixed.get("v", 1) != 1 or "v" in loops.free:
        raise NotLoops("ranks with several stages are not reached by the method yet")
    if definition.slices or definition.graph:
        raise NotLoops("slices and stage graphs are not reached by the method yet")
    if definition.valid is not None:
        raise NotLoops("its sizes are restricted by a function, not by linear conditions")
    phases = []
    for node in loops.body:
        if isinstance(node, Loop):
            if not all(isinstance(inner, Action) for inner in node.body):
                raise NotLoops("loops within loops and overlapped ops are not reached yet")
            ops = tuple(inner.op for inner in node.body)
            phases.append(Phase(node.index, node.start, node.stop, ops))
        elif isinstance(node, Action):
            phases.append(Phase("", number(0), number(1), (node.op,)))
        else:
            raise NotLoops("overlapped ops are not reached by the method yet")
    found: dict[Extreme, None] = {}
    for phase in phases:
        forms = [phase.start, phase.stop, *(op.microbatch for op in phase.ops if _computes(op))]
        for form in forms:
            found.update(dict.fromkeys(_extremes(form)))
        for op in phase.ops:
            if op.kind not in (*COMPUTE, Kind.STEP) or op.stage is not None:
                raise NotLoops(f"{op} is not reached by the method yet")
    sizes = tuple(minus(unknown(name), number(1)) for name in loops.free)
    return Lane(tuple(phases), tuple(found), loops.free, sizes)


def _computes(op: Op) -> bool:
    return op.kind in COMPUTE


def extremes_of(form: Form) -> tuple[Extreme, ...]:
    """The extremes of a form, parts before wholes."""
    return tuple(dict.fromkeys(_extremes(form)))


def _extremes(form: Form) -> Iterator[Extreme]:
    for atom, _ in form.terms:
        if isinstance(atom, Extreme):
            for part in atom.parts:
                yield from _extremes(part)
            yield atom


END = (-1, -1)
"""The place behind the last op of a rank."""

Kinds = tuple[int, int]
"""Which op of which phase: (phase, place in its body)."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One op at one index: an op of a body, or `END`."""

    kind: Kinds
    index: Form


@dataclass(frozen=True, slots=True)
class View:
    """A lane at the rank ``rank`` in the case ``case``: extreme e is its part
    ``case[e]``, which ``conditions`` say. ``tag`` tells its indices from those of
    another view."""

    lane: Lane
    rank: Form
    case: tuple[int, ...]
    tag: str
    chosen: Mapping[Extreme, Form]
    conditions: Forms

    def form(self, form: Form, phase: int | None = None, index: Form | None = None) -> Form:
        """A form of the lane, at this rank and in this case; at an index of a phase."""
        known: dict[str, Form] = {RANK: self.rank}
        if phase is not None and index is not None:
            known[self.lane.phases[phase].index] = index
        return resolved(form, known, self.chosen)

    def start(self, phase: int) -> Form:
        """The first index of a phase."""
        return self.form(self.lane.phases[phase].start)

    def stop(self, phase: int) -> Form:
        """The index behind the last of a phase."""
        return self.form(self.lane.phases[phase].stop)

    def op(self, instance: Instance) -> Op:
        """The op of an instance, its numbers as in the definition."""
        phase, place = instance.kind
        return self.lane.phases[phase].ops[place]

    def microbatch(self, instance: Instance) -> Form:
        """The microbatch of a compute op."""
        return self.form(self.op(instance).microbatch, instance.kind[0], instance.index)

    def valid(self, instance: Instance) -> Forms:
        """The conditions that there is such an instance."""
        phase = instance.kind[0]
        return (
            minus(instance.index, self.start(phase)),
            minus(self.stop(phase), instance.index, -1),
        )

    def instances(self) -> Iterator[Instance]:
        """One of every kind, at an unknown index."""
        for number_, phase in enumerate(self.lane.phases):
            for place in range(len(phase.ops)):
                yield Instance((number_, place), unknown(f"i{self.tag}"))

    def consecutive(self) -> Iterator[tuple[Instance, Instance, Forms]]:
        """(an op, the next one or `END`, when the two stand so)."""
        count = len(self.lane.phases)
        for a, phase in enumerate(self.lane.phases):
            i, last = unknown(f"i{self.tag}"), len(phase.ops) - 1
            here = Instance((a, 0), i)
            for place in range(last):
                yield Instance((a, place), i), Instance((a, place + 1), i), self.valid(here)
            again = Instance((a, 0), i.plus(number(1)))
            turns = (minus(i, self.start(a)), minus(self.stop(a), i, -2))
            yield Instance((a, last), i), again, turns
            final = Instance((a, last), minus(self.stop(a), number(1)))
            some: Forms = (minus(self.stop(a), self.start(a), -1),)
            for b in range(a + 1, count):
                follows = (minus(self.stop(b), self.start(b), -1),)
                yield final, Instance((b, 0), self.start(b)), (*some, *follows)
                some = (*some, minus(self.start(b), self.stop(b)))
            yield final, Instance(END, number(0)), some

    def count(self, kind: Kind, instance: Instance) -> Form:
        """How many ops of a letter stand before an instance, on lanes whose phases
        never end before they start (see `counting.well_formed`)."""
        total = number(0)
        phase, place = instance.kind if instance.kind != END else (len(self.lane.phases), 0)
        for a, earlier in enumerate(self.lane.phases[:phase]):
            each = sum(op.kind is kind for op in earlier.ops)
            total = total.plus(minus(self.stop(a), self.start(a)), each)
        if instance.kind != END:
            own = self.lane.phases[phase].ops
            each = sum(op.kind is kind for op in own)
            total = total.plus(minus(instance.index, self.start(phase)), each)
            total = total.plus(number(sum(op.kind is kind for op in own[:place])))
        return total


def views(lane: Lane, rank: Form, tag: str) -> Iterator[View]:
    """The lane at a rank in every case."""
    for case in product(*(range(len(e.parts)) for e in lane.extremes)):
        chosen: dict[Extreme, Form] = {}
        conditions: list[Form] = []
        for extreme, which in zip(lane.extremes, case, strict=True):
            parts = [resolved(part, {RANK: rank}, chosen) for part in extreme.parts]
            for number_, other in enumerate(parts):
                if number_ != which:
                    below, above = (other, parts[which]) if extreme.most else (parts[which], other)
                    # Of equal parts the first is meant, so that cases do not overlap.
                    tie = 0 if which < number_ else -1
                    conditions.append(minus(above, below, tie))
            chosen[extreme] = parts[which]
        yield View(lane, rank, case, tag, chosen, tuple(conditions))


def resolved(form: Form, known: Mapping[str, Form], chosen: Mapping[Extreme, Form]) -> Form:
    """A form with its unknowns and extremes replaced."""
    found = number(form.constant)
    for atom, coefficient in form.terms:
        if isinstance(atom, Extreme):
            found = found.plus(chosen[atom], coefficient)
        else:
            found = found.plus(known.get(atom, unknown(atom)), coefficient)
    return found
