"""Programs: a schedule with its communication, as flat arrays.

One op is one position in a handful of parallel arrays, not an object: a
million actions must cost microseconds each, from file to verdict. What few
ops carry (labels, shapes, allocations) sits beside the arrays in sparse maps.
Ops are numbered 0..n-1, lane after lane, so a lane is a range of numbers and
"earlier on the same lane" is a comparison of integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pipeproof.program.graph import StageGraph
from pipeproof.program.ops import Kind
from pipeproof.program.transports import Transport

if TYPE_CHECKING:
    from fractions import Fraction

    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Bytes = NDArray[np.uint8]
    Bools = NDArray[np.bool_]

OBSERVED = "observed"
"""``Details.versions`` of a program that demands nothing of weight versions, but
whose update rule is asked for."""

NOTHING: Mapping[Any, Any] = MappingProxyType({})

ANY = -1
"""The peer of a receive that takes a message of any sender."""


def _nothing() -> Mapping[Any, Any]:
    return NOTHING


@dataclass(frozen=True, slots=True)
class Lane:
    """One in-order sequence of ops of a rank: ops ``first`` to ``stop - 1``."""

    rank: int
    name: str
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Messages:
    """Every send and receive, alone or in a group: one end of a message a row.

    Rows stand in the order of the ops that post them and, within a group, of
    its members. Arrays of equal length: ``op`` the posting op, ``send`` True
    for a send, ``rank`` and ``peer`` the acting and the other rank (``ANY`` for a
    receive that takes a message of any sender), ``payload`` the payload id (see
    ``ops.activation``), ``comm`` an index into the program's ``comms``.
    """

    op: Ints
    send: Bools
    rank: Ints
    peer: Ints
    payload: Longs
    comm: Ints


@dataclass(frozen=True, slots=True)
class Waits:
    """Pairs (op, request): the op goes on only when the request has completed.

    ``op`` ascends. A WAIT does nothing else; a compute op that has waits waits
    first and then runs. Ops that post messages have none.
    """

    op: Ints
    request: Ints


@dataclass(frozen=True, slots=True)
class Origin:
    """Where ops stand in the input: 1-based line and cell, 0 where there is none.

    ``path`` gives a JSON path an op instead, where the input was JSON. Where
    ``cells`` is False, the column is none of the input and only tells which ops
    overlap (they share it).
    """

    line: Ints
    column: Ints
    path: tuple[str, ...] = ()
    cells: bool = True


@dataclass(frozen=True, slots=True)
class Traits:
    """What a message end states about its tensor; None where it states nothing."""

    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    count: int | None = None
    buf: str | None = None  # the slot read by a send, filled by a receive


@dataclass(frozen=True, slots=True)
class Attributes:
    """What an op carries beside its arguments (PROGRAM_FORMAT, version 1)."""

    label: str | None = None  # X and COLL; the parameter or name of other kinds
    redo: bool = False  # may repeat
    anywhere: bool = False  # may run on any rank
    nodeps: bool = False  # has no data needs
    alloc: tuple[tuple[str, int], ...] = ()  # (name, units), before the op
    free: tuple[str, ...] = ()  # after it completes
    writes: tuple[tuple[str, str], ...] = ()  # (slot, content)
    reads: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ()  # resources that must exist
    more: Mapping[str, Any] = field(default_factory=_nothing)  # the rest, as validated


@dataclass(frozen=True, slots=True)
class Feature:
    """Something a program uses that some check gives no meaning to.

    ``checks`` names the checks whose answer it may change; they answer
    *undetermined* instead of guessing.
    """

    name: str
    where: str
    checks: frozenset[str]


@dataclass(frozen=True, slots=True)
class Details:
    """The sparse part of a program; empty for a torch CSV."""

    names: tuple[str, ...] = ()  # payloads that are neither act nor grad
    comms: tuple[str, ...] = ("",)
    requests: tuple[str, ...] = ()  # the producer's id of each request
    attributes: Mapping[int, Attributes] = field(default_factory=_nothing)  # by op
    traits: Mapping[int, Traits] = field(default_factory=_nothing)  # by message row
    held: frozenset[tuple[int, int]] = frozenset()  # (rank, payload) before the first op
    resources: frozenset[tuple[int, str]] = frozenset()  # (rank, resource), likewise
    budget: Mapping[int, int] = field(default_factory=_nothing)  # units a rank
    leak_check: bool = False
    may_remain: frozenset[str] = frozenset()
    layers: tuple[tuple[int, ...], ...] | None = None  # of each stage, in order
    n_layers: int | None = None
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=_nothing)  # of collectives
    want: Mapping[str, Mapping[str, Fraction]] = field(default_factory=_nothing)  # linear forms
    replicas: Mapping[str, tuple[int, ...]] = field(default_factory=_nothing)  # by parameter
    want_effects: Mapping[tuple[int, str], int] = field(default_factory=_nothing)
    versions: str | None = None  # "fb-equal", or OBSERVED
    alias: Mapping[str, str] = field(default_factory=_nothing)  # accumulators sharing storage
    features: tuple[Feature, ...] = ()
    graph: StageGraph | None = None  # of the stages; a chain where there is none


def _extent(sorted_ops: Ints, op: int) -> tuple[int, int]:
    """Where op stands in an ascending array; of its own type, or it would be copied."""
    value = sorted_ops.dtype.type(op)
    low, high = sorted_ops.searchsorted(value, "left"), sorted_ops.searchsorted(value, "right")
    return int(low), int(high)


@dataclass(frozen=True, slots=True)
class Program:
    """One step of a pipeline: what every rank executes, in order.

    Arrays, one entry an op: ``kind`` (codes of ``ops.Kind``), ``stage`` and
    ``microbatch`` (-1 where an op has none), ``request`` (the number of the
    request it posts, -1 for a blocking op). ``hosts[s]`` is the ranks that
    host stage ``s``; an empty tuple says that nothing is known about it.
    ``complete`` demands that every stage runs every microbatch; otherwise the
    program may be a fragment of a longer run.
    """

    name: str
    ranks: int
    stages: int
    microbatches: int
    hosts: tuple[tuple[int, ...], ...]
    lanes: tuple[Lane, ...]
    kind: Bytes
    stage: Ints
    microbatch: Ints
    request: Ints
    messages: Messages
    waits: Waits
    origin: Origin
    transport: Transport
    recipe: str | None = None  # how it was lowered from a schedule, if it was
    complete: bool = False
    forward_only: bool = False
    notes: tuple[str, ...] = ()
    details: Details = field(default_factory=Details)

    @property
    def ops(self) -> int:
        """Number of ops."""
        return len(self.kind)

    @property
    def several_lanes(self) -> bool:
        """Whether some rank has more than one lane."""
        return len({lane.rank for lane in self.lanes}) < len(self.lanes)

    @property
    def chooses(self) -> bool:
        """Whether it leaves something to the execution: which sender's message a receive
        from any sender takes, or which of its requests a WAITANY goes on with."""
        any_sender = bool((self.messages.peer == ANY).any())
        return any_sender or bool((self.kind == Kind.WAITANY).any())

    @property
    def allocates(self) -> bool:
        """Whether the program says what it allocates; otherwise activations are counted."""
        return any(a.alloc for a in self.details.attributes.values())

    def waiters(self) -> dict[int, int]:
        """For each request that is waited for, the first op that does."""
        requests, ops = self.waits.request.tolist(), self.waits.op.tolist()
        return dict(zip(reversed(requests), reversed(ops), strict=True))

    def lane_of(self, op: int) -> int:
        """Number of the lane that op stands on."""
        low, high = 0, len(self.lanes) - 1
        while low < high:
            middle = (low + high) // 2
            if op < self.lanes[middle].stop:
                high = middle
            else:
                low = middle + 1
        return low

    def rank_of(self, op: int) -> int:
        """The rank that executes op."""
        return self.lanes[self.lane_of(op)].rank

    def rows_of(self, op: int) -> range:
        """The message rows that op posts."""
        return range(*_extent(self.messages.op, op))

    def requests_of(self, op: int) -> list[int]:
        """The requests that op waits for."""
        low, high = _extent(self.waits.op, op)
        return [int(r) for r in self.waits.request[low:high]]
