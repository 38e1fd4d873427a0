"""Transports: which streams there are, and when a send completes.

A verdict without its transport is wrong for half its users: the same plan runs
on gloo and hangs on NCCL. The presets carry the names people use.

``gloo``
    free streams: asynchronous operations of a rank do not wait for each other,
    and a send completes when its receive has been posted.
``nccl``
    lazy initialisation, torch's default: one in-order stream an unordered pair
    of ranks, shared by both directions.
``nccl-directed``
    newer: one in-order stream a direction of a pair.
``nccl-eager``
    a device id was given to ``init_process_group``: one communicator, so one
    in-order stream a rank.

Each is a rendezvous unless a number of buffer slots follows: ``nccl:1``,
``gloo:inf``. NCCL's sends complete early only while its buffer has room, which
no program may count on, so rendezvous is the default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Streams(Enum):
    """Which asynchronous operations of a rank wait for each other."""

    FREE = "free"
    DIRECTED = "directed"
    PAIR = "pair"
    RANK = "rank"


class Match(Enum):
    """How the sends and receives of a channel find each other."""

    TAG = "tag"  # n-th send of a payload meets the n-th receive of the same one
    FIFO = "fifo"  # n-th send meets the n-th receive, whatever they carry


class Grouping(Enum):
    """When the members of a posted group may move."""

    INDEPENDENT = "independent"
    ATOMIC = "atomic"  # all counterparts posted, or none of them moves


class Progress(Enum):
    """When a non-blocking send moves."""

    ASYNC = "async"
    AT_WAIT = "at-wait"  # only while its rank is inside the wait for it


@dataclass(frozen=True, slots=True)
class Transport:
    """One transport.

    ``capacity`` is the number of sends of a channel that complete without
    their receive being posted: 0 is a rendezvous, None is unbounded.
    """

    name: str = "rendezvous"
    streams: Streams = Streams.FREE
    capacity: int | None = 0
    match: Match = Match.TAG
    group: Grouping = Grouping.INDEPENDENT
    isend_progress: Progress = Progress.ASYNC

    def with_capacity(self, capacity: int | None) -> Transport:
        """The same streams with another number of buffer slots."""
        base = self.name.partition(":")[0]
        if capacity == 0:
            return replace(self, name=base, capacity=0)
        slots = "inf" if capacity is None else str(capacity)
        return replace(self, name=f"{base}:{slots}", capacity=capacity)

    def on_streams_of(self, preset: Transport) -> Transport:
        """This transport's matching, groups and progress on a preset's streams."""
        return replace(self, name=preset.name, streams=preset.streams, capacity=preset.capacity)


PRESETS = {
    "gloo": Transport("gloo", Streams.FREE, match=Match.FIFO),
    "nccl-directed": Transport("nccl-directed", Streams.DIRECTED, match=Match.FIFO),
    "nccl": Transport("nccl", Streams.PAIR, match=Match.FIFO),
    "nccl-eager": Transport("nccl-eager", Streams.RANK, match=Match.FIFO),
}
"""Named transports, from the most permissive to the strictest: whatever order
of events is legal under one is legal under all before it. PyTorch sends its
pipeline messages without tags, so all of them match first in, first out."""


def parse_transport(text: str) -> Transport:
    """Read ``nccl``, ``nccl:1``, ``gloo:inf``; ValueError says what is wrong."""
    base, colon, slots = text.partition(":")
    if base not in PRESETS:
        raise ValueError(f"unknown transport {text!r}; known: {', '.join(PRESETS)}")
    preset = PRESETS[base]
    if not colon:
        return preset
    if slots == "inf":
        return preset.with_capacity(None)
    if not slots.isascii() or not slots.isdigit() or len(slots) > 9:
        raise ValueError(
            f"unknown capacity {slots!r} in {text!r}; expected a number of slots or inf"
        )
    return preset.with_capacity(int(slots))
