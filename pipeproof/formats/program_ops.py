"""The ops of the program format, and the columns they fill.

How every op is written stands in one literal table, `FORMS`, at the end: its
kind, its arguments, the attributes it may carry, and the method of `OpReader`
that takes it into the columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pipeproof.formats.json_values import (
    child,
    did_you_mean,
    integer,
    items,
    quoted,
    rational,
    refusal,
    text,
    word,
)
from pipeproof.formats.program_attributes import (
    ANY_OP,
    ASYNC,
    COLLECTIVE,
    COMPUTE,
    END,
    FORWARD,
    RECEIVING,
    SENDING,
    STEPPING,
    packed,
    version,
)
from pipeproof.formats.program_features import FEATURES
from pipeproof.formats.program_forms import Argument, Form, Op, identity, recognised
from pipeproof.formats.program_messages import MessageReader
from pipeproof.formats.program_requests import Requests
from pipeproof.program.ops import Kind
from pipeproof.program.programs import ANY, Attributes

COLLECTIVES = (
    "allreduce",
    "reducescatter",
    "allgather",
    "alltoall",
    "broadcast",
    "barrier",
    "init",
)


def _collective(holder: Any, key: Any, path: str) -> str:
    return word(holder, key, path, COLLECTIVES)


LABEL = Argument("LABEL", text)
NAME = Argument("NAME", text)
UNITS = Argument("UNITS", integer)
COEFFICIENT = Argument("COEFFICIENT", rational)
VERSION = Argument("VERSION", version)
SLOT = Argument("SLOT", text)
COLLECTIVE_KIND = Argument("KIND", _collective)
GROUP_NAME = Argument("GROUP", text)


# --- reading -------------------------------------------------------------------


class OpReader:
    """Takes the ops of a program, lane after lane, into flat columns."""

    def __init__(self, ranks: int, groups: Mapping[str, tuple[int, ...]]) -> None:
        self.groups = groups
        self.rank = 0
        self.kind = bytearray()
        self.stage = array("i")
        self.microbatch = array("i")
        self.request = array("i")
        self.paths: list[str] = []
        self.messages = MessageReader(ranks)
        self.requests = Requests()
        self.attributes: dict[int, Attributes] = {}
        self.features: dict[str, str] = {}

    def read_lane(self, rank: int, ops: list[Any], path: str) -> None:
        """The ops of the next lane."""
        self.rank = rank
        self.requests.start_lane()
        for index, written in enumerate(ops):
            at = f"{path}[{index}]"
            self.paths.append(at)
            op = recognised(written, FORMS, at)
            if written[0] in FEATURES:
                self.use(written[0], at)
            op.form.take(self, op)

    def use(self, name: str, path: str) -> None:
        """Note a feature where it is used first."""
        self.features.setdefault(name, path)

    def _row(self, op: Op, fixed: dict[str, Any], stage: int = -1, microbatch: int = -1) -> int:
        """One more op; its number. Attributes taken by now are gone from its values."""
        number = len(self.kind)
        request = -1
        values = op.values
        if values or fixed:
            if "req" in values:
                request = self.requests.post(values.pop("req"), op)
            attributes = packed(values, fixed)
            if attributes is not None:
                self.attributes[number] = attributes
        self.kind.append(op.form.kind)
        self.stage.append(stage)
        self.microbatch.append(microbatch)
        self.request.append(request)
        return number

    # One method a shape of op; `FORMS` says which takes what.

    def compute(self, op: Op) -> None:
        """A stage on a microbatch."""
        stage = identity(op.written, 1, op.path)
        self._row(op, {}, stage, identity(op.written, 2, op.path))

    def plain(self, op: Op) -> None:
        """An op whose arguments are all attributes."""
        self._row(op, op.form.fixed(*op.arguments()))

    def wait(self, op: Op) -> None:
        """A wait for all of the requests named, or for any one of them."""
        any_one = op.form.kind is Kind.WAITANY
        named = ", ".join(map(str, op.written[1 : op.arity + 1])) if any_one else ""
        self.requests.wait(self._row(op, {"label": named} if any_one else {}), op)

    def collective(self, op: Op) -> None:
        """A call on a group that this rank belongs to."""
        kind, group, label = op.arguments()
        members = self.groups.get(group)
        if members is None:
            message = f"unknown group {quoted(group)}"
            raise refusal(op.argument_path(2), message, did_you_mean(group, self.groups))
        belonging = f"member of the group {quoted(group)}"
        cause = f"its members: {_listed(members)}"
        if self.rank not in members:
            raise refusal(op.argument_path(2), f"rank {self.rank} is no {belonging}", cause)
        owner = op.values.get("owner", self.rank)
        if owner not in members:
            message = f"found rank {owner}, expected a {belonging}"
            raise refusal(op.attribute_path("owner"), message, cause)
        self._row(op, {"label": label, "more": {"kind": kind, "group": group}})

    def message(self, op: Op) -> None:
        """A send or a receive on its own."""
        stage, microbatch = self._end(op)
        commutes = op.values.pop("commutes", False)
        self._row(op, {"more": {"commutes": (0,)}} if commutes else {}, stage, microbatch)

    def group(self, op: Op) -> None:
        """Sends and receives posted together."""
        where = op.argument_path(1)
        commuting = []
        for i, written in enumerate(items(op.written, 1, op.path, "a list of SEND and RECV")):
            member = recognised(written, MEMBERS, child(where, i), group=True)
            self._end(member)
            if member.values.get("commutes"):
                commuting.append(i)
        self._row(op, {"more": {"commutes": tuple(commuting)}} if commuting else {})

    def _end(self, op: Op) -> tuple[int, int]:
        """One end of a message, posted by the next row; its stage and microbatch."""
        stage, microbatch, peer = self.messages.read_end(len(self.kind), self.rank, op)
        if peer == ANY:
            self.use("any", op.argument_path(op.arity))
        return stage, microbatch


def _listed(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:16])) + (", ..." if len(ranks) > 16 else "")


# --- the table -----------------------------------------------------------------


def _compute(kind: Kind, legal: frozenset[str]) -> Form:
    return Form(kind, "STAGE, MICROBATCH", (2,), legal, OpReader.compute)


def _message(kind: Kind, legal: frozenset[str], posts: bool = False) -> Form:
    layout = "NAME, PEER] or [..., KIND, STAGE, MICROBATCH, PEER"
    return Form(kind, layout, (2, 4), legal, OpReader.message, posts=posts)


def _wait(kind: Kind) -> Form:
    return Form(kind, "REQUEST, ...", range(1, 1 << 30), ANY_OP, OpReader.wait)


def _plain(
    kind: Kind,
    arguments: tuple[Argument, ...],
    fixed: Callable[..., dict[str, Any]],
    legal: frozenset[str] = ANY_OP,
    take: Callable[[OpReader, Op], None] = OpReader.plain,
    posts: bool = False,
) -> Form:
    layout = ", ".join(argument.name for argument in arguments)
    return Form(kind, layout, (len(arguments),), legal, take, arguments, fixed, posts)


def _label(name: str) -> dict[str, Any]:
    return {"label": name}


def _resource(name: str) -> dict[str, Any]:
    return {"label": name, "needs": (name,)}


def _copy(source: str, target: str) -> dict[str, Any]:
    return {"label": f"{source} to {target}", "more": {"copy": (source, target)}}


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "F": _compute(Kind.F, FORWARD),
        "B": _compute(Kind.B, COMPUTE),
        "BI": _compute(Kind.I, COMPUTE),
        "W": _compute(Kind.W, COMPUTE),
        "R": _compute(Kind.R, FORWARD),
        "X": _plain(Kind.X, (LABEL,), _label),
        "SEND": _message(Kind.SEND, SENDING),
        "RECV": _message(Kind.RECV, RECEIVING),
        "ISEND": _message(Kind.SEND, SENDING | ASYNC, posts=True),
        "IRECV": _message(Kind.RECV, RECEIVING | ASYNC, posts=True),
        "GROUP": Form(Kind.GROUP, "[SEND or RECV, ...]", (1,), ANY_OP | ASYNC, OpReader.group),
        "WAIT": _wait(Kind.WAIT),
        "WAITANY": _wait(Kind.WAITANY),
        "COLL": _plain(
            Kind.COLL,
            (COLLECTIVE_KIND, GROUP_NAME, LABEL),
            _label,
            COLLECTIVE,
            OpReader.collective,
        ),
        "ALLOC": _plain(
            Kind.ALLOC,
            (NAME, UNITS),
            lambda name, units: {"label": name, "alloc": ((name, units),)},
        ),
        "FREE": _plain(Kind.FREE, (NAME,), lambda name: {"label": name, "free": (name,)}),
        "MAKE": _plain(Kind.MAKE, (NAME,), _resource),
        "DROP": _plain(Kind.DROP, (NAME,), _resource),
        "COPY": _plain(Kind.COPY, (SLOT, SLOT), _copy),
        "ICOPY": _plain(Kind.ICOPY, (SLOT, SLOT), _copy, ANY_OP | ASYNC, posts=True),
        "ZERO": _plain(Kind.ZERO, (NAME,), _label),
        "SCALE": _plain(
            Kind.SCALE,
            (NAME, COEFFICIENT),
            lambda name, factor: {"label": name, "more": {"factor": factor}},
        ),
        "STEP": _plain(Kind.STEP, (NAME,), _label, STEPPING),
        "ROLLBACK": _plain(
            Kind.ROLLBACK,
            (NAME, VERSION),
            lambda name, number: {"label": name, "more": {"version": number}},
        ),
        "REPORT": _plain(Kind.REPORT, (NAME,), _label),
        "SIGNAL": _plain(Kind.SIGNAL, (NAME,), _label),
        "AWAIT": _plain(Kind.AWAIT, (NAME,), _label),
    }
)
"""Every op of the format: its name -> how it is written."""

MEMBERS: Mapping[str, Form] = MappingProxyType(
    {
        "SEND": _message(Kind.SEND, END),
        "RECV": _message(Kind.RECV, END | {"commutes"}),
    }
)
"""What a GROUP may hold: ends of messages, without a life of their own."""
