"""The strictest reading of a plan: every message is a meeting of two ranks.

Let every send and receive block where it is listed, and complete only together
with its other end. An order of events that is legal then is legal whatever the
recipe and the transport: grouping, posting, streams and slots only let events
happen earlier. So a plan that gets through its meetings gets through under all
of them, and one pass over its messages says whether it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeproof.program.programs import Longs, Messages


def all_meet(messages: Messages, match: Longs, ranks: int) -> bool:
    """Whether all messages meet when every rank takes its own in order.

    ``match[row]`` is the other end of a row, -1 for none. Rows of a rank stand
    side by side, in the order in which it lists them; each rank has one lane.
    """
    if (match < 0).any():
        return False
    bounds: Sequence[int] = messages.rank.searchsorted(range(ranks + 1)).tolist()
    other_end, peer = match.tolist(), messages.peer.tolist()
    at = list(bounds[:-1])
    waits = bytearray(len(other_end))  # 1 where a rank stands and waits
    ready = list(range(ranks - 1, -1, -1))
    met = 0
    while ready:
        rank = ready.pop()
        row, stop = at[rank], bounds[rank + 1]
        while row < stop:
            other = other_end[row]
            if not waits[other]:
                waits[row] = 1
                break
            other_rank = peer[row]
            at[other_rank] = other + 1
            ready.append(other_rank)
            met += 1
            row += 1
        at[rank] = row
    return 2 * met == len(other_end)
