"""Issuing: turn a schedule that lists its communication into a program.

``torch``
    torch's runtime on a CSV (torch 2.13, ``_PipelineScheduleRuntime``): every
    send is posted and waited for only after the whole row; every receive is
    posted, and only the compute op that consumes it waits for it; nothing is
    batched; no tags.
``naive``
    every send and receive blocks where it stands.
``grouped``
    communication that stands side by side is posted together and waited for
    before the next op.

Those of other frameworks are in `pipeproof.recipes.producers`. They place what a
compute-only schedule leaves out; of what is listed already they keep the order,
and batch it, or not.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeproof.errors import InputError
from pipeproof.program.graph import chain
from pipeproof.program.keys import dense
from pipeproof.program.ops import Kind, activation, gradient
from pipeproof.program.programs import Lane, Messages, Origin, Program, Waits
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import Transport, parse_transport
from pipeproof.recipes.lowering import lower_as_torch, lower_naively
from pipeproof.recipes.producers import PRODUCERS, issue_as_producer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeproof.program.programs import Bytes, Ints

RECIPES = ("torch", "naive", "grouped", *PRODUCERS)

_LISTED = {"megatron-unbatched": False, "deepspeed": False}
"""Producers' recipes that batch nothing; the others batch what stands side by side."""


def build(schedule: Schedule, recipe: str, transport: Transport) -> Program:
    """The program that ``recipe`` makes of ``schedule``, over ``transport``.

    A schedule that only lists compute is lowered first: as torch does for
    ``torch``, and with each message next to the ops it joins for the others.
    """
    if recipe in PRODUCERS:
        graph = schedule.details.graph
        if graph is not None and (graph.feedback or graph.inputs != chain(schedule.stages).inputs):
            raise InputError(
                f"the recipe {recipe} is for stages in a chain; expected torch, naive or grouped",
                cause="Its framework has no pipelines of this shape.",
            )
        if not schedule.lists_communication:
            return issue_as_producer(schedule, recipe, transport)
        made = _issue_blocking(schedule, transport, grouped=_LISTED.get(recipe, True))
        return replace(made, recipe=recipe)
    if not schedule.lists_communication and schedule.ranks > 1:
        lower = lower_as_torch if recipe == "torch" else lower_naively
        schedule = lower(schedule)
    if recipe == "torch":
        return _issue_as_torch(schedule, transport)
    if recipe == "naive":
        return _issue_blocking(schedule, transport, grouped=False)
    if recipe == "grouped":
        return _issue_blocking(schedule, transport, grouped=True)
    raise ValueError(f"unknown recipe {recipe!r}; known: {', '.join(RECIPES)}")


def issued(
    target: Schedule | Program, recipe: str | None = None, transport: Transport | None = None
) -> Program:
    """The program of a target: what a recipe makes of a schedule over a transport, its
    own where none is asked for; a program as it is, on the transport's streams."""
    if isinstance(target, Schedule):
        over = transport or parse_transport(target.transport)
        return build(target, recipe or target.recipe, over)
    if transport is None:
        return target
    return replace(target, transport=target.transport.on_streams_of(transport))


def _program(
    schedule: Schedule,
    recipe: str,
    transport: Transport,
    *,
    first: NDArray[np.int64],
    kind: Bytes,
    stage: Ints,
    microbatch: Ints,
    request: Ints,
    messages: Messages,
    waits: Waits,
    origin: Origin,
    place: Ints,
) -> Program:
    """``place`` is the op that each action of the schedule has become."""
    bounds = first.tolist()
    attributes = {int(place[action]): own for action, own in schedule.attributes.items()}
    return Program(
        name=schedule.name,
        ranks=schedule.ranks,
        stages=schedule.stages,
        microbatches=schedule.microbatches,
        hosts=schedule.hosts,
        lanes=tuple(Lane(r, "main", bounds[r], bounds[r + 1]) for r in range(schedule.ranks)),
        kind=kind,
        stage=stage,
        microbatch=microbatch,
        request=request,
        messages=messages,
        waits=waits,
        origin=origin,
        transport=transport,
        recipe=recipe,
        complete=True,
        forward_only=not bool(((kind >= Kind.B) & (kind <= Kind.W)).any())
        if schedule.forward_only is None
        else schedule.forward_only,
        notes=schedule.notes,
        details=replace(schedule.details, attributes=MappingProxyType(attributes)),
    )


def _messages(schedule: Schedule, rows: NDArray[np.int64], op: Ints, rank: Ints) -> Messages:
    """The message rows of the actions ``rows``, posted by ``op`` on ``rank``."""
    stage = schedule.stage[rows]
    microbatch = schedule.microbatch[rows].astype(np.int64)
    send = schedule.kind[rows] == Kind.SEND
    backward = schedule.backward[rows]
    # An activation goes up a stage and a gradient down; a receive looks back.
    neighbour = stage + np.where(send ^ backward, 1, -1).astype(np.int32)
    if schedule.other is not None:
        neighbour = schedule.other[rows]
    producer = np.where(send, stage, neighbour).astype(np.int64)
    payload = np.where(backward, gradient(producer, microbatch), activation(producer, microbatch))
    return Messages(
        op=op,
        send=send,
        rank=rank,
        peer=schedule.host_of(neighbour, schedule.microbatch[rows]),
        payload=payload,
        comm=np.zeros(len(rows), np.int32),
    )


def _ranks(schedule: Schedule) -> tuple[NDArray[np.int64], Ints]:
    first = np.asarray(schedule.first, np.int64)
    return first, np.repeat(np.arange(schedule.ranks, dtype=np.int32), np.diff(first))


def _issue_as_torch(schedule: Schedule, transport: Transport) -> Program:
    first, rank = _ranks(schedule)
    count = len(schedule.kind)
    rows = np.flatnonzero((schedule.kind == Kind.SEND) | (schedule.kind == Kind.RECV))
    # One WAIT more at the end of every row that sends.
    sends = np.bincount(rank[schedule.kind == Kind.SEND], minlength=schedule.ranks) > 0
    shift = np.concatenate(([0], np.cumsum(sends)))
    op = np.arange(count, dtype=np.int32) + shift[:-1][rank].astype(np.int32)
    final = np.where(sends, first[1:] + shift[:-1], -1)  # by rank
    total = count + int(shift[-1])

    def spread(values: NDArray[Any], fill: int) -> NDArray[Any]:
        out = np.full(total, fill, values.dtype)
        out[op] = values
        return out

    request = np.full(total, -1, np.int32)
    request[op[rows]] = np.arange(len(rows), dtype=np.int32)
    messages = _messages(schedule, rows, op[rows], rank[rows])
    return _program(
        schedule,
        "torch",
        transport,
        first=first + shift,
        kind=spread(schedule.kind, Kind.WAIT),
        stage=spread(schedule.stage, -1),
        microbatch=spread(schedule.microbatch, -1),
        request=request,
        messages=messages,
        waits=_waits_as_torch(schedule, rows, messages, op, final),
        origin=Origin(spread(schedule.line, 0), spread(schedule.column, 0), cells=schedule.cells),
        place=op,
    )


def _waits_as_torch(
    schedule: Schedule,
    rows: NDArray[np.int64],
    messages: Messages,
    op: Ints,
    final: NDArray[np.int64],
) -> Waits:
    kind = schedule.kind
    # The first compute op of each (stage, microbatch, direction); later ones
    # are repeats, which torch runs without waiting again.
    keys, size = dense(schedule.stage, np.maximum(_consumed(schedule), 0))
    wanting = np.flatnonzero(kind <= Kind.I)[::-1]
    consumer = np.full(2 * size, -1, np.int32)
    consumer[2 * keys[wanting] + (kind[wanting] != Kind.F)] = wanting

    requests = np.arange(len(rows), dtype=np.int32)
    received = ~messages.send
    waiter = consumer[2 * keys[rows] + schedule.backward[rows]]
    # Neighbouring stages of one rank hand over locally and never wait.
    waited = received & (messages.peer != messages.rank) & (waiter > rows)
    if schedule.other is None:
        # Of several receives for one op torch keeps the last.
        awaited = np.full(len(kind), -1, np.int32)
        awaited[waiter[waited]] = requests[waited]
        waited = np.zeros(len(rows), np.bool_)
        waited[awaited[awaited >= 0]] = True
    sent = messages.send
    ops = np.concatenate((op[waiter[waited]], final[messages.rank[sent]].astype(np.int32)))
    order = np.argsort(ops, kind="stable")
    return Waits(ops[order], np.concatenate((requests[waited], requests[sent]))[order])


def _consumed(schedule: Schedule) -> Ints:
    """The microbatch of each action; of a receive, that of the op it is for."""
    graph = schedule.details.graph
    if graph is None or not graph.feedback or schedule.other is None:
        return schedule.microbatch
    # A stage without inputs takes what the last stage made of the slice before.
    first = np.array([not inputs for inputs in graph.inputs], np.bool_)
    fed = (schedule.kind == Kind.RECV) & ~schedule.backward & first[schedule.stage]
    consumed: Ints = schedule.microbatch + fed
    return consumed


def _issue_blocking(schedule: Schedule, transport: Transport, *, grouped: bool) -> Program:
    first, rank = _ranks(schedule)
    kind = schedule.kind
    message = (kind == Kind.SEND) | (kind == Kind.RECV)
    rows = np.flatnonzero(message)
    keep = np.ones(len(kind), np.bool_)
    if grouped:  # keep the first of each run of messages on a rank
        keep[1:] = ~(message[1:] & message[:-1] & (rank[1:] == rank[:-1]))
    op = (np.cumsum(keep) - 1).astype(np.int32)
    kept = np.flatnonzero(keep)
    kinds = kind[kept].copy()
    members = np.bincount(op[rows], minlength=len(kept))
    many = members > 1
    kinds[many] = Kind.GROUP
    stage, microbatch = schedule.stage[kept].copy(), schedule.microbatch[kept].copy()
    stage[many] = -1
    microbatch[many] = -1
    none = np.empty(0, np.int32)
    return _program(
        schedule,
        "grouped" if grouped else "naive",
        transport,
        first=np.concatenate(([0], np.cumsum(keep)))[first],
        kind=kinds,
        stage=stage,
        microbatch=microbatch,
        request=np.full(len(kept), -1, np.int32),
        messages=_messages(schedule, rows, op[rows], rank[rows]),
        waits=Waits(none, none),
        origin=Origin(schedule.line[kept], schedule.column[kept], cells=schedule.cells),
        place=op,
    )
