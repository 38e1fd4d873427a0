"""What a rank holds when an op needs it.

An op's inputs are obligations on its own lane: an activation or gradient is
there once a compute op of the rank made it, a blocking receive completed, or a
posted receive was waited for. Everything is compared as positions on the lane,
doubled: what op i makes is there from 2i + 1 on, what op i waits for from 2i
on, and op i itself needs its inputs at 2i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.program.keys import dense
from pipeproof.program.ops import Kind, activation, gradient
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.program.programs import Bools, Ints, Longs

_NEVER = np.int64(1) << 60


@dataclass(frozen=True, slots=True)
class Holdings:
    """The obligations that are not met.

    ``missing``: rows (op, payload) that no op of the rank provides in time.
    ``pending``: rows (op, payload, poster): a receive of the payload was posted
    before but is not waited for. ``unprepared``: rows (op, kind,
    microbatch): a compute op before the one of ``kind`` on the same stage that it
    builds on.
    ``obligations`` counts all, met or not. ``overtaking``, on ranks with several
    lanes: (op, provider), where nothing orders the provider before op.
    """

    missing: Longs
    pending: Longs
    unprepared: Longs
    obligations: int
    overtaking: tuple[tuple[int, int], ...] = ()


def holdings(program: Program, rank: Ints) -> Holdings:
    """Check every data need of every op against its lane."""
    needs_op, needs_payload = _needs(program)
    late, poster = _late(program, rank, needs_op, needs_payload)
    waiting = poster >= 0
    missing = np.stack((needs_op[late[~waiting]], needs_payload[late[~waiting]]), axis=1)
    pending = np.stack(
        (needs_op[late[waiting]], needs_payload[late[waiting]], poster[waiting]), axis=1
    )
    unprepared, prepared = _unprepared(program, rank)
    return Holdings(missing, pending, unprepared, len(needs_op) + prepared)


def _free_of_needs(program: Program) -> Longs:
    return np.array([op for op, a in program.details.attributes.items() if a.nodeps], np.int64)


def _needing(program: Program) -> Bools:
    """Compute ops in range that have data needs at all."""
    needing = (program.stage >= 0) & (program.microbatch >= 0) & (program.kind <= Kind.R)
    needing &= (program.stage < program.stages) & (program.microbatch < program.microbatches)
    needing[_free_of_needs(program)] = False
    return needing


def _needs(program: Program) -> tuple[Longs, Longs]:
    """(op, payload) of every input that an op needs."""
    messages = program.messages
    computed = _along_a_chain(program) if program.details.graph is None else _along(program)
    sent = np.flatnonzero(messages.send & (messages.payload >= 0))
    sent = sent[~np.isin(messages.op[sent], _free_of_needs(program))]
    op: Longs = np.concatenate((computed[0], messages.op[sent].astype(np.int64)))
    payload: Longs = np.concatenate((computed[1], messages.payload[sent]))
    return op, payload


def _along_a_chain(program: Program) -> tuple[Longs, Longs]:
    """The inputs of compute ops where each stage feeds the next."""
    kind, needing = program.kind, _needing(program)
    forward = np.flatnonzero(needing & (kind == Kind.F) & (program.stage > 0))
    backward = np.flatnonzero(
        needing & ((kind == Kind.B) | (kind == Kind.I)) & (program.stage < program.stages - 1)
    )
    stage, microbatch = program.stage.astype(np.int64), program.microbatch.astype(np.int64)
    payload = np.concatenate(
        (
            activation(stage[forward] - 1, microbatch[forward]),
            gradient(stage[backward] + 1, microbatch[backward]),
        )
    )
    return np.concatenate((forward, backward)), payload


def _along(program: Program) -> tuple[Longs, Longs]:
    """The inputs of compute ops by the program's stage graph."""
    graph = program.details.graph
    assert graph is not None
    pairs: list[tuple[int, int]] = []
    outputs = graph.outputs
    for op in np.flatnonzero(_needing(program)).tolist():
        kind = program.kind[op]
        stage, microbatch = int(program.stage[op]), int(program.microbatch[op])
        if kind == Kind.F:
            pairs += [(op, activation(s, m)) for s, m in graph.sources(stage, microbatch)]
        elif kind in (Kind.B, Kind.I):
            pairs += [(op, gradient(s, microbatch)) for s in outputs[stage]]
    made = np.array(pairs, np.int64).reshape(-1, 2)
    return made[:, 0], made[:, 1]


def _provided(program: Program) -> tuple[Longs, Longs, Longs, Longs]:
    """Rows of what becomes available: (rank row source op, payload, from when),
    and for receives also when they are posted: arrays (op, payload, time)."""
    kind, messages, waits = program.kind, program.messages, program.waits
    in_range = (program.stage >= 0) & (program.microbatch >= 0)
    made = np.flatnonzero(in_range & (kind <= Kind.I))  # F, B, I
    stage, microbatch = program.stage[made].astype(np.int64), program.microbatch[made]
    output = np.where(
        kind[made] == Kind.F,
        activation(stage, microbatch.astype(np.int64)),
        gradient(stage, microbatch.astype(np.int64)),
    )
    received = np.flatnonzero(~messages.send & (messages.payload >= 0))
    op = messages.op[received]
    request = program.request[op]
    waited_at = np.full(int(program.request.max(initial=-1)) + 1, _NEVER, np.int64)
    waited_at[waits.request[::-1]] = 2 * waits.op[::-1].astype(np.int64)  # the first wait
    available = np.where(
        request < 0,
        2 * op.astype(np.int64) + 1,
        waited_at[np.maximum(request, 0)] if len(waited_at) else _NEVER,
    )
    return (
        np.concatenate((made, op)),
        np.concatenate((output, messages.payload[received])),
        np.concatenate((2 * made + 1, available)),
        received,
    )


def _late(
    program: Program, rank: Ints, needs_op: Longs, needs_payload: Longs
) -> tuple[Longs, Longs]:
    """Needs that are not met, and the op that posted a receive for each (or -1)."""
    op, payload, when, received = _provided(program)
    key, size = _keys(
        program,
        np.concatenate((rank[op], rank[needs_op])),
        np.concatenate((payload, needs_payload)),
    )
    provided, needed = key[: len(op)], key[len(op) :]
    first = np.full(size, _NEVER, np.int64)
    order = np.argsort(when, kind="stable")[::-1] if _unsorted(when, provided) else slice(None)
    first[provided[order]] = when[order]
    held = program.details.held
    in_time = first[needed] <= 2 * needs_op
    if held:
        in_time |= np.array(
            [
                (int(rank[o]), int(p)) in held
                for o, p in zip(needs_op.tolist(), needs_payload.tolist(), strict=True)
            ],
            np.bool_,
        )
    late = np.flatnonzero(~in_time)
    if not len(late):
        return late, late
    # The last receive of the payload that was posted before it is needed.
    posted = dict.fromkeys(needed[late].tolist(), np.empty(0, np.int64))
    rows = provided[len(op) - len(received) :]
    for each in posted:
        posted[each] = program.messages.op[received[rows == each]].astype(np.int64)
    poster = np.full(len(late), -1, np.int64)
    for i, (need, consumer) in enumerate(
        zip(needed[late].tolist(), needs_op[late].tolist(), strict=True)
    ):
        before = posted[need][posted[need] < consumer]
        before = before[program.request[before] >= 0]
        if len(before):
            poster[i] = before[-1]
    return late, poster


def _unsorted(when: Longs, key: Longs) -> bool:
    """Whether some key is provided more than once, so that the first must be found."""
    return len(key) > 0 and int(np.bincount(key).max()) > 1


def _keys(program: Program, rank: Ints, payload: Longs) -> tuple[Longs, int]:
    """Keys of (rank, payload) pairs.

    Nearly every activation and gradient is handled by two ranks: the host of
    the stage that makes it and the host of the stage that takes it. Where that
    is so for all, one bit stands for the rank.
    """
    stage, microbatch = payload >> 32, payload >> 1 & 0x7FFFFFFF
    backward = payload & 1
    hosts = program.hosts
    if all(len(h) == 1 for h in hosts) and int(stage.max(initial=0)) < len(hosts):
        host = np.array([-2, *(h[0] for h in hosts), -2], np.int64)
        maker = host[stage + 1] == rank
        taker = host[stage + 1 + np.where(backward == 1, -1, 1)] == rank
        if (maker | taker).all():
            return dense(stage, microbatch, backward * 2 + maker)
    return dense(rank, stage, microbatch, backward)


def _unprepared(program: Program, rank: Ints) -> tuple[Longs, int]:
    """(op, kind, microbatch) rows of computes before the compute they build on, and
    how many were compared."""
    kind = program.kind
    needing = _needing(program)
    computes = np.flatnonzero((kind <= Kind.R) & (program.stage >= 0) & (program.microbatch >= 0))
    key, size = dense(rank[computes], program.stage[computes], program.microbatch[computes])
    key_of = np.full(program.ops, -1, np.int64)
    key_of[computes] = key
    found: list[Longs] = []
    compared = 0
    for before, after in ((Kind.F, (Kind.B, Kind.I, Kind.R)), (Kind.I, (Kind.W,))):
        first = np.full(size, _NEVER, np.int64)
        earlier = np.flatnonzero(kind == before)
        earlier = earlier[key_of[earlier] >= 0][::-1]
        first[key_of[earlier]] = earlier
        later = np.flatnonzero(needing & np.isin(kind, after))
        compared += len(later)
        bad = later[first[key_of[later]] > later]
        kinds = np.full(len(bad), int(before))
        found.append(np.stack((bad, kinds, program.microbatch[bad]), axis=1))
    if program.details.graph is not None:
        slices, own = _out_of_slice_order(program, rank, needing)
        found.append(slices)
        compared += own
    rows = np.concatenate(found)
    return rows[np.argsort(rows[:, 0], kind="stable")], compared


def _out_of_slice_order(program: Program, rank: Ints, needing: Bools) -> tuple[Longs, int]:
    """Like `_unprepared`, for slices that need another slice of their sequence."""
    graph = program.details.graph
    assert graph is not None
    ran: set[tuple[int, int, int, int]] = set()
    rows: list[tuple[int, int, int]] = []
    compared = 0
    for op in np.flatnonzero(needing & (program.kind <= Kind.I)).tolist():
        kind = int(program.kind[op])
        where = int(rank[op]), kind, int(program.stage[op])
        microbatch = int(program.microbatch[op])
        before = graph.before(microbatch, backward=kind != Kind.F)
        if before is not None:
            compared += 1
            if (*where, before) not in ran:
                rows.append((op, kind, before))
        ran.add((*where, microbatch))
    return np.array(rows, np.int64).reshape(-1, 3), compared
