"""The oracle of harmlessness: does a broken program still do what the healthy one did?

It shares no code with the checks and their engines. A mutant is shown harmless if

- a run of the model executor ends, and everything that meets agrees;
- which lane comes first on a channel, in a group and on a stream is not left to
  chance, so that one run stands for all;
- no execution lets two accesses of one storage overlap, if one of them writes;
- over terms, every compute, message, update and report gets what it got in the
  healthy program, and no side effect happens more or less often;
- what the program states of its values is so;
- parameters are gathered when they are used; budgets are kept.

It is *allowed* if all of this is so but for values that the program states
nothing of: how a parameter without ``want`` is stepped, which of several weight
versions is used, whether a fragment contains an op that nothing in it needs.

Whatever it cannot settle is not shown: the answer errs on the side of harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pipeproof.faults.accesses import TooMany, overlap
from pipeproof.faults.terms import Objection, Observed, Terms, observe
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.replay.layout import posting_order, streams_of
from pipeproof.replay.ledger import SHARDED, at_op, shards
from pipeproof.replay.model import Model, Unsupported
from pipeproof.replay.state import State

HARMLESS, ALLOWED, UNSHOWN = "harmless", "allowed", "unshown"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the oracle can say of a mutant, and why, in words.

    *harmless*: every value is the same. *allowed*: something is another, and the
    program states nothing that this breaks. *unshown*: anything else.
    """

    fate: str
    reason: str


class Oracle:
    """Compares mutants with one healthy program."""

    def __init__(self, healthy: Program) -> None:
        self._healthy = healthy
        self._terms = Terms()
        self._expected: dict[bool, Observed] = {}  # with versions, and without
        self._doubt: str | None = None
        try:
            for versions in (True, False):
                self._expected[versions] = observe(healthy, self._terms, versions=versions)
        except (Objection, Unsupported) as error:
            self._doubt = str(error)

    def shown(self, mutant: Program) -> Shown:
        """Whether the mutant does what the healthy program does, in every execution."""
        if self._doubt is not None:
            return Shown(UNSHOWN, f"the program itself is not understood: {self._doubt}")
        try:
            found = observe(mutant, self._terms)
            objection = next(self._objections(mutant, found), None)
            if objection is None and self._same(found):
                return Shown(HARMLESS, f"every value is the same: {_counts(found)}")
            if objection is None:
                return self._allowed(mutant, found)
        except (Objection, Unsupported) as error:
            objection = str(error)
        except TooMany:
            objection = "it has too many accesses that could overlap"
        return Shown(UNSHOWN, objection)

    def _same(self, found: Observed) -> bool:
        expected = self._expected[True]
        return (
            found.computed == expected.computed
            and found.received == expected.received
            and found.demanded == expected.demanded
        )

    def _objections(self, mutant: Program, found: Observed) -> Iterator[str]:
        """What is wrong with a mutant whatever the values are."""
        if found.broken is not None:
            yield found.broken
        for lane in mutant.lanes:
            wrong, state = shards(mutant, lane)
            if wrong or any(now != SHARDED for now in state.values()):
                yield "parameters are not gathered and given back as they should be"
        yield from _unreduced(mutant, self._healthy)
        yield from _over_budget(mutant)
        yield from _by_chance(mutant)
        pair = overlap(mutant, Model(mutant, mutant.transport))
        if pair is not None:
            yield pair

    def _allowed(self, mutant: Program, found: Observed) -> Shown:
        """What is another, and that nothing in the program says it must not be."""
        expected, reasons = self._expected[True], []
        if found.computed != expected.computed or found.received != expected.received:
            # Without a statement that it breaks (see _objections), any version will do.
            found, expected = (observe(mutant, self._terms, versions=False), self._expected[False])
            if found.received != expected.received:
                return Shown(UNSHOWN, "some receive gets something else")
            open_ = _left_open(mutant, found, expected)
            if open_ is None:
                return Shown(UNSHOWN, "some compute gets something else")
            reasons.append(open_)
        if found.demanded != expected.demanded:
            reasons.append("what it changes of updates, reports and effects")
        return Shown(
            ALLOWED,
            f"the program does not state {' and '.join(reasons)}; else the same: {_counts(found)}",
        )


def _left_open(mutant: Program, found: Observed, expected: Observed) -> str | None:
    """What it is that the program leaves open, where nothing else differs."""
    missing, more = expected.computed - found.computed, found.computed - expected.computed
    if not missing and not more:
        return "which weight version a compute uses"
    if not more and all(key[0] == Kind.R for key, _ in missing):
        return "that a forward is recomputed"
    if mutant.complete:
        return None
    times = Counter(key for key, _ in found.computed.elements())
    if not more:
        return "that this fragment has the compute that is missing"
    if not missing and all(key[0] == Kind.W and times[key] == 1 for key, _ in more):
        return "that this fragment leaves the weight gradient to others"
    return None


def _counts(found: Observed) -> str:
    parts = [
        f"{number} {noun}{'' if number == 1 else 's'}"
        for number, noun in (
            (found.computes, "compute"),
            (found.messages, "message"),
            (found.updates, "update"),
        )
        if number
    ]
    return f"{', '.join(parts) or 'nothing computed'}, in every execution"


def _unreduced(mutant: Program, healthy: Program) -> Iterator[str]:
    """Each stage's gradients are reduced as often as before."""
    times = [sorted(p.stage[p.kind == Kind.REDUCE_GRAD].tolist()) for p in (mutant, healthy)]
    if times[0] != times[1]:
        yield "gradients are reduced another number of times"


def _over_budget(program: Program) -> Iterator[str]:
    for rank, budget in program.details.budget.items():
        lanes = [lane for lane in program.lanes if lane.rank == rank]
        if len(lanes) > 1:
            yield "several lanes of a rank share a budget"
        for lane in lanes:
            for op in range(lane.first, lane.stop):
                if at_op(program, op, ()).most > budget:
                    yield f"at {op_text(program, op)} the rank exceeds its budget"


class _Barred(Model):
    """The model without the chance to enter one op."""

    barred = -1

    def _may_enter(self, state: State, lane: int) -> bool:
        return state.at[lane] != self.barred and super()._may_enter(state, lane)

    def enters(self, op: int, *, without: int) -> bool:
        """Whether some execution enters ``op`` and not ``without``."""
        self.barred = without
        state = self.held_at(())
        lane = self._lane[op]
        return state.at[lane] > op or (state.at[lane] == op and bool(state.entered[lane]))


def _by_chance(program: Program) -> Iterator[str]:
    """Two lanes that take turns on a channel, in a group or on a stream, unordered."""
    if not program.several_lanes:
        return
    place = posting_order(program)
    m = program.messages
    users: dict[tuple[object, ...], list[int]] = {}
    for row, op in enumerate(m.op.tolist()):
        channel = (program.rank_of(op), bool(m.send[row]), int(m.peer[row]), int(m.comm[row]))
        users.setdefault(channel, []).append(op)
    for op in (program.kind == Kind.COLL).nonzero()[0].tolist():
        group = program.details.attributes[op].more["group"]
        users.setdefault((program.rank_of(op), group), []).append(op)
    for op, streams in streams_of(program, program.transport.streams)[0].items():
        for stream in streams:
            users.setdefault(("stream", stream), []).append(op)
    model = _Barred(program, program.transport)
    for ops in users.values():
        ordered = sorted(dict.fromkeys(ops), key=lambda op: place[op])
        for one, other in pairwise(ordered):
            if program.lane_of(one) == program.lane_of(other):
                continue
            if model.enters(other, without=one):
                yield "two lanes take turns in no fixed order"
