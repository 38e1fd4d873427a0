"""Megatron-core's schedules as they ran, recorded call by call (JSON lines).

Line 1 states the sizes, every further line is one event of one rank: ``F`` and
``B`` compute, ``isend`` and ``irecv`` post a message of their own, ``batch``
posts several with one handle, ``wait`` waits. Stage = chunk * p + rank.

Messages carry no tags: the k-th send of a group, source and destination meets
the k-th receive. ``what`` is (kind, microbatch, producing stage) at both ends:
for a send what its producer put in, for a receive what its consumer expects,
so that messages that cross show. Tensor ids are slots: a forward writes its
output's, a send reads it until it is waited for, and ``dealloc`` gives it back.

Unbatched operations have one communicator and stream a pair of ranks, the
transport ``nccl``; where a group has a single one, ask for ``nccl-eager``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipeproof.errors import InputError
from pipeproof.formats.json_text import parse_json
from pipeproof.formats.json_values import (
    below,
    boolean,
    child,
    integer,
    items,
    refusal,
    text,
    word,
    wrong,
)
from pipeproof.formats.recordings import PAYLOADS, RECIPE, peer, record, size
from pipeproof.program.builder import ProgramBuilder
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Attributes, Program, Traits
from pipeproof.program.transports import PRESETS

_HEADER = ("producer", "version", "schedule", "p", "m")
_FLAGS = ("overlap", "batchp2p", "a2a", "warm")  # the options it was recorded with
_MESSAGE = ("op", "peer", "t", "req", "what")
_EVENT = ("rank", "i", "op")
_KEYS: dict[str, tuple[str, ...]] = {
    "F": ("mb", "chunk", "in", "out"),
    "B": ("mb", "chunk", "in", "out", "grad_in", "grad_out"),
    "isend": (*_MESSAGE[1:], "group"),
    "irecv": (*_MESSAGE[1:], "group"),
    "batch": ("ops",),
    "wait": ("reqs",),
    "dealloc": ("t",),
    "no_sync_enter": (),
    "no_sync_exit": (),
    "grad_sync": ("chunk",),
    "FB_begin": (),
    "FB_end": (),
}
_KNOWN = ("ckpt", *dict.fromkeys(key for keys in _KEYS.values() for key in keys))
_POSTS = ("isend", "irecv")
_PAYLOAD = '["act" or "grad", microbatch, producing stage]'
_LINE_END = re.compile(r"\r\n|\n|\r")

_CHECKPOINTS = (
    "Forwards with checkpoints recompute inside their backward; each counts as one live "
    "activation all the same."
)

Event = dict[str, Any]


def read_megatron(text: str, name: str) -> Program:
    """Read a recording; InputError names the line, and what is wrong there."""
    lines = [(n, line) for n, line in enumerate(_LINE_END.split(text), 1) if line.strip()]
    if not lines:
        raise InputError(
            'the file is empty, expected a line {"producer": "megatron-core", ...} and events',
            cause="was it written to the end?",
        )
    first, header = lines[0]
    with _on_line(first):
        reader = _Reader(parse_json(header), len(lines) - 1)
    for number, line in lines[1:]:
        with _on_line(number):
            reader.take(parse_json(line), number)
    with _on_line(first):
        reader.require_all_ranks()
    return reader.program(name)


@contextmanager
def _on_line(number: int) -> Iterator[None]:
    """Errors of what is read here are at this line."""
    try:
        yield
    except InputError as error:
        path = None if error.path == "$" else error.path
        raise InputError(
            error.message, cause=error.cause, line=number, column=error.column, path=path
        ) from None


class _Reader:
    """The sizes, the events of each rank, and the program they make."""

    def __init__(self, header: Any, events: int) -> None:
        found = record(header, "", _HEADER, "the first line", ("v", *_FLAGS))
        word(found, "producer", "", ("megatron-core",))
        for key in ("version", "schedule"):
            text(found, key, "")
        for key in _FLAGS:
            if key in found:
                boolean(found, key, "")
        self.ranks = size(found, "p", "", "ranks", events)
        self.microbatches = size(found, "m", "", "microbatches", events)
        self.chunks = size(found, "v", "", "chunks", events // self.ranks) if "v" in found else 1
        self.stages = self.ranks * self.chunks
        self.events: list[list[tuple[int, Event]]] = [[] for _ in range(self.ranks)]
        self.builder = ProgramBuilder()
        self.recomputes = False

    def take(self, value: Any, line: int) -> None:
        """Put an event with the others of its rank."""
        op = word(record(value, "", _EVENT, "an event", _KNOWN), "op", "", tuple(_KEYS))
        # Only some releases say which forwards are checkpointed.
        optional = ("ckpt",) if op == "F" else ()
        event = record(value, "", (*_EVENT, *_KEYS[op]), f"an event {op}", optional)
        rank = integer(event, "rank", "", below("rank", self.ranks), 0, self.ranks - 1)
        due = len(self.events[rank])
        if integer(event, "i", "") != due:
            raise refusal(
                "i",
                f"found event {event['i']} of rank {rank}, expected event {due}",
                "events of a rank count up from 0: a line is missing, or two are swapped",
            )
        self.events[rank].append((line, event))

    def require_all_ranks(self) -> None:
        """Refuse a recording that lacks a rank."""
        for rank, events in enumerate(self.events):
            if not events:
                raise refusal(
                    "p",
                    f"found no event of rank {rank}, expected events of ranks 0 to "
                    f"{self.ranks - 1}",
                    "the recording may have been cut off",
                )

    def program(self, name: str) -> Program:
        """The program, rank after rank."""
        for rank, events in enumerate(self.events):
            self.builder.lane(rank)
            lane = _Lane(self, rank)
            for line, event in events:
                with _on_line(line):
                    lane.add(event, line)
        computed = {event["op"] for events in self.events for _, event in events}
        return self.builder.build(
            name,
            stages=self.stages,
            microbatches=self.microbatches,
            hosts=tuple((stage % self.ranks,) for stage in range(self.stages)),
            transport=PRESETS["nccl"],
            recipe=RECIPE,
            complete=True,
            forward_only="B" not in computed,
            notes=(_CHECKPOINTS,) if self.recomputes else (),
        )


class _Lane:
    """The events of one rank, appended one after the other."""

    def __init__(self, reader: _Reader, rank: int) -> None:
        self.reader = reader
        self.builder = reader.builder
        self.rank = rank
        self.requests: dict[int, str] = {}  # the handle of each req

    def add(self, event: Event, line: int) -> None:
        """Append one event."""
        op = event["op"]
        if op in ("F", "B"):
            self._compute(event, line)
        elif op in _POSTS:
            request = self._posted([event], [""])
            kind = Kind.SEND if op == "isend" else Kind.RECV
            self.builder.op(kind, request=request, line=line)
            self._message(event, "", text(event, "group", "", "the name of a group"))
        elif op == "batch":
            self._batch(event, line)
        elif op == "wait":
            self._wait(event, line)
        else:
            self._other(event, line)

    # --- compute -----------------------------------------------------------------

    def _compute(self, event: Event, line: int) -> None:
        reader = self.reader
        microbatch = self._microbatch(event, "mb", "")
        stage = self._chunk(event) * reader.ranks + self.rank
        backward = event["op"] == "B"
        reads = self._uses(event, "in", "act", stage - 1, microbatch)
        if backward:
            # Its own output is named but not read: what a dealloc leaves of it is enough.
            self._slot(event, "out")
            reads += self._uses(event, "grad_in", "grad", stage + 1, microbatch)
            writes = self._uses(event, "grad_out", "grad", stage, microbatch)
        else:
            writes = self._uses(event, "out", "act", stage, microbatch)
            if event.get("ckpt") is not None:
                reader.recomputes |= boolean(event, "ckpt", "")
        self.builder.op(
            Kind.B if backward else Kind.F,
            stage,
            microbatch,
            line=line,
            attributes=Attributes(reads=reads, writes=writes),
        )

    def _uses(
        self, event: Event, key: str, kind: str, producer: int, microbatch: int
    ) -> tuple[tuple[str, str], ...]:
        """(slot, content) of a tensor that an event names, made by stage ``producer``."""
        slot = self._slot(event, key)
        if slot is None:
            return ()
        if not 0 <= producer < self.reader.stages:
            edge = "first" if producer < 0 else "last"
            raise wrong(
                event, key, "", f"null, as this is the {edge} stage", "is the chunk right?"
            )
        return ((slot, f"{kind}:{producer}:{microbatch}"),)

    def _slot(self, event: Event, key: str) -> str | None:
        if event[key] is None:
            return None
        return f"t{integer(event, key, '', 'the number of a tensor, or null')}"

    def _microbatch(self, holder: Any, key: str | int, path: str) -> int:
        count = self.reader.microbatches
        return integer(holder, key, path, below("microbatch", count), 0, count - 1)

    def _chunk(self, event: Event) -> int:
        count = self.reader.chunks
        return integer(event, "chunk", "", below("chunk", count), 0, count - 1)

    # --- messages ----------------------------------------------------------------

    def _batch(self, event: Event, line: int) -> None:
        listed = items(event, "ops", "", "a list of messages")
        if not listed:
            raise refusal("ops", "found an empty batch, expected a message or more")
        paths = [child("ops", i) for i in range(len(listed))]
        for member, path in zip(listed, paths, strict=True):
            word(record(member, path, _MESSAGE, "a message of a batch"), "op", path, _POSTS)
        self.builder.op(Kind.GROUP, request=self._posted(listed, paths), line=line)
        for member, path in zip(listed, paths, strict=True):
            self._message(member, path, "")

    def _posted(self, messages: list[Event], paths: list[str]) -> str:
        """The one handle of messages that are posted together."""
        numbers = [integer(m, "req", path) for m, path in zip(messages, paths, strict=True)]
        name = f"req{'+'.join(map(str, numbers))}"
        for number, path in zip(numbers, paths, strict=True):
            if number in self.requests:
                raise refusal(
                    child(path, "req"),
                    f"found request {number} a second time on rank {self.rank}, expected a new "
                    "number",
                    "the requests of a rank count up",
                )
            self.requests[number] = name
        return name

    def _message(self, message: Event, path: str, group: str) -> None:
        """Add a message to the op that was appended last."""
        what, where = items(message, "what", path, _PAYLOAD), child(path, "what")
        if len(what) != 3:
            raise refusal(where, f"found a list of {len(what)}, expected {_PAYLOAD}")
        kind = word(what, 0, where, tuple(PAYLOADS))
        microbatch = self._microbatch(what, 1, where)
        stages = self.reader.stages
        stage = integer(what, 2, where, below("stage", stages), 0, stages - 1)
        tensor = integer(message, "t", path, "the number of a tensor")
        self.builder.message(
            message["op"] == "isend",
            peer(message, "peer", path, self.rank, self.reader.ranks),
            PAYLOADS[kind](stage, microbatch),
            comm=group,
            traits=Traits(buf=f"t{tensor}"),
        )

    def _wait(self, event: Event, line: int) -> None:
        listed = items(event, "reqs", "", "a list of requests")
        if not listed:
            raise refusal("reqs", "found an empty wait, expected a request or more")
        names: dict[str, None] = {}
        for i in range(len(listed)):
            number = integer(listed, i, "reqs", "the number of a request")
            if number not in self.requests:
                raise refusal(
                    child("reqs", i),
                    f"found request {number}, but rank {self.rank} has posted none of that number",
                    "a wait stands behind its post: a line is missing, or the number is wrong",
                )
            names[self.requests[number]] = None
        self.builder.op(Kind.WAIT, waits=names, line=line)

    # --- the rest ----------------------------------------------------------------

    def _other(self, event: Event, line: int) -> None:
        label = str(event["op"])
        writes: tuple[tuple[str, str], ...] = ()
        if label == "dealloc":
            slot = f"t{integer(event, 't', '', 'the number of a tensor')}"
            label, writes = f"dealloc {slot}", ((slot, "freed"),)
        elif label == "grad_sync":
            label = f"grad_sync of chunk {self._chunk(event)}"
        self.builder.op(Kind.X, line=line, attributes=Attributes(label=label, writes=writes))
