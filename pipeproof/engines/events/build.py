"""Build the event graph of a program under a transport.

The rules, each an edge (program format, "Transport"):

* on a lane, every op starts after the one before it has completed;
* an op with waits completes after every request it waits for has completed;
* a blocking send, receive or group completes when its messages have, and a
  collective when all members of its group have started theirs;
* an AWAIT completes when its signal was given;
* a posted operation starts at once on free streams, and otherwise when those
  before it on each of its streams have completed;
* a receive completes when both ends have started;
* a send completes when both ends have started or, with k buffer slots, when
  fewer than k earlier sends of its channel are unread.

Where the two ends of a channel start in order, the last rule is one edge: send
n completes exactly when receive n - k has started. For if receive n has
started, or n - k + 1 of the earlier sends have been read, then receive n - k
has started; and once it has, the first n - k + 1 messages have started at both
ends and can all be read. Rendezvous is k = 0. The rest is in ``special``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.events.collectives import add_signals, call_needs, meetings
from pipeproof.engines.events.edges import Edges, Joints
from pipeproof.engines.events.graph import EventGraph
from pipeproof.engines.events.pairing import Pairing, pair
from pipeproof.engines.events.special import special_conditions, special_rows
from pipeproof.engines.events.streams import Occupancy, occupy
from pipeproof.engines.events.turns import turns
from pipeproof.program.lanes import places_of_ops
from pipeproof.program.programs import Program
from pipeproof.program.transports import Match, Transport

if TYPE_CHECKING:
    from pipeproof.program.programs import Bools, Longs

_UNNEEDED = -2  # a send that completes into a slot whatever its receiver does


def build(program: Program, transport: Transport, pairing: Pairing | None = None) -> EventGraph:
    """The event graph of ``program``.

    ``pairing`` may be given where the caller has it already; it depends only on
    the program and on ``transport.match``.
    """
    turn = turns(program)
    pairing = pairing or pair(program.messages, transport.match, turn)
    lanes = len(program.lanes)
    size = np.array([lane.stop - lane.first for lane in program.lanes], np.int64)
    number, place = places_of_ops(program)
    lane, position = number + 1, 2 * place

    edges = Edges()
    occupied = occupy(program, transport, lane, position, turn, lanes + 1, edges)
    joints = Joints(lanes + 1 + len(occupied.length), edges)
    needs = _conditions(program, transport, pairing, turn, occupied, joints)
    calls = call_needs(meetings(program, turn), occupied, joints)
    _add_completions(program, lane, position, occupied, needs, calls, edges)
    add_signals(program, lane, position, edges, joints)

    joint_length = np.ones(len(joints.reasons), np.int64)
    length = np.concatenate((np.zeros(1, np.int64), 2 * size, occupied.length, joint_length))
    edge_first, to_position, from_chain, from_position = edges.sorted(length)
    return EventGraph(
        length=length,
        first=edge_first,
        to_position=to_position,
        from_chain=from_chain,
        from_position=from_position,
        gates=tuple(joints.gates),
        lanes=lanes,
        chain=occupied.chain,
        position=occupied.position,
        stream_first=occupied.first,
        stream_op=occupied.op,
        match=pairing.match,
        needs=needs,
        calls=calls,
        joints=tuple(joints.reasons),
    )


Needs = tuple["Longs", "Longs", "Longs"]
"""Arrays (message row, chain, position), sorted by row: the events that a row
needs to be done, beside its own start."""


def _conditions(
    program: Program,
    transport: Transport,
    pairing: Pairing,
    turn: Longs | None,
    occupied: Occupancy,
    joints: Joints,
) -> Needs:
    op = program.messages.op
    fifo = pairing if transport.match is Match.FIFO else pair(program.messages, Match.FIFO, turn)
    special = special_rows(program, transport, pairing, fifo)
    partner = _partner(transport, pairing, program.messages.send)
    rows = np.flatnonzero(~special & (partner != _UNNEEDED))
    other = partner[rows]
    alone = other < 0  # needs the event that does not happen: (0, 0)
    row = rows
    chain = np.where(alone, 0, occupied.chain[op[other]])
    at = np.where(alone, 0, occupied.position[op[other]])
    if special.any():
        more = special_conditions(
            program, transport, pairing, np.flatnonzero(special), occupied, joints
        )
        extra = np.array([(r, *event) for r, event in more], np.int64).reshape(-1, 3)
        row = np.concatenate((row, extra[:, 0]))
        order = np.argsort(row, kind="stable")
        row = row[order]
        chain = np.concatenate((chain, extra[:, 1]))[order]
        at = np.concatenate((at, extra[:, 2]))[order]
    return row, chain, at


def _partner(transport: Transport, pairing: Pairing, send: Bools) -> Longs:
    """The row whose start lets each row complete: -1 for none, ever."""
    partner = pairing.match.copy()
    capacity = transport.capacity
    if capacity == 0:
        return partner
    sends = pairing.sends
    if capacity is None:
        partner[sends] = _UNNEEDED
        return partner
    ordinal, channel = pairing.ordinal[sends], pairing.channel[sends]
    awaited = pairing.recvs_first[channel] + ordinal - capacity
    exists = awaited < pairing.recvs_first[channel + 1]
    awaited = np.where(exists, awaited, 0).clip(0)
    recvs = pairing.recvs if len(pairing.recvs) else np.full(1, -1, np.int64)
    partner[sends] = np.where(ordinal < capacity, _UNNEEDED, np.where(exists, recvs[awaited], -1))
    return partner


def _add_completions(
    program: Program,
    lane: Longs,
    position: Longs,
    occupied: Occupancy,
    needs: Needs,
    calls: Needs,
    edges: Edges,
) -> None:
    """Who needs the messages or the meeting of an op: its own completion, or
    whoever waits for it."""
    request, waits = program.request, program.waits
    poster = np.empty(int(request.max(initial=-1)) + 1, np.int64)
    posting = np.flatnonzero(request >= 0)
    poster[request[posting]] = posting
    waited, waiter = poster[waits.request], waits.op

    posts = np.zeros(program.ops, np.bool_)
    posts[program.messages.op] = True
    posts[calls[0]] = True
    posting_op = np.flatnonzero(posts)
    # A posted operation on no stream has no completion of its own: whoever waits
    # for it waits until it is posted, and for all that it needs.
    free = (request >= 0) & (occupied.chain == lane)
    own, forwarded = posting_op[~free[posting_op]], free[waited]
    target = np.concatenate((own, waited[forwarded]))
    to_chain = np.concatenate((occupied.chain[own], lane[waiter[forwarded]]))
    to_position = np.concatenate((occupied.position[own], position[waiter[forwarded]])) + 1
    edges.add(
        lane[waiter],
        position[waiter] + 1,
        occupied.chain[waited],
        occupied.position[waited] + ~forwarded,
    )
    need_row, need_chain, need_position = needs
    need_op = program.messages.op[need_row]
    if len(calls[0]):
        need_op = np.concatenate((need_op, calls[0]))
        order = np.argsort(need_op, kind="stable")
        need_op = need_op[order]
        need_chain = np.concatenate((need_chain, calls[1]))[order]
        need_position = np.concatenate((need_position, calls[2]))[order]
    count = np.bincount(need_op, minlength=program.ops)
    begin = np.cumsum(count) - count
    many = count[target]
    index = np.repeat(begin[target] - (np.cumsum(many) - many), many) + np.arange(many.sum())
    edges.add(
        np.repeat(to_chain, many),
        np.repeat(to_position, many),
        need_chain[index],
        need_position[index],
    )
