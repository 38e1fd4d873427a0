"""Why a run got stuck: the shortest cycle of waits, or the wait for nothing.

Every chain that stopped short stands before one event, and that event needs
others that have not happened: the chain waits for theirs. Following the waits
ends in a cycle, or at an event that never happens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pipeproof.engines.events.graph import Event, EventGraph
from pipeproof.engines.events.run import Run


@dataclass(frozen=True, slots=True)
class Wait:
    """Chain ``at[0]`` stands before event ``at``, which needs event ``needs``."""

    at: Event
    needs: Event


@dataclass(frozen=True, slots=True)
class Blame:
    """The waits in order: each is for the chain of the next, and where
    ``cyclic`` the last is for the chain of the first; otherwise the last is
    for an event that never happens."""

    waits: tuple[Wait, ...]
    cyclic: bool


def blame(graph: EventGraph, run: Run) -> Blame:
    """Explain a run that did not finish."""
    needs = _Needs(graph, run)
    stuck = [c for c in range(1, graph.lanes + 1) if run.progress[c] < graph.length[c]]
    edges = _reachable(needs, stuck)
    cycle = _shortest_cycle(edges)
    if cycle is not None:
        pairs = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        return Blame(tuple(_wait(edges, run, a, b) for a, b in pairs), cyclic=True)
    path = _shortest_path_to_never(edges, stuck)
    pairs = zip(path, [*path[1:], 0], strict=True)
    return Blame(tuple(_wait(edges, run, a, b) for a, b in pairs), cyclic=False)


Waits = dict[int, dict[int, Event]]
"""For each chain that waits: the chains it waits for, with the event of each."""


class _Needs:
    """The unmet needs of the event that a chain stands before."""

    def __init__(self, graph: EventGraph, run: Run) -> None:
        self.graph, self.run = graph, run
        self.gates = {gate.chain: gate for gate in graph.gates}

    def of(self, chain: int) -> dict[int, Event]:
        graph, progress = self.graph, self.run.progress
        gate = self.gates.get(chain)
        if gate is not None:
            return {c: (c, p) for c, p in gate.sources if progress[c] <= p}
        first, stop = int(graph.first[chain]), int(graph.first[chain + 1])
        low = first + int(graph.to_position[first:stop].searchsorted(progress[chain], "left"))
        high = first + int(graph.to_position[first:stop].searchsorted(progress[chain], "right"))
        unmet: dict[int, Event] = {}
        for i in range(low, high):
            source, position = int(graph.from_chain[i]), int(graph.from_position[i])
            if progress[source] <= position:
                known = unmet.get(source)
                if known is None or position < known[1]:
                    unmet[source] = (source, position)
        return unmet


def _reachable(needs: _Needs, stuck: list[int]) -> Waits:
    edges: Waits = {}
    frontier = list(stuck)
    while frontier:
        chain = frontier.pop()
        if chain in edges or chain == 0:
            continue
        edges[chain] = needs.of(chain)
        frontier.extend(edges[chain])
    return edges


def _wait(edges: Waits, run: Run, chain: int, other: int) -> Wait:
    return Wait((chain, run.progress[chain]), edges[chain][other])


def _shortest_cycle(edges: Waits) -> list[int] | None:
    """The shortest cycle; among equals the one through the smallest chains."""
    for chain in sorted(edges):
        if chain in edges[chain]:
            return [chain]  # it waits for what only comes after
    best: list[int] | None = None
    for root in sorted(_on_cycles(edges)):
        # Breadth first from the root back to itself, shorter than the best so far.
        parent = {root: -1}
        queue = deque([(root, 1)])
        found = None
        while queue and found is None:
            chain, size = queue.popleft()
            if best is not None and size >= len(best):
                break
            for other in sorted(edges.get(chain, ())):
                if other == root:
                    found = chain
                    break
                if other not in parent and other != 0:
                    parent[other] = chain
                    queue.append((other, size + 1))
        if found is not None:
            path = [found]
            while parent[path[-1]] != -1:
                path.append(parent[path[-1]])
            best = path[::-1]
            if len(best) <= 2:
                break
    return best


def _on_cycles(edges: Waits) -> set[int]:
    """Chains left after removing, again and again, those that wait for nothing
    left or are waited for by nothing left."""
    left = set(edges)
    while True:
        waited = {other for chain in left for other in edges[chain]}
        keep = {c for c in left if c in waited and any(o in left for o in edges[c])}
        if keep == left:
            return left
        left = keep


def _shortest_path_to_never(edges: Waits, stuck: list[int]) -> list[int]:
    parent = dict.fromkeys(stuck, -1)
    queue = deque(sorted(stuck))
    while queue:
        chain = queue.popleft()
        for other in sorted(edges[chain]):
            if other == 0:
                path = [chain]
                while parent[path[-1]] != -1:
                    path.append(parent[path[-1]])
                return path[::-1]
            if other not in parent:
                parent[other] = chain
                queue.append(other)
    raise AssertionError("a run is stuck without a cycle and without an impossible event")
