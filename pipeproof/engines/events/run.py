"""The greedy run: perform every event that can happen.

One pass over the edges. A chain runs until an event needs one of another chain
that has not happened yet; there it parks, and wakes when that chain has passed
the position. The stretches that chains run form a topological order of all
events that happened.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeproof.engines.events.graph import EventGraph


@dataclass(frozen=True, slots=True)
class Run:
    """``progress[c]`` events of chain c happened; ``stretches`` tell in which order.

    Each stretch is (chain, first position, position after the last).
    """

    progress: list[int]
    stretches: list[tuple[int, int, int]]

    def finished(self, graph: EventGraph) -> bool:
        """Whether every lane ran to its end."""
        return all(self.progress[c] == graph.length[c] for c in range(1, graph.lanes + 1))


def run(graph: EventGraph) -> Run:
    """Run ``graph`` as far as it goes; linear in its events' edges."""
    length = graph.length.tolist()
    first = graph.first.tolist()
    to_position = graph.to_position.tolist()
    from_chain = graph.from_chain.tolist()
    from_position = graph.from_position.tolist()
    chains = len(length)

    progress = [0] * chains
    edge = first[:chains]  # the first edge into each chain that is not yet satisfied
    parked: list[list[tuple[int, int]]] = [[] for _ in range(chains)]  # (position, who)
    stretches: list[tuple[int, int, int]] = []
    missing = {gate.chain: gate.threshold for gate in graph.gates}
    for gate in graph.gates:
        for source, position in gate.sources:
            parked[source].append((position, -gate.chain))

    ready = list(range(chains - 1, 0, -1))
    while ready:
        chain = ready.pop()
        if missing.get(chain, 0) > 0:
            continue  # a gate, woken when enough of its sources have happened
        at, stop = edge[chain], first[chain + 1]
        reached = length[chain]
        while at < stop:
            source = from_chain[at]
            if progress[source] <= from_position[at]:
                reached = to_position[at]
                parked[source].append((from_position[at], chain))
                break
            at += 1
        edge[chain] = at
        before = progress[chain]
        if reached == before:
            continue
        progress[chain] = reached
        stretches.append((chain, before, reached))
        waiting = parked[chain]
        if waiting:
            still = []
            for entry in waiting:
                if entry[0] >= reached:
                    still.append(entry)
                elif entry[1] > 0:
                    ready.append(entry[1])
                else:
                    missing[-entry[1]] -= 1
                    if missing[-entry[1]] == 0:
                        ready.append(-entry[1])
            parked[chain] = still
    return Run(progress, stretches)
