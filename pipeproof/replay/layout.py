"""What is fixed before the first move of a run.

Which messages meet, which streams an op occupies, which channel a message
travels on, and which groups start together: all of it follows from the program
and the transport alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import Match, Streams

NOBODY = -1


def posting_order(program: Program) -> list[int]:
    """For each op its place in the order in which its rank posts.

    One lane posts in the order of its ops. Several take turns, one op each, and
    none passes an AWAIT before its signal was given.
    """
    place = list(range(program.ops))
    lanes_of: dict[int, list[tuple[int, int]]] = {}
    for lane in program.lanes:
        lanes_of.setdefault(lane.rank, []).append((lane.first, lane.stop))
    for lanes in lanes_of.values():
        if len(lanes) > 1:
            ops = _taking_turns(program, lanes)
            for op, turn in zip(ops, sorted(ops), strict=True):
                place[op] = turn
    return place


def _taking_turns(program: Program, lanes: list[tuple[int, int]]) -> list[int]:
    label = {op: a.label for op, a in program.details.attributes.items()}
    at, given, ops = [first for first, _ in lanes], set[str | None](), list[int]()
    moved = True
    while moved:
        moved = False
        for number, (_, stop) in enumerate(lanes):
            op = at[number]
            if op == stop or (program.kind[op] == Kind.AWAIT and label[op] not in given):
                continue
            if program.kind[op] == Kind.SIGNAL:
                given.add(label[op])
            ops.append(op)
            at[number] += 1
            moved = True
    for number, (_, stop) in enumerate(lanes):
        ops.extend(range(at[number], stop))
    return ops


def in_posting_order(program: Program) -> list[int]:
    """The message rows in the order in which their ranks post them."""
    place = posting_order(program)
    ops = program.messages.op.tolist()
    return sorted(range(len(ops)), key=lambda row: (place[ops[row]], row))


def meetings_of(program: Program) -> tuple[dict[int, int], list[int]]:
    """By collective op its meeting; by meeting how many members have to call.

    The i-th calls of all members of a group meet.
    """
    place = posting_order(program)
    made: dict[tuple[str, int], int] = {}
    numbers: dict[tuple[str, int], int] = {}
    meeting: dict[int, int] = {}
    expected: list[int] = []
    calls = (program.kind == Kind.COLL).nonzero()[0].tolist()
    for op in sorted(calls, key=lambda op: place[op]):
        group = program.details.attributes[op].more["group"]
        rank = program.rank_of(op)
        index = made.get((group, rank), 0)
        made[group, rank] = index + 1
        number = numbers.setdefault((group, index), len(numbers))
        if number == len(expected):
            expected.append(len(program.details.groups.get(group, range(program.ranks))))
        meeting[op] = number
    return meeting, expected


def channels(program: Program) -> Iterator[tuple[int, int, int]]:
    """The channel of every message row: (sender, receiver, comm)."""
    m = program.messages
    for send, rank, peer, comm in zip(
        m.send.tolist(), m.rank.tolist(), m.peer.tolist(), m.comm.tolist(), strict=True
    ):
        yield (rank, peer, comm) if send else (peer, rank, comm)


def pairing(program: Program, match: Match) -> list[int]:
    """The counterpart of every message row, ``NOBODY`` where it has none.

    The n-th send of a channel meets its n-th receive; with tags, each payload
    of the channel is counted on its own.
    """
    m = program.messages
    sends: dict[tuple[int, ...], list[int]] = {}
    receives: dict[tuple[int, ...], list[int]] = {}
    rows = list(zip(channels(program), m.send.tolist(), m.payload.tolist(), strict=True))
    for row in in_posting_order(program):
        channel, send, payload = rows[row]
        queue: tuple[int, ...] = channel
        if match is Match.TAG:
            queue = (*channel, payload)
        (sends if send else receives).setdefault(queue, []).append(row)
    mates = [NOBODY] * len(m.op)
    for queue, posted in sends.items():
        for send, receive in zip(posted, receives.get(queue, ()), strict=False):
            mates[send], mates[receive] = receive, send
    return mates


def streams_of(program: Program, streams: Streams) -> tuple[dict[int, list[int]], int]:
    """The streams that each asynchronous op occupies, and how many there are.

    Each rank has its own. Blocking operations use none.
    """
    numbers: dict[tuple[int, ...], int] = {}
    occupied: dict[int, list[int]] = {}
    if streams is Streams.FREE:
        return occupied, 0
    ops, ranks = program.messages.op.tolist(), program.messages.rank.tolist()
    blocking = (program.request < 0).tolist()
    for op, rank, (sender, receiver, _) in zip(ops, ranks, channels(program), strict=True):
        if blocking[op]:
            continue
        name: tuple[int, ...] = (rank,)
        if streams is Streams.DIRECTED:
            name = (rank, sender, receiver)
        elif streams is Streams.PAIR:
            name = (rank, min(sender, receiver), max(sender, receiver))
        stream = numbers.setdefault(name, len(numbers))
        if stream not in occupied.setdefault(op, []):
            occupied[op].append(stream)
    if streams is Streams.RANK:  # there alone collectives take turns with messages
        for op in (program.kind == Kind.COLL).nonzero()[0].tolist():
            if not blocking[op]:
                occupied[op] = [numbers.setdefault((program.rank_of(op),), len(numbers))]
    return occupied, len(numbers)


def channels_of(program: Program) -> tuple[list[int], list[int], list[list[int]]]:
    """By row its channel and its position among that channel's sends; by channel its sends.

    Positions follow the program, so "earlier" is a comparison. They count
    sends of every payload, alone or in a group.
    """
    numbers: dict[tuple[int, int, int], int] = {}
    channel = [NOBODY] * len(program.messages.op)
    position = channel.copy()
    sends: list[list[int]] = []
    named = list(zip(channels(program), program.messages.send.tolist(), strict=True))
    for row in in_posting_order(program):
        name, send = named[row]
        number = numbers.setdefault(name, len(numbers))
        if number == len(sends):
            sends.append([])
        channel[row] = number
        position[row] = len(sends[number])
        if send:
            sends[number].append(row)
    return channel, position, sends


def clusters_of(program: Program, mates: list[int]) -> tuple[dict[int, int], list[list[int]]]:
    """Which ops must all have started before a row of any of them moves.

    An atomic GROUP can start when every counterpart is posted, alone or in a
    GROUP that can itself start. Being each other's counterpart goes both ways,
    so that comes to: the GROUPs that messages link, and the plain ops that they
    meet, start together. By op its cluster; by cluster its parties, among
    them ``NOBODY``, which never starts, for a row without counterpart.
    """
    ops: list[int] = program.messages.op.tolist()
    rows = ranges(ops, program.ops)
    cluster: dict[int, int] = {}
    parties: list[list[int]] = []
    for group in (program.kind == Kind.GROUP).nonzero()[0].tolist():
        if group in cluster:
            continue
        cluster[group] = len(parties)
        found = [group]
        for op in found:  # which grows meanwhile
            for row in rows[op] if op != NOBODY else ():
                other = ops[mates[row]] if mates[row] != NOBODY else NOBODY
                if other == NOBODY:
                    found.append(NOBODY)
                elif other not in cluster:
                    cluster[other] = len(parties)
                    found.append(other)
        parties.append(found)
    return cluster, parties


def ranges(owners: list[int], count: int) -> list[range]:
    """For ascending ``owners``, the range of positions that each of 0..count-1 owns."""
    bounds = [0] * (count + 1)
    for owner in owners:
        bounds[owner + 1] += 1
    for index in range(count):
        bounds[index + 1] += bounds[index]
    return [range(low, high) for low, high in pairwise(bounds)]
