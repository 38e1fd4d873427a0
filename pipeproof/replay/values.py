"""What accumulators and weights hold at one op: a second reading.

The checks follow everything forward, along one order of all events. Here every
question is answered on its own and backwards. An accumulator at an op is

    what was added since its last origin, each times what scaled it after that,
    plus the value of the origin, times all that scaled it since.

The origin is the nearest earlier op of the rank that made the value anew:
nothing, where it was cleared, stepped or assigned; otherwise a collective, whose
result is the sum (or mean) of what its members' accumulators held when they
called it, each of which is such a question again. A version is found by going
through the lane, for one parameter at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import Transport
from pipeproof.replay.layout import meetings_of
from pipeproof.replay.ledger import attributes_of, compute_of
from pipeproof.replay.model import Model
from pipeproof.replay.state import Move, State

Form = dict[str, Fraction]
Question = tuple[int, frozenset[str]]
"""(op, accumulator): what the accumulator, by its names, holds when op acts."""


class _Since(NamedTuple):
    """A value as far as its own rank tells: ``added``, plus ``factor`` times the
    result of ``origin``, a collective call; None where it began with nothing."""

    added: Form
    factor: Fraction
    origin: int | None


class Values:
    """Answers questions about one program.

    Where a rank has several lanes, its ops count in the order in which a run of
    the model leaves them: what a race leaves open has one answer of several.
    """

    def __init__(self, program: Program, transport: Transport) -> None:
        self._program = program
        self._kind: list[int] = program.kind.tolist()
        self._blocks: list[bool] = (program.request < 0).tolist()
        self._rank = [lane.rank for lane in program.lanes for _ in range(lane.first, lane.stop)]
        self._line: dict[int, list[int]] = {}  # by rank its ops, in order
        self._place: dict[int, int] = {}  # where they stand there
        for op in _in_order(program, transport):
            line = self._line.setdefault(self._rank[op], [])
            self._place[op] = len(line)
            line.append(op)
        self._meeting, self._size = meetings_of(program)
        self._party: dict[int, list[int]] = {}
        for op, number in self._meeting.items():
            self._party.setdefault(number, []).append(op)
        self._ended_by = self._waits()
        self._forms: dict[Question, Form] = {}

    def _waits(self) -> dict[int, list[int]]:
        """By op, the collectives that are over because it waited for them first."""
        poster = {int(self._program.request[op]): op for op in self._meeting}
        ended: dict[int, list[int]] = {}
        over: set[int] = set()
        waits = self._program.waits
        pairs = list(zip(waits.op.tolist(), waits.request.tolist(), strict=True))
        for op, request in sorted(pairs, key=lambda pair: self._place[pair[0]]):
            if request in poster and request not in over:
                over.add(request)
                ended.setdefault(op, []).append(poster[request])
        return ended

    def _up_to(self, op: int) -> list[int]:
        """The ops of op's rank, up to and with op."""
        return self._line[self._rank[op]][: self._place[op] + 1]

    # --- forms -------------------------------------------------------------------

    def names(self, name: str) -> frozenset[str]:
        """All names of the accumulator that ``name`` is one of."""
        names, grown = {name}, True
        while grown:
            grown = False
            for pair in self._program.details.alias.items():
                if names.intersection(pair) and not names.issuperset(pair):
                    names.update(pair)
                    grown = True
        return frozenset(names)

    def form(self, op: int, name: str) -> Form | None:
        """What the accumulator ``name`` of op's rank holds when op acts.

        That is after what op waits for and what it carries, before what it
        does. None where collectives wait for each other, so that op is never
        reached.
        """
        first: Question = (op, self.names(name))
        open_questions = [first]
        while open_questions:
            question = open_questions[-1]
            if question in self._forms:
                open_questions.pop()
                continue
            since = self._since(*question)
            parts = [] if since.origin is None else self._parts(since.origin)
            if parts is None:
                return None
            unanswered = [part for part in parts if part not in self._forms]
            if any(part in open_questions for part in unanswered):
                return None
            if unanswered:
                open_questions += unanswered
                continue
            form = since.added.copy()
            for part in parts:
                _add(form, self._forms[part], since.factor * self._portion(since.origin))
            self._forms[question] = {s: c for s, c in form.items() if c}
        return self._forms[first]

    def _since(self, op: int, names: frozenset[str]) -> _Since:
        added: Form = {}
        factor = Fraction(1)
        for other in reversed(self._up_to(op)):
            attributes = attributes_of(self._program, other)
            more, label = attributes.more, attributes.label
            if other != op:  # what it does, after what it carries
                if self._gives(other, names) and self._blocks[other]:
                    return _Since(added, factor, other)
                if self._kind[other] in (Kind.ZERO, Kind.STEP) and label in names:
                    return _Since(added, factor, None)
                if self._kind[other] == Kind.SCALE and label in names:
                    factor *= more["factor"]
            for name, form in reversed(more.get("grad", {}).items()):
                if name in names:
                    _add(added, form, factor)
                    if more.get("grad_mode") == "set":
                        return _Since(added, factor, None)
            for call in reversed(self._ended_by.get(other, ())):
                if self._gives(call, names):
                    return _Since(added, factor, call)
        return _Since(added, factor, None)

    def _gives(self, op: int, names: frozenset[str]) -> bool:
        """Whether a collective call sets the accumulator of its own rank."""
        more = attributes_of(self._program, op).more
        if op not in self._meeting or more.get("param") not in names:
            return False
        owned = more["kind"] == "reducescatter" and more.get("owner") == self._rank[op]
        return more["kind"] == "allreduce" or owned

    def _parts(self, call: int) -> list[Question] | None:
        """The accumulators that a collective adds up; None where a member never calls."""
        number = self._meeting[call]
        party = self._party[number]
        if len(party) < self._size[number]:
            return None
        parts: list[Question] = []
        for op in party:
            more = attributes_of(self._program, op).more
            if more["kind"] in ("allreduce", "reducescatter") and "param" in more:
                parts.append((op, self.names(more["param"])))
        return parts

    def _portion(self, call: int | None) -> Fraction:
        """What a member's part counts for in the result that ``call`` gives."""
        if call is None or attributes_of(self._program, call).more.get("op") != "avg":
            return Fraction(1)
        return Fraction(1, self._size[self._meeting[call]])

    def updates(self, rank: int, name: str) -> list[tuple[Form | None, str | None] | int]:
        """The changes of a parameter on a rank: (form, rule) of a step, or the version
        that a rollback returns to."""
        names = self.names(name)
        found: list[tuple[Form | None, str | None] | int] = []
        for op in self._line.get(rank, ()):
            attributes = attributes_of(self._program, op)
            if attributes.label not in names:
                continue
            if self._kind[op] == Kind.STEP:
                found.append((self.form(op, name), attributes.more.get("opt")))
            elif self._kind[op] == Kind.ROLLBACK:
                found.append(attributes.more["version"])
        return found

    # --- versions ----------------------------------------------------------------

    def versions(self, op: int, parameter: str) -> list[int]:
        """The versions that op's rank has had of a parameter; the last is current at op."""
        had = [0]
        for other in self._up_to(op):
            for version in self._sets(other, parameter, other == op):
                if version is None:
                    version = had[-1] + 1
                    while version in had:
                        version += 1
                had.append(version)
        return had

    def _sets(self, op: int, parameter: str, arriving: bool) -> Iterator[int | None]:
        """The versions that op makes current, None for a new one; ``arriving``: only
        those that are there when op acts."""
        calls = list(self._ended_by.get(op, ()))
        if not arriving and op in self._meeting and self._blocks[op]:
            calls.append(op)
        for call in calls:
            more = attributes_of(self._program, call).more
            for name in more.get("bumps", ()):
                if name == parameter:
                    yield more.get("to")
        attributes = attributes_of(self._program, op)
        if arriving or attributes.label != parameter:
            return
        if self._kind[op] == Kind.STEP:
            yield None
        elif self._kind[op] == Kind.ROLLBACK:
            yield attributes.more["version"]

    def version_used(self, op: int) -> int:
        """The version of its stage's weights that a compute op uses."""
        named: int | None = attributes_of(self._program, op).more.get("wv")
        if named is not None:
            return named
        return self.versions(op, f"w{compute_of(self._program, op).stage}")[-1]

    def forward_of(self, op: int) -> int | None:
        """The last forward before op of its stage and microbatch, on its rank."""
        own = compute_of(self._program, op)
        for other in reversed(self._up_to(op)[:-1]):
            compute = compute_of(self._program, other)
            same = (compute.stage, compute.microbatch) == (own.stage, own.microbatch)
            if same and compute.kind == Kind.F:
                return other
        return None


class _Watched(Model):
    """The model, noting in which order the lanes leave their ops."""

    def __init__(self, program: Program, transport: Transport) -> None:
        super().__init__(program, transport)
        self.left: list[int] = []

    def _leave(self, state: State, lane: int) -> list[Move]:
        self.left.append(state.at[lane])
        return super()._leave(state, lane)


def _in_order(program: Program, transport: Transport) -> Iterable[int]:
    """All ops in the order in which their ranks get to them; what never happens, last."""
    if not program.several_lanes:
        return range(program.ops)
    model = _Watched(program, transport)
    model.run()
    happened = set(model.left)
    return [*model.left, *(op for op in range(program.ops) if op not in happened)]


def _add(form: Form, other: Mapping[str, Fraction], factor: Fraction) -> None:
    for symbol, coefficient in other.items():
        form[symbol] = form.get(symbol, Fraction(0)) + factor * coefficient
