"""What a rank has, as its ops go by one after the other.

The claims of a counterexample that concern one rank are confirmed by reading
its lane in order, as if every message arrived. The ledger is the book kept
while reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeproof.program.notation import payload_name
from pipeproof.program.ops import COMPUTE, Kind, activation, gradient
from pipeproof.program.programs import Attributes, Lane, Program, Traits
from pipeproof.replay.layout import ranges

NO_ATTRIBUTES = Attributes()
NO_TRAITS = Traits()


@dataclass(frozen=True, slots=True)
class Compute:
    """One compute: a kind of a stage on a microbatch."""

    kind: int
    stage: int
    microbatch: int


def attributes_of(program: Program, op: int) -> Attributes:
    """What the op carries beside its arguments."""
    return program.details.attributes.get(op, NO_ATTRIBUTES)


def compute_of(program: Program, op: int) -> Compute:
    """The op as kind, stage and microbatch."""
    return Compute(int(program.kind[op]), int(program.stage[op]), int(program.microbatch[op]))


class Ledger:
    """What one rank has. An op is first *reached*, then *passed*.

    Reached: what it waits for has completed and its own allocations are made.
    Passed: it has completed, or, where it is asynchronous, it is posted. An
    asynchronous op gives what it gives (a payload, a filled slot, a freed
    allocation) when it is waited for: that is the latest it may.
    """

    def __init__(self, program: Program, rank: int) -> None:
        self._program = program
        self._kind: list[int] = program.kind.tolist()
        self._rows = ranges(program.messages.op.tolist(), program.ops)
        self._waits = ranges(program.waits.op.tolist(), program.ops)
        self.payloads = {payload for r, payload in program.details.held if r == rank}
        self.resources = {name for r, name in program.details.resources if r == rank}
        self.ran: set[Compute] = set()
        self.pending: dict[int, int] = {}  # request -> the op that posted it
        self.live: dict[str, int] = {}  # allocation -> units
        self._allocates = program.allocates
        self._held = 0  # the sum of all that is live
        self.most = 0  # units held, at most, while the op that was reached runs
        self.activations: set[tuple[int, int]] = set()  # (stage, microbatch)
        self.slots: dict[str, str | None] = {}  # slot -> its content
        self._copied: dict[int, str | None] = {}  # asynchronous copy -> content on its way

    @property
    def units(self) -> int:
        """Units held: of allocations, or one an activation if nothing is allocated."""
        return self._held if self._allocates else len(self.activations)

    def reach(self, op: int) -> None:
        """The lane comes to op.

        An op's allocations are made before it: a WAIT's before it waits, those
        of any other op, which waits first, after that.
        """
        waits = self._kind[op] == Kind.WAIT
        if waits:
            self._allocate(op)
        before = self.units
        for wait in self._waits[op]:
            request = int(self._program.waits.request[wait])
            if request in self.pending:
                self._complete(self.pending.pop(request))
        if not waits:
            self._allocate(op)
        if self._kind[op] == Kind.F:
            compute = compute_of(self._program, op)
            self.activations.add((compute.stage, compute.microbatch))
        self.most = max(before, self.units) if waits else self.units

    def _allocate(self, op: int) -> None:
        for name, units in attributes_of(self._program, op).alloc:
            self.live[name] = self.live.get(name, 0) + units
            self._held += units

    def go_past(self, op: int) -> None:
        """The lane leaves op, which it had reached."""
        attributes = attributes_of(self._program, op)
        kind, request = self._kind[op], int(self._program.request[op])
        if kind in COMPUTE:
            self._run(compute_of(self._program, op))
        if "copy" in attributes.more:
            self._copied[op] = self.slots.get(attributes.more["copy"][0])
        if kind == Kind.MAKE:
            self.resources.update(attributes.needs)
        if kind == Kind.DROP:
            self.resources.difference_update(attributes.needs)
        if request >= 0:
            self.pending[request] = op
        else:
            self._complete(op)
        # What an op writes beside its own business, it writes last.
        self.slots.update(attributes.writes)

    def settle(self) -> None:
        """Everything pending completes."""
        for op in self.pending.values():
            self._complete(op)
        self.pending.clear()

    def _run(self, compute: Compute) -> None:
        self.ran.add(compute)
        stage, microbatch = compute.stage, compute.microbatch
        if compute.kind in (Kind.B, Kind.W) or self._program.forward_only:
            self.activations.discard((stage, microbatch))
        if stage < 0 or microbatch < 0:
            return  # out of range: there is no payload of that name
        if compute.kind == Kind.F:
            self.payloads.add(activation(stage, microbatch))
        if compute.kind in (Kind.B, Kind.I):
            self.payloads.add(gradient(stage, microbatch))

    def _complete(self, op: int) -> None:
        """What is given on completion: received payloads, filled slots, freed memory."""
        program, attributes = self._program, attributes_of(self._program, op)
        for row in self._rows[op]:
            if program.messages.send[row]:
                continue
            # After a mismatch, too, the receiver is taken to hold what it expected.
            payload = int(program.messages.payload[row])
            self.payloads.add(payload)
            slot = program.details.traits.get(row, NO_TRAITS).buf
            if slot is not None:
                self.slots[slot] = payload_name(program, payload)
        if op in self._copied:
            self.slots[attributes.more["copy"][1]] = self._copied.pop(op)
        for name in attributes.free:
            self._held -= self.live.pop(name, 0)


def at_op(program: Program, op: int, moves: tuple[int, ...]) -> Ledger:
    """The ledger of op's rank when its lane reaches op.

    Other lanes of the rank, if any, have completed as many ops as ``moves`` says.
    """
    rank, own = program.rank_of(op), program.lane_of(op)
    ledger = Ledger(program, rank)
    for number, lane in _lanes(program, rank):
        if number != own and number < len(moves):
            _read(ledger, lane.first, min(lane.first + moves[number], lane.stop))
    _read(ledger, program.lanes[own].first, op)
    ledger.reach(op)
    return ledger


def at_end(program: Program, rank: int) -> Ledger:
    """The ledger of a rank when all its lanes are done, and all it posted has completed."""
    ledger = Ledger(program, rank)
    for _, lane in _lanes(program, rank):
        _read(ledger, lane.first, lane.stop)
    ledger.settle()
    return ledger


def _lanes(program: Program, rank: int) -> Iterator[tuple[int, Lane]]:
    return ((n, lane) for n, lane in enumerate(program.lanes) if lane.rank == rank)


def _read(ledger: Ledger, first: int, stop: int) -> None:
    for op in range(first, stop):
        ledger.reach(op)
        ledger.go_past(op)


# --- sharded parameters -------------------------------------------------------

SHARDED, PENDING, UNSHARDED = "sharded", "pending", "unsharded"


def shards(program: Program, lane: Lane) -> tuple[dict[int, str], dict[int, str]]:
    """The ops of a lane that break the state of sharded parameters, and the end.

    First: by op, what is wrong with it. Second: the state that each stage's
    parameters end in. An op that breaks a rule leaves the state as it was.
    A program without UNSHARD and RESHARD does not shard; REDUCE_GRAD has its rule anyway.
    """
    sharding = bool(((program.kind == Kind.UNSHARD) | (program.kind == Kind.RESHARD)).any())
    wrong: dict[int, str] = {}
    state: dict[int, str] = {}
    gathered: dict[int, int] = {}  # stage -> the UNSHARD that is pending
    reduced: set[int] = set()
    kinds = program.kind[lane.first : lane.stop].tolist()
    stages = program.stage[lane.first : lane.stop].tolist()
    for op, kind, stage in zip(range(lane.first, lane.stop), kinds, stages, strict=True):
        now = state.get(stage, SHARDED)
        if kind == Kind.REDUCE_GRAD:
            if stage in reduced:
                wrong[op] = "the gradient is reduced a second time"
            reduced.add(stage)
        elif kind in (Kind.B, Kind.W) and stage in reduced:
            wrong[op] = "the gradient was reduced already"
        if not sharding:
            continue
        if kind == Kind.UNSHARD:
            if now == SHARDED:
                state[stage], gathered[stage] = PENDING, op
            else:
                wrong[op] = f"the parameters are {now} already"
        elif kind == Kind.RESHARD:
            if now == UNSHARDED:
                state[stage] = SHARDED
            else:
                wrong[op] = f"the parameters are {now}"
        elif kind in COMPUTE:
            if now == SHARDED:
                wrong[op] = "the parameters are sharded"
            else:
                state[stage] = UNSHARDED
    for stage, now in state.items():
        if now == PENDING:
            wrong[gathered[stage]] = "the parameters are gathered and never used"
    return wrong, state


def units_of(program: Program, completed: set[int], begun: set[int]) -> int:
    """What one rank holds when just these ops of it have begun and completed.

    A posted op frees when an op that waits for it has completed.
    """
    if not program.allocates:
        cell = {op: (int(program.stage[op]), int(program.microbatch[op])) for op in begun}
        there = {cell[op] for op in begun if program.kind[op] == Kind.F}
        last = (Kind.F,) if program.forward_only else (Kind.B, Kind.W)
        gone = {cell[op] for op in completed if program.kind[op] in last}
        return len(there - gone)
    size = {n: u for op in begun for n, u in attributes_of(program, op).alloc}
    held = sum(u for op in begun for _, u in attributes_of(program, op).alloc)
    over = {r for op in completed for r in program.requests_of(op)}
    for op in begun:
        request = int(program.request[op])
        if request in over if request >= 0 else op in completed:
            held -= sum(size.get(name, 0) for name in attributes_of(program, op).free)
    return held
