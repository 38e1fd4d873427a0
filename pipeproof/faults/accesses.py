"""What each op reads and writes on its rank: a second reading, for the oracle.

The checks have theirs (``checks.accesses``). This one is taken from the program
format again, asks the model executor instead of the event graph what may
overlap, and takes everything a rank has for storage: payloads, slots,
accumulators, weights, allocations, resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from pipeproof.program.notation import op_text
from pipeproof.program.ops import COMPUTE, SHARDING, Kind, activation, gradient
from pipeproof.program.programs import Program
from pipeproof.replay.confirm import data_needs
from pipeproof.replay.ledger import attributes_of
from pipeproof.replay.model import Model

Storage = tuple[object, ...]
"""(rank, sort, name)."""

MOST_PAIRS = 4000
"""Beyond this many pairs of accesses to settle by a run each, nothing is shown."""


class TooMany(Exception):
    """More pairs of accesses than are settled one by one."""


@dataclass(frozen=True, slots=True)
class Access:
    """An op that uses a storage, writing it or only reading."""

    op: int
    writes: bool


def overlap(program: Program, model: Model) -> str | None:
    """Two accesses, in words, that some execution lets overlap although one writes."""
    posted = (program.request >= 0).tolist()
    lane = [n for n, entry in enumerate(program.lanes) for _ in range(entry.first, entry.stop)]
    waiters: dict[int, list[int]] = {}
    poster = {int(r): op for op, r in enumerate(program.request.tolist()) if r >= 0}
    for op, request in zip(program.waits.op.tolist(), program.waits.request.tolist(), strict=True):
        waiters.setdefault(poster[request], []).append(op)

    def ended(first: Access, second: Access) -> bool:
        """Whether ``first`` is over before ``second`` begins, in every execution."""
        same = lane[first.op] == lane[second.op]
        if not posted[first.op] and same:
            return first.op < second.op
        if any(lane[w] == lane[second.op] and w <= second.op for w in waiters.get(first.op, ())):
            return True
        return not model.reaches(second.op, without=first.op)

    asked = 0
    for used in _by_storage(program).values():
        if not any(access.writes for access in used):
            continue
        for one, other in combinations(used, 2):
            if one.op == other.op or not (one.writes or other.writes):
                continue
            if lane[one.op] == lane[other.op] and not posted[one.op]:
                continue  # ops of a lane stand in their order
            asked += 1
            if asked > MOST_PAIRS:
                raise TooMany
            backwards = lane[one.op] != lane[other.op] and ended(other, one)
            if not (backwards or ended(one, other)):
                return f"{op_text(program, one.op)} and {op_text(program, other.op)} may overlap"
    return None


def _by_storage(program: Program) -> dict[Storage, list[Access]]:
    found: dict[Storage, dict[int, bool]] = {}
    for op in range(program.ops):
        rank = program.rank_of(op)
        for sort, name, writes in _uses(program, op):
            entry = found.setdefault((rank, sort, name), {})
            entry[op] = entry.get(op, False) or writes
    return {
        storage: [Access(op, writes) for op, writes in used.items()]
        for storage, used in found.items()
    }


def _uses(program: Program, op: int) -> Iterator[tuple[str, object, bool]]:
    """(sort, name, whether it is written) of everything that op touches."""
    kind = Kind(int(program.kind[op]))
    stage, microbatch = int(program.stage[op]), int(program.microbatch[op])
    attributes = attributes_of(program, op)
    payloads, computes = data_needs(program, op)
    yield from (("payload", payload, False) for payload in payloads)
    for compute in computes:
        yield "state", (compute.kind, compute.stage, compute.microbatch), False
    if kind in COMPUTE:
        yield "state", (int(kind), stage, microbatch), True
        yield "weight", f"w{stage}", False
        if kind is Kind.F:
            yield "payload", activation(stage, microbatch), True
        if kind in (Kind.B, Kind.I):
            yield "payload", gradient(stage, microbatch), True
    if kind in SHARDING:
        yield "parameters", stage, True
    m = program.messages
    for row in program.rows_of(op):
        send, traits = bool(m.send[row]), program.details.traits.get(row)
        if not send:
            yield "payload", int(m.payload[row]), True
        if traits is not None and traits.buf is not None:
            yield "slot", traits.buf, not send
    yield from _more_uses(program, op, kind)
    yield from (("slot", slot, True) for slot, _ in attributes.writes)
    yield from (("slot", slot, False) for slot, _ in attributes.reads)
    # An allocation is the storage of a slot of its name.
    yield from (("slot", name, True) for name, _ in attributes.alloc)
    yield from (("slot", name, True) for name in attributes.free)
    for resource in attributes.needs:
        yield "resource", resource, kind in (Kind.MAKE, Kind.DROP)


def _more_uses(program: Program, op: int, kind: Kind) -> Iterator[tuple[str, object, bool]]:
    attributes = attributes_of(program, op)
    more, label, alias = attributes.more, attributes.label, program.details.alias
    if "copy" in more:
        source, target = more["copy"]
        yield "slot", source, False
        yield "slot", target, True

    def accumulator(name: str) -> str:
        seen = {name}
        while name in alias and alias[name] not in seen:
            name = alias[name]
            seen.add(name)
        return name

    for name in more.get("grad", ()):
        yield "accumulator", accumulator(name), True
    if label is not None:
        if kind in (Kind.ZERO, Kind.SCALE, Kind.STEP):
            yield "accumulator", accumulator(label), True
        if kind is Kind.REPORT:
            yield "accumulator", accumulator(label), False
        if kind in (Kind.STEP, Kind.ROLLBACK):
            yield "weight", label, True
    if "param" in more:
        writes = more["kind"] in ("allreduce", "reducescatter")
        yield "accumulator", accumulator(more["param"]), writes
    yield from (("weight", name, True) for name in more.get("bumps", ()))
    yield from (("weight", name, False) for name in more.get("uses", ()))
