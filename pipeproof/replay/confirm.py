"""Re-enacting counterexamples: is what they claim so?

A claim is confirmed from the program alone, without knowing how it was found:
by running the model, by reading the lane it speaks of, or by counting.
"""

from __future__ import annotations

from typing import assert_never

from pipeproof.program.graph import StageGraph
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import COMPUTE, LETTER, SHARDING, Kind, activation, gradient
from pipeproof.program.programs import Program
from pipeproof.program.transports import Transport
from pipeproof.replay import confirm_runs as runs
from pipeproof.replay.confirm_values import confirm_value
from pipeproof.replay.ledger import (
    NO_TRAITS,
    SHARDED,
    Compute,
    at_end,
    at_op,
    attributes_of,
    compute_of,
    shards,
    units_of,
)
from pipeproof.replay.measure import confirm_measured
from pipeproof.replay.model import Model
from pipeproof.verdict import (
    Counterexample,
    Crossed,
    Diverged,
    EffectCount,
    Exceeds,
    Illegal,
    InFlight,
    Lacks,
    Measured,
    Misplaced,
    NoVersion,
    Overtakes,
    Partition,
    PilesUp,
    Ran,
    RandomState,
    ReadsVersion,
    Remains,
    Repeated,
    Sharding,
    Stuck,
    TakesEither,
    UnequalCalls,
    Unjoined,
    Unmatched,
    WrongForm,
)


def confirm(program: Program, transport: Transport, counterexample: Counterexample) -> str | None:
    """None where the claim is confirmed, otherwise a sentence that says what differed.

    Raises ``Unsupported`` where the claim needs a run of a program that the
    model gives no meaning to.
    """
    claim, moves = counterexample.claim, counterexample.moves
    match claim:
        case Stuck():
            return runs.stuck(program, transport, claim, moves)
        case TakesEither():
            return runs.takes_either(program, transport, claim)
        case Crossed():
            return runs.crossed(program, transport, claim)
        case Unmatched():
            return runs.unmatched(program, transport, claim)
        case Ran():
            return _ran(program, claim)
        case Repeated():
            return _repeated(program, claim)
        case Misplaced():
            return _misplaced(program, claim)
        case Lacks():
            return _lacks(program, claim, moves)
        case Sharding():
            return _sharding(program, claim)
        case InFlight():
            return _in_flight(program, claim, moves)
        case Overtakes():
            return runs.overtakes(program, transport, claim)
        case UnequalCalls():
            return runs.unequal_calls(program, claim)
        case Unjoined():
            return runs.unjoined(program, transport, claim)
        case Exceeds():
            return _exceeds(program, claim, moves)
        case PilesUp():
            return _piles_up(program, transport, claim)
        case Illegal():
            return _illegal(program, claim, moves)
        case Remains():
            return _remains(program, claim)
        case Partition():
            return _partition(program)
        case Measured():
            return confirm_measured(program, claim)
        case (
            WrongForm() | Diverged() | EffectCount() | RandomState() | ReadsVersion() | NoVersion()
        ):
            return confirm_value(program, transport, claim)
        case _:
            assert_never(claim)


# --- confirmed by counting ----------------------------------------------------


def _ran(program: Program, claim: Ran) -> str | None:
    wanted = Compute(claim.kind, claim.stage, claim.microbatch)
    same = (program.kind == wanted.kind) & (program.stage == wanted.stage)
    ops = (same & (program.microbatch == wanted.microbatch)).nonzero()[0].tolist()
    in_range = 0 <= claim.stage < program.stages
    if claim.kind in SHARDING:  # these are a stage's, of no microbatch
        in_range = in_range and claim.microbatch == -1
    else:
        in_range = in_range and 0 <= claim.microbatch < program.microbatches
    # What may repeat counts for nothing, unless it should not be there at all.
    times = sum(not in_range or not attributes_of(program, op).redo for op in ops)
    name = _compute_text(wanted)
    if times != claim.times:
        return f"{name} runs {times} times, not {claim.times}."
    if claim.expected not in (0, 1):
        return f"No step needs {name} {claim.expected} times."
    if claim.expected and not in_range:
        return f"There is no {name} in a step of this size, so none is expected."
    if times == claim.expected:
        return f"{name} runs {times} times, as expected."
    return None


def _repeated(program: Program, claim: Repeated) -> str | None:
    rows = zip(program.messages.send.tolist(), program.messages.payload.tolist(), strict=True)
    times = sum(row == (claim.send, claim.payload) for row in rows)
    done = "sent" if claim.send else "received"
    if times != claim.times or times < 2:
        return f"{payload_name(program, claim.payload)} is {done} {times} times."
    return None


def _misplaced(program: Program, claim: Misplaced) -> str | None:
    op, stage = claim.op, int(program.stage[claim.op])
    if attributes_of(program, op).anywhere:
        return f"{op_text(program, op)} may run anywhere."
    if int(program.kind[op]) not in (*COMPUTE, *SHARDING):
        return f"{op_text(program, op)} acts on no stage."
    if not 0 <= stage < len(program.hosts) or not program.hosts[stage]:
        return f"Nothing is known about the hosts of stage {stage}."
    if program.rank_of(op) in program.hosts[stage]:
        return f"Rank {program.rank_of(op)} hosts stage {stage}."
    return None


def _partition(program: Program) -> str | None:
    layers, count = program.details.layers, program.details.n_layers
    if layers is None:
        return "The program does not say which layers its stages have."
    listed = [layer for stage in layers for layer in stage]
    count = len(listed) if count is None else count
    if listed == list(range(count)):
        return f"The layers of the stages are 0 to {count - 1}, once each."
    return None


# --- confirmed by reading a lane ----------------------------------------------


def data_needs(program: Program, op: int) -> tuple[set[int], set[Compute]]:
    """What must be on the rank before op: payloads, and computes that ran there."""
    payloads: set[int] = set()
    computes: set[Compute] = set()
    own = compute_of(program, op)
    kind, stage, microbatch = own.kind, own.stage, own.microbatch
    if attributes_of(program, op).nodeps:
        return payloads, computes
    if kind == Kind.F and stage > 0 and microbatch >= 0 and program.details.graph is None:
        payloads.add(activation(stage - 1, microbatch))
    if kind in (Kind.B, Kind.I):
        computes.add(Compute(Kind.F, stage, microbatch))
        if stage != program.stages - 1 and stage >= -1 and microbatch >= 0:
            payloads.add(gradient(stage + 1, microbatch))
    if program.details.graph is not None:
        _graph_needs(program.details.graph, own, payloads, computes)
    if kind == Kind.W:
        computes.add(Compute(Kind.I, stage, microbatch))
    if kind == Kind.R:
        computes.add(Compute(Kind.F, stage, microbatch))
    for row in program.rows_of(op):
        payload = int(program.messages.payload[row])
        if program.messages.send[row] and payload >= 0:  # named payloads are free
            payloads.add(payload)
    return payloads, computes


def _graph_needs(
    graph: StageGraph, own: Compute, payloads: set[int], computes: set[Compute]
) -> None:
    """Replace what a chain needs by what the stage graph says."""
    kind, stage, microbatch = own.kind, own.stage, own.microbatch
    if not 0 <= stage < len(graph.inputs) or microbatch < 0:
        return
    part = microbatch % graph.slices
    if kind == Kind.F:
        payloads |= {activation(source, microbatch) for source in graph.inputs[stage]}
        if graph.feedback and not graph.inputs[stage] and part:
            payloads.add(activation(len(graph.inputs) - 1, microbatch - 1))
        if graph.carried and part:
            computes.add(Compute(kind, stage, microbatch - 1))
    elif kind in (Kind.B, Kind.I):
        payloads.clear()
        takers = [s for s, inputs in enumerate(graph.inputs) if stage in inputs]
        payloads |= {gradient(taker, microbatch) for taker in takers}
        if graph.carried and part < graph.slices - 1:
            computes.add(Compute(kind, stage, microbatch + 1))


def _lacks(program: Program, claim: Lacks, moves: tuple[int, ...]) -> str | None:
    text = op_text(program, claim.op)
    payloads, computes = data_needs(program, claim.op)
    ledger = at_op(program, claim.op, moves)
    if claim.payload is not None:
        name = payload_name(program, claim.payload)
        if claim.payload not in payloads:
            return f"{text} does not need {name}."
        if claim.payload in ledger.payloads:
            return f"When {text} is reached, its rank has {name}."
    elif claim.kind is not None:
        stage, microbatch = int(program.stage[claim.op]), int(program.microbatch[claim.op])
        of = microbatch if claim.microbatch is None else claim.microbatch
        first = Compute(claim.kind, stage, of)
        if first not in computes:
            return f"{text} does not need {_compute_text(first)}."
        if first in ledger.ran:
            return f"{_compute_text(first)} ran before {text}."
    else:
        return "The claim does not say what is missing."
    return None


def _sharding(program: Program, claim: Sharding) -> str | None:
    wrong, _ = shards(program, program.lanes[program.lane_of(claim.op)])
    if claim.op not in wrong:
        return f"{op_text(program, claim.op)} agrees with the state of its stage's parameters."
    return None


def _in_flight(program: Program, claim: InFlight, moves: tuple[int, ...]) -> str | None:
    if claim.op == claim.poster and _clashes(program, claim.op):
        return None
    if claim.poster not in at_op(program, claim.op, moves).pending.values():
        here, poster = op_text(program, claim.op), op_text(program, claim.poster)
        return f"When {here} is reached, nothing is pending that {poster} posted."
    return None


def _clashes(program: Program, op: int) -> bool:
    """Whether two members of one group use the same slot, and one of them fills it."""
    users: dict[str | None, list[bool]] = {}
    for row in program.rows_of(op):
        slot = program.details.traits.get(row, NO_TRAITS).buf
        users.setdefault(slot, []).append(bool(program.messages.send[row]))
    return any(s is not None and len(u) > 1 and not all(u) for s, u in users.items())


def _exceeds(program: Program, claim: Exceeds, moves: tuple[int, ...]) -> str | None:
    units = at_op(program, claim.op, moves).most
    if units != claim.units:
        return f"At {op_text(program, claim.op)} its rank holds {units} units, not {claim.units}."
    if units <= claim.budget:
        return f"{units} units are within the budget of {claim.budget}."
    return None


def _piles_up(program: Program, transport: Transport, claim: PilesUp) -> str | None:
    state = Model(program, transport).held_at(claim.held)
    completed, begun = set[int](), set[int]()
    for number, lane in enumerate(program.lanes):
        if lane.rank == claim.rank:
            completed.update(range(lane.first, state.at[number]))
            begun.update(range(lane.first, state.at[number] + bool(state.entered[number])))
    units = units_of(program, completed, begun)
    if units != claim.units:
        return f"Rank {claim.rank} then holds {units} units, not {claim.units}."
    if units <= claim.budget:
        return f"{units} units are within the budget of {claim.budget}."
    return None


def _illegal(program: Program, claim: Illegal, moves: tuple[int, ...]) -> str | None:
    op, what = claim.op, claim.what
    attributes, ledger = attributes_of(program, op), at_op(program, op, moves)
    concerned = False
    if what in attributes.free:
        concerned = True
        freed = (attributes_of(program, poster).free for poster in ledger.pending.values())
        twice = attributes.free.count(what) > 1
        if twice or what not in ledger.live or any(what in names for names in freed):
            return None
    if what in attributes.needs and program.kind[op] != Kind.MAKE:
        concerned = True
        if what not in ledger.resources:
            return None
    for slot, content in _contents_read(program, op):
        if what == f"slot {slot}":
            concerned = True
            if ledger.slots.get(slot) != content:
                return None
    if concerned:
        return f"When {op_text(program, op)} is reached, {what} is as it expects."
    return f"{op_text(program, op)} does not free, drop, need or read {what}."


def _contents_read(program: Program, op: int) -> list[tuple[str, str]]:
    """The slots that op reads, with the content it expects there."""
    reads = list(attributes_of(program, op).reads)
    for row in program.rows_of(op):
        slot = program.details.traits.get(row, NO_TRAITS).buf
        if program.messages.send[row] and slot is not None:
            reads.append((slot, payload_name(program, int(program.messages.payload[row]))))
    return reads


def _remains(program: Program, claim: Remains) -> str | None:
    if claim.what in program.details.may_remain:
        return f"{claim.what} may remain."
    held = set(at_end(program, claim.rank).live)
    for lane in program.lanes:
        if lane.rank == claim.rank:
            _, state = shards(program, lane)
            held |= {f"parameters of stage {s}" for s, now in state.items() if now != SHARDED}
    if claim.what not in held:
        return f"Rank {claim.rank} does not end with {claim.what}."
    return None


# --- words --------------------------------------------------------------------


def _compute_text(compute: Compute) -> str:
    kind = Kind(compute.kind)
    return f"{compute.stage}{LETTER.get(kind, kind.name)}{compute.microbatch}"
