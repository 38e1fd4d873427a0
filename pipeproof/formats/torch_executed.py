"""What torch's own schedule classes execute, as recorded: a row a rank.

GPipe and 1F1B do not run a plan of separate actions but post their messages in
batches: ``0F0 POST#0{0SEND_F0;0RECV_B0} WAIT#0 0B0``. A batch has one handle,
and ``WAIT#k`` waits for the whole of batch k. Messages carry no tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pipeproof.errors import InputError
from pipeproof.program.ops import MAX_ID, Kind, activation, gradient
from pipeproof.program.programs import Details, Lane, Messages, Origin, Program, Waits
from pipeproof.program.transports import PRESETS

_TOKEN = re.compile(
    r"(?P<stage>[0-9]{1,10})(?:(?P<compute>[FIWB])(?P<microbatch>[0-9]{1,10})"
    r"|(?P<sharding>UNSHARD|RESHARD|REDUCE_GRAD))"
    r"|POST#(?P<post>[0-9]{1,10})\{(?P<members>[^{}]*)\}|WAIT#(?P<wait>[0-9]{1,10})"
)
# Not `splitlines` and `split`: they also break at characters that no editor counts
# as the end of a line, or that nobody can see.
_LINE_END = re.compile(r"\r\n|\n|\r")
_TOKENS = re.compile(r"[^ \t]+")
_MEMBER = re.compile(r"([0-9]{1,10})(SEND|RECV)_([FB])([0-9]{1,10})")
_Message = tuple[int, bool, bool, int]
"""(stage that acts, is a send, is a gradient's, microbatch)."""


@dataclass
class _Rows:
    """The columns of the program, while they are read."""

    kind: list[int] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    microbatch: list[int] = field(default_factory=list)
    request: list[int] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    messages: list[tuple[int, int, _Message]] = field(default_factory=list)  # op, rank, what
    waits: list[tuple[int, int]] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of requests
    host: dict[int, int] = field(default_factory=dict)


def read_executed(text: str, name: str) -> Program:
    """Read a recording; InputError names the row and the token that is wrong."""
    rows = _Rows()
    for number, line in enumerate(_LINE_END.split(text), 1):
        tokens = _TOKENS.findall(line)
        if tokens:
            _read_rank(rows, tokens, number)
    if not rows.kind:
        raise InputError(
            "found no action; expected rows such as 0F0 POST#0{0SEND_F0} WAIT#0",
            cause="Is the file empty?",
        )
    return _assembled(rows, name)


def _read_rank(rows: _Rows, tokens: list[str], line: int) -> None:
    rank, first = len(rows.lanes), len(rows.kind)
    pending: dict[int, int] = {}
    for column, token in enumerate(tokens, 1):

        def fail(message: str, cause: str, at: int = column) -> InputError:
            return InputError(message, cause=cause, line=line, column=at)

        found = _TOKEN.fullmatch(token)
        if found is None:
            raise fail(
                f"found {token[:40]!r}; expected an action, POST#k{{...}} or WAIT#k",
                "Tokens are separated by blanks; a batch has none inside.",
            )
        op, request = len(rows.kind), -1
        kind, stage, microbatch = Kind.WAIT, -1, -1
        if found["post"]:
            members = _members(found["members"], fail)
            request = len(rows.names)
            if int(found["post"]) in pending:
                raise fail(f"batch {found['post']} is posted twice", "Batches count up.")
            pending[int(found["post"])] = request
            rows.names.append(f"POST#{found['post']}")
            rows.messages.extend((op, rank, m) for m in members)
            kind = Kind.GROUP
            if len(members) == 1:
                kind = Kind.SEND if members[0][1] else Kind.RECV
                stage, microbatch = members[0][0], members[0][3]
        elif found["wait"]:
            if int(found["wait"]) not in pending:
                raise fail(
                    f"found {token}, but this rank has posted no batch {found['wait']}",
                    "A wait stands after its post, in the same row.",
                )
            rows.waits.append((op, pending.pop(int(found["wait"]))))
        else:
            stage = int(found["stage"])
            kind = Kind[found["compute"] or found["sharding"]]
            microbatch = int(found["microbatch"]) if found["compute"] else -1
            if rows.host.setdefault(stage, rank) != rank:
                raise fail(
                    f"found stage {stage} on rank {rank} and on rank {rows.host[stage]}; "
                    "expected every stage on one rank",
                    "One digit is likely wrong.",
                )
        if max(stage, microbatch) > MAX_ID:
            raise fail(
                f"found {token[:40]!r}; expected ids of at most {MAX_ID}", "A typing error."
            )
        for values, value in zip(
            (rows.kind, rows.stage, rows.microbatch, rows.request, rows.line, rows.column),
            (int(kind), stage, microbatch, request, line, column),
            strict=True,
        ):
            values.append(value)
    rows.lanes.append(Lane(rank, "main", first, len(rows.kind)))


def _members(text: str, fail: Callable[[str, str], InputError]) -> list[_Message]:
    members: list[_Message] = []
    for part in text.split(";"):
        found = _MEMBER.fullmatch(part)
        if found is None:
            raise fail(
                f"found {part[:40]!r} in a batch; expected a message such as 0SEND_F0",
                "Members of a batch are separated by semicolons.",
            )
        stage, verb, letter, microbatch = found.groups()
        if max(int(stage), int(microbatch)) > MAX_ID:
            raise fail(f"found {part!r}; expected ids of at most {MAX_ID}", "A typing error.")
        members.append((int(stage), verb == "SEND", letter == "B", int(microbatch)))
    return members


def _refuse_huge(rows: _Rows) -> None:
    """A complete step has an action for every id below the largest."""
    for ids, what in ((rows.stage, "stage"), (rows.microbatch, "microbatch")):
        at = max(range(len(ids)), key=ids.__getitem__)
        if ids[at] >= len(ids):
            raise InputError(
                f"found {what} {ids[at]} in a recording of {len(ids)} actions; expected ids "
                "that count up from 0",
                cause="A complete step has actions for every smaller id. Is a blank missing?",
                line=rows.line[at],
                column=rows.column[at],
            )


def _other_end(rows: _Rows, op: int, rank: int, message: _Message) -> int:
    """The stage that a message goes to or comes from."""
    stage, send, backward, microbatch = message
    other = stage + (1 if send != backward else -1)
    text = f"{stage}{'SEND' if send else 'RECV'}_{'B' if backward else 'F'}{microbatch}"
    line, column = rows.line[op], rows.column[op]
    if rows.host.get(stage) != rank:
        lives = f"is on rank {rows.host[stage]}" if stage in rows.host else "computes on no row"
        raise InputError(
            f"found {text} on rank {rank}, but stage {stage} {lives}; expected a message of a "
            "stage of its own row",
            cause="A message is named by the stage that acts.",
            line=line,
            column=column,
        )
    if other not in rows.host:
        if other < 0 or other > max(rows.host):
            why = f"stage {stage} is the {'first' if other < 0 else 'last'}"
        else:
            why = f"stage {other} is on no row"
        raise InputError(
            f"found {text}, but {why}; expected a neighbouring stage at the other end",
            cause="Activations go to the next stage, gradients to the previous one.",
            line=line,
            column=column,
        )
    return other


def _assembled(rows: _Rows, name: str) -> Program:
    computes = [(k, m) for k, m in zip(rows.kind, rows.microbatch, strict=True) if k <= Kind.W]
    if not computes:
        raise InputError(
            "found no compute action (F, I, W or B); expected a recording of them",
            cause="Only communication is listed. Was the file filtered?",
        )
    _refuse_huge(rows)
    stages = max(rows.host) + 1
    peer, payload = [], []
    for op, rank, message in rows.messages:
        stage, send, backward, microbatch = message
        other = _other_end(rows, op, rank, message)
        producer = stage if send else other
        peer.append(rows.host[other])
        payload.append((gradient if backward else activation)(producer, microbatch))
    int32 = np.int32
    return Program(
        name=name,
        ranks=len(rows.lanes),
        stages=stages,
        microbatches=max(m for _, m in computes) + 1,
        hosts=tuple((rows.host[s],) if s in rows.host else () for s in range(stages)),
        lanes=tuple(rows.lanes),
        kind=np.array(rows.kind, np.uint8),
        stage=np.array(rows.stage, int32),
        microbatch=np.array(rows.microbatch, int32),
        request=np.array(rows.request, int32),
        messages=Messages(
            op=np.array([op for op, _, _ in rows.messages], int32),
            send=np.array([m[1] for _, _, m in rows.messages], np.bool_),
            rank=np.array([rank for _, rank, _ in rows.messages], int32),
            peer=np.array(peer, int32),
            payload=np.array(payload, np.int64),
            comm=np.zeros(len(rows.messages), int32),
        ),
        waits=Waits(
            np.array([op for op, _ in rows.waits], int32),
            np.array([request for _, request in rows.waits], int32),
        ),
        origin=Origin(np.array(rows.line, int32), np.array(rows.column, int32)),
        transport=PRESETS["nccl"],
        recipe="executed",
        complete=True,
        forward_only=all(k == Kind.F for k, _ in computes),
        details=Details(requests=tuple(rows.names)),
    )
