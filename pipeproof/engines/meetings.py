"""The strictest reading of a plan: every message is a meeting of two ranks.

Let every send and receive block where it is listed, and complete only together
with its other end. An order of events that is legal then is legal whatever the
recipe and the transport: grouping, posting, streams and slots only let events
happen earlier. So a plan that gets through its meetings gets through under all
of them, and one pass over its messages says whether it does. Two restrictions
are not weaker than a meeting, and programs with them are not judged this way:
groups that move only as a whole, and sends that move only inside their wait.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeproof.program.programs import Longs, Messages


def all_meet(messages: Messages, match: Longs, ranks: int) -> bool:
    """Whether all messages meet when every rank takes its own in order.

    ``match[row]`` is the other end of a row, -1 for none. Rows of a rank stand
    side by side, in the order in which it lists them; each rank has one lane.
    """
    if (match < 0).any():
        return False
    bounds = messages.rank.searchsorted(range(ranks + 1)).tolist()
    other_end, peer = match.tolist(), messages.peer.tolist()
    # One resumable walk a rank. Where it breaks off it stands and waits, and when
    # the other end comes to the same message it goes on behind it.
    walks = [zip(range(a, b), other_end[a:b], peer[a:b], strict=True) for a, b in pairwise(bounds)]
    waits = bytearray(len(other_end))
    ready = list(range(ranks - 1, -1, -1))
    met = 0
    while ready:
        for row, other, other_rank in walks[ready.pop()]:
            if not waits[other]:
                waits[row] = 1
                break
            ready.append(other_rank)
            met += 1
    return 2 * met == len(other_end)
