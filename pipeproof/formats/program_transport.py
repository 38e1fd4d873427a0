"""The ``semantics`` of a program: its transport."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from pipeproof.formats.json_values import child, fields, integer, word, wrong
from pipeproof.program.ops import MAX_ID
from pipeproof.program.transports import Grouping, Match, Progress, Streams, Transport

_CHOICES: Mapping[str, type[Enum]] = {
    "group": Grouping,
    "match": Match,
    "isend_progress": Progress,
    "streams": Streams,
}
_KEYS = ("p2p", *_CHOICES)


def read_transport(holder: Mapping[str, Any], path: str) -> Transport:
    """The transport that ``semantics`` states; what it leaves out is the default."""
    where = child(path, "semantics")
    stated = fields(holder["semantics"], where, _KEYS, "the semantics")
    chosen: dict[str, Any] = {}
    for name, choice in _CHOICES.items():
        if name in stated:
            chosen[name] = choice(word(stated, name, where, [c.value for c in choice]))
    capacity = _capacity(stated, where) if "p2p" in stated else 0
    transport = Transport(capacity=capacity, **chosen)
    return Transport(transport_name(transport), capacity=capacity, **chosen)


def _capacity(stated: dict[str, Any], where: str) -> int:
    """Number of buffer slots a channel; a rendezvous has none."""
    value = stated["p2p"]
    if value == "rendezvous":
        return 0
    if not isinstance(value, dict):
        raise wrong(stated, "p2p", where, '"rendezvous" or {"buffered": slots}')
    at = child(where, "p2p")
    slots = fields(value, at, ("buffered",), 'p2p, such as {"buffered": 1}')
    if not slots:
        raise wrong(stated, "p2p", where, '"rendezvous" or {"buffered": slots}')
    return integer(slots, "buffered", at, "a whole number of slots, 0 or more", 0, MAX_ID)


def transport_name(transport: Transport) -> str:
    """A short name: ``rendezvous``, ``buffered:2, pair streams, fifo``."""
    slots = "inf" if transport.capacity is None else str(transport.capacity)
    words = ["rendezvous" if transport.capacity == 0 else f"buffered:{slots}"]
    if transport.streams is not Streams.FREE:
        words.append(f"{transport.streams.value} streams")
    if transport.match is Match.FIFO:
        words.append("fifo")
    if transport.group is Grouping.ATOMIC:
        words.append("atomic groups")
    if transport.isend_progress is Progress.AT_WAIT:
        words.append("sends move at wait")
    return ", ".join(words)


def print_transport(transport: Transport) -> dict[str, Any]:
    """``semantics``; unbounded buffers are as many slots as a file may state."""
    capacity = MAX_ID if transport.capacity is None else transport.capacity
    return {
        "p2p": {"buffered": capacity} if capacity else "rendezvous",
        "group": transport.group.value,
        "match": transport.match.value,
        "isend_progress": transport.isend_progress.value,
        "streams": transport.streams.value,
    }
