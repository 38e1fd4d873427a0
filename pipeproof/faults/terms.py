"""A program run over terms: what every op gets, whatever the model and the data.

The forward of stage 1 on microbatch 3 with weight version 0 of input x is the
term (F, 1, 3, 0, x), an update is a linear form; two programs that give the same
terms compute the same. The run is one of the model executor's, and what it finds
holds for every execution of a program in which no two accesses overlap
(``accesses``): whatever the timing, each then reads what the same op wrote.

A posted op takes what it sends when it is posted, and gives what it receives
when it is waited for, which is the latest it may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeproof.faults.statements import broken_statement
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import COMPUTE, Kind, activation, gradient
from pipeproof.program.programs import Program
from pipeproof.replay.confirm import data_needs
from pipeproof.replay.layout import NOBODY, meetings_of, pairing
from pipeproof.replay.ledger import NO_TRAITS, attributes_of
from pipeproof.replay.model import Model
from pipeproof.replay.state import Move, State
from pipeproof.replay.values import Values

Term = Any
"""A number that stands for a nested tuple: equal terms have equal numbers."""


@dataclass(slots=True)
class Terms:
    """The numbers of the terms seen so far; shared by the programs to be compared."""

    numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def of(self, *parts: Any) -> int:
        """The number of a term."""
        return self.numbers.setdefault(parts, len(self.numbers))


@dataclass(frozen=True, slots=True)
class Observed:
    """What a program computes: how often each (what, term).

    ``demanded`` are updates, reports and side effects. ``broken`` says which of its
    own statements (want, replicas, want_effects, versions) the program breaks.
    """

    computed: Counter[tuple[Any, Term]]
    received: Counter[tuple[Any, Term]]
    demanded: Counter[tuple[Any, Term]]
    broken: str | None
    computes: int
    messages: int
    updates: int


class Objection(Exception):
    """The program does something that is wrong whatever it computes."""


class _Watched(Model):
    """The model, noting when ops begin (post) and when their lanes leave them."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, program.transport)
        self.log: list[tuple[int, bool]] = []  # (op, whether its lane leaves it)

    def _post(self, state: State, lane: int) -> list[Move]:
        self.log.append((state.at[lane], False))
        return super()._post(state, lane)

    def _leave(self, state: State, lane: int) -> list[Move]:
        op = state.at[lane]
        if not self._posts(op):
            self.log.append((op, False))
        self.log.append((op, True))
        return super()._leave(state, lane)


def observe(program: Program, terms: Terms, *, versions: bool = True) -> Observed:
    """Run the program to its end; ``Objection`` where it gets stuck or goes wrong.

    Without ``versions`` the terms do not tell one weight version from another.
    """
    model = _Watched(program)
    state = model.held_at(())
    outcome = model.outcome(state)
    if outcome.stuck:
        raise Objection(f"it hangs at {op_text(program, outcome.stuck[0])}")
    if outcome.unmatched or any(state.unfinished):
        raise Objection("a message or a collective call meets nothing")
    _require_agreement(program)
    return _Run(program, terms, versions).observe(model.log)


def _require_agreement(program: Program) -> None:
    """What meets agrees: messages in payload and tensor, calls in kind and label."""
    m = program.messages
    for row, mate in enumerate(pairing(program, program.transport.match)):
        if mate == NOBODY or not m.send[row]:
            continue
        if m.payload[row] != m.payload[mate]:
            raise Objection("two messages cross")
        own, its = (program.details.traits.get(r, NO_TRAITS) for r in (row, mate))
        for trait in ("shape", "dtype", "count"):
            stated = {getattr(own, trait), getattr(its, trait)} - {None}
            if len(stated) > 1:
                raise Objection(f"the ends of a message differ in {trait}")
    meeting, _ = meetings_of(program)
    first: dict[int, tuple[Any, ...]] = {}
    for op, number in meeting.items():
        attributes = attributes_of(program, op)
        call = (attributes.more["kind"], attributes.label)
        if first.setdefault(number, call) != call:
            raise Objection("two different calls meet")


class _Run:
    """The stores of all ranks while the log of a run goes by."""

    def __init__(self, program: Program, terms: Terms, versions: bool) -> None:
        self.program, self.terms = program, terms
        self.rank = [lane.rank for lane in program.lanes for _ in range(lane.first, lane.stop)]
        self.mate = pairing(program, program.transport.match)
        self.request: list[int] = program.request.tolist()
        self.values = Values(program, program.transport)
        self.versioned = versions
        # By rank and parameter, the weights it has had: version and what they came from.
        self.weights: dict[tuple[int, str], list[tuple[int, Term]]] = {}
        self.posters = {r: op for op, r in enumerate(self.request) if r >= 0}
        held = program.details.held
        self.payloads: dict[tuple[int, int], Term] = {p: terms.of("held", p[1]) for p in held}
        self.ran: dict[tuple[int, int, int, int], Term] = {}  # rank, kind, stage, microbatch
        self.slots: dict[tuple[int, str], str | None] = {}
        self.filled = set(_filled(program, self.rank))
        self.resources = set(program.details.resources)
        self.live: set[tuple[int, str]] = set()
        self.sent: dict[int, Term] = {}  # by message row
        self.copied: dict[int, str | None] = {}
        self.pending: dict[int, int] = {}  # request -> op
        self.counts: Counter[tuple[Any, ...]] = Counter()
        self.computed: Counter[tuple[Any, Term]] = Counter()
        self.redone: set[tuple[Any, Term]] = set()
        self.received: Counter[tuple[Any, Term]] = Counter()
        self.demanded: Counter[tuple[Any, Term]] = Counter()

    def observe(self, log: list[tuple[int, bool]]) -> Observed:
        for op, leaves in log:
            (self._leave if leaves else self._begin)(op)
        for op in list(self.pending.values()):
            self._give(op)
        self.computed.update(self.redone - self.computed.keys())
        details = self.program.details
        remaining = {name for _, name in self.live} - details.may_remain
        if details.leak_check and remaining:
            raise Objection(f"{min(remaining)} is never freed")
        kinds = Counter(self.program.kind.tolist())
        return Observed(
            self.computed,
            self.received,
            self.demanded,
            broken_statement(self.program, self.values),
            computes=sum(kinds[k] for k in COMPUTE),
            messages=int(self.program.messages.send.sum()),
            updates=kinds[Kind.STEP] + kinds[Kind.REPORT],
        )

    def _wrong(self, op: int, what: str) -> Objection:
        return Objection(f"{op_text(self.program, op)} {what}")

    # --- an op begins ------------------------------------------------------------

    def _begin(self, op: int) -> None:
        program, rank = self.program, self.rank[op]
        for request in program.requests_of(op):
            if request in self.pending:
                self._give(self.pending.pop(request))
        attributes = attributes_of(program, op)
        self.live |= {(rank, name) for name, _ in attributes.alloc}
        for slot, content in attributes.reads:
            if self.slots.get((rank, slot)) != content:
                raise self._wrong(op, f"reads something else in {slot}")
        kind = Kind(int(program.kind[op]))
        if kind is not Kind.MAKE:
            for resource in attributes.needs:
                if (rank, resource) not in self.resources:
                    raise self._wrong(op, f"lacks {resource}")
        payloads, computes = data_needs(program, op)
        if any((rank, p) not in self.payloads for p in payloads):
            raise self._wrong(op, "lacks an input")
        if any((rank, c.kind, c.stage, c.microbatch) not in self.ran for c in computes):
            raise self._wrong(op, "comes before what it follows")
        self._take(op)
        if kind in COMPUTE:
            self._compute(op, kind)
        self._note(op, kind)
        if self.request[op] >= 0:
            self.pending[self.request[op]] = op

    def _take(self, op: int) -> None:
        """What is sent or copied is taken now."""
        program, rank = self.program, self.rank[op]
        m = program.messages
        for row in program.rows_of(op):
            if not m.send[row]:
                continue
            payload = int(m.payload[row])
            named = self.terms.of("named", payload)
            self.sent[row] = self.payloads.get((rank, payload), named)
            slot = program.details.traits.get(row, NO_TRAITS).buf
            if slot is not None and (rank, slot) in self.filled:
                name = payload_name(program, payload)
                if self.slots.get((rank, slot)) != name:
                    raise self._wrong(op, f"finds something else in {slot}")
        more = attributes_of(program, op).more
        if "copy" in more:
            self.copied[op] = self.slots.get((rank, more["copy"][0]))

    def _compute(self, op: int, kind: Kind) -> None:
        program, rank = self.program, self.rank[op]
        stage, microbatch = int(program.stage[op]), int(program.microbatch[op])
        attributes = attributes_of(program, op)
        if not (0 <= stage < program.stages and 0 <= microbatch < program.microbatches):
            raise self._wrong(op, "is out of range")
        hosts = program.hosts[stage] if stage < len(program.hosts) else ()
        if hosts and rank not in hosts and not attributes.anywhere:
            raise self._wrong(op, "runs on a rank that does not host its stage")
        version = self._weights_used(op, f"w{stage}") if self.versioned else 0
        payloads, computes = data_needs(program, op)
        inputs = [self.payloads[rank, p] for p in sorted(payloads)]
        inputs += [
            self.ran[rank, c.kind, c.stage, c.microbatch] for c in sorted(computes, key=str)
        ]
        state = attributes.more.get("rng")
        backward = kind in (Kind.B, Kind.I)
        # B is I and W: it makes the gradient of the input, and that of the weight of it.
        name = "input gradient" if backward else int(kind)
        term = self.terms.of(name, stage, microbatch, version, state, *inputs)
        self.ran[rank, int(kind), stage, microbatch] = term
        if kind is Kind.F:
            self.payloads[rank, activation(stage, microbatch)] = term
        if backward:
            self.payloads[rank, gradient(stage, microbatch)] = term
        made: list[tuple[Any, Term]] = [((name, stage, microbatch), term)]
        if kind is Kind.B:
            whole = self.terms.of(int(Kind.W), stage, microbatch, version, None, term)
            made.append(((int(Kind.W), stage, microbatch), whole))
        if attributes.redo:  # once or more often is the same
            self.redone.update(made)
        else:
            self.computed.update(made)

    # --- weights -----------------------------------------------------------------

    def _history(self, rank: int, name: str) -> list[tuple[int, Term]]:
        return self.weights.setdefault((rank, name), [(0, self.terms.of("weights", name))])

    def _weights_used(self, op: int, name: str) -> Term:
        history = self._history(self.rank[op], name)
        version = attributes_of(self.program, op).more.get("wv", history[-1][0])
        return self._weights_of(op, history, version)

    def _weights_of(self, op: int, history: list[tuple[int, Term]], version: int) -> Term:
        found = [term for number, term in history if number == version]
        if not found:
            raise self._wrong(op, f"names version {version}, which there never was")
        return found[-1]

    def _renew(self, op: int, name: str, version: int | None, *change: Any) -> None:
        """The weights become others: what they were, changed."""
        history = self._history(self.rank[op], name)
        if version is None:
            had = {number for number, _ in history}
            version = history[-1][0] + 1
            while version in had:
                version += 1
        history.append((version, self.terms.of("changed", history[-1][1], *change)))

    def _note(self, op: int, kind: Kind) -> None:
        """What the program's own statements are about."""
        rank, attributes = self.rank[op], attributes_of(self.program, op)
        more, label = attributes.more, attributes.label
        for effect in more.get("effects", ()):
            self.demanded[("effect", rank, effect), None] += 1
        for name in more.get("uses", ()):
            if self.values.versions(op, name)[-1] != more["it"]:
                raise self._wrong(op, f"uses another version of {name} than it should")
        if kind in (Kind.STEP, Kind.REPORT) and label is not None:
            self.counts[kind, rank, label] += 1
            form = self.values.form(op, label)
            if form is None:
                raise self._wrong(op, "is never reached")
            key = (int(kind), rank, label, self.counts[kind, rank, label])
            told = tuple(sorted((s, str(c)) for s, c in form.items()))
            self.demanded[key, (told, more.get("opt"))] += 1
            if kind is Kind.STEP:
                self._renew(op, label, None, told, more.get("opt"))
        if kind is Kind.ROLLBACK and label is not None:
            history = self._history(rank, label)
            term = self._weights_of(op, history, more["version"])
            history.append((more["version"], term))
            self.counts[kind, rank, label] += 1
            key = (int(kind), rank, label, self.counts[kind, rank, label])
            self.demanded[key, term] += 1

    # --- an op ends --------------------------------------------------------------

    def _leave(self, op: int) -> None:
        attributes, rank = attributes_of(self.program, op), self.rank[op]
        if self.request[op] < 0:
            self._give(op)
        if self.program.kind[op] == Kind.MAKE:
            self.resources |= {(rank, name) for name in attributes.needs}
        if self.program.kind[op] == Kind.DROP:
            self.resources -= {(rank, name) for name in attributes.needs}
        for slot, content in attributes.writes:
            self.slots[rank, slot] = content

    def _give(self, op: int) -> None:
        """What completes with the op: received payloads, filled slots, freed memory."""
        program, rank = self.program, self.rank[op]
        m, attributes = program.messages, attributes_of(program, op)
        for row in program.rows_of(op):
            if m.send[row]:
                continue
            payload = int(m.payload[row])
            term = self.sent[self.mate[row]]
            self.payloads[rank, payload] = term
            self.received[(rank, payload_name(program, payload)), term] += 1
            slot = program.details.traits.get(row, NO_TRAITS).buf
            if slot is not None:
                self.slots[rank, slot] = payload_name(program, payload)
        if op in self.copied:
            self.slots[rank, attributes.more["copy"][1]] = self.copied.pop(op)
        for name in attributes.more.get("bumps", ()):
            self._renew(op, name, attributes.more.get("to"), attributes.label)
        for name in attributes.free:
            if (rank, name) not in self.live:
                raise self._wrong(op, f"frees {name}, which is not there")
            self.live.discard((rank, name))


def _filled(program: Program, rank: list[int]) -> Iterator[tuple[int, str]]:
    """(rank, slot) of the slots that something fills; others were full before."""
    for op, attributes in program.details.attributes.items():
        yield from ((rank[op], slot) for slot, _ in attributes.writes)
        if "copy" in attributes.more:
            yield rank[op], attributes.more["copy"][1]
    for row, traits in program.details.traits.items():
        if traits.buf is not None and not program.messages.send[row]:
            yield int(program.messages.rank[row]), traits.buf
