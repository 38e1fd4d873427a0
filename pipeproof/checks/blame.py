"""Why a form is not the wanted one: the usual cause, the cure, and the story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from pipeproof.checks.accumulators import REDUCTIONS, Reading, storages, touches
from pipeproof.checks.linear import Difference, listed, times, told
from pipeproof.checks.subject import Subject
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import NOTHING, Program

STORY = 6
"""The last touches of an accumulator that a story tells."""


class Blame(NamedTuple):
    """The usual cause and cures, further ops to point at, and (op, sentence) in order."""

    cause: str
    cures: tuple[str, ...] = ()
    where: tuple[int, ...] = ()
    steps: tuple[tuple[int, str], ...] = ()


def blamed(subject: Subject, reading: Reading, by: Difference) -> Blame:
    """What explains that ``reading`` differs from what is wanted."""
    program = subject.program
    history = _History(subject, reading)
    blame = (
        _overwritten(history, by)
        or _shared(history)
        or _reduced_too_early(history, by)
        or _usual(program, by)
    )
    steps = [
        (op, f"{op_text(program, op)} {text}")
        for op in history.ops[-STORY:]
        for text in history.acts(op)
    ]
    value = told(reading.value) if isinstance(reading.value, dict) else "what is there"
    found = (reading.op, f"{op_text(program, reading.op)} finds {value}")
    return blame._replace(steps=(*steps, found))


class _History:
    """``ops``: those of the rank that change the storage since it was last stepped."""

    def __init__(self, subject: Subject, reading: Reading) -> None:
        self.program, self.name = subject.program, reading.name
        program = subject.program
        self._alias = storages(program.details.alias)
        self._storage = self._alias.get(reading.name, reading.name)
        self.ops: list[int] = []
        for op, completed in subject.sequence:
            if op == reading.op:
                break
            own = completed and subject.rank[op] == reading.rank
            if not own or op not in program.details.attributes or not self._concerned(op):
                continue
            if program.kind[op] == Kind.STEP:
                self.ops.clear()
            elif program.kind[op] != Kind.REPORT:
                self.ops.append(op)

    def is_own(self, name: str | None) -> bool:
        """Whether ``name`` names the storage."""
        return name is not None and self._alias.get(name, name) == self._storage

    def more(self, op: int) -> Mapping[str, Any]:
        """The attributes of op that have no field."""
        return self.program.details.attributes[op].more

    def label(self, op: int) -> str | None:
        """The name that op acts on."""
        return self.program.details.attributes[op].label

    def _concerned(self, op: int) -> bool:
        reduced = self.more(op).get("param") if self.is_reduction(op) else None
        touched = touches(self.program, op, self._alias)
        return self._storage in touched or self.is_own(reduced)

    def is_reduction(self, op: int, kind: str | None = None) -> bool:
        """Whether op is a reduction of the storage, of one kind or of any."""
        more = self.more(op)
        kinds = REDUCTIONS if kind is None else (kind,)
        return more.get("kind") in kinds and self.is_own(more.get("param"))

    def acts(self, op: int) -> Iterator[str]:
        """What op does to the storage, in words."""
        more, kind = self.more(op), self.program.kind[op]
        assigns = more.get("grad_mode") == "set"
        for name, form in more.get("grad", NOTHING).items():
            if self.is_own(name):
                yield f"sets {name} to {told(form)}" if assigns else f"adds {told(form)} to {name}"
        if kind == Kind.ZERO:
            yield "clears it"
        elif kind == Kind.SCALE:
            yield f"multiplies it by {more['factor']}"
        elif self.is_reduction(op):
            what = "the mean" if more.get("op") == "avg" else "the sum"
            what += f" of {more['param']} over {more['group']}"
            owner = more.get("owner") if more["kind"] == "reducescatter" else None
            yield f"takes {what}" if owner is None else f"gives {what} to rank {owner}"


# --- causes -------------------------------------------------------------------


def _overwritten(history: _History, by: Difference) -> Blame | None:
    """A contribution that is missing was there, and was assigned over or cleared."""
    program, ops, lost = history.program, history.ops, set(by.missing)
    for place in range(len(ops) - 1, 0, -1):
        over = ops[place]
        assigns = history.more(over).get("grad_mode") == "set"
        if not assigns and program.kind[over] != Kind.ZERO:
            continue
        for op in reversed(ops[:place]):
            grads = history.more(op).get("grad", NOTHING).items()
            gone = [s for name, form in grads if history.is_own(name) for s in form if s in lost]
            if not gone:
                continue
            text = op_text(program, over)
            how = "assigns instead of adding (grad_mode set)" if assigns else "clears it"
            cure = f"Let {text} add: more than one op contributes to {history.name}."
            if not assigns:
                cure = "Clear the accumulator once, before the first contribution of the step."
            return Blame(
                f"{op_text(program, op)} contributes {listed(gone)}; after it {text} {how}, and "
                "what was there is lost.",
                (cure,),
                (over, op),
            )
    return None


def _shared(history: _History) -> Blame | None:
    """The accumulator is changed under another name of the same storage."""
    for op in reversed(history.ops):
        label = history.label(op)
        changes = history.program.kind[op] in (Kind.SCALE, Kind.ZERO) and history.is_own(label)
        if changes and label != history.name:
            return Blame(
                f"{history.name} and {label} are one storage: "
                f"{op_text(history.program, op)} changes both.",
                (f"Give {history.name} a copy of its own before {label} is changed.",),
                (op,),
            )
    return None


def _reduced_too_early(history: _History, by: Difference) -> Blame | None:
    """The sum over tied copies is taken after the copies were reduced and scattered."""
    if by.kind not in ("missing", "foreign", "mixed"):
        return None
    scattered = None
    for op in history.ops:
        if history.is_reduction(op, "reducescatter"):
            scattered = op
        elif history.is_reduction(op, "allreduce") and scattered is not None:
            early, late = op_text(history.program, scattered), op_text(history.program, op)
            return Blame(
                f"{early} leaves the reduced {history.name} with its owner and only a part with "
                f"the others; {late} then adds up what the ranks have left, parts and wholes.",
                (f"Take the sum ({late}) first, while every rank holds its part; then reduce.",),
                (op, scattered),
            )
    return None


def _usual(program: Program, by: Difference) -> Blame:
    if by.ratio is not None and by.kind == "factor":
        return _factor(program, by.ratio)
    if by.kind == "repeated" and by.ratio is not None:
        return Blame(
            f"It is added {times(by.ratio)}: by a backward that ran again, under two names of a "
            "tied weight, or by a sum over ranks that hold it already.",
            ("Add every contribution once; sum over ranks only what differs between them.",),
        )
    if by.kind == "uneven":
        return Blame(
            "Means of parts of different size are averaged (a mean of local means): the parts "
            "count alike, and so what they hold does not.",
            ("Add up sums, and divide once by the total number.",),
        )
    return _USUAL[by.kind]


def _factor(program: Program, ratio: Fraction) -> Blame:
    if ratio < 1 and ratio.numerator == 1:
        count = ratio.denominator
        return Blame(
            f"It is divided by {count}{_namely(program, count)} once too often: the loss or a "
            "scale divides already, and a mean or a scheduler divides again.",
            ("Divide in one place only.",),
        )
    if ratio > 1 and ratio.denominator == 1:
        count = ratio.numerator
        return Blame(
            f"A sum over {count}{_namely(program, count)} stands where the mean is wanted, or it "
            "is reduced twice.",
            (f"Divide by {count} once: op avg, or SCALE by 1/{count}.",),
        )
    return Blame("It is scaled by another factor than the wanted form.")


def _namely(program: Program, count: int) -> str:
    """What there are ``count`` of."""
    names = []
    if count == program.microbatches:
        names.append("the number of microbatches")
    groups: Mapping[str, tuple[int, ...]] = {
        "world": tuple(range(program.ranks)),
        **program.details.groups,
    }
    used = {a.more["group"] for a in program.details.attributes.values() if "group" in a.more}
    group = next((g for g, ranks in groups.items() if g in used and len(ranks) == count), None)
    if group is not None:
        names.append(f"the number of ranks in {group}")
    return f" ({', or '.join(names)})" if names else ""


_USUAL = {
    "nothing": Blame(
        "It is cleared, or stepped, before its contributions arrive, or they go to another "
        "name or rank.",
        ("Step after the last backward and the last reduction.",),
    ),
    "missing": Blame(
        "A backward does not contribute here, or its rank's part is not reduced into this one.",
        ("Accumulate every microbatch, and reduce over all ranks that hold a part.",),
    ),
    "extra": Blame(
        "It is left over from the step before (not cleared), or the reduction takes in ranks "
        "that hold something else.",
        ("Clear the accumulator before the first contribution of the step.",),
    ),
    "foreign": Blame(
        "It was reduced with another parameter: ranks call their reductions in different "
        "orders, and those that meet do not belong together.",
        ("Fix the order of the reductions, whatever becomes ready first.",),
    ),
    "mixed": Blame(
        "Contributions are reduced over other ranks, or other numbers of times, than wanted.",
    ),
}
