"""What holds a step back: the critical path, and the slack of everything else.

The critical path is a chain of ops and messages without a gap from the start of
the step to its end: shortening none of them shortens nothing. The slack of an op
is how much later it could end, all else as it is, before the step gets longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.timing_network import Network, earliest, longest, network
from pipeproof.program.costs import Costs
from pipeproof.program.programs import Program

if TYPE_CHECKING:
    from pipeproof.engines.timing_network import Ticks
    from pipeproof.program.programs import Longs


@dataclass(frozen=True, slots=True)
class Hop:
    """A piece of the critical path, from ``start`` to ``end`` in ticks.

    A compute op, unless ``to`` or ``row`` is given. On the compute order, the message
    with what ``op`` makes and ``to`` needs (both are op numbers); over a program's
    own communication, the message of ``row``, posted by ``op``. The two ops of an
    overlapped pair that is one block share their times; one of them stands for it.
    """

    op: int
    start: int | float
    end: int | float
    to: int | None = None
    row: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """``path`` from the start of the step to its end; ``slack[i]`` is that of compute
    op ``op[i]``, in ticks, ``per_unit`` of them a time unit."""

    path: tuple[Hop, ...]
    op: Longs
    slack: Ticks
    per_unit: int


def explain(program: Program, costs: Costs) -> Explanation | None:
    """What holds the step back on its compute order; None where it has no time."""
    net = network(program, costs)
    start = earliest(net) if net is not None else None
    if net is None or start is None:
        return None
    latest = _latest(net, start)
    path = tuple(_path(net, start))
    return Explanation(path, net.op, net.of_ops(latest - start), net.per_unit)


def _latest(net: Network, start: Ticks) -> Ticks:
    """The latest start of each node that leaves the makespan as it is.

    The same problem with time running backwards: lanes the other way round, and
    producers waiting for their consumers.
    """
    nodes = len(net.duration)
    duration = net.duration[::-1]
    # A start is now how long before the end of the step a node ends, so a lag between
    # two starts becomes one between two ends.
    lag = net.lag + net.duration[net.to] - net.duration[net.source]
    to, source = nodes - 1 - net.source, nodes - 1 - net.to
    order = np.argsort(to, kind="stable")
    bounds = nodes - net.bounds[::-1]
    found = longest(duration, bounds, to[order], source[order], lag[order])
    assert found is not None, "what has a time forwards has one backwards"
    makespan = (start + net.duration).max()
    result: Ticks = makespan - found[::-1] - net.duration
    return result


def _path(net: Network, start: Ticks) -> list[Hop]:
    """Back from the last end: each node started when the one before it on its lane
    ended, or else when the latest of its inputs came."""
    end = start + net.duration
    node = int(end.argmax())
    slip = 0 if end.dtype == np.int64 else 1e-9 * float(end[node])
    lane_first = set(net.bounds.tolist())
    first_op = np.searchsorted(net.node, np.arange(len(end) + 1)) if net.node is not None else None

    def last_op(of: int) -> int:
        return int(net.op[of if first_op is None else first_op[of + 1] - 1])

    hops: list[Hop] = []
    op = last_op(node)
    while True:
        began = start[node].item()
        hops.append(Hop(op, began, end[node].item()))
        if began <= slip:
            return hops[::-1]
        if node not in lane_first and began - end[node - 1].item() <= slip:
            node -= 1
            op = last_op(node)
            continue
        low, high = np.searchsorted(net.to, (node, node + 1))
        arrivals = start[net.source[low:high]] + net.lag[low:high]
        gate = int(low + arrivals.argmax())
        producer = int(net.op[net.inputs.producer[gate]])
        consumer = int(net.op[net.inputs.consumer[gate]])
        hops[-1] = Hop(consumer, began, end[node].item())
        if net.inputs.remote[gate]:
            left = began - net.delay[gate].item()
            hops.append(Hop(producer, left, began, consumer))
        source = int(net.source[gate])
        held = net.inputs.producer[gate]
        own = int(held if net.node is None else net.node[held])
        node, op = source, producer if own == source else last_op(source)
