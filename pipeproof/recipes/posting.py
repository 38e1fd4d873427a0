"""Rows of computes with what is posted between them, and the program they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

import numpy as np

from pipeproof.program.builder import ProgramBuilder
from pipeproof.program.ops import Kind, activation, gradient
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import Transport
from pipeproof.recipes.lowering import Action, Cell, Wires


class How(Enum):
    """What becomes of messages that are posted together."""

    EACH_BLOCKS = "each blocks, one after the other"
    EACH_WAITED = "each has a handle, and all are waited for at once"
    BATCH_BLOCKS = "one batch, which blocks"
    BATCH_WAITED = "one batch with a handle, waited for at once"
    BATCH_KEPT = "one batch with a handle, waited for by the computes that need it"


class Post(NamedTuple):
    """Messages that a rank posts together."""

    how: How
    messages: tuple[Action, ...]


Row = list[Cell | Post]
"""What a rank does, in order: cells of computes, and posts in between."""


def other_stage(message: Action) -> int:
    """The stage at the other end: activations go up a stage, gradients down."""
    return message.stage + (1 if (message.kind == Kind.SEND) ^ message.backward else -1)


def peer(schedule: Schedule, message: Action) -> int:
    """The rank at the other end."""
    stage = np.array([other_stage(message)])
    return int(schedule.host_of(stage, np.array([message.microbatch]))[0])


def payload(message: Action) -> int:
    """What a message carries, as both ends name it."""
    sent = message.kind == Kind.SEND
    producer = message.stage if sent else other_stage(message)
    return (gradient if message.backward else activation)(producer, message.microbatch)


def program_of(
    schedule: Schedule, rows: Iterable[Row], recipe: str, transport: Transport
) -> Program:
    """The program that the rows make."""
    builder = ProgramBuilder()
    wires = Wires(schedule)
    kinds: set[int] = set()
    for rank, row in enumerate(rows):
        builder.lane(rank)
        lane = _Lane(builder, schedule, wires)
        for item in row:
            if isinstance(item, Post):
                lane.post(item)
            else:
                lane.compute(item)
                kinds.update(action.kind for action in item)
        lane.finish()
    program = builder.build(
        schedule.name,
        stages=schedule.stages,
        microbatches=schedule.microbatches,
        hosts=schedule.hosts,
        transport=transport,
        recipe=recipe,
        complete=True,
        forward_only=kinds.isdisjoint((Kind.B, Kind.I, Kind.W))
        if schedule.forward_only is None
        else schedule.forward_only,
        notes=schedule.notes,
    )
    made = program.details
    return replace(
        program,
        ranks=schedule.ranks,
        origin=replace(program.origin, cells=schedule.cells),
        details=replace(
            schedule.details,
            comms=made.comms,
            requests=made.requests,
            attributes=made.attributes,
        ),
    )


class _Lane:
    """Appends what one rank does."""

    def __init__(self, builder: ProgramBuilder, schedule: Schedule, wires: Wires) -> None:
        self.builder, self.schedule, self.wires = builder, schedule, wires
        self.posted = 0
        self.place = (0, 0)  # line and column of the cell before
        self.arriving: dict[int, str] = {}  # payload -> the handle of the batch that brings it
        self.kept: dict[str, None] = {}  # handles that nothing has waited for

    def compute(self, cell: Cell) -> None:
        """Run a cell, whose ops wait for the batches that bring their inputs."""
        for action in cell:
            self.place = action.line, action.column
            taken = self.wires.receive(action)
            handle = self.arriving.pop(payload(taken), None) if taken is not None else None
            if handle is not None:
                self.kept.pop(handle, None)
            self.builder.op(
                Kind(action.kind),
                action.stage,
                action.microbatch,
                waits=() if handle is None else (handle,),
                line=action.line,
                column=action.column,
                attributes=self.schedule.attributes.get(action.source),
            )

    def post(self, post: Post) -> None:
        """Post messages, and wait for them if that is how."""
        if post.how in (How.EACH_BLOCKS, How.EACH_WAITED):
            handles = []
            for message in post.messages:
                handle = self._handle() if post.how is How.EACH_WAITED else None
                self.builder.op(
                    Kind(message.kind),
                    message.stage,
                    message.microbatch,
                    request=handle,
                    line=message.line,
                    column=message.column,
                )
                self._message(message)
                handles += [handle] if handle is not None else []
            for handle in handles:
                self._wait((handle,))
            return
        handle = None if post.how is How.BATCH_BLOCKS else self._handle()
        line, column = post.messages[0].line, post.messages[0].column
        self.builder.op(Kind.GROUP, request=handle, line=line, column=column)
        for message in post.messages:
            self._message(message)
        if handle is not None and post.how is How.BATCH_WAITED:
            self._wait((handle,))
        elif handle is not None:
            self.kept[handle] = None
            for message in post.messages:
                if message.kind == Kind.RECV:
                    self.arriving[payload(message)] = handle

    def finish(self) -> None:
        """Wait for what is left."""
        if self.kept:
            self._wait(tuple(self.kept))

    def _handle(self) -> str:
        self.posted += 1
        return f"post{self.posted}"

    def _wait(self, handles: tuple[str, ...]) -> None:
        line, column = self.place
        self.builder.op(Kind.WAIT, waits=handles, line=line, column=column)

    def _message(self, message: Action) -> None:
        sent = message.kind == Kind.SEND
        self.builder.message(sent, peer(self.schedule, message), payload(message))
