"""The oracle of harmlessness: does a broken program still do what the healthy one did?

It shares no code with the checks and their engines. A mutant is shown harmless if

- a run of the model executor ends, and everything that meets agrees;
- which lane comes first on a channel, in a group and on a stream is not left to
  chance, so that one run stands for all;
- no execution lets two accesses of one storage overlap, if one of them writes;
- over terms, every compute, message, update and report gets what it got in the
  healthy program, and no side effect happens more or less often;
- parameters are gathered when they are used; budgets are kept.

Whatever it cannot settle is not shown: the answer errs on the side of harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeproof.faults.accesses import TooMany, overlap
from pipeproof.faults.terms import Objection, Observed, Terms, observe
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.replay.layout import posting_order, streams_of
from pipeproof.replay.ledger import SHARDED, at_op, shards
from pipeproof.replay.model import Model, Unsupported
from pipeproof.replay.state import State


@dataclass(frozen=True, slots=True)
class Shown:
    """Whether a mutant was shown harmless, and why (or why not), in words."""

    harmless: bool
    reason: str


class Oracle:
    """Compares mutants with one healthy program."""

    def __init__(self, healthy: Program) -> None:
        self._healthy = healthy
        self._terms = Terms()
        self._expected: Observed | str
        try:
            self._expected = observe(healthy, self._terms)
        except (Objection, Unsupported) as error:
            self._expected = str(error)

    def shown(self, mutant: Program) -> Shown:
        """Whether the mutant does what the healthy program does, in every execution."""
        if isinstance(self._expected, str):
            return Shown(False, f"the program itself is not understood: {self._expected}")
        try:
            found = observe(mutant, self._terms)
            objection = next(self._objections(mutant, found, self._expected), None)
        except (Objection, Unsupported) as error:
            objection = str(error)
        except TooMany:
            objection = "it has too many accesses that could overlap"
        if objection is not None:
            return Shown(False, objection)
        return Shown(True, _reason(found, self._expected))

    def _objections(
        self, mutant: Program, found: Observed, expected: Observed
    ) -> Iterator[str]:
        if found.demanded != expected.demanded:
            yield "an update, a report or a side effect is another"
        if found.computed != expected.computed:
            # A fragment says of no compute that it must contain it.
            if mutant.complete or not found.computed <= expected.computed:
                yield "some compute gets something else"
        if found.received != expected.received:
            yield "some receive gets something else"
        for lane in mutant.lanes:
            wrong, state = shards(mutant, lane)
            if wrong or any(now != SHARDED for now in state.values()):
                yield "parameters are not gathered and given back as they should be"
        yield from _unreduced(mutant, self._healthy)
        yield from _over_budget(mutant)
        yield from _by_chance(mutant)
        wrong_pair = overlap(mutant, Model(mutant, mutant.transport))
        if wrong_pair is not None:
            yield wrong_pair


def _reason(found: Observed, expected: Observed) -> str:
    parts = [
        f"{number} {noun}{'' if number == 1 else 's'}"
        for number, noun in (
            (found.computes, "compute"),
            (found.messages, "message"),
            (found.updates, "update"),
        )
        if number
    ]
    same = f"{', '.join(parts) or 'nothing'} as before, in every execution"
    left = (expected.computed - found.computed).total()
    if left:
        return f"a fragment need not contain it; {same}"
    return f"every value is the same: {same}"


def _unreduced(mutant: Program, healthy: Program) -> Iterator[str]:
    """Each stage's gradients are reduced as often as before."""
    times = [
        sorted(p.stage[p.kind == Kind.REDUCE_GRAD].tolist()) for p in (mutant, healthy)
    ]
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
        for one, other in zip(ordered, ordered[1:], strict=False):
            if program.lane_of(one) == program.lane_of(other):
                continue
            if model.enters(other, without=one):
                yield "two lanes take turns in no fixed order"
