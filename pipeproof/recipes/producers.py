"""How frameworks issue the communication of their own schedules.

``megatron``
    Megatron-LM with batched messages. What leaves between two computes and what
    the second one takes go out in one batch, waited for at once, if both are
    for one neighbour; else one after the other. With several stages a rank a
    forward and the backward behind it are one turn: all that a turn made and
    all that the next one takes make one batch. In a batch stand: gradient
    sent, activation received, activation sent, gradient received.
``megatron-unbatched``
    the same without batches: even ranks post activation sent, activation
    received, gradient sent, gradient received; odd ranks activation received,
    activation sent, gradient received, gradient sent; then all are waited for.
``deepspeed``
    every message blocks. Between a forward and the backward that 1F1B has next
    the gradient is received before the activation is sent; where there are
    forwards only, odd ranks receive first.
``dualpipe``
    what a compute made leaves with what the next one takes in one batch, waited
    for at once; see `pipeproof.recipes.queued`.
``zero-bubble``
    messages stand where they are made in time, and are waited for where they are
    needed; see `pipeproof.recipes.timely`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import Transport
from pipeproof.recipes.lowering import Action, Cell, Wires, cells_of
from pipeproof.recipes.posting import How, Post, Row, peer, program_of
from pipeproof.recipes.queued import rows_queued
from pipeproof.recipes.timely import rows_in_time

Between = Callable[[list[Action], list[Action]], Iterator[Post]]
"""What is posted between two turns: of what the first made and the second takes."""


def issue_as_producer(schedule: Schedule, recipe: str, transport: Transport) -> Program:
    """The program of a compute-only schedule under a recipe of `PRODUCERS`."""
    return program_of(schedule, PRODUCERS[recipe](schedule), recipe, transport)


def _woven(wires: Wires, turns: list[list[Cell]], between: Between) -> Row:
    """The turns of a rank with their messages in between."""
    row: Row = []
    made: list[Action] = []
    for turn in [*turns, []]:
        actions = [action for cell in turn for action in cell]
        taken = [m for a in actions if (m := wires.receive(a)) is not None]
        row.extend(post for post in between(made, taken) if post.messages)
        row.extend(turn)
        made = [m for a in actions if (m := wires.send(a)) is not None]
    return row


def _role(message: Action) -> tuple[bool, bool]:
    """Whether it is a gradient, and whether it is sent."""
    return message.backward, message.kind == Kind.SEND


_BATCHED = ((True, True), (False, False), (False, True), (True, False))
_EVEN = ((False, True), (False, False), (True, True), (True, False))
_ODD = ((False, False), (False, True), (True, False), (True, True))
"""The roles in the order of posting."""


def _as_megatron(schedule: Schedule, batched: bool) -> list[Row]:
    wires = Wires(schedule)
    several = schedule.stages > schedule.ranks
    how = How.BATCH_WAITED if batched else How.EACH_WAITED

    def between(
        order: tuple[tuple[bool, bool], ...], made: list[Action], taken: list[Action]
    ) -> Iterator[Post]:
        peers = [{peer(schedule, message) for message in side} for side in (made, taken)]
        for together in (made + taken,) if several or peers[0] == peers[1] else (made, taken):
            ordered = sorted(
                together, key=lambda m: order.index((m.backward, m.kind == Kind.SEND))
            )
            yield Post(how, tuple(ordered))

    rows = []
    for rank, cells in enumerate(cells_of(schedule)):
        order = _BATCHED if batched else _ODD if rank % 2 else _EVEN
        turns = _paired(_single(cells)) if several else _single(cells)
        rows.append(_woven(wires, turns, partial(between, order)))
    return rows


def _single(cells: list[Cell]) -> list[list[Cell]]:
    """Every cell is a turn; a recompute and its backward are one, as the backward
    runs both."""
    turns: list[list[Cell]] = []
    recomputes = False
    for cell in cells:
        if recomputes:
            turns[-1].append(cell)
        else:
            turns.append([cell])
        recomputes = cell[-1].kind == Kind.R
    return turns


def _paired(turns: list[list[Cell]]) -> list[list[Cell]]:
    """Forwards and backwards that alternate after the warm-up as one turn each pair.

    Where no forward follows the first backward, all forwards were warm-up.
    """
    forwards = [turn[0][0].kind == Kind.F for turn in turns]
    first = forwards.index(False) if False in forwards else len(turns)
    steady = any(forwards[first:])
    found: list[list[Cell]] = []
    at = 0
    while at < len(turns):
        pair = steady and forwards[at : at + 2] == [True, False]
        found.append(turns[at] + turns[at + 1] if pair else turns[at])
        at += 2 if pair else 1
    return found


def _as_deepspeed(schedule: Schedule) -> list[Row]:
    wires = Wires(schedule)
    forwards = bool((schedule.kind != Kind.F).sum() == 0)
    rows = []
    for rank, cells in enumerate(cells_of(schedule)):

        def between(
            made: list[Action], taken: list[Action], first: bool = forwards and rank % 2 == 1
        ) -> Iterator[Post]:
            turned = first or any(_in_next_slot(schedule, m, t) for m in made for t in taken)
            yield Post(How.EACH_BLOCKS, tuple(taken + made if turned else made + taken))

        rows.append(_woven(wires, _single(cells), between))
    return rows


def _in_next_slot(schedule: Schedule, sent: Action, received: Action) -> bool:
    """Whether a backward takes a gradient right after the forward of what is sent,
    where ranks move in step: forward i of a stage is in slot 2 i + stage, backward i
    in slot 2 i + 2 stages - 1 - stage."""
    lag = schedule.stages - 1 - sent.stage
    if sent.backward or not received.backward or sent.stage != received.stage:
        return False
    return sent.microbatch - received.microbatch == lag


PRODUCERS: Mapping[str, Callable[[Schedule], list[Row]]] = {
    "megatron": partial(_as_megatron, batched=True),
    "megatron-unbatched": partial(_as_megatron, batched=False),
    "deepspeed": _as_deepspeed,
    "dualpipe": rows_queued,
    "zero-bubble": rows_in_time,
}
"""Recipe -> the rows of a compute-only schedule."""
