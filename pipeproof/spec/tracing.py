"""Reading a definition for its loops: the same function, run once with unknowns.

What comes out says for every rank at once which loops it runs, how often, and
which microbatch each op of a body takes, all as linear forms in the sizes, the
rank and the loop indices. ``unrolled`` runs the loops for given sizes, without
the function; that it gives the function's own ops is how the reading is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeproof.spec.definition import RANK, Definition
from pipeproof.spec.ops import Op, Together
from pipeproof.spec.sizes import Form, NotLoops, Size


@dataclass(frozen=True, slots=True)
class Action:
    """An op whose numbers are forms; see `pipeproof.spec.ops.Op`."""

    op: Op

    def __str__(self) -> str:
        return str(self.op)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Ops that run at the same time."""

    ops: tuple[Op, ...]

    def __str__(self) -> str:
        return f"together({', '.join(map(str, self.ops))})"


@dataclass(frozen=True, slots=True)
class Loop:
    """``body`` once for every index from ``start`` to below ``stop``; never where
    ``stop`` is not above ``start``."""

    index: str
    start: Form
    stop: Form
    body: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Loops:
    """What every rank runs. ``fixed`` are the sizes that were given as numbers,
    ``free`` those that may be any."""

    body: tuple[Any, ...]
    fixed: Mapping[str, int]
    free: tuple[str, ...]

    def lines(self) -> list[str]:
        """The loops as indented text."""
        return list(_lines(self.body, ""))


def _lines(body: tuple[Any, ...], indent: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, Loop):
            yield f"{indent}for {node.index} in {node.start} .. {node.stop} - 1:"
            yield from _lines(node.body, indent + "  ")
        else:
            yield f"{indent}{node}"


def traced(definition: Definition, fixed: Mapping[str, int] | None = None) -> Loops:
    """The loops of a definition, where the sizes of ``fixed`` are numbers.

    `NotLoops` says why it has none: it compares, divides or multiplies unknowns,
    leaves a loop early, carries something from one turn to the next, or raises.
    """
    fixed = {**({"v": 1} if "v" not in definition.parameters else {}), **(fixed or {})}
    if RANK not in definition.parameters:
        raise NotLoops(f"{definition.name} lists all ranks at once, not the loops of one")
    recorder = _Recorder()
    arguments: dict[str, Any] = {}
    for name in definition.parameters:
        if name in fixed:
            arguments[name] = fixed[name]
        else:
            arguments[name] = Size(Form(((name, 1),)), recorder)
    try:
        for item in definition.function(**arguments):
            recorder.note(item)
    except NotLoops:
        raise
    except Exception as error:
        raise NotLoops(f"it raises {type(error).__name__} over unknowns: {error}") from error
    body = recorder.finished()
    free = tuple(n for n in definition.defaults if n not in fixed)
    _require_scope(body, frozenset((*free, RANK)))
    return Loops(body, fixed, free)


class _Recorder:
    """The loops that are open, innermost last, and what each has had so far."""

    def __init__(self) -> None:
        self.open: list[list[Any]] = [[]]
        self.names: list[str] = []
        self.broken = False

    def loop(self, start: Form, stop: Form) -> Iterator[Size]:
        """Run the body twice over the same unknown index: what is carried from one
        turn to the next shows, as the turns then differ."""
        # Named by its place, so that both turns of a loop around it agree.
        name = "_".join((self.names[-1] if self.names else "i", str(len(self.open[-1]))))
        depth = len(self.open)
        turns = []
        for _ in range(2):
            self.open.append([])
            self.names.append(name)
            try:
                yield Size(Form(((name, 1),)), self)
            except GeneratorExit:
                self.broken = True
                raise
            if len(self.open) != depth + 1:
                raise NotLoops("a loop is left before its end")
            turns.append(tuple(self.open.pop()))
            self.names.pop()
        if turns[0] != turns[1]:
            raise NotLoops("a loop carries something from one turn to the next")
        if turns[0]:
            self.open[-1].append(Loop(name, start, stop, turns[0]))

    def note(self, item: object) -> None:
        """Add what the function yields to the innermost open loop."""
        if isinstance(item, Op):
            self.open[-1].append(Action(_formed(item)))
        elif isinstance(item, Together) and all(isinstance(op, Op) for op in item.ops):
            self.open[-1].append(Overlap(tuple(map(_formed, item.ops))))
        else:
            raise NotLoops(f"it yields {item!r}, which is no op")

    def finished(self) -> tuple[Any, ...]:
        """All that was noted."""
        if self.broken or len(self.open) != 1:
            raise NotLoops("a loop is left before its end")
        return tuple(self.open[0])


_NUMBERS = ("microbatch", "chunk", "stage", "slice", "version")


def _formed(op: Op) -> Op:
    """The op with a form for each of its numbers."""
    values: dict[str, Any] = {"kind": op.kind, "way": op.way, "label": op.label}
    for name in _NUMBERS:
        value = getattr(op, name)
        if isinstance(value, Size):
            value = value.form
        elif isinstance(value, int) and not isinstance(value, bool):
            value = Form(constant=value)
        elif value is not None:
            raise NotLoops(f"the {name} of {op} is no whole number")
        values[name] = value
    return Op(**values)


def _require_scope(body: tuple[Any, ...], known: frozenset[str]) -> None:
    """Refuse an index that is used outside of its loop."""
    for node in body:
        if isinstance(node, Loop):
            forms = [node.start, node.stop]
            _require_scope(node.body, known | {node.index})
        else:
            ops = node.ops if isinstance(node, Overlap) else (node.op,)
            forms = [f for op in ops for n in _NUMBERS if (f := getattr(op, n)) is not None]
        for form in forms:
            if not form.unknowns() <= known:
                raise NotLoops(f"{form} uses the index of a loop outside of it")


def unrolled(loops: Loops, sizes: Mapping[str, int], rank: int) -> list[Op | Together]:
    """The ops of a rank at given sizes, from the loops alone."""
    return list(_unrolled(loops.body, {**sizes, **loops.fixed, RANK: rank}))


def _unrolled(body: tuple[Any, ...], known: dict[str, int]) -> Iterator[Op | Together]:
    for node in body:
        if isinstance(node, Loop):
            for index in range(node.start.value(known), node.stop.value(known)):
                yield from _unrolled(node.body, {**known, node.index: index})
        elif isinstance(node, Overlap):
            yield Together(tuple(_valued(op, known) for op in node.ops))
        else:
            yield _valued(node.op, known)


def _valued(op: Op, known: Mapping[str, int]) -> Op:
    values: dict[str, Any] = {"kind": op.kind, "way": op.way, "label": op.label}
    for name in _NUMBERS:
        form = getattr(op, name)
        values[name] = form if form is None else form.value(known)
    return Op(**values)
