"""Programs about gradients and weight versions, for tests.

``value_program`` takes one list of ops a rank, as the program format writes
them, and keys of the document; ``answer`` asks one check about it and has every
finding confirmed. ``sums`` and ``weight_programs`` draw random programs;
``Sum.values`` says what its accumulators hold, by simply doing what was drawn,
one action after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from hypothesis import strategies as st

from pipeproof.checks import gradients, versions
from pipeproof.checks.subject import Subject
from pipeproof.formats.program_json import read_program
from pipeproof.program.programs import Program
from pipeproof.replay.confirm import confirm
from pipeproof.verdict import CheckResult

Op = Sequence[Any]


Lanes = dict[str, Sequence[Op]]


def value_program(*ranks: Sequence[Op] | Lanes, **document: Any) -> Program:
    """A program of these ranks, each of one lane or several; read as from a file."""
    programs = {str(rank): ops for rank, ops in enumerate(ranks)}
    return read_program(json.dumps({"programs": programs, **document}), "test")


def _answer(
    applies: Callable[[Subject], bool],
    check: Callable[[Subject], CheckResult],
    program: Program,
) -> CheckResult | None:
    subject = Subject(program)
    if not applies(subject):
        return None
    result = check(subject)
    for finding in result.findings:
        assert confirm(program, program.transport, finding.counterexample) is None
    return result


def asked_gradients(program: Program) -> CheckResult | None:
    """What ``gradients`` says, None where there is nothing to check."""
    return _answer(gradients.applies, gradients.check, program)


def asked_versions(program: Program) -> CheckResult | None:
    """What ``versions`` says, None where there is nothing to check."""
    return _answer(versions.applies, versions.check, program)


# --- random sums ----------------------------------------------------------------

NAMES = ("w", "v", "u", "t")
ALIAS = {"u": "v"}
GROUPS = {"pair": [0, 1]}
COEFFICIENTS = st.sampled_from(["1", "2", "1/2", "-1", "1/3", "0"])
Value = dict[str, Fraction]


class Call(NamedTuple):
    """One member's side of a collective."""

    rank: int
    kind: str
    param: str
    mean: bool
    owner: int


@dataclass
class Sum:
    """A drawn program: what happens, in one order, and what every rank runs of it.

    ``programs[rank][i]`` is an op; an action is (what, rank, place of its op on
    that rank, detail). A collective is one action, by all members at once.
    """

    programs: list[list[list[Any]]]
    actions: list[tuple[str, int, int, Any]] = field(default_factory=list)
    flying: list[list[tuple[str, Call, int]]] = field(default_factory=list)
    asynchronous: bool = False

    def program(self, **document: Any) -> Program:
        """The program as it is checked, with further keys."""
        return value_program(*self.programs, groups=GROUPS, alias=ALIAS, **document)

    def values(self) -> dict[tuple[int, int], Value]:
        """By (rank, place of a STEP or REPORT): what it finds."""
        books: dict[tuple[int, str], Value] = {}
        results: dict[int, Value] = {}  # the sum of each collective
        members: dict[int, int] = {}
        found: dict[tuple[int, int], Value] = {}

        def at(rank: int, name: str) -> Value:
            return books.setdefault((rank, ALIAS.get(name, name)), {})

        def take(call: Call, number: int) -> None:
            owned = call.kind == "reducescatter" and call.owner == call.rank
            if call.kind == "allreduce" or owned:
                share = Fraction(1, members[number]) if call.mean else Fraction(1)
                taken = {s: c * share for s, c in results[number].items()}
                books[call.rank, ALIAS.get(call.param, call.param)] = taken

        for what, rank, place, detail in self.actions:
            if what in ("step", "report"):
                found[rank, place] = {s: c for s, c in at(rank, detail).items() if c}
            if what in ("step", "zero"):
                at(rank, detail).clear()
            elif what == "scale":
                name, factor = detail
                for symbol in at(rank, name):
                    at(rank, name)[symbol] *= factor
            elif what == "grad":
                name, form, assigns = detail
                if assigns:
                    at(rank, name).clear()
                for symbol, coefficient in form.items():
                    at(rank, name)[symbol] = at(rank, name).get(symbol, 0) + coefficient
            elif what == "call":
                number, calls = detail
                total: Value = {}
                members[number] = len(calls)
                for call in calls:
                    if call.kind in ("allreduce", "reducescatter"):
                        for symbol, coefficient in at(call.rank, call.param).items():
                            total[symbol] = total.get(symbol, Fraction(0)) + coefficient
                results[number] = total
            elif what == "take":
                take(*detail)
        return found


@st.composite
def on_lanes(draw: st.DrawFn, ops: Sequence[Op]) -> Lanes:
    """The ops spread over two lanes, which signal each other to keep the order."""
    lanes: dict[str, list[Op]] = {"a": [], "b": []}
    now = "a"
    for number, op in enumerate(ops):
        there = draw(st.sampled_from("ab"))
        if there != now:
            lanes[now].append(["SIGNAL", f"{number}"])
            lanes[there].append(["AWAIT", f"{number}"])
            now = there
        lanes[now].append(op)
    return dict(lanes)


@st.composite
def sums(draw: st.DrawFn, *, asynchronous: bool = True) -> Sum:
    """Up to three ranks that add, scale, clear, reduce, step and report."""
    drawn = Sum([[] for _ in range(draw(st.integers(2, 3)))], flying=[[], [], []])
    for number in range(draw(st.integers(1, 14))):
        what = draw(
            st.sampled_from(
                ["grad", "grad", "grad", "call", "call", "wait", "scale", "zero", "step", "report"]
            )
        )
        if what == "call":
            _call(draw, drawn, number, asynchronous)
        else:
            rank = draw(st.integers(0, len(drawn.programs) - 1))
            _act(draw, drawn, what, rank)
    for rank in range(len(drawn.programs)):
        while drawn.flying[rank] and draw(st.integers(0, 3)):
            _act(draw, drawn, "wait", rank)
    for rank, ops in enumerate(drawn.programs):
        for name in NAMES:
            drawn.actions.append(("report", rank, len(ops), name))
            ops.append(["REPORT", name])
    return drawn


def _act(draw: st.DrawFn, drawn: Sum, what: str, rank: int) -> None:
    ops = drawn.programs[rank]
    name = draw(st.sampled_from(NAMES))
    if what == "wait":
        if not drawn.flying[rank]:
            return
        flying = drawn.flying[rank]
        request, call, number = flying.pop(draw(st.integers(0, len(flying) - 1)))
        drawn.actions.append(("take", rank, len(ops), (call, number)))
        ops.append(["WAIT", request])
    elif what == "scale":
        factor = draw(COEFFICIENTS)
        drawn.actions.append((what, rank, len(ops), (name, Fraction(factor))))
        ops.append(["SCALE", name, factor])
    elif what == "grad":
        form = draw(st.dictionaries(st.sampled_from("abc"), COEFFICIENTS, max_size=2))
        assigns = draw(st.sampled_from([False, False, False, True]))
        exact = {s: Fraction(c) for s, c in form.items()}
        drawn.actions.append((what, rank, len(ops), (name, exact, assigns)))
        mode = {"grad_mode": "set"} if assigns else {}
        ops.append(["X", "x", {"grad": {name: form}, **mode}])
    else:
        drawn.actions.append((what, rank, len(ops), name))
        ops.append([what.upper(), name])


def _call(draw: st.DrawFn, drawn: Sum, number: int, asynchronous: bool) -> None:
    group = draw(st.sampled_from(["world", "pair"]))
    members = GROUPS.get(group) or list(range(len(drawn.programs)))
    kind = draw(st.sampled_from(["allreduce", "allreduce", "reducescatter", "broadcast"]))
    param, mean = draw(st.sampled_from(NAMES)), draw(st.booleans())
    owner = draw(st.sampled_from(members))
    calls, taken = [], []
    for rank in members:
        # Now and then the members' calls do not agree, which is for ``matching`` to say.
        own = param if draw(st.integers(0, 9)) else draw(st.sampled_from(NAMES))
        call = Call(rank, kind, own, mean, owner)
        ops = drawn.programs[rank]
        given: dict[str, Any] = {"param": own, "op": "avg" if mean else "sum", "owner": owner}
        calls.append(call)
        if asynchronous and draw(st.booleans()):
            given["req"] = f"q{number}"
            drawn.flying[rank].append((f"q{number}", call, number))
            drawn.asynchronous = True
        else:
            taken.append(("take", rank, len(ops), (call, number)))
        ops.append(["COLL", kind, group, "label", given])
    drawn.actions.append(("call", -1, -1, (number, calls)))
    drawn.actions += taken


# --- random weights -------------------------------------------------------------


@st.composite
def weight_programs(draw: st.DrawFn) -> Program:
    """Two ranks that compute on two stages and step, roll back and bump their weights."""
    ranks: list[list[list[Any]]] = [[], []]
    flying: list[list[str]] = [[], []]
    weight = st.sampled_from(["w0", "w1"])
    other = ["STEP", "STEP", "ROLLBACK", "COLL", "WAIT", "uses"]
    for number in range(draw(st.integers(1, 14))):
        rank = draw(st.integers(0, 1))
        what = draw(st.sampled_from(["F", "B", "BI", "W", "R", "F", "B", *other]))
        if what in ("F", "B", "BI", "W", "R"):
            op = [what, draw(st.integers(0, 1)), draw(st.integers(0, 1)), {}]
            if draw(st.integers(0, 3)) == 0:
                op[-1]["wv"] = draw(st.integers(0, 3))
            ranks[rank].append(op)
        elif what == "STEP":
            ranks[rank].append(["STEP", draw(weight)])
        elif what == "ROLLBACK":
            ranks[rank].append(["ROLLBACK", draw(weight), draw(st.integers(0, 3))])
        elif what == "WAIT" and flying[rank]:
            ranks[rank].append(["WAIT", flying[rank].pop()])
        elif what == "uses":
            uses = {"uses": draw(st.lists(weight, max_size=2)), "it": draw(st.integers(0, 2))}
            ranks[rank].append(["X", "x", uses])
        elif what == "COLL":
            for member in (0, 1):
                given: dict[str, Any] = {"bumps": draw(weight)}
                if draw(st.booleans()):
                    given["to"] = draw(st.integers(0, 4))
                if draw(st.booleans()):
                    given["req"] = f"q{number}"
                    flying[member].append(f"q{number}")
                ranks[member].append(["COLL", "allgather", "world", "label", given])
    return value_program(*ranks, stages=2, m=2, versions="fb-equal")
