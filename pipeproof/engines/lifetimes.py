"""How long activations live, and what messages load each link with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.timing import Timing
from pipeproof.program.costs import Costs, at
from pipeproof.program.keys import dense
from pipeproof.program.lanes import rank_of_ops
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.engines.timing_network import Ticks
    from pipeproof.program.programs import Longs


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """One entry an activation that is given back: its stage, microbatch and rank, and
    in ticks of the timing the start of its first forward and the end of its last
    backward (B, or the later of I and W)."""

    stage: Longs
    microbatch: Longs
    rank: Longs
    born: Ticks
    gone: Ticks


def lifetimes(program: Program, timing: Timing) -> Lifetimes:
    """The lifetime of every activation that has a forward and a backward on a rank."""
    kind = program.kind[timing.op]
    takes = kind == Kind.F
    gives = (kind == Kind.B) | (kind == Kind.I) | (kind == Kind.W)
    rank = rank_of_ops(program)[timing.op]
    stage, microbatch = program.stage[timing.op], program.microbatch[timing.op]
    key, size = dense(rank, np.maximum(stage, 0), np.maximum(microbatch, 0))
    gone = np.full(size, -1, timing.end.dtype)
    np.maximum.at(gone, key[gives], timing.end[gives])
    forward = np.flatnonzero(takes)[::-1]
    first = np.full(size, -1, np.int64)
    first[key[forward]] = forward
    op = first[(first >= 0) & (gone >= 0)]
    op = op[np.lexsort((microbatch[op], stage[op], rank[op]))]
    return Lifetimes(
        stage[op].astype(np.int64),
        microbatch[op].astype(np.int64),
        rank[op].astype(np.int64),
        timing.start[op],
        gone[key[op]],
    )


@dataclass(frozen=True, slots=True)
class Link:
    """An ordered pair of ranks, and what goes over it in a step: ``bytes`` None where
    the costs give no size. Payloads that are neither activation nor gradient have no
    known size and count as messages only."""

    sender: int
    receiver: int
    messages: int
    bytes: int | None


def links(program: Program, costs: Costs) -> tuple[Link, ...]:
    """The links that carry messages, by sender and receiver."""
    m = program.messages
    rows = np.flatnonzero(m.send)
    if not len(rows):
        return ()
    sender, receiver, payload = m.rank[rows], m.peer[rows], m.payload[rows]
    # A gradient goes down from its stage; 0 stands for a payload of unknown size.
    boundary = np.where(payload < 0, 0, (payload >> 32) - (payload & 1) + 1).clip(0)
    key, size = dense(sender, receiver, boundary)
    count = np.bincount(key, minlength=size)
    example = np.zeros(size, np.int64)
    example[key] = np.arange(len(rows))
    loads: dict[tuple[int, int], list[int]] = {}
    for used in np.flatnonzero(count).tolist():
        row = example[used]
        load = loads.setdefault((int(sender[row]), int(receiver[row])), [0, 0])
        load[0] += int(count[used])
        if costs.message_bytes is not None and boundary[row]:
            load[1] += int(count[used] * at(costs.message_bytes, int(boundary[row]) - 1))
    sized = costs.message_bytes is not None
    return tuple(
        Link(*ends, messages, load if sized else None)
        for ends, (messages, load) in sorted(loads.items())
    )
