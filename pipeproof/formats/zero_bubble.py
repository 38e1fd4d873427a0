"""Schedules of the zero-bubble pipeline code (JSON): a list of nodes a rank.

F is a forward, B an input gradient, W a weight gradient, BW both gradients;
``lg``, the layer group, is the global stage. A communication node queues a
message. The queue leaves as one batch when the node queued last is followed by
no further communication node, or is a receive that the next compute node
needs. Members leave by direction: sends to and receives from the previous
rank, then the next one's. The compute that needs a received tensor waits for
its whole batch; what is left is waited for at the end. One communicator
carries all batches.

The post-validation nodes (the optimizer's check, overlapped with the next
step) exchange small host tensors beside the batches: blocking messages on a
communicator of their own. Listed is the step whose validation succeeds.

Times and memory that the producer reports are its own figures and kept as
notes, not believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeproof.formats.json_text import parse_json
from pipeproof.formats.json_values import (
    below,
    boolean,
    integer,
    items,
    text,
    word,
    wrong,
)
from pipeproof.formats.recordings import (
    at_paths,
    entry,
    neighbour,
    number,
    numbers,
    peer,
    record,
    size,
)
from pipeproof.program.builder import ProgramBuilder
from pipeproof.program.ops import Kind, activation, gradient
from pipeproof.program.programs import Attributes, Program
from pipeproof.program.transports import PRESETS

_FILE = ("producer", "sched", "p", "m", "stages")
_FIGURES = (
    *("f", "b", "w", "c", "mem_limit", "t_schedule", "t_passes"),
    *("makespan", "ideal", "bubble", "bubble_rate", "n_nodes"),
)
_WORDS = ("commit", "tag", "err")
_FLAGS = ("post_validation", "validator")
_REPORTED = (*_FIGURES, *_WORDS, *_FLAGS, "peak_mem_units")
_NODE = ("type", "mb", "chunk", "lg", "start", "end")
_END = (*_NODE, "peer", "dir", "pair")

_COMPUTES = {"F": Kind.F, "B": Kind.I, "W": Kind.W, "BW": Kind.B}
_MESSAGES = {
    "SEND_FORWARD": (True, 0, activation),
    "RECV_FORWARD": (False, -1, activation),
    "SEND_BACKWARD": (True, 0, gradient),
    "RECV_BACKWARD": (False, 1, gradient),
}
"""Whether it is a send, the producing stage beside the node's own, the payload."""

_CONSUMERS = {"RECV_FORWARD": ("F",), "RECV_BACKWARD": ("B", "BW")}
_VALIDATION_ENDS = ("RECV_POST_VALIDATION", "SEND_POST_VALIDATION")
_VALIDATION = ("POST_VALIDATION", *_VALIDATION_ENDS)
_TYPES = (*_COMPUTES, *_MESSAGES, *_VALIDATION)
_DIRECTIONS = ("PREV", "NEXT")
_VALIDATING = "post-validation"

Node = dict[str, Any]


def read_zero_bubble(text: str, name: str) -> Program:
    """Read a schedule; InputError has the JSON path of what is wrong."""
    found = record(parse_json(text), "", _FILE, "a zero-bubble schedule", _REPORTED)
    word(found, "producer", "", ("zero-bubble",))
    return _Reader(found).program(name)


class _Reader:
    """The sizes, the nodes of each rank, and the program they make."""

    def __init__(self, found: dict[str, Any]) -> None:
        text(found, "sched", "")
        listed = items(found, "stages", "", "a list of nodes a rank")
        nodes = sum(len(own) for own in listed if isinstance(own, list))
        self.ranks = size(found, "p", "", "ranks", nodes)
        self.microbatches = size(found, "m", "", "microbatches", nodes)
        if len(listed) != self.ranks:
            raise wrong(found, "stages", "", f"a list of {self.ranks}, the nodes of each rank")
        self.reported = found
        self.builder = ProgramBuilder()
        self.paths: list[str] = []
        self.hosts: dict[int, int] = {}
        self.nodes = [self._nodes(listed, rank, nodes) for rank in range(self.ranks)]
        chunks = 1 + max((n["chunk"] for own in self.nodes for n in own), default=0)
        self.stages = self.ranks * chunks
        for rank, own in enumerate(self.nodes):
            for at, node in enumerate(own):
                self._place(node, rank, entry("stages", rank, at))

    # --- nodes -------------------------------------------------------------------

    def _nodes(self, listed: list[Any], rank: int, limit: int) -> list[Node]:
        """The nodes of a rank, each with the keys of its type."""
        own = items(listed, rank, "stages", "a list of nodes")
        for at, value in enumerate(own):
            path = entry("stages", rank, at)
            node = record(value, path, _NODE, "a node", (*_END, "rollback"))
            what = word(node, "type", path, _TYPES)
            is_end = what in _MESSAGES or what in _VALIDATION_ENDS
            optional = ("rollback",) if is_end else ()
            record(node, path, _END if is_end else _NODE, f"a node {what}", optional)
            for key in ("start", "end"):
                number(node, key, path, "a time, a number")
            count, most = self.microbatches, limit // self.ranks
            integer(node, "mb", path, below("microbatch", count), 0, count - 1)
            integer(node, "chunk", path, below("chunk", most), 0, most - 1)
        return own

    def _place(self, node: Node, rank: int, path: str) -> None:
        """The stage of a node is there, and so is the other end of its message."""
        if node["type"] not in _VALIDATION:
            integer(node, "lg", path, below("stage", self.stages), 0, self.stages - 1)
        else:  # it belongs to no stage, and lg only counts
            integer(node, "lg", path, "a whole number", -self.ranks)
        if node["type"] in _COMPUTES:
            self._settle(node, rank, path)
        elif "peer" in node:
            self._require_end(node, rank, path)

    def _settle(self, node: Node, rank: int, path: str) -> None:
        """A stage lives on the rank that computes it."""
        host = self.hosts.setdefault(node["lg"], rank)
        if host != rank:
            raise wrong(
                node,
                "lg",
                path,
                f"a stage of rank {rank}; stage {node['lg']} computes on rank {host}",
                "every stage lives on one rank",
            )

    def _require_end(self, node: Node, rank: int, path: str) -> None:
        """One end of a message says where it goes; the direction agrees."""
        other = peer(node, "peer", path, rank, self.ranks)
        integer(node, "pair", path, "the number of a pair", -self.ranks)
        if "rollback" in node:
            boolean(node, "rollback", path)
        if node["type"] in _VALIDATION:
            if node["dir"] is not None:
                raise wrong(node, "dir", path, "null, as in other post-validation nodes")
            return
        step = -1 if word(node, "dir", path, _DIRECTIONS) == "PREV" else 1
        if (rank + step) % self.ranks != other:
            raise wrong(
                node,
                "peer",
                path,
                f"rank {(rank + step) % self.ranks}, which is {node['dir']} of rank {rank}",
                "messages go to the neighbouring ranks",
            )

    # --- the program -------------------------------------------------------------

    def program(self, name: str) -> Program:
        """The program, rank after rank."""
        for rank, nodes in enumerate(self.nodes):
            self.builder.lane(rank)
            _Lane(self, rank, nodes).run()
        computed = {node["type"] for nodes in self.nodes for node in nodes}
        program = self.builder.build(
            name,
            stages=self.stages,
            microbatches=self.microbatches,
            hosts=tuple((self.hosts[s],) if s in self.hosts else () for s in range(self.stages)),
            transport=PRESETS["nccl"],
            recipe="zero-bubble",
            complete=True,
            forward_only=computed.isdisjoint(("B", "BW")),
            notes=tuple(_notes(self.reported)),
        )
        return at_paths(program, self.paths)


def _notes(found: dict[str, Any]) -> list[str]:
    """What the producer's own code reported, as it wrote it; null reports nothing."""
    stated = {key for key, value in found.items() if value is not None}
    for keys, read in ((_FIGURES, number), (_WORDS, text), (_FLAGS, boolean)):
        for key in keys:
            if key in stated:
                read(found, key, "")
    notes = []
    if "err" in stated:
        notes.append(f"Its producer reported an error: {found['err'][:200]}")
    if "makespan" in stated:
        notes.append(f"Its producer reported a makespan of {found['makespan']:.12g}.")
    if "peak_mem_units" in stated:
        peaks = ", ".join(f"{peak:.12g}" for peak in numbers(found, "peak_mem_units", ""))
        notes.append(
            f"Its producer reported peaks of {peaks} memory units, rank by rank (F takes 2, B "
            "and W give back 1 each)."
        )
    return notes


def _following(nodes: Sequence[Node]) -> list[Node | None]:
    """For each node the next one that computes."""
    found: list[Node | None] = []
    ahead = None
    for node in reversed(nodes):
        found.append(ahead)
        ahead = node if node["type"] in _COMPUTES else ahead
    return found[::-1]


class _Lane:
    """The nodes of one rank, run one after the other."""

    def __init__(self, reader: _Reader, rank: int, nodes: Sequence[Node]) -> None:
        self.reader = reader
        self.builder = reader.builder
        self.rank = rank
        self.nodes = nodes
        self.following = _following(nodes)
        self.queue: list[int] = []
        self.posted = 0  # batches so far
        self.arriving: dict[int, str] = {}  # payload -> the batch that brings it
        self.waiting: dict[str, None] = {}  # batches that nothing has waited for

    def run(self) -> None:
        """Append all of them, and the wait for what is left."""
        for at, node in enumerate(self.nodes):
            if node["type"] in _COMPUTES:
                self._compute(at)
            elif node["type"] in _MESSAGES:
                self.queue.append(at)
                if self._leaves(at):
                    self._post()
            else:
                self._validate(at)
        if self.waiting:
            self._op(len(self.nodes) - 1, Kind.WAIT, waits=tuple(self.waiting))

    def _op(self, at: int, kind: Kind, stage: int = -1, microbatch: int = -1, **more: Any) -> None:
        self.builder.op(kind, stage, microbatch, **more)
        self.reader.paths.append(entry("stages", self.rank, at))

    def _compute(self, at: int) -> None:
        node = self.nodes[at]
        kind, stage, microbatch = _COMPUTES[node["type"]], node["lg"], node["mb"]
        waits = []
        if kind != Kind.W:
            needed = (
                activation(stage - 1, microbatch)
                if kind == Kind.F
                else gradient(stage + 1, microbatch)
            )
            batch = self.arriving.pop(needed, None)
            if batch is not None:
                waits = [batch]
                self.waiting.pop(batch, None)
        self._op(at, kind, stage, microbatch, waits=waits)

    def _leaves(self, at: int) -> bool:
        """Whether the queue leaves with the node queued last."""
        node, behind = self.nodes[at], self.nodes[at + 1 : at + 2]
        if not behind or behind[0]["type"] not in _MESSAGES:
            return True
        needy = self.following[at]
        return (
            needy is not None
            and needy["type"] in _CONSUMERS.get(node["type"], ())
            and (needy["lg"], needy["mb"]) == (node["lg"], node["mb"])
        )

    def _post(self) -> None:
        """One batch of what is queued, in the order of its direction."""
        batch = f"batch{self.posted}"
        self.posted += 1
        self._op(self.queue[0], Kind.GROUP, request=batch)
        self.waiting[batch] = None
        for at in sorted(self.queue, key=self._turn):
            node = self.nodes[at]
            send, step, payload_of = _MESSAGES[node["type"]]
            path = entry("stages", self.rank, at, "lg")
            stage = neighbour(node["lg"], self.reader.stages, step, path, f"a {node['type']}")
            payload = payload_of(stage, node["mb"])
            self.builder.message(send, node["peer"], payload)
            if not send:
                self.arriving[payload] = batch
        self.queue.clear()

    def _turn(self, at: int) -> tuple[int, bool]:
        node = self.nodes[at]
        return _DIRECTIONS.index(node["dir"]), node["type"].startswith("RECV")

    def _validate(self, at: int) -> None:
        node = self.nodes[at]
        if node["type"] == "POST_VALIDATION":
            self._op(at, Kind.X, attributes=Attributes(label="post-validation"))
            return
        send = node["type"] == "SEND_POST_VALIDATION"
        sender = self.rank if send else node["peer"]
        self._op(at, Kind.SEND if send else Kind.RECV)
        payload = self.builder.payload(f"pv:{sender}")
        self.builder.message(send, node["peer"], payload, comm=_VALIDATING)
