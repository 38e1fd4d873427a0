"""DualPipe's and DualPipeV's steps as they ran (JSON): a list of events a rank.

F is a forward, B an input gradient whose weight gradient follows as W, BW both
gradients. A ``batch`` starts all its messages and waits for all of them before
the next event. ``what`` of a message is (kind, phase, microbatch, producing
stage) at both ends.

DualPipe runs two pipelines in opposite directions: phase 0 from rank 0 up,
phase 1 from the last rank down, so that every stage lives on two ranks. Each
phase counts its own half of the microbatches from 0; here those of phase 1
follow those of phase 0: microbatch k of phase 1 is k + m/2. DualPipeV folds
one pipeline of 2 p stages into a V: phase 0 is its way down the ranks, phase 1
its way back, and both run all microbatches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pipeproof.formats.json_text import parse_json
from pipeproof.formats.json_values import (
    below,
    entries,
    integer,
    items,
    refusal,
    text,
    word,
    wrong,
)
from pipeproof.formats.recordings import (
    PAYLOADS,
    RECIPE,
    at_paths,
    entry,
    numbers,
    peer,
    record,
    size,
)
from pipeproof.program.builder import ProgramBuilder
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Attributes, Program
from pipeproof.program.transports import PRESETS

_FILE = ("producer", "cls", "p", "m", "ranks")
_REPORTED = ("commit", "note", "step_counts", "peak_act", "peak_act_until_w")
_COMPUTES = {"F": Kind.F, "B": Kind.I, "W": Kind.W, "BW": Kind.B}
_MARKS = ("FB_begin", "FB_end")
_OPS = (*_COMPUTES, "batch", *_MARKS)
_EVENT = ("step", "op")
_COMPUTE = (*_EVENT, "phase", "mb", "stage")
_BATCH = (*_EVENT, "ops")
_PAYLOAD = '["act" or "grad", phase, microbatch, producing stage]'
_LAST_STEP = 8


class _Shape(NamedTuple):
    """What the two classes differ in. ``stages(p)`` is how many there are,
    ``halves`` into how many parts the phases split the microbatches, and
    ``stage(p, rank, phase)`` the stage that a rank runs in a phase."""

    stages: Callable[[int], int]
    halves: int
    stage: Callable[[int, int, int], int]


_SHAPES = {
    "DualPipe": _Shape(lambda p: p, 2, lambda p, rank, phase: p - 1 - rank if phase else rank),
    "DualPipeV": _Shape(
        lambda p: 2 * p, 1, lambda p, rank, phase: 2 * p - 1 - rank if phase else rank
    ),
}


def read_dualpipe(text: str, name: str) -> Program:
    """Read a recording; InputError has the JSON path of what is wrong."""
    found = record(parse_json(text), "", _FILE, "a DualPipe recording", _REPORTED)
    word(found, "producer", "", ("deepseek-ai/DualPipe",))
    return _Reader(found).program(name)


class _Reader:
    """The sizes, and the program that the events make."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.shape = _SHAPES[word(found, "cls", "", tuple(_SHAPES))]
        self.listed = items(found, "ranks", "", "a list of events a rank")
        events = sum(len(own) for own in self.listed if isinstance(own, list))
        self.ranks = size(found, "p", "", "ranks", events)
        if len(self.listed) != self.ranks:
            raise wrong(found, "ranks", "", f"a list of {self.ranks}, the events of each rank")
        self.microbatches = size(found, "m", "", "microbatches", events)
        if self.microbatches % self.shape.halves:
            raise wrong(found, "m", "", "an even number, half of it for each direction")
        self.each = self.microbatches // self.shape.halves
        self.stages = self.shape.stages(self.ranks)
        self.notes = _notes(found)
        self.builder = ProgramBuilder()
        self.paths: list[str] = []
        self.computed: set[str] = set()

    def program(self, name: str) -> Program:
        """The program, rank after rank."""
        for rank in range(self.ranks):
            self.builder.lane(rank)
            own = items(self.listed, rank, "ranks", "a list of events")
            for i, value in enumerate(own):
                path = entry("ranks", rank, i)
                self._add(value, rank, path)
                self.paths.append(path)
        program = self.builder.build(
            name,
            stages=self.stages,
            microbatches=self.microbatches,
            hosts=self._hosts(),
            transport=PRESETS["nccl"],
            recipe=RECIPE,
            complete=True,
            forward_only=self.computed.isdisjoint(("B", "BW")),
            notes=self.notes,
        )
        return at_paths(program, self.paths)

    def _hosts(self) -> tuple[tuple[int, ...], ...]:
        hosts: list[dict[int, None]] = [{} for _ in range(self.stages)]
        for phase in (0, 1):
            for rank in range(self.ranks):
                hosts[self.shape.stage(self.ranks, rank, phase)][rank] = None
        return tuple(tuple(ranks) for ranks in hosts)

    def _add(self, value: Any, rank: int, path: str) -> None:
        """Append the op of an event."""
        event = record(value, path, _EVENT, "an event", (*_COMPUTE, *_BATCH))
        op = word(event, "op", path, _OPS)
        integer(event, "step", path, f"a step, 1 to {_LAST_STEP}", 1, _LAST_STEP)
        if op in _COMPUTES:
            record(event, path, _COMPUTE, f"an event {op}")
            self._compute(event, rank, path)
        elif op == "batch":
            record(event, path, _BATCH, "an event batch")
            self._batch(event, rank, path)
        else:
            record(event, path, _EVENT, f"an event {op}")
            self.builder.op(Kind.X, attributes=Attributes(label=op))

    def _compute(self, event: dict[str, Any], rank: int, path: str) -> None:
        phase = integer(event, "phase", path, below("phase", 2), 0, 1)
        stage = self.shape.stage(self.ranks, rank, phase)
        if event["stage"] != stage:
            expected = f"stage {stage}, which rank {rank} runs in phase {phase}"
            raise wrong(event, "stage", path, expected)
        self.computed.add(event["op"])
        microbatch = self._microbatch(event, "mb", path, phase)
        self.builder.op(_COMPUTES[event["op"]], stage, microbatch)

    def _microbatch(self, holder: Any, key: str | int, path: str, phase: int) -> int:
        """The microbatch of the step that a phase counts as this one."""
        found = integer(holder, key, path, below("microbatch", self.each), 0, self.each - 1)
        return found + phase * (self.microbatches - self.each)

    def _batch(self, event: dict[str, Any], rank: int, path: str) -> None:
        listed = items(event, "ops", path, "a list of messages")
        if not listed:
            raise refusal(path, "found an empty batch, expected a message or more")
        self.builder.op(Kind.GROUP)
        for i, value in enumerate(listed):
            where = entry(path, "ops", i)
            member = record(value, where, ("op", "peer", "what"), "a message of a batch")
            send = word(member, "op", where, ("send", "recv")) == "send"
            other = peer(member, "peer", where, rank, self.ranks)
            self.builder.message(send, other, self._payload(member, where))

    def _payload(self, member: dict[str, Any], path: str) -> int:
        what, where = items(member, "what", path, _PAYLOAD), entry(path, "what")
        if len(what) != 4:
            raise wrong(member, "what", path, _PAYLOAD)
        kind = word(what, 0, where, tuple(PAYLOADS))
        phase = integer(what, 1, where, below("phase", 2), 0, 1)
        microbatch = self._microbatch(what, 2, where, phase)
        stages = {self.shape.stage(self.ranks, rank, phase) for rank in range(self.ranks)}
        low, high = min(stages), max(stages)
        stage = integer(what, 3, where, f"a stage of phase {phase}, {low} to {high}", low, high)
        return PAYLOADS[kind](stage, microbatch)


def _notes(found: dict[str, Any]) -> tuple[str, ...]:
    """What the recorder counted itself."""
    for key in ("commit", "note"):
        if key in found:
            text(found, key, "")
    if "step_counts" in found:
        counts = items(found, "step_counts", "", "a list of counts a rank")
        for rank in range(len(counts)):
            steps = entries(counts, rank, "step_counts", "the count of each step")
            for step in steps:
                integer(steps, step, entry("step_counts", rank))
    for key in ("peak_act", "peak_act_until_w"):
        if key in found:
            numbers(found, key, "")
    if "peak_act" not in found:
        return ()
    peaks = ", ".join(f"{peak:.12g}" for peak in found["peak_act"])
    return (f"Its producer reported peaks of {peaks} activations, rank by rank.",)
