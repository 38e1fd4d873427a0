"""Running a definition for given sizes: its ops become a schedule.

A function that takes ``rank`` yields (or returns) the ops of that rank: `Op`,
`Together`, or a text in torch's notation such as ``"0F1"``. One that does not
take it returns the ops of all ranks, rank after rank; an order by start times or
priorities (`pipeproof.spec.orders`); a schedule that `read` has read; or a whole
program with its communication, as the program format writes it (a ``dict``).
"""

from __future__ import annotations

import json
import operator
import os
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import GeneratorType, MappingProxyType
from typing import Any

import numpy as np

from pipeproof.errors import InputError
from pipeproof.formats.program_json import read_program
from pipeproof.formats.torch_csv import read_actions
from pipeproof.program.graph import StageGraph
from pipeproof.program.ops import COMPUTE, MAX_ID, Kind
from pipeproof.program.programs import OBSERVED, Attributes, Details, Program
from pipeproof.program.schedules import Schedule
from pipeproof.spec.claims import update_rule
from pipeproof.spec.definition import RANK, Definition, Sizes, evaluated, spelled
from pipeproof.spec.ops import Op, Together
from pipeproof.spec.orders import Order

MAX_OPS = 20_000_000
"""Ops of one run; a definition that yields more is taken to be endless."""

_WEIGHTS = (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R)
_EXPECTED = "an op such as F(0) or B(0), together(F(1), B(0)), or a text such as '0F1'"


def run(definition: Definition, sizes: Sizes) -> Schedule | Program:
    """The schedule of these sizes, which must be valid (see `Definition.sizes`).

    InputError says what the definition did wrong, with its line in the file.
    """
    with _blaming(definition, sizes):
        if RANK in definition.parameters:
            rows = [_called(definition, sizes, rank) for rank in range(sizes["p"])]
        else:
            made = _called(definition, sizes, None)
            if isinstance(made, Schedule):
                return replace(made, **_own(definition, sizes))
            if isinstance(made, Mapping):
                name = f"{definition.name} ({spelled(sizes)})"
                return read_program(json.dumps(made), name)
            if isinstance(made, Order):
                made = made.rows(sizes, definition.placement)
            rows = _all_rows(made, definition, sizes["p"])
        builder = _Builder(definition, sizes)
        for rank, row in enumerate(rows):
            builder.rank(rank, row)
        return builder.schedule()


def _own(definition: Definition, sizes: Sizes) -> dict[str, Any]:
    """What a schedule takes over from its definition."""
    return {
        "name": f"{definition.name} ({spelled(sizes)})",
        "recipe": definition.recipe,
        "transport": definition.transport,
        "forward_only": definition.forward_only,
    }


class _blaming:
    """Turns what a definition raises into an error that names its file and line."""

    def __init__(self, definition: Definition, sizes: Sizes) -> None:
        self.definition, self.sizes = definition, sizes

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, tb: Any) -> None:
        if error is None or isinstance(error, InputError) or not isinstance(error, Exception):
            return
        line = _line_within(error, self.definition.file)
        raise InputError(
            f"{self.definition.name} raised {type(error).__name__} at "
            f"{spelled(self.sizes)}: {error}",
            cause="The definition itself fails at these sizes. If they are none of its "
            "sizes, say so with @schedule(valid=...).",
            line=line,
        ) from error


def _line_within(error: BaseException, file: str) -> int | None:
    """The innermost line of ``file`` that an error came through."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return lines[-1] if lines else None


def _called(definition: Definition, sizes: Sizes, rank: int | None) -> Any:
    known = dict(sizes) if rank is None else {**sizes, RANK: rank}
    return definition.function(**{n: known[n] for n in definition.parameters})


def _all_rows(made: Any, definition: Definition, ranks: int) -> list[Any]:
    if isinstance(made, str) or not isinstance(made, Iterable):
        raise InputError(
            f"{definition.name} returned {_shown(made)}; expected a list of rows, one a rank",
            cause="A function without the parameter rank lists the ops of all ranks.",
            line=definition.line or None,
        )
    rows = list(made)
    if len(rows) != ranks:
        raise InputError(
            f"{definition.name} returned {len(rows)} rows for p={ranks}; expected one a rank",
            line=definition.line or None,
        )
    return rows


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Builder:
    """Collects the actions of all ranks."""

    def __init__(self, definition: Definition, sizes: Sizes) -> None:
        self.definition, self.sizes = definition, sizes
        self.p, self.v = sizes["p"], sizes["v"]
        self.placement = definition.placement
        self.stages = self.p if self.placement.ways > 1 else self.p * self.v
        self.slices = sizes[definition.slices] if definition.slices else 1
        self.columns: list[tuple[int, int, int, int, int]] = []
        self.attributes: dict[int, Attributes] = {}
        self.first = [0]
        self.other: dict[int, bool] = {}  # microbatch -> whether it goes the other way
        self.hosts = self._hosts(0)
        self.other_hosts = self._hosts(1) if self.placement.ways > 1 else None
        self.groups: dict[str, tuple[int, ...]] = {}
        self.updates = False

    def _hosts(self, way: int) -> list[int]:
        hosts = [-1] * self.stages
        chunks = 1 if self.placement.ways > 1 else self.v
        for rank in range(self.p):
            for chunk in range(chunks):
                stage = self.placement.stage(rank, chunk, way, self.p)
                if not 0 <= stage < self.stages or hosts[stage] != -1:
                    raise InputError(
                        f"the placement {self.placement.name} puts stage {stage} on rank {rank} "
                        f"as its chunk {chunk}; expected each of the stages 0 to "
                        f"{self.stages - 1} once"
                    )
                hosts[stage] = rank
        return hosts

    # --- one rank --------------------------------------------------------------

    def rank(self, rank: int, row: Any) -> None:
        """Add the next rank's ops."""
        version: dict[int, int] = {}  # stage -> its current weight version
        used: dict[tuple[int, int], int] = {}  # (stage, microbatch) -> that of its forward
        for cell, (line, item) in enumerate(self._items(rank, row), 1):
            ops = item.ops if isinstance(item, Together) else (item,)
            for op in ops:
                self._add(op, rank, line, cell, version, used)
        self.first.append(len(self.columns))

    def _items(self, rank: int, row: Any) -> Iterator[tuple[int, Op | Together]]:
        """(line of the definition, op) of a rank."""
        if isinstance(row, str):
            yield from ((0, op) for op in _text_ops(row))
            return
        if not isinstance(row, Iterable):
            raise InputError(
                f"{self.definition.name} gave {_shown(row)} for rank {rank}; expected its ops",
                cause="Write the function as a generator: yield F(i).",
                line=self.definition.line or None,
            )
        for item in row:
            # Only a generator knows where it stands.
            frame = row.gi_frame if isinstance(row, GeneratorType) else None
            line = frame.f_lineno if frame is not None else 0
            if len(self.columns) > MAX_OPS:
                raise InputError(
                    f"{self.definition.name} yields more than {MAX_OPS} ops; expected an end",
                    cause="A loop of the definition never ends.",
                    line=line or None,
                )
            if isinstance(item, (Op, Together)):
                yield line, item
            elif isinstance(item, str):
                yield from ((line, op) for op in _text_ops(item))
            else:
                raise InputError(
                    f"rank {rank} yields {_shown(item)}; expected {_EXPECTED}", line=line or None
                )

    def _add(
        self,
        op: Any,
        rank: int,
        line: int,
        cell: int,
        version: dict[int, int],
        used: dict[tuple[int, int], int],
    ) -> None:
        if not isinstance(op, Op):
            raise InputError(f"rank {rank} overlaps {_shown(op)}; expected ops", line=line or None)
        try:
            stage = self._stage(op, rank)
            microbatch = self._microbatch(op) if op.kind in COMPUTE else -1
        except _Wrong as error:
            raise InputError(
                f"rank {rank} yields {op}: {error}",
                cause=f"The sizes are {spelled(self.sizes)}.",
                line=line or None,
            ) from None
        more: dict[str, Any] = {}
        label: str | None = None
        if op.kind in _WEIGHTS:
            if self.placement.ways > 1:
                self.other.setdefault(microbatch, bool(op.way))
            key = stage, microbatch
            if op.kind is Kind.F:
                used[key] = version.get(stage, 0)
            if op.version is not None:
                more["wv"] = max(0, operator.index(op.version))
            elif self.definition.stash and op.kind is not Kind.F and key in used:
                more["wv"] = used[key]
        elif op.kind is Kind.STEP:
            label = f"w{stage}"
            version[stage] = version.get(stage, 0) + 1
            self.updates = True
        elif op.kind is Kind.COLL:
            label, group = f"stage {stage} {op.label}".rstrip(), f"stage {stage}"
            more = {"kind": "allreduce", "group": group}
            ranks = {self.hosts[stage]} | (
                {self.other_hosts[stage]} if self.other_hosts else set()
            )
            self.groups[group] = tuple(sorted(ranks))
        if label is not None or more:
            self.attributes[len(self.columns)] = Attributes(
                label=label, more=MappingProxyType(more)
            )
        acting = stage if op.kind in COMPUTE else -1
        self.columns.append((int(op.kind), acting, microbatch, line, cell))

    def _stage(self, op: Op, rank: int) -> int:
        if op.stage is not None:
            stage = _whole(op.stage, "stage")
            if not 0 <= stage < self.stages:
                raise _Wrong(f"there are {self.stages} stages")
            return stage
        chunk = _whole(op.chunk, "chunk")
        if not 0 <= op.way < self.placement.ways:
            raise _Wrong(f"the placement {self.placement.name} has {self.placement.ways} way(s)")
        chunks = 1 if self.placement.ways > 1 else self.v
        if not 0 <= chunk < chunks:
            raise _Wrong(f"a rank has {chunks} chunk(s)")
        return self.placement.stage(rank, chunk, op.way, self.p)

    def _microbatch(self, op: Op) -> int:
        microbatch, part = _whole(op.microbatch, "microbatch"), _whole(op.slice, "slice")
        if not 0 <= microbatch <= MAX_ID // self.slices:
            raise _Wrong("microbatches count from 0")
        if not 0 <= part < self.slices:
            raise _Wrong(f"a sequence has {self.slices} slice(s)")
        return microbatch * self.slices + part

    # --- the whole -------------------------------------------------------------

    def schedule(self) -> Schedule:
        """The schedule; InputError where there is nothing in it."""
        if not any(kind in COMPUTE for kind, *_ in self.columns):
            raise InputError(
                f"{self.definition.name} yields no op at {spelled(self.sizes)}",
                cause="If these are none of its sizes, say so with @schedule(valid=...).",
                line=self.definition.line or None,
            )
        kind, stage, microbatch, line, column = (
            np.array(values, np.int32) for values in zip(*self.columns, strict=True)
        )
        microbatches = self.sizes["m"] * self.slices
        other_way = None
        if self.other_hosts is not None:
            other_way = np.zeros(microbatches, np.bool_)
            for number, other in self.other.items():
                if number < microbatches:
                    other_way[number] = other
        return Schedule(
            **_own(self.definition, self.sizes),
            ranks=self.p,
            stages=self.stages,
            microbatches=microbatches,
            kind=kind.astype(np.uint8),
            stage=stage,
            microbatch=microbatch,
            backward=np.zeros(len(kind), np.bool_),
            line=line,
            column=column,
            first=tuple(self.first),
            host=np.array(self.hosts, np.int32),
            lists_communication=False,
            other_host=None if self.other_hosts is None else np.array(self.other_hosts, np.int32),
            other_way=other_way,
            attributes=self.attributes,
            details=Details(
                groups=self.groups,
                versions=self._versions() if self.updates else None,
                graph=self._graph(),
            ),
            cells=False,
        )

    def _graph(self) -> StageGraph | None:
        """The stage graph; None where it is a chain without slices."""
        own = self.definition
        if own.graph is None and self.slices == 1:
            return None
        inputs: list[tuple[int, ...]] = [(s - 1,) if s else () for s in range(self.stages)]
        if own.graph is not None:
            given = evaluated(own.graph, self.sizes)
            for stage in range(self.stages):
                inputs[stage] = self._inputs(stage, given.get(stage, ()))
        return StageGraph(
            tuple(inputs),
            slices=self.slices,
            carried=own.slices is not None,
            feedback=own.feedback,
        )

    def _inputs(self, stage: int, given: Iterable[int]) -> tuple[int, ...]:
        inputs = tuple(sorted(set(given)))
        wrong = [s for s in inputs if not (isinstance(s, int) and 0 <= s < stage)]
        if wrong:
            raise InputError(
                f"the graph of {self.definition.name} feeds stage {stage} from {wrong[0]!r}; "
                f"expected stages below {stage}",
                cause="Number the stages so that each comes after its inputs.",
                line=self.definition.line or None,
            )
        return inputs

    def _versions(self) -> str:
        """A backward must meet its forward's weights, unless the schedule says of
        itself that it does not."""
        inconsistent = update_rule("inconsistent") in self.definition.claims
        return OBSERVED if inconsistent else "fb-equal"


class _Wrong(Exception):
    """A number of an op that cannot be."""


def _whole(value: object, what: str) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise _Wrong(f"the {what} {value!r} is no whole number") from None


def _text_ops(text: str) -> Iterator[Op | Together]:
    """The compute ops of a text in torch's notation: ``0F0,0F1,(0F2;0B0)OVERLAP_F_B``."""
    actions = read_actions(text.strip() + os.linesep, older=False)
    cells: dict[int, list[Op]] = {}
    for kind, stage, microbatch, column in zip(
        actions.kind.tolist(),
        actions.stage.tolist(),
        actions.microbatch.tolist(),
        actions.column.tolist(),
        strict=True,
    ):
        if kind not in COMPUTE:
            raise InputError(
                f"found {Kind(kind).name} in the text {_shown(text)}; expected compute ops",
                cause="A recipe adds the communication. A file that lists it is read with "
                "read('plan.csv').",
            )
        cells.setdefault(column, []).append(Op(Kind(kind), microbatch, stage=stage))
    for ops in cells.values():
        yield ops[0] if len(ops) == 1 else Together(tuple(ops))
