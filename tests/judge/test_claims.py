"""No claim is left out: what the step-by-step reading of a program can confirm, the
checks have found, and counted.

Every finding is confirmed before it is printed; here the way back is tried. For
each op of a program of everything each claim that could be made of it is put to
``confirm``, and all that are so must be in the count of some finding. A check
that looked away would be a false *holds*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from hypothesis import given, note, settings
from hypothesis import strategies as st

from pipeproof.judge.judge import judge_program
from pipeproof.judge.options import Options
from pipeproof.program.notation import op_text
from pipeproof.program.ops import COMPUTE, Kind
from pipeproof.program.programs import Attributes, Program
from pipeproof.replay.confirm import confirm, data_needs
from pipeproof.replay.ledger import at_op
from pipeproof.replay.model import Model
from pipeproof.verdict import (
    Claim,
    Counterexample,
    Crossed,
    Exceeds,
    Finding,
    Illegal,
    InFlight,
    Lacks,
    Misplaced,
    Ran,
    Remains,
    Unmatched,
)
from tests.soup import soup


def claims(program: Program, budget: dict[int, int]) -> Iterator[tuple[str, Claim]]:
    """(what kind of defect, claim): all claims of these kinds that could be made."""
    for op in range(program.ops):
        yield from _needs(program, op)
        yield from _state(program, op)
    for rank, limit in budget.items():
        ops = [op for op in range(program.ops) if program.rank_of(op) == rank]
        most = {op: at_op(program, op, ()).most for op in ops}
        first = next((op for op in ops if most[op] > limit), None)
        if first is not None:
            yield "over budget", Exceeds(first, most[first], limit)
    yield from _messages(program)
    yield from _counts(program)
    if program.details.leak_check:
        for rank in range(program.ranks):
            for name in ("a", "b"):
                yield "left over", Remains(rank, name)


def _needs(program: Program, op: int) -> Iterator[tuple[str, Claim]]:
    stage, microbatch = int(program.stage[op]), int(program.microbatch[op])
    in_range = 0 <= stage < program.stages and 0 <= microbatch < program.microbatches
    if int(program.kind[op]) in COMPUTE and not in_range:
        return  # coverage objects to it
    payloads, computes = data_needs(program, op)
    for payload in payloads:
        yield "no input", Lacks(op, payload=payload)
    for compute in computes:
        yield f"no {Kind(compute.kind).name}", Lacks(op, kind=compute.kind)


def _state(program: Program, op: int) -> Iterator[tuple[str, Claim]]:
    attributes = program.details.attributes.get(op, Attributes())
    for name in attributes.free:
        yield "not live", Illegal(op, name)
    for name in attributes.needs:
        if program.kind[op] != Kind.MAKE:
            yield "no resource", Illegal(op, name)
    slots = {slot for slot, _ in attributes.reads}
    for row in program.rows_of(op):
        traits = program.details.traits.get(row)
        if traits is None or traits.buf is None or not program.messages.send[row]:
            continue
        # What a slot holds that the program never filled is not known.
        if at_op(program, op, ()).slots.get(traits.buf) is not None:
            slots.add(traits.buf)
    for slot in slots:
        yield "wrong content", Illegal(op, f"slot {slot}")
    if int(program.kind[op]) in COMPUTE:
        yield "misplaced", Misplaced(op)


def _messages(program: Program) -> Iterator[tuple[str, Claim]]:
    rows = range(len(program.messages.op))
    for row in rows:
        yield "unmatched", Unmatched(row)
        for other in rows if program.messages.send[row] else ():
            if not program.messages.send[other]:
                yield "crossed", Crossed(row, other, "payload")
                yield "traits", Crossed(row, other, "shape")


def _counts(program: Program) -> Iterator[tuple[str, Claim]]:
    """Only where the step is complete: a fragment may run an op on several ranks."""
    for stage in range(program.stages if program.complete else 0):
        for microbatch in range(program.microbatches):
            for kind in (Kind.F, Kind.B, Kind.I, Kind.W):
                same = (program.kind == kind) & (program.stage == stage)
                ops = (same & (program.microbatch == microbatch)).nonzero()[0].tolist()
                known = program.details.attributes
                times = sum(not known.get(op, Attributes()).redo for op in ops)
                if times > 1:
                    yield "repeated", Ran(int(kind), stage, microbatch, times, 1)
                elif kind == Kind.F and not ops:
                    yield "no forward", Ran(int(kind), stage, microbatch, 0, 1)


def defect(finding: Finding) -> str:
    """The kind of defect that a finding is about, by the claim it makes."""
    claim = finding.counterexample.claim
    match claim:
        case Lacks(kind=None) | InFlight() if finding.check in ("order", "race"):
            return "no input"
        case Lacks():
            return f"no {Kind(claim.kind or 0).name}"
        case Illegal():
            return {"memory": "not live", "order": "no resource"}.get(
                finding.check, "wrong content"
            )
        case Exceeds():
            return "over budget"
        case Crossed():
            return "crossed" if claim.trait == "payload" else "traits"
        case Unmatched():
            return "unmatched"
        case Misplaced():
            return "misplaced"
        case Remains():
            return "left over"
        case Ran(expected=1) if claim.times > 1:
            return "repeated"
        case Ran(expected=1) if claim.kind == Kind.F:
            return "no forward"
    return "something else"


def left_out(program: Program, budget: int) -> list[str]:
    """The kinds of defect of which there are more than the findings count."""
    limits = {r: min(budget, program.details.budget.get(r, budget)) for r in range(program.ranks)}
    report = judge_program("soup", program, Options(budget={None: budget}))
    counted: Counter[str] = Counter()
    for finding in report.findings:
        counted[defect(finding)] += finding.count
    so = {
        (kind, claim)
        for kind, claim in claims(program, limits)
        if confirm(program, program.transport, Counterexample(claim, (), ())) is None
    }
    there = Counter(kind for kind, _ in so)
    if any(finding.check == "deadlock" for finding in report.findings):
        del there["wrong content"]  # nothing is read behind the place where it is stuck
    return [f"{kind}: {there[kind]}, not {counted[kind]}" for kind in there - counted]


@settings(max_examples=120)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_every_claim_that_is_so_is_counted(seed: int, budget: int) -> None:
    program = soup(Random(seed))
    for lane in program.lanes:
        note([op_text(program, op) for op in range(lane.first, lane.stop)])
    note(program.transport)
    note(Model(program, program.transport).run())
    assert left_out(program, budget) == []
