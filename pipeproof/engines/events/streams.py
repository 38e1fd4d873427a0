"""Streams: where each posted operation starts and completes.

A blocking op starts and completes on its lane; on free streams a posted one
starts where it is posted. Otherwise it takes its turn on every stream it
touches: it starts when all before it there have completed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.events.edges import Edges
from pipeproof.program.keys import dense
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import Streams, Transport

if TYPE_CHECKING:
    from pipeproof.program.programs import Ints, Longs


@dataclass(frozen=True, slots=True)
class Occupancy:
    """``chain[op]`` and ``position[op]`` is where op starts (any op: on its lane
    by default); it completes one position later. ``length`` has the number of
    events of each stream's chain, ``first`` and ``op`` which op stands where:
    chain ``base + i`` holds ``op[first[i]:first[i+1]]``, two events each.
    """

    chain: Longs
    position: Longs
    length: Longs
    first: Longs
    op: Ints


def occupy(
    program: Program,
    transport: Transport,
    lane: Longs,
    position: Longs,
    turn: Longs | None,
    base: int,
    edges: Edges,
) -> Occupancy:
    """Place every posted operation on its streams; ``base`` is the first free chain."""
    op, stream, streams = _turns_on_streams(program, transport.streams, turn)
    if not len(op):
        none = np.empty(0, np.int64)
        return Occupancy(lane, position, none, np.zeros(1, np.int64), none.astype(np.int32))

    # An op of several rows on one stream stands on it once.
    turn_key, _ = dense(op, stream)
    _, once = np.unique(turn_key, return_index=True)
    once.sort()
    op, stream = op[once], stream[once]
    several = np.zeros(program.ops, np.bool_)
    several[op[1:][op[1:] == op[:-1]]] = True

    order = np.argsort(stream, kind="stable")
    op, stream = op[order], stream[order]
    shared = several[op]
    counts = np.bincount(stream[~shared], minlength=streams)
    own = np.unique(op[shared])  # ops on several streams: a chain of their own
    first = np.concatenate(([0], np.cumsum(np.concatenate((counts, np.ones(len(own), np.int64))))))
    chain, at = lane.copy(), position.copy()
    single = op[~shared]
    chain[single] = base + stream[~shared]
    at[single] = 2 * (np.arange(len(single)) - first[stream[~shared]])
    chain[own] = base + streams + np.arange(len(own))
    at[own] = 0

    # Taking turns: only where a neighbour on the stream stands on another chain.
    after, before = op[1:], op[:-1]
    turns = (stream[1:] == stream[:-1]) & (chain[after] != chain[before])
    after, before = after[turns], before[turns]
    edges.add(chain[after], at[after], chain[before], at[before] + 1)
    occupant = np.concatenate((single, own)).astype(np.int32)
    _add_postings(program, lane, position, occupant, chain, at, edges)
    return Occupancy(chain, at, 2 * np.diff(first), first, occupant)


def _turns_on_streams(
    program: Program, streams: Streams, turn: Longs | None
) -> tuple[Longs, Longs, int]:
    """(op, stream) pairs of posted operations in the order of posting, and how
    many streams there are. Collectives take turns only where a rank has one stream."""
    messages = program.messages
    rows = np.flatnonzero(program.request[messages.op] >= 0)
    op = messages.op[rows].astype(np.int64)
    rank, peer = messages.rank[rows], messages.peer[rows]
    if streams is Streams.FREE:
        op, stream, count = op[:0], op[:0], 0
    elif streams is Streams.RANK:
        calls = np.flatnonzero((program.kind == Kind.COLL) & (program.request >= 0))
        if len(calls):
            op = np.concatenate((op, calls))
            caller = np.array([program.rank_of(c) for c in calls.tolist()], rank.dtype)
            rank = np.concatenate((rank, caller))
        stream, count = dense(rank)
    elif streams is Streams.PAIR:
        stream, count = dense(rank, peer)
    else:
        # A message of a rank to itself has one stream at both ends.
        stream, count = dense(rank, peer, messages.send[rows] & (rank != peer))
    when = op if turn is None else turn[op]
    if (when[1:] < when[:-1]).any():
        order = np.argsort(when, kind="stable")
        op, stream = op[order], stream[order]
    return op, stream, count


def _add_postings(
    program: Program,
    lane: Longs,
    position: Longs,
    occupant: Ints,
    chain: Longs,
    at: Longs,
    edges: Edges,
) -> None:
    """An operation starts after it is posted.

    Left out where the one before it on the chain was posted on the same lane
    and nothing in between could hold that lane up: there the edge says nothing
    that the other does not.
    """
    holds = np.zeros(program.ops, np.bool_)
    holds[program.waits.op] = True
    holds[program.messages.op] |= program.request[program.messages.op] < 0
    holds |= (program.kind == Kind.AWAIT) | ((program.kind == Kind.COLL) & (program.request < 0))
    held = np.cumsum(holds)
    before = np.empty(len(occupant), np.int64)
    before[0] = -1
    before[1:] = np.where(chain[occupant[1:]] == chain[occupant[:-1]], occupant[:-1], -1)
    known = (before >= 0) & (lane[before] == lane[occupant]) & (held[before] == held[occupant])
    op = occupant[~known]
    edges.add(chain[op], at[op], lane[op], position[op])
