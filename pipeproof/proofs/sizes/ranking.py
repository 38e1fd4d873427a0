"""Freedom from deadlock for all sizes, by a ranking function.

The program is that of the ``grouped`` recipe: between two ops of a rank stands one
group that sends what the first made and receives what the second takes; it ends
when every member's counterpart has been posted, which the neighbour does as soon
as its own group before has ended. So group G ends after the group before it on
its rank, and after the group before each group that holds a counterpart. A number
for every group that grows along all of these pairs shows that none of them waits
for itself: at every size, whatever the timing. That is the strictest transport,
rendezvous; blocking groups use no stream, so the same holds on every other.

The number of the group before op (phase, place) at index i on rank s is a linear
form in i, s, the sizes and the extremes, one for each case of the rank's extremes.
Its coefficients are found by linear programming: by Farkas' lemma a form is 1 or
more wherever conditions hold if it is a sum of their left sides, none negative
times, plus 1. What is found is rounded to fractions and then checked, pair by
pair, over whole numbers (`decide`), so nothing rests on the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from pipeproof.proofs.sizes.counting import Question
from pipeproof.proofs.sizes.decide import Decider
from pipeproof.proofs.sizes.lane import (
    END,
    Forms,
    Instance,
    Kinds,
    Lane,
    View,
    equal,
    number,
    unknown,
)
from pipeproof.proofs.sizes.wires import Scene, direction
from pipeproof.spec.sizes import Form

Key = tuple[Kinds, tuple[int, ...]]
"""(which op, the case of its rank's extremes)."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Group ``later`` must have a greater number than ``earlier`` wherever ``base`` and
    ``extra`` hold; ``why`` it waits for it. The forms are those that the numbers are
    linear in, in order."""

    why: str
    base: Forms
    extra: Forms
    later: Key
    later_forms: Forms
    earlier: Key
    earlier_forms: Forms

    @property
    def conditions(self) -> Forms:
        """When the later group waits for the earlier one."""
        return (*self.base, *self.extra)


Coefficients = Mapping[Key, tuple[Fraction, ...]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """``coefficients`` times the forms that ``names`` name number the groups; the
    number grows along each of ``pairs``."""

    coefficients: Coefficients
    names: tuple[str, ...]
    pairs: tuple[Pair, ...]

    def lines(self, lane: Lane) -> list[str]:
        """The ranking function, a line for each op and case."""
        lines = []
        last = (len(lane.phases), 0)  # the end stands behind all phases
        ordered = sorted(self.coefficients.items(), key=lambda item: _place(item[0], last))
        for (kind, case), values in ordered:
            op = "the end"
            if kind != END:
                op = f"{lane.phases[kind[0]].ops[kind[1]]} of loop {kind[0] + 1}"
            where = " and ".join(
                f"{extreme} = {extreme.parts[part]}"
                for extreme, part in zip(lane.extremes, case, strict=True)
            )
            number_ = _linear(values, self.names)
            lines.append(f"{op}: {number_}" + (f", where {where}" if where else ""))
        return lines


def _place(key: Key, last: Kinds) -> tuple[Kinds, tuple[int, ...]]:
    return (last if key[0] == END else key[0]), key[1]


def _linear(values: tuple[Fraction, ...], names: tuple[str, ...]) -> str:
    """Coefficients times names, as people write it."""
    text = ""
    for value, name in zip(values, names, strict=True):
        if value:
            size = "" if abs(value) == 1 and name != "1" else f"{abs(value)}"
            word = "" if name == "1" else name
            sign = " - " if value < 0 else " + "
            text += f"{sign}{size}{' ' if size and word else ''}{word}"
    return (
        text.removeprefix(" + ").strip().replace("- ", "-", 1 if text[:3] == " - " else 0) or "0"
    )


def names_of(lane: Lane) -> tuple[str, ...]:
    """What the numbers are linear in."""
    return ("i", "rank", *lane.free, "1")


def _forms(view: View, at: Instance) -> Forms:
    sizes = [unknown(name) for name in view.lane.free]
    return (at.index, view.rank, *sizes, number(1))


def pairs(scene: Scene) -> Iterator[Pair]:
    """Every way in which a group waits for another, in every case that can be."""
    for view, rank in scene.here:
        for before, after, when in view.consecutive():
            yield _pair("program order", rank, when, view, after, view, before)
    for step in (1, -1):
        for view, other, both in scene.beside(step):
            yield from _receives(view, other, both, step)
            yield from _sends(view, other, both, step)


def _pair(
    why: str,
    base: Forms,
    extra: Forms,
    view: View,
    later: Instance,
    other: View,
    earlier: Instance,
) -> Pair:
    return Pair(
        why,
        base,
        extra,
        (later.kind, view.case),
        _forms(view, later),
        (earlier.kind, other.case),
        _forms(other, earlier),
    )


def _receives(view: View, other: View, both: Forms, step: int) -> Iterator[Pair]:
    """The group before an op receives its input from rank s + ``step``: the sender
    posts that behind the op that makes it, once the group before that op has ended."""
    for taking in view.instances():
        way = direction(view.op(taking).kind)
        if way is None or way[1] != -step:
            continue
        for making in other.instances():
            if other.op(making).kind in way[0]:
                making = Instance(making.kind, unknown("j"))
                same = equal(view.microbatch(taking), other.microbatch(making))
                when = (*view.valid(taking), *other.valid(making), *same)
                yield _pair("receive", both, when, view, taking, other, making)


def _sends(view: View, other: View, both: Forms, step: int) -> Iterator[Pair]:
    """The group behind an op sends its output to rank s + ``step``: the receiver posts
    that before the op that takes it, once the group before the op before that one
    has ended."""
    takers = list(other.consecutive())
    for making, after, when in view.consecutive():
        way = direction(view.op(making).kind)
        if way is None or way[1] != step:
            continue
        for before, taking, then in takers:
            if taking.kind == END or other.op(taking).kind not in way[0]:
                continue
            same = equal(view.microbatch(making), other.microbatch(taking))
            yield _pair("send", both, (*when, *then, *same), view, after, other, before)


def possible_pairs(scene: Scene, note: Callable[[int], None]) -> list[Pair]:
    """The pairs whose conditions can be met."""
    found = []
    for count, pair in enumerate(pairs(scene)):
        note(count)
        if scene.decider.possible(pair.extra, pair.base):
            found.append(pair)
    return found


def failing(pair: Pair, coefficients: Coefficients, decider: Decider) -> dict[str, int] | None:
    """Values at which a pair's numbers do not grow, None where they always do."""
    return decider.example((*pair.extra, _growth(pair, coefficients)), pair.base)


def _growth(pair: Pair, coefficients: Coefficients) -> Form:
    """A form that is 0 or more where the later number is not greater.

    Numbers are fractions over a common denominator, so that is said of their
    numerators.
    """
    later, earlier = coefficients[pair.later], coefficients[pair.earlier]
    scale = lcm(*(value.denominator for value in (*later, *earlier)))
    total = number(0)
    for form, value in zip(pair.earlier_forms, earlier, strict=True):
        total = total.plus(form, int(value * scale))
    for form, value in zip(pair.later_forms, later, strict=True):
        total = total.plus(form, -int(value * scale))
    return total


def questions(found: Ranking) -> list[Question]:
    """What was asked of z3 about a ranking: whether along some pair it does not grow."""
    return [
        Question(
            f"the number does not grow along a {pair.why}",
            pair.base,
            (*pair.extra, _growth(pair, found.coefficients)),
        )
        for pair in found.pairs
    ]


def ranking(scene: Scene, note: Callable[[int], None]) -> Ranking | None:
    """A ranking function, checked pair by pair; None where none is found."""
    from pipeproof.proofs.sizes.farkas import candidates

    asked = possible_pairs(scene, note)
    for found in candidates(asked, len(names_of(scene.lane))):
        if all(failing(pair, found, scene.decider) is None for pair in asked):
            return Ranking(found, names_of(scene.lane), tuple(asked))
    return None
