"""Ops and payloads as people write them: PyTorch's notation.

``0F1`` is the forward of stage 0 on microbatch 1; ``0SEND_F1`` sends its
output, ``1RECV_F1`` receives it on stage 1: a send or receive is named by the
stage that acts. What PyTorch has no notation for is written as plainly.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeproof.program.ops import LETTER, SHARDING, Kind, is_gradient, stage_and_microbatch
from pipeproof.program.programs import ANY, NOTHING, Attributes, Program


@dataclass(frozen=True, slots=True)
class Place:
    """Where an op stands: in the program, and in the file it came from.

    ``index`` counts from 0 on its lane; ``line`` and ``column`` (the cell of
    the row) from 1, None where the input has none; ``path`` is a JSON path.
    """

    rank: int
    lane: str
    index: int
    op: str
    line: int | None = None
    column: int | None = None
    path: str | None = None


def payload_name(program: Program, payload: int) -> str:
    """``act:0:1``, ``grad:1:0`` or the producer's own name."""
    if payload < 0:
        return program.details.names[-1 - payload]
    stage, microbatch = stage_and_microbatch(payload)
    return f"{'grad' if payload & 1 else 'act'}:{stage}:{microbatch}"


def message_text(program: Program, row: int) -> str:
    """One end of a message: ``0SEND_F1``, or ``SEND skip.0 to rank 2``."""
    m = program.messages
    send, payload = bool(m.send[row]), int(m.payload[row])
    verb = "SEND" if send else "RECV"
    anyone = m.peer[row] == ANY
    if payload < 0 or anyone or (program.details.graph is not None and not send):
        peer = "any" if anyone else m.peer[row]
        return f"{verb} {payload_name(program, payload)} {'to' if send else 'from'} {peer}"
    stage, microbatch = stage_and_microbatch(payload)
    if is_gradient(payload):
        return f"{stage if send else stage - 1}{verb}_B{microbatch}"
    return f"{stage if send else stage + 1}{verb}_F{microbatch}"


def op_text(program: Program, op: int) -> str:
    """An op in PyTorch's notation, as far as it has one."""
    kind = Kind(int(program.kind[op]))
    if kind in LETTER:
        return f"{program.stage[op]}{LETTER[kind]}{program.microbatch[op]}"
    if kind in SHARDING:
        return f"{program.stage[op]}{kind.name}"
    if kind in (Kind.SEND, Kind.RECV):
        return message_text(program, program.rows_of(op)[0])
    if kind is Kind.GROUP:
        return f"({';'.join(message_text(program, r) for r in program.rows_of(op))})GROUP"
    if kind is Kind.WAIT:
        return _wait_text(program, program.requests_of(op))
    attributes = program.details.attributes.get(op, NOTHING)
    label = attributes.label if isinstance(attributes, Attributes) else None
    if kind is Kind.COLL and isinstance(attributes, Attributes):
        return f"{attributes.more['kind']} {label}"
    return f"{kind.name} {label}" if label else kind.name


def _wait_text(program: Program, requests: list[int]) -> str:
    """A WAIT by the requests it names, or by their number where they have no names."""
    if requests and not program.details.requests:
        return f"WAIT for {len(requests)} message{'s' if len(requests) > 1 else ''}"
    names = [request_text(program, r) for r in requests[:3]]
    more = f" and {len(requests) - 3} more" if len(requests) > 3 else ""
    return f"WAIT {', '.join(names)}{more}"


def request_text(program: Program, request: int) -> str:
    """A request by its producer's id, or by its number."""
    names = program.details.requests
    return names[request] if request < len(names) else f"#{request}"


def place(program: Program, op: int) -> Place:
    """Where op stands."""
    lane = program.lanes[program.lane_of(op)]
    origin = program.origin
    return Place(
        rank=lane.rank,
        lane=lane.name,
        index=op - lane.first,
        op=op_text(program, op),
        line=int(origin.line[op]) or None,
        column=(int(origin.column[op]) or None) if origin.cells else None,
        path=origin.path[op] if origin.path else None,
    )
