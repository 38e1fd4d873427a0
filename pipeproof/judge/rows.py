"""One plan under every transport, side by side.

The presets are ordered: an order of events that is legal under one is legal
under every more permissive one, and an execution whose sends and receives
block where they are listed is legal under all of them, grouped or not. So the
strictest is run first, and what it passes needs no further run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pipeproof.engines.events.build import build
from pipeproof.engines.events.ordering import Before, contended
from pipeproof.engines.events.pairing import Pairing, pair
from pipeproof.engines.events.run import run
from pipeproof.engines.events.turns import turns
from pipeproof.engines.meetings import all_meet
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import PRESETS, Grouping, Progress, Transport
from pipeproof.recipes import issuing
from pipeproof.recipes.regrouping import regrouped
from pipeproof.verdict import Status, TransportRow

SOUGHT_OPS = 200_000
"""Beyond this many ops the smallest safe capacity is sought only for the
required transport: each candidate is a run of the whole plan."""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The rows, and for each name that holds, the row whose run shows it."""

    rows: tuple[TransportRow, ...]
    shown_by: dict[str, str]

    def row(self, name: str) -> TransportRow | None:
        """The row of a name, if there is one."""
        return next((r for r in self.rows if r.name == name), None)


class _Plan:
    """A program whose deadlock verdict is asked under several transports."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._pairings: dict[object, Pairing] = {}

    def status(self, transport: Transport) -> Status:
        """Whether the plan ends; undetermined where lanes of a rank take turns in no
        fixed order, so that no single run decides."""
        pairing = self._pairings.get(transport.match)
        if pairing is None:
            pairing = pair(self.program.messages, transport.match, turns(self.program))
            self._pairings[transport.match] = pairing
        graph = build(self.program, transport, pairing)
        ran = run(graph)
        if self.program.several_lanes:
            before = Before(graph, ran)
            if any(contended(self.program, transport.streams, before)):
                return Status.UNDETERMINED
        return Status.HOLDS if ran.finished(graph) else Status.VIOLATED

    def holds(self, transport: Transport) -> bool:
        """Whether the plan surely ends."""
        return self.status(transport) is Status.HOLDS

    def smallest_capacity(self, transport: Transport) -> int | None:
        """The fewest buffer slots at which the plan ends: None if no number helps."""
        return smallest(
            lambda slots: self.holds(transport.with_capacity(slots)),
            len(self.program.messages.op),
        )


def smallest(holds: Callable[[int | None], bool], largest: int) -> int | None:
    """The smallest capacity that holds, given that more never hurts."""
    if holds(0):
        return 0
    if not holds(None):
        return None
    low, high = 0, 1
    while high < largest and not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def schedule_rows(schedule: Schedule, program: Program, pairing: Pairing) -> SideBySide:
    """Rows for a schedule: the presets under the recipe that made ``program``,
    and beside them the recipes that block. ``pairing`` is the program's."""
    names = (*PRESETS, "blocking", "grouped")
    same_listing = schedule.lists_communication or schedule.ranks == 1
    if same_listing and all_meet(program.messages, pairing.match, program.ranks):
        rows = tuple(TransportRow(name, Status.HOLDS, 0) for name in names)
        return SideBySide(rows, dict.fromkeys(names, "blocking"))
    own, rendezvous = program.transport, PRESETS["gloo"]
    found, shown_by = _preset_rows(_Plan(program), own)
    for name, recipe in (("blocking", "naive"), ("grouped", "grouped")):
        plan = _Plan(issuing.build(schedule, recipe, rendezvous))
        status = plan.status(rendezvous)
        found.append(_row(name, plan, rendezvous, status, own))
        if status is Status.HOLDS:
            shown_by[name] = name
    return SideBySide(tuple(found), shown_by)


def program_rows(program: Program, *, holds: bool) -> SideBySide:
    """Rows for a program: its own matching and groups on each preset's streams.

    Streams order only posted operations, so a program without any has no such
    rows. Where its own transport does not hold, that is a row too, with the
    slots that would help, and so is posting its neighbouring messages together.
    """
    own = program.transport
    found: list[TransportRow] = []
    shown_by: dict[str, str] = {}
    if (program.request >= 0).any():
        found, shown_by = _preset_rows(_Plan(program), own)
    base = own.name.partition(":")[0]
    if not holds and base not in PRESETS:
        plan = _Plan(program)
        rendezvous = replace(own, capacity=0)
        found.append(_row(base, plan, rendezvous, plan.status(rendezvous), own))
        for name, other in _otherwise(own):
            if plan.holds(other):
                found.append(TransportRow(name, Status.HOLDS, 0))
        together = regrouped(program)
        if together is not None:
            status = _Plan(together).status(own)
            found.append(TransportRow("grouped", status, 0 if status is Status.HOLDS else -1))
    return SideBySide(tuple(found), shown_by)


def _otherwise(own: Transport) -> Iterator[tuple[str, Transport]]:
    """The program's transport with one of its restrictions lifted."""
    if own.group is Grouping.ATOMIC:
        yield "independent groups", replace(own, group=Grouping.INDEPENDENT)
    if own.isend_progress is Progress.AT_WAIT:
        yield "background progress", replace(own, isend_progress=Progress.ASYNC)


def own_capacity(program: Program) -> int | None:
    """The smallest safe capacity on the program's own streams."""
    transport = program.transport
    return _Plan(program).smallest_capacity(replace(transport, capacity=0))


def _preset_rows(plan: _Plan, own: Transport) -> tuple[list[TransportRow], dict[str, str]]:
    rows: list[TransportRow] = []
    shown_by: dict[str, str] = {}
    stricter: str | None = None  # a stricter preset that holds
    for name, preset in reversed(PRESETS.items()):
        transport = own.on_streams_of(preset)
        status = Status.HOLDS if stricter is not None else plan.status(transport)
        if status is Status.HOLDS:
            shown_by[name] = stricter or name
            if not plan.program.several_lanes:  # lanes may be ordered by a stricter stream alone
                stricter = shown_by[name]
        rows.append(_row(name, plan, transport, status, own))
    return rows[::-1], shown_by


def _row(
    name: str, plan: _Plan, transport: Transport, status: Status, own: Transport
) -> TransportRow:
    if status is not Status.VIOLATED:
        return TransportRow(name, status, 0 if status is Status.HOLDS else -1)
    required = own.name.partition(":")[0] == name
    if plan.program.ops > SOUGHT_OPS and not required:
        return TransportRow(name, Status.VIOLATED)
    return TransportRow(name, Status.VIOLATED, plan.smallest_capacity(transport))
