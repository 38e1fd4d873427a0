"""Every interleaving of a small program.

Breadth first over the model's states. It says nothing a maximal run does not
say as long as that theorem holds; the tests use it to check that it does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pipeproof.program.programs import Program
from pipeproof.program.transports import Transport
from pipeproof.replay.model import Model
from pipeproof.replay.state import Outcome


@dataclass(frozen=True, slots=True)
class Explored:
    """``outcomes`` is every way to end that was seen, of all there are unless
    ``truncated``."""

    states: int
    outcomes: frozenset[Outcome]
    truncated: bool


def explore(program: Program, transport: Transport, limit: int = 200_000) -> Explored:
    """Visit every reachable state, up to ``limit`` of them."""
    model = Model(program, transport)
    start = model.initial()
    seen = {start.key()}
    frontier = deque([start])
    outcomes = set()
    while frontier:
        state = frontier.popleft()
        moves = model.moves(state)
        if not moves:
            outcomes.add(model.outcome(state))
        for move in moves:
            after = state.copy()
            model.apply(after, move)
            key = after.key()
            if key not in seen:
                if len(seen) >= limit:
                    return Explored(len(seen), frozenset(outcomes), truncated=True)
                seen.add(key)
                frontier.append(after)
    return Explored(len(seen), frozenset(outcomes), truncated=False)
