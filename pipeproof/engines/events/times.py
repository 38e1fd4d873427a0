"""Times of all events, from a finished run: the certificate of its verdict.

The stretches of a run are a topological order; counting through them gives
every event on a chain its time. Ends of messages that have no event of their
own are done as soon as all they need has happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeproof.engines.events.graph import EventGraph
from pipeproof.engines.events.run import Run
from pipeproof.program.lanes import places_of_ops
from pipeproof.program.programs import Program

NEVER = np.int64(1) << 62

if TYPE_CHECKING:
    from pipeproof.program.programs import Longs


def times(program: Program, graph: EventGraph, run: Run) -> tuple[Longs, Longs, Longs, Longs]:
    """(posted, start, complete) of every op and (done) of every message row.

    ``run`` must have finished: every lane is at its end. Times are integers,
    equal times are unordered, and NEVER is the time of what nobody waits for
    and never happens.
    """
    offset = np.concatenate(([0], np.cumsum(graph.length)))
    clock = np.full(int(offset[-1]) + 1, NEVER, np.int64)
    now = 1
    for number, before, after in run.stretches:
        base = int(offset[number])
        clock[base + before : base + after] = np.arange(now, now + after - before)
        now += after - before

    lane_number, place = places_of_ops(program)
    lane = lane_number + 1  # chain 0 is the one of what never happens
    on_lane = offset[lane] + 2 * place
    posted = clock[on_lane]
    start = clock[offset[graph.chain] + graph.position]
    complete = clock[offset[graph.chain] + graph.position + 1]

    row, chain, position = graph.needs
    messages = program.messages
    done = start[messages.op].copy()
    np.maximum.at(done, row, np.where(chain == 0, NEVER, clock[offset[chain] + position]))
    # Posted on free streams: complete when every message is, whatever its lane does.
    free = (program.request >= 0) & (graph.chain == lane)
    latest = np.zeros(program.ops, np.int64)
    np.maximum.at(latest, messages.op, done)
    op, chain, position = graph.calls
    np.maximum.at(latest, op, np.where(chain == 0, NEVER, clock[offset[chain] + position]))
    complete = np.where(free, np.maximum(start, latest), complete)
    return posted, start, complete, done
