"""The event graph as a value.

Events stand on *chains*: a lane's chain holds the start and the completion of
each of its ops, a stream's chain those of each operation on it. Along a chain
every event needs the one before it, so only what crosses from one chain to
another is stored: edges, and the few gates that need some of several events
rather than all.

Everything is monotone: an event that can happen never loses that by another
event happening. So one greedy run reaches every event that any execution
reaches, and decides deadlock in linear time (Kahn; conflict-free marked
graphs; Siegel and Avrunin for message passing without wildcards).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeproof.program.programs import Ints, Longs

Event = tuple[int, int]
"""(chain, position on it)."""

NEVER: Event = (0, 0)
"""The event that does not happen: chain 0 is empty."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The only event of its chain; needs at least ``threshold`` of ``sources``."""

    chain: int
    threshold: int
    sources: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class EventGraph:
    """Chains, edges and gates.

    ``length[c]`` is the number of events of chain c. Edge i says that event
    ``(to_chain[i], to_position[i])`` needs event ``(from_chain[i],
    from_position[i])``; edges are sorted by their target, and ``first[c]`` is
    the first edge into chain c (with one entry more than there are chains).

    Chain 0 is empty. Chains 1 to ``lanes`` are the lanes: op i of a lane starts
    at position 2i and completes at 2i + 1. Then come the streams, two events an
    operation, in the order of ``stream_op[stream_first[i]:stream_first[i+1]]``
    for stream i, and last the joint conditions, one event each, named by
    ``joints``. ``chain[op]`` and ``position[op]`` is where an op starts: on its
    lane, or on a stream if it was posted to one. ``match[row]`` is the message
    row that a row meets, -1 for none. ``needs`` holds arrays (message row,
    chain, position): the events that a row needs to be done, beside its own
    start; ``calls`` the same for collectives, by op.
    """

    length: Longs
    first: Longs
    to_position: Longs
    from_chain: Longs
    from_position: Longs
    gates: tuple[Gate, ...]
    lanes: int
    chain: Longs
    position: Longs
    stream_first: Longs
    stream_op: Ints
    match: Longs
    needs: tuple[Longs, Longs, Longs]
    calls: tuple[Longs, Longs, Longs]
    joints: tuple[str, ...] = ()
