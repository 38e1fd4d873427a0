"""Ends of messages: the payload, peer, traits and channel of sends and receives."""

from __future__ import annotations

import re
from array import array
from typing import Any

from pipeproof.formats.json_values import below, refusal, text, wrong
from pipeproof.formats.program_forms import Op, identity, miscounted
from pipeproof.program.ops import MAX_ID, Kind, activation, gradient, named
from pipeproof.program.programs import ANY, Traits

_PAYLOAD = re.compile(r"(act|grad):(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,9})")
_TRAITS = ("shape", "dtype", "count", "buf")


def payload_id(kind: str, stage: int, microbatch: int) -> int | None:
    """The id of an ``act`` or ``grad``; None where this names something else."""
    if kind not in ("act", "grad") or not (0 <= stage <= MAX_ID and 0 <= microbatch <= MAX_ID):
        return None
    return activation(stage, microbatch) if kind == "act" else gradient(stage, microbatch)


def parse_payload(name: str) -> tuple[int, int, int] | None:
    """(id, stage, microbatch) of ``act:S:B`` or ``grad:S:B``; None of another name."""
    match = _PAYLOAD.fullmatch(name)
    if match is None:
        return None
    stage, microbatch = int(match[2]), int(match[3])
    payload = payload_id(match[1], stage, microbatch)
    return None if payload is None else (payload, stage, microbatch)


class MessageReader:
    """Takes the ends of messages, in the order of their ops, into flat columns."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.op = array("i")
        self.send = bytearray()
        self.rank = array("i")
        self.peer = array("i")
        self.payload = array("q")
        self.comm = array("i")
        self.names: dict[str, int] = {}
        self.comms: dict[str, int] = {"": 0}
        self.traits: dict[int, Traits] = {}

    def read_end(self, number: int, rank: int, op: Op) -> tuple[int, int, int]:
        """One end, posted by op ``number``; its stage, microbatch and peer."""
        payload, stage, microbatch = self._payload(op)
        peer = self._peer(op)
        values = op.values
        traits = {key: values.pop(key) for key in _TRAITS if key in values} if values else None
        if traits:
            self.traits[len(self.op)] = Traits(**traits)
        comm = values.pop("comm", "") if values else ""
        self.op.append(number)
        self.send.append(op.form.kind is Kind.SEND)
        self.rank.append(rank)
        self.peer.append(peer)
        self.payload.append(payload)
        self.comm.append(self.comms.setdefault(comm, len(self.comms)))
        return stage, microbatch, peer

    def _payload(self, op: Op) -> tuple[int, int, int]:
        name = text(op.written, 1, op.path, "the kind or name of a payload, as text")
        if op.arity == 4:
            stage = identity(op.written, 2, op.path)
            microbatch = identity(op.written, 3, op.path)
            payload = payload_id(name, stage, microbatch)
            if payload is not None:
                return payload, stage, microbatch
            name = f"{name}:{stage}:{microbatch}"
        elif name in ("act", "grad"):
            raise miscounted(op.written, op.form, op.arity, op.path)
        # A name that spells out an id is that payload: ``pre`` writes it this way too.
        found = parse_payload(name)
        if found is not None:
            return found
        return named(self.names.setdefault(name, len(self.names))), -1, -1

    def _peer(self, op: Op) -> int:
        peer: Any = op.written[op.arity]
        if type(peer) is int and 0 <= peer < self.ranks:
            if "commutes" in op.values:
                raise refusal(
                    op.attribute_path("commutes"),
                    '"commutes" stands on a receive that names its sender',
                    'only a receive from "any" can meet different senders',
                )
            return peer
        if peer == "any" and op.form.kind is Kind.RECV:
            return ANY
        cause = None
        if peer == "any":
            cause = "only a receive takes a message of any sender"
        elif type(peer) is int:
            cause = "ranks are those of n_ranks, or else of programs, placement and groups"
        raise wrong(op.written, op.arity, op.path, below("peer rank", self.ranks), cause)
