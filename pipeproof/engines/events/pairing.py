"""Pairing: which send meets which receive.

A channel is (sender, receiver, communicator). First in, first out, the n-th
send of a channel meets its n-th receive; by tag, the n-th send of a payload
meets the n-th receive of the same payload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.program.keys import dense
from pipeproof.program.transports import Match

if TYPE_CHECKING:
    from pipeproof.program.programs import Ints, Longs, Messages


@dataclass(frozen=True, slots=True)
class Pairing:
    """``match[row]`` is the row at the other end, -1 for none.

    ``channel[row]`` numbers the channels, ``ordinal[row]`` counts the sends
    (or the receives) of its channel before this one. ``sends`` and ``recvs``
    list rows sorted by (channel, ordinal); channel c's are
    ``sends[sends_first[c]:sends_first[c+1]]``, and likewise for receives.
    """

    match: Longs
    channel: Longs
    ordinal: Longs
    sends: Longs
    sends_first: Longs
    recvs: Longs
    recvs_first: Longs


def pair(messages: Messages, match: Match, turn: Longs | None = None) -> Pairing:
    """Pair the two ends of every message, in the order of posting.

    ``turn`` gives the order of an op's posting where it is not the order of ops.
    """
    rows = len(messages.op)
    sender = np.where(messages.send, messages.rank, messages.peer)
    receiver = np.where(messages.send, messages.peer, messages.rank)
    channel, count = dense(sender, receiver, messages.comm)
    order = np.arange(rows) if turn is None else np.argsort(turn[messages.op], kind="stable")
    send_rows, recv_rows = order[messages.send[order]], order[~messages.send[order]]
    sends, sends_first = _grouped(channel, send_rows, count)
    recvs, recvs_first = _grouped(channel, recv_rows, count)
    ordinal = np.empty(rows, np.int64)
    ordinal[sends] = np.arange(len(sends)) - sends_first[channel[sends]]
    ordinal[recvs] = np.arange(len(recvs)) - recvs_first[channel[recvs]]
    if match is Match.FIFO:
        met = _meet(channel, sends, sends_first, recvs, recvs_first)
    else:
        lowest = messages.payload.min(initial=0)
        tagged, tags = dense(channel, messages.payload - lowest)
        met = _meet(tagged, *_grouped(tagged, send_rows, tags), *_grouped(tagged, recv_rows, tags))
    return Pairing(met, channel, ordinal, sends, sends_first, recvs, recvs_first)


def _grouped(key: Longs, rows: Longs, count: int) -> tuple[Longs, Longs]:
    """Rows sorted by key, stably, and where each key begins."""
    keys = key[rows]
    # A stable sort of 16-bit keys is a radix sort: linear.
    small: Ints | Longs = keys.astype(np.uint16) if count <= 1 << 16 else keys  # type: ignore[assignment]
    order = rows[np.argsort(small, kind="stable")]
    return order, np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=count))))


def _meet(key: Longs, sends: Longs, sends_first: Longs, recvs: Longs, recvs_first: Longs) -> Longs:
    met = np.full(len(key), -1, np.int64)
    if len(sends) == len(recvs) and (sends_first == recvs_first).all():
        met[sends] = recvs
        met[recvs] = sends
        return met
    place = np.arange(len(sends)) - sends_first[key[sends]]
    partner = recvs_first[key[sends]] + place
    found = partner < recvs_first[key[sends] + 1]
    met[sends[found]] = recvs[partner[found]]
    met[recvs[partner[found]]] = sends[found]
    return met
