"""The greedy run: perform every event that can happen.

One pass over the edges. A chain runs until an event needs one of another chain
that has not happened yet; there it parks, and wakes when that chain has passed
the position. The stretches that chains run form a topological order of all
events that happened.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeproof.engines.events.graph import Event, EventGraph


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


def run(graph: EventGraph, without: Event | None = None) -> Run:
    """Run ``graph`` as far as it goes; linear in its events' edges.

    ``without`` is an event that is kept from happening.
    """
    length = graph.length.tolist()
    if without is not None:
        length[without[0]] = min(length[without[0]], without[1])
    first = graph.first.tolist()
    to_position = graph.to_position.tolist()
    from_chain = graph.from_chain.tolist()
    from_position = graph.from_position.tolist()
    chains = len(length)

    progress = [0] * chains
    edge = first[:chains]  # the first edge into each chain that is not yet satisfied
    # Who waits on a chain, as position * chains + who: such a number is below
    # progress * chains exactly when the position has been passed.
    parked: list[list[int]] = [[] for _ in range(chains)]
    stretches: list[tuple[int, int, int]] = []
    missing = {gate.chain: gate.threshold for gate in graph.gates}
    for gate in graph.gates:
        for source, position in gate.sources:
            parked[source].append(position * chains + gate.chain)

    ready = [chain for chain in range(chains - 1, 0, -1) if chain not in missing]
    while ready:
        chain = ready.pop()
        at, stop = edge[chain], first[chain + 1]
        while at < stop:
            source = from_chain[at]
            if progress[source] <= from_position[at]:
                parked[source].append(from_position[at] * chains + chain)
                reached = to_position[at]
                break
            at += 1
        else:
            reached = length[chain]
        if without is not None:
            reached = min(reached, length[chain])
        if reached == progress[chain]:
            edge[chain] = at
            continue
        edge[chain] = at
        stretches.append((chain, progress[chain], reached))
        progress[chain] = reached
        waiting = parked[chain]
        if waiting:
            passed = reached * chains
            parked[chain] = [entry for entry in waiting if entry >= passed]
            for entry in waiting:
                if entry < passed:
                    who = entry % chains
                    if who in missing:
                        missing[who] -= 1
                        if missing[who]:
                            continue
                    ready.append(who)
    return Run(progress, stretches)
