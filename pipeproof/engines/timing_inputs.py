"""Who makes the input of each compute op, on the compute order alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.program.graph import StageGraph
from pipeproof.program.keys import dense
from pipeproof.program.lanes import places_of_ops, rank_of_ops
from pipeproof.program.ops import Kind, activation, gradient
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.program.programs import Bools, Ints, Longs


_MAKING = (Kind.F, Kind.B, Kind.I)
"""What makes an output that another stage takes."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Pairs (consumer, producer) of places among the compute ops, by consumer.

    ``remote``: the producer is on another rank, so the input is a message.
    """

    consumer: Longs
    producer: Longs
    remote: Bools


def inputs(program: Program, computes: Longs) -> Inputs:
    """The inputs of the compute ops ``computes``.

    A forward needs the output of the stage before it, a backward or input gradient
    the gradient of the stage behind it. What nobody makes is there from the start,
    and what several ops make comes from this rank if one of them is on it, else
    from the rank that this one receives it from. What an op needs of its own stage
    stands earlier on its lane, or is looked up where ranks have several lanes.
    """
    if program.details.graph is not None:
        return _along(program, computes, program.details.graph)
    kind, stage = program.kind[computes], program.stage[computes]
    microbatch = program.microbatch[computes]
    backward = (kind == Kind.B) | (kind == Kind.I)
    takes = (kind == Kind.F) | backward
    low = min(int(stage.min()), 0) - 1
    key, size = dense(
        np.concatenate((stage - low, stage - low + np.where(backward, 1, -1))),
        np.concatenate((microbatch, microbatch)) - min(int(microbatch.min()), 0),
        np.concatenate((backward, backward)),
    )
    made, needed = key[: len(computes)], key[len(computes) :]
    maker = np.full(size, -1, np.int64)
    makers = np.flatnonzero(takes)
    maker[made[makers[::-1]]] = makers[::-1]  # the first op of each name
    producer = np.where(takes, maker[needed], -1)
    rank = rank_of_ops(program)[computes]
    if len(makers) > np.count_nonzero(maker >= 0):
        _choose(program, computes, rank, producer, made, needed, makers)
    consumer = np.flatnonzero(producer >= 0)
    producer = producer[consumer]
    if program.several_lanes:
        consumer, producer = _with_own_stage(program, computes, rank, consumer, producer)
    return Inputs(consumer, producer, rank[producer] != rank[consumer])


def _along(program: Program, computes: Longs, graph: StageGraph) -> Inputs:
    """The inputs where stages are no chain: by the stage graph, from the op's own rank
    where it makes them too."""
    rank = rank_of_ops(program)[computes]
    makers: dict[tuple[bool, int, int], list[int]] = {}
    cells: list[tuple[Kind, int, int]] = []
    for at, op in enumerate(computes.tolist()):
        cell = Kind(program.kind[op]), int(program.stage[op]), int(program.microbatch[op])
        cells.append(cell)
        if cell[0] in _MAKING:
            makers.setdefault((cell[0] is not Kind.F, *cell[1:]), []).append(at)
    outputs = graph.outputs
    pairs: list[tuple[int, int]] = []
    for at, (kind, stage, microbatch) in enumerate(cells):
        if kind not in _MAKING or not 0 <= stage < len(outputs):
            continue
        if kind is Kind.F:
            sources = graph.sources(stage, microbatch)
        else:
            sources = [(s, microbatch) for s in outputs[stage]]
        for source in sources:
            found = makers.get((kind is not Kind.F, *source), [])
            own = [one for one in found if rank[one] == rank[at]]
            pairs += [(at, one) for one in (own or found)[:1]]
    made = np.array(pairs, np.int64).reshape(-1, 2)
    consumer, producer = made[:, 0], made[:, 1]
    if program.several_lanes:
        consumer, producer = _with_own_stage(program, computes, rank, consumer, producer)
    return Inputs(consumer, producer, rank[producer] != rank[consumer])


def _choose(
    program: Program,
    computes: Longs,
    rank: Ints,
    producer: Longs,
    made: Longs,
    needed: Longs,
    makers: Longs,
) -> None:
    """Set the producers that are not the first op of their name: several ranks make
    the same thing, as where a stage is hosted twice and both run a microbatch."""
    by_key: dict[int, list[int]] = {}
    for maker in makers.tolist():
        by_key.setdefault(int(made[maker]), []).append(maker)
    several = {k for k, own in by_key.items() if len(set(rank[own].tolist())) > 1}
    if not several:
        return
    m = program.messages
    comes_from: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(~m.send)[::-1].tolist():
        comes_from[int(m.rank[row]), int(m.payload[row])] = int(m.peer[row])
    for op in np.flatnonzero(producer >= 0).tolist():
        if int(needed[op]) not in several:
            continue
        candidates = by_key[int(needed[op])]
        number, forward = computes[op], program.kind[computes[op]] == Kind.F
        stage, microbatch = int(program.stage[number]), int(program.microbatch[number])
        payload = activation(stage - 1, microbatch) if forward else gradient(stage + 1, microbatch)
        here = int(rank[op])
        sender = comes_from.get((here, payload), -1)
        own = [c for c in candidates if rank[c] == here] if sender in (-1, here) else []
        sent = [c for c in candidates if rank[c] == sender]
        producer[op] = (own or sent or candidates)[0]


def _with_own_stage(
    program: Program, computes: Longs, rank: Ints, consumer: Longs, producer: Longs
) -> tuple[Longs, Longs]:
    """The inputs with those of an op's own stage that another lane of its rank makes:
    a backward needs its forward (or recompute), a W its input gradient."""
    needs = {
        Kind.B: (Kind.R, Kind.F),
        Kind.I: (Kind.R, Kind.F),
        Kind.W: (Kind.I,),
        Kind.R: (Kind.F,),
    }
    lane = places_of_ops(program)[0][computes]
    first: dict[tuple[int, int, int, int], int] = {}
    cells = []
    for at, op in enumerate(computes.tolist()):
        cell = int(rank[at]), int(program.stage[op]), int(program.microbatch[op])
        kind = int(program.kind[op])
        cells.append((kind, cell))
        first.setdefault((kind, *cell), at)
    more = []
    for at, (kind, cell) in enumerate(cells):
        for needed in needs.get(Kind(kind), ()):
            source = first.get((needed, *cell))
            if source is not None:
                if lane[source] != lane[at]:
                    more.append((at, source))
                break
    extra = np.array(more, np.int64).reshape(-1, 2)
    consumer = np.concatenate((consumer, extra[:, 0]))
    order = np.argsort(consumer, kind="stable")
    return consumer[order], np.concatenate((producer, extra[:, 1]))[order]
