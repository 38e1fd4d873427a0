"""Coverage, order, matching and counts, each as questions that must have no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeproof.program.ops import COMPUTE, Kind
from pipeproof.proofs.sizes.lane import (
    END,
    Forms,
    Instance,
    Lane,
    View,
    equal,
    extremes_of,
    minus,
    number,
    unknown,
    views,
)
from pipeproof.proofs.sizes.wires import Scene, direction
from pipeproof.spec.sizes import Form


@dataclass(frozen=True, slots=True)
class Question:
    """``what`` would be wrong if all of ``base`` and ``extra`` could be met at once."""

    what: str
    base: Forms
    extra: Forms


def well_formed(scene: Scene) -> Iterator[Question]:
    """Whether some phase ends before it starts: counts rely on that none does."""
    for view, rank in scene.here:
        for a in range(len(scene.lane.phases)):
            below = minus(view.start(a), view.stop(a), -1)
            yield Question(f"phase {a} runs less than never", rank, (below,))


def letters(lane: Lane) -> set[Kind]:
    """The compute letters that occur."""
    return {op.kind for phase in lane.phases for op in phase.ops if op.kind in COMPUTE}


def coverage(scene: Scene, forward_only: bool) -> Iterator[Question]:
    """Whether some microbatch is missing, out of range, or runs twice.

    A letter that runs m times, each in range and no two the same, runs every
    microbatch once.
    """
    owed = _owed(letters(scene.lane), forward_only)
    if isinstance(owed, str):
        yield Question(owed, (), ())
        return
    m = unknown("m")
    for view, rank in scene.here:
        for kind in sorted(owed):
            total = view.count(kind, Instance(END, number(0)))
            for off in (minus(total, m, -1), minus(m, total, -1)):
                yield Question(f"{kind.name} does not run m times", rank, (off,))
        for one in view.instances():
            kind = view.op(one).kind
            if kind not in COMPUTE:
                continue
            microbatch, runs = view.microbatch(one), view.valid(one)
            for off in (number(-1).plus(microbatch, -1), minus(microbatch, m)):
                yield Question(f"{kind.name} is out of range", rank, (*runs, off))
            for kind_, other in _others(view, one):
                if kind_ is kind:
                    yield from _twice(view, rank, one, other, microbatch)


def _others(view: View, one: Instance) -> Iterator[tuple[Kind, Instance]]:
    """Instances at an index of their own, from one's kind on."""
    for other in view.instances():
        if other.kind >= one.kind:
            yield view.op(other).kind, Instance(other.kind, unknown("j"))


def _twice(
    view: View, rank: Forms, one: Instance, other: Instance, microbatch: Form
) -> Iterator[Question]:
    runs = (*view.valid(one), *view.valid(other))
    same = (*runs, *equal(microbatch, view.microbatch(other)))
    what = f"{view.op(one).kind.name} runs a microbatch twice"
    if other.kind != one.kind:
        yield Question(what, rank, same)
    else:
        yield Question(what, rank, (*same, minus(other.index, one.index, -1)))


def _owed(found: set[Kind], forward_only: bool) -> set[Kind] | str:
    if Kind.F not in found:
        return "no forward runs"
    backward = found & {Kind.B, Kind.I, Kind.W}
    if forward_only:
        return found if not backward else "it is forward only and runs backwards"
    if backward == {Kind.B} or backward == {Kind.I, Kind.W}:
        return found
    return "neither B alone nor I with W runs for every microbatch"


# --- order on the own rank ------------------------------------------------------

_BUILDS_ON = {
    Kind.B: Kind.F,
    Kind.I: Kind.F,
    Kind.R: Kind.F,
    Kind.W: Kind.I,
}


def order(scene: Scene) -> Iterator[Question]:
    """Whether some op runs before the op of its own stage that it builds on (which
    runs somewhere, by `coverage`)."""
    for view, rank in scene.here:
        for later in view.instances():
            needed = _BUILDS_ON.get(view.op(later).kind)
            for first in view.instances():
                if needed is None or view.op(first).kind is not needed:
                    continue
                first = Instance(first.kind, unknown("j"))
                same = equal(view.microbatch(later), view.microbatch(first))
                both = (*view.valid(later), *view.valid(first), *same)
                what = f"{view.op(later).kind.name} runs before its {needed.name}"
                if first.kind[0] > later.kind[0]:
                    yield Question(what, rank, both)
                elif first.kind[0] == later.kind[0]:
                    # In one phase: at a later index, or at the same and behind.
                    behind = 0 if first.kind[1] > later.kind[1] else -1
                    wrong = minus(first.index, later.index, behind)
                    yield Question(what, rank, (*both, wrong))


# --- matching -------------------------------------------------------------------


def matching(scene: Scene) -> Iterator[Question]:
    """Whether the k-th send of a channel is received as another than the k-th.

    Each direction between two ranks carries one kind of payload, sent in the order
    of the ops that make it and received in the order of those that take it.
    """
    for step in (1, -1):
        for view, other, both in scene.beside(step):
            for made in view.instances():
                way = direction(view.op(made).kind)
                if way is not None and way[1] == step:
                    yield from _out_of_place(view, other, both, made, way[0])


def _out_of_place(
    view: View, other: View, both: Forms, made: Instance, kinds: tuple[Kind, ...]
) -> Iterator[Question]:
    for taken in other.instances():
        if other.op(taken).kind not in kinds:
            continue
        same = equal(view.microbatch(made), other.microbatch(taken))
        when = (*view.valid(made), *other.valid(taken), *same)
        sent, received = _number(view, kinds, made), _number(other, kinds, taken)
        for off in (minus(sent, received, -1), minus(received, sent, -1)):
            what = f"the message of {view.op(made).kind.name} arrives in another place"
            yield Question(what, both, (*when, off))


def _number(view: View, kinds: tuple[Kind, ...], instance: Instance) -> Form:
    total = number(0)
    for kind in kinds:
        total = total.plus(view.count(kind, instance))
    return total


# --- counts against bounds ------------------------------------------------------


Count = Callable[[View, Instance], Form]
"""Something that is counted where an op runs."""


def peak(scene: Scene, bound: Form, *, equal: bool) -> Iterator[Question]:
    """Whether some rank holds more live activations than ``bound``, or, where it must
    be equal, whether on some rank that is never reached."""
    yield from _exceeded(scene, bound, (Kind.F,), _held)
    if equal:
        yield from _never_reached(scene, bound, (Kind.F,), _held)


def stale(scene: Scene, bound: Form) -> Iterator[Question]:
    """Whether more than ``bound`` updates lie between the forward of a microbatch,
    which takes the current version, and its backward, which keeps to it."""
    for view, rank in scene.here:
        for limit, conditions in _cases(view, bound):
            for later in view.instances():
                if view.op(later).kind not in (Kind.B, Kind.I, Kind.W, Kind.R):
                    continue
                for first in view.instances():
                    if view.op(first).kind is not Kind.F:
                        continue
                    first = Instance(first.kind, unknown("j"))
                    same = equal(view.microbatch(later), view.microbatch(first))
                    both = (*conditions, *view.valid(later), *view.valid(first), *same)
                    made, used = view.count(Kind.STEP, later), view.count(Kind.STEP, first)
                    between = minus(made, used)
                    over = minus(between, limit, -1)
                    yield Question("more updates lie between", rank, (*both, over))


def _held(view: View, at: Instance) -> Form:
    """Live activations while a forward runs: its own, and of the forwards before it
    those whose B, or W, has not run. Forward only, none outlives its forward."""
    found = letters(view.lane)
    if not found & {Kind.B, Kind.W}:
        return number(1)
    gone = Kind.W if Kind.W in found else Kind.B
    return minus(view.count(Kind.F, at), view.count(gone, at), 1)


def _exceeded(
    scene: Scene, bound: Form, kinds: tuple[Kind, ...], count: Count
) -> Iterator[Question]:
    for view, rank in scene.here:
        for limit, conditions in _cases(view, bound):
            for at in view.instances():
                if view.op(at).kind in kinds:
                    over = minus(count(view, at), limit, -1)
                    where = (*conditions, *view.valid(at))
                    yield Question("the bound is exceeded", rank, (*where, over))


def _never_reached(
    scene: Scene, bound: Form, kinds: tuple[Kind, ...], count: Count
) -> Iterator[Question]:
    """A count is linear in a phase's index, so its most stands at an end of a phase."""
    for view, rank in scene.here:
        for limit, conditions in _cases(view, bound):
            yield from _all_miss(view, rank, conditions, limit, kinds, count, 0)


def _all_miss(
    view: View,
    rank: Forms,
    conditions: Forms,
    limit: Form,
    kinds: tuple[Kind, ...],
    count: Count,
    phase: int,
) -> Iterator[Question]:
    """The bound is missed at both ends of every phase from ``phase`` on: by case of
    whether the phase runs. What is above the bound is `_exceeded`, so a miss is
    below it."""
    if phase == len(view.lane.phases):
        yield Question("the bound is never reached", rank, conditions)
        return
    ops = view.lane.phases[phase].ops
    places = [place for place, op in enumerate(ops) if op.kind in kinds]
    start, stop = view.start(phase), view.stop(phase)
    rest = (limit, kinds, count, phase + 1)
    yield from _all_miss(view, rank, (*conditions, minus(start, stop)), *rest)
    if places:
        ends = [
            count(view, Instance((phase, place), index))
            for place in places
            for index in (start, minus(stop, number(1)))
        ]
        below = tuple(minus(limit, end, -1) for end in ends)
        runs = minus(stop, start, -1)
        yield from _all_miss(view, rank, (*conditions, runs, *below), *rest)
    else:
        yield from _all_miss(view, rank, (*conditions, minus(stop, start, -1)), *rest)


def _cases(view: View, bound: Form) -> Iterator[tuple[Form, Forms]]:
    """A bound at the view's rank, in each case of its own extremes."""
    own = Lane((), extremes_of(bound), view.lane.free, ())
    for case in views(own, view.rank, ""):
        yield case.form(bound), case.conditions
