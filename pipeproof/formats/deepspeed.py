"""DeepSpeed's pipeline schedules as its engine runs them (JSON).

``stages[r].steps[t]`` lists the instructions that rank r runs in step t, one
after the other. In a ``TrainSchedule`` or ``InferenceSchedule`` stage r lives
on rank r and every send and receive blocks. In a ``DualPipeVSchedule`` rank r
holds stage r in phase 0 and stage 2p-1-r in phase 1; sends and receives only
queue, and ``CommitP2P`` posts all that is queued as one batch and waits for
it. Messages carry no tags.

A pipe buffer has five slots: ``loaded``, ``inputs`` and ``outputs`` of the
forward, ``grads`` received for the outputs and ``input_grads`` made for the
inputs. Loads, receives and computes fill them; what reads one expects the
contents of its own microbatch there, a backward also what its forward read.

Where instructions do not state their microbatch, the forwards of a stage run
the microbatches in order; what is loaded or received into a buffer belongs to
the next forward of the buffer, all else to its latest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeproof.errors import InputError
from pipeproof.formats.json_text import parse_json
from pipeproof.formats.json_values import (
    below,
    integer,
    items,
    refusal,
    text,
    word,
    wrong,
)
from pipeproof.formats.recordings import RECIPE, at_paths, entry, neighbour, record, size
from pipeproof.program.builder import ProgramBuilder
from pipeproof.program.ops import MAX_ID, Kind, activation, gradient
from pipeproof.program.programs import Attributes, Program, Traits
from pipeproof.program.transports import PRESETS

_FILE = ("producer", "class", "p", "m", "stages")
_STAGE = ("stage", "num_pipe_buffers", "steps")

_LOAD, _FORWARD, _BACKWARD, _COMMIT = "LoadMicroBatch", "ForwardPass", "BackwardPass", "CommitP2P"


@dataclass(frozen=True, slots=True)
class _Message:
    """A send or receive: the stage at its other end beside its own, and its slot."""

    send: bool
    step: int
    slot: str


_MESSAGES = {
    "SendActivation": _Message(True, 1, "outputs"),
    "RecvActivation": _Message(False, -1, "inputs"),
    "SendGrad": _Message(True, -1, "input_grads"),
    "RecvGrad": _Message(False, 1, "grads"),
}
_FORWARDS = (_LOAD, _FORWARD, "SendActivation", "RecvActivation")
_BACKWARDS = (_BACKWARD, "SendGrad", "RecvGrad")
_UPDATES = ("ReduceTiedGrads", "ReduceGrads", "OptimizerStep")

_TRAIN, _INFERENCE, _DUAL = "TrainSchedule", "InferenceSchedule", "DualPipeVSchedule"
_CLASSES: Mapping[str, tuple[str, ...]] = {
    _TRAIN: (*_FORWARDS, *_BACKWARDS, *_UPDATES),
    _INFERENCE: _FORWARDS,
    _DUAL: (*_FORWARDS, *_BACKWARDS, *_UPDATES, _COMMIT),
}
"""The instructions of each class of schedules."""

_DERIVED = (
    "Microbatches that the instructions do not state are counted in the order of the forwards."
)


@dataclass(slots=True)
class _Instruction:
    """One instruction; ``phase`` is 0 where the schedule has one, ``buffer`` and
    ``microbatch`` are -1 where it has none."""

    name: str
    path: str
    buffer: int = -1
    phase: int = 0
    microbatch: int = -1


def read_deepspeed(text: str, name: str) -> Program:
    """Read a schedule; InputError has the JSON path of what is wrong."""
    optional = ("version", "semantics")
    found = record(parse_json(text), "", _FILE, "a DeepSpeed schedule", optional)
    word(found, "producer", "", ("deepspeed",))
    return _Reader(found).program(name)


class _Reader:
    """The sizes, the instructions of each rank, and the program they make."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.kind = word(found, "class", "", tuple(_CLASSES))
        for key in ("version", "semantics"):
            if key in found:
                text(found, key, "", "a text")
        listed = items(found, "stages", "", "a list of stages")
        count = sum(_instructions_in(stage) for stage in listed)
        self.ranks = size(found, "p", "", "stages", count)
        self.microbatches = size(found, "m", "", "microbatches", count)
        if len(listed) != self.ranks:
            raise wrong(found, "stages", "", f"a list of {self.ranks}, one a rank")
        self.dual = self.kind == _DUAL
        self.stages = 2 * self.ranks if self.dual else self.ranks
        self.builder = ProgramBuilder()
        self.paths: list[str] = []
        self.buffers: list[int] = []  # declared, by rank
        self.derived = False
        self.uncommitted: list[int] = []  # ranks that leave messages in the queue
        self.lanes = [self._rank(listed, rank) for rank in range(self.ranks)]

    def host(self, stage: int) -> int:
        """The rank that holds a stage."""
        return stage if stage < self.ranks else 2 * self.ranks - 1 - stage

    # --- instructions ------------------------------------------------------------

    def _rank(self, listed: list[Any], rank: int) -> list[_Instruction]:
        path = entry("stages", rank)
        stage = record(listed[rank], path, _STAGE, "a stage")
        if integer(stage, "stage", path) != rank:
            raise wrong(stage, "stage", path, f"stage {rank}", "stages are listed in order")
        expected = f"a number of buffers, 1 to {MAX_ID}"
        self.buffers.append(integer(stage, "num_pipe_buffers", path, expected, 1, MAX_ID))
        found: list[_Instruction] = []
        steps = items(stage, "steps", path, "a list of steps")
        for t in range(len(steps)):
            step = items(steps, t, entry(path, "steps"), "a step, a list of instructions")
            for i, value in enumerate(step):
                found.append(self._instruction(value, entry(path, "steps", t, i), rank))
        self._derive(found)
        return found

    def _instruction(self, value: Any, path: str, rank: int) -> _Instruction:
        known = ("buffer_id", "micro_batch", "phase")
        stated = record(value, path, ("instr",), "an instruction", known)
        name = word(stated, "instr", path, _CLASSES[self.kind])
        if name in _UPDATES or name == _COMMIT:
            record(stated, path, ("instr",), f"an instruction {name}")
            return _Instruction(name, path)
        required = ["instr", "buffer_id"]
        optional = ["micro_batch"]
        if self.dual:  # what is loaded enters the first phase
            (optional if name == _LOAD else required).append("phase")
        record(stated, path, required, f"an instruction {name}", optional)
        count = self.buffers[rank]
        instruction = _Instruction(name, path)
        instruction.buffer = integer(
            stated, "buffer_id", path, below("buffer", count), 0, count - 1
        )
        if "phase" in stated:
            instruction.phase = integer(stated, "phase", path, "a phase, 0 or 1", 0, 1)
        if "micro_batch" in stated:
            expected = below("microbatch", self.microbatches)
            instruction.microbatch = integer(
                stated, "micro_batch", path, expected, 0, self.microbatches - 1
            )
        return instruction

    def _derive(self, instructions: list[_Instruction]) -> None:
        """Number the microbatches that are not stated."""
        due = [0, 0]  # the next forward, by phase
        latest: dict[tuple[int, int], int] = {}
        arriving: dict[tuple[int, int], list[_Instruction]] = {}
        for each in instructions:
            if each.buffer < 0:
                continue
            key = each.phase, each.buffer
            stated = each.microbatch >= 0
            self.derived |= not stated
            if each.name in (_LOAD, "RecvActivation"):
                if not stated:
                    arriving.setdefault(key, []).append(each)
            elif each.name == _FORWARD:
                if not stated:
                    each.microbatch = due[each.phase]
                due[each.phase] = each.microbatch + 1
                latest[key] = each.microbatch
                for earlier in arriving.pop(key, ()):
                    earlier.microbatch = each.microbatch
            elif not stated:
                each.microbatch = latest.get(key, -1)
                if each.microbatch < 0:
                    raise _without_forward(each, "stands before")
        for waiting in arriving.values():
            raise _without_forward(waiting[0], "follows")

    # --- the program -------------------------------------------------------------

    def program(self, name: str) -> Program:
        """The program, rank after rank."""
        for rank, instructions in enumerate(self.lanes):
            self.builder.lane(rank)
            lane = _Lane(self, rank)
            for instruction in instructions:
                lane.add(instruction)
            if lane.queue:
                self.uncommitted.append(rank)
        forward_only = self.kind == _INFERENCE
        program = self.builder.build(
            name,
            stages=self.stages,
            microbatches=self.microbatches,
            hosts=tuple((self.host(stage),) for stage in range(self.stages)),
            transport=PRESETS["nccl"],
            details={"budget": {} if forward_only else dict(enumerate(self.buffers))},
            recipe=RECIPE,
            complete=True,
            forward_only=forward_only,
            notes=tuple(self._notes()),
        )
        return at_paths(program, self.paths)

    def _notes(self) -> Iterator[str]:
        if self.derived:
            yield _DERIVED
        for rank in self.uncommitted:
            yield f"Rank {rank} queues messages behind its last CommitP2P: they never leave."
        if self.kind == _INFERENCE:
            return
        peaks = [_live_peak(instructions) for instructions in self.lanes]
        spare = [
            f"{declared} for {peak} on rank {rank}"
            for rank, (declared, peak) in enumerate(zip(self.buffers, peaks, strict=True))
            if declared > peak
        ]
        if spare:
            yield (
                "More pipe buffers are declared than microbatches are ever between their "
                f"forward and their backward: {', '.join(spare)}."
            )


def _instructions_in(stage: Any) -> int:
    steps = stage.get("steps") if isinstance(stage, dict) else None
    listed = steps if isinstance(steps, list) else []
    return sum(len(step) for step in listed if isinstance(step, list))


def _without_forward(each: _Instruction, where: str) -> InputError:
    return refusal(
        each.path,
        f"found {each.name} without a microbatch, and no ForwardPass of buffer {each.buffer} "
        f"{where} it; expected one",
        'state its "micro_batch", or is the buffer wrong?',
    )


def _live_peak(instructions: list[_Instruction]) -> int:
    """The most microbatches at once whose backward is still to come."""
    live = peak = 0
    for each in instructions:
        live += (each.name == _FORWARD) - (each.name == _BACKWARD)
        peak = max(peak, live)
    return peak


class _Lane:
    """The instructions of one rank, appended one after the other."""

    def __init__(self, reader: _Reader, rank: int) -> None:
        self.reader = reader
        self.builder = reader.builder
        self.rank = rank
        self.queue: list[_Instruction] = []

    def add(self, each: _Instruction) -> None:
        """Append one instruction, or queue it."""
        if each.name in _MESSAGES:
            self.queue.append(each)
            if not self.reader.dual:
                self._post(each.path)
        elif each.name == _COMMIT:
            self._post(each.path)
        elif each.name in (_FORWARD, _BACKWARD):
            self._compute(each)
        elif each.name == _LOAD:
            content = (_slot("loaded", each), _loaded(each))
            label = f"{_LOAD} {each.microbatch}"
            self._op(each.path, Kind.X, attributes=Attributes(label=label, writes=(content,)))
        else:
            self._op(each.path, Kind.X, attributes=Attributes(label=each.name))

    def _op(self, path: str, kind: Kind, stage: int = -1, mb: int = -1, **more: Any) -> None:
        self.builder.op(kind, stage, mb, **more)
        self.reader.paths.append(path)

    def _stage(self, each: _Instruction) -> int:
        return 2 * self.reader.ranks - 1 - self.rank if each.phase else self.rank

    # --- compute -----------------------------------------------------------------

    def _compute(self, each: _Instruction) -> None:
        stage, mb = self._stage(each), each.microbatch
        output = (_slot("outputs", each), f"act:{stage}:{mb}")
        reads = list(self._inputs(each))
        if each.name == _FORWARD:
            kind, writes = Kind.F, output
        else:
            kind, writes = Kind.B, (_slot("input_grads", each), f"grad:{stage}:{mb}")
            reads.append(output)
            if self._elsewhere(stage + 1):
                reads.append((_slot("grads", each), f"grad:{stage + 1}:{mb}"))
        attributes = Attributes(reads=tuple(reads), writes=(writes,))
        self._op(each.path, kind, stage, mb, attributes=attributes)

    def _inputs(self, each: _Instruction) -> Iterator[tuple[str, str]]:
        """(slot, content) of what a forward takes; a backward still needs it."""
        reader, stage = self.reader, self._stage(each)
        if self._elsewhere(stage - 1):
            yield _slot("inputs", each), f"act:{stage - 1}:{each.microbatch}"
        # The last stage loads the labels, but in DualPipeV, where rank 0 has both.
        if stage == 0 or (stage == reader.stages - 1 and not reader.dual):
            yield _slot("loaded", each), _loaded(each)

    def _elsewhere(self, stage: int) -> bool:
        """Whether another rank holds a neighbouring stage."""
        return 0 <= stage < self.reader.stages and self.reader.host(stage) != self.rank

    # --- messages ----------------------------------------------------------------

    def _post(self, path: str) -> None:
        """One batch of what is queued; a message on its own blocks by itself."""
        if not self.queue:
            return
        if len(self.queue) > 1:
            self._op(path, Kind.GROUP)
        for each in self.queue:
            message, stage = _MESSAGES[each.name], self._stage(each)
            other = neighbour(stage, self.reader.stages, message.step, each.path, each.name)
            peer = self.reader.host(other)
            if peer == self.rank:
                raise refusal(
                    each.path,
                    f"found {each.name} of stage {stage}, but stage {other} is on rank "
                    f"{peer} too; expected none",
                    "what stays on a rank needs no message: is the phase right?",
                )
            if len(self.queue) == 1:
                kind = Kind.SEND if message.send else Kind.RECV
                self._op(path, kind, stage, each.microbatch)
            payload_of = activation if "Activation" in each.name else gradient
            self.builder.message(
                message.send,
                peer,
                payload_of(stage if message.send else other, each.microbatch),
                traits=Traits(buf=_slot(message.slot, each)),
            )
        self.queue.clear()


def _slot(name: str, each: _Instruction) -> str:
    return f"{name}[{each.buffer}]"


def _loaded(each: _Instruction) -> str:
    return f"microbatch {each.microbatch}"
