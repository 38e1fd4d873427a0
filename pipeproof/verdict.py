"""Verdicts: what a check found, and what a counterexample claims.

A finding carries a *claim*: a small statement that a step-by-step run of the
program can confirm or refute without knowing how it was found. Every finding
is confirmed that way before it is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from pipeproof.program.costs import Costs
from pipeproof.program.notation import Place
from pipeproof.program.programs import NOTHING


def _nothing() -> Mapping[Any, Any]:
    return NOTHING


class Status(IntEnum):
    """Worst first, so that the worst of several is their minimum."""

    VIOLATED = 0
    UNDETERMINED = 1
    HOLDS = 2

    @property
    def word(self) -> str:
        """The word of the JSON report."""
        return self.name.lower()


class Verdict(Enum):
    """The word that every finding carries exactly one of."""

    DEADLOCK = "deadlock"
    ORDER = "order-violation"
    MISMATCH = "mismatch"
    VERSION = "version-violation"
    MEMORY = "memory-exceeded"
    NUMERIC = "numeric-mismatch"
    LEAK = "leak"
    RACE = "race"
    CLAIM = "claim-violated"


# --- claims -------------------------------------------------------------------


Taken = tuple[tuple[int, int], ...]
"""Who takes which message, where that is open: (receive, send) rows, in order."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Where messages are ``taken`` so, no move is left and these ops are not complete."""

    ops: tuple[int, ...]
    taken: Taken = ()


@dataclass(frozen=True, slots=True)
class TakesEither:
    """``receive`` takes, last in ``one`` and in ``other``, messages of two senders."""

    receive: int
    one: Taken
    other: Taken


@dataclass(frozen=True, slots=True)
class Crossed:
    """These two message rows meet (as the last of what is ``taken``, where that is
    open) although they differ in ``trait``."""

    send: int
    recv: int
    trait: str  # "payload", "shape", "dtype" or "count"
    taken: Taken = ()


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Where messages are ``taken`` so, all ends and this posted row met nothing."""

    row: int
    taken: Taken = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """How often (kind, stage, microbatch) runs is not what the step needs."""

    kind: int
    stage: int
    microbatch: int
    times: int
    expected: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """This payload is sent (else received) ``times`` times over all ranks, not once."""

    payload: int
    send: bool
    times: int


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The op runs on a rank that does not host its stage."""

    op: int


@dataclass(frozen=True, slots=True)
class Lacks:
    """When its lane reaches the op, what it needs is not there.

    ``payload`` names a missing input, else ``kind`` a compute of the same stage
    that must come first: of the same microbatch, or of ``microbatch``.
    """

    op: int
    payload: int | None = None
    kind: int | None = None
    microbatch: int | None = None


@dataclass(frozen=True, slots=True)
class Sharding:
    """The op breaks the state its stage's sharded parameters are in."""

    op: int


@dataclass(frozen=True, slots=True)
class InFlight:
    """When its lane reaches ``op``, the request posted by ``poster`` is pending."""

    op: int
    poster: int


@dataclass(frozen=True, slots=True)
class Overtakes:
    """Some execution reaches ``op`` although ``other`` has not completed (or, where
    it is posted, before anything that waits for it has gone on)."""

    op: int
    other: int


@dataclass(frozen=True, slots=True)
class UnequalCalls:
    """These two collective calls meet, and differ in kind or label."""

    one: int
    other: int


@dataclass(frozen=True, slots=True)
class Unjoined:
    """The program runs to its end and this posted collective call never completes."""

    op: int


@dataclass(frozen=True, slots=True)
class Exceeds:
    """At op, its rank holds ``units``, more than its budget."""

    op: int
    units: int
    budget: int


@dataclass(frozen=True, slots=True)
class PilesUp:
    """Where no lane ends its ``held`` op, everything else running as it can, the
    rank comes to hold ``units``, more than its budget."""

    rank: int
    held: tuple[int, ...]
    units: int
    budget: int


@dataclass(frozen=True, slots=True)
class Illegal:
    """The op frees, drops, needs or reads what is not there (``what``)."""

    op: int
    what: str


@dataclass(frozen=True, slots=True)
class Remains:
    """The rank ends the step still holding ``what``."""

    rank: int
    what: str


@dataclass(frozen=True, slots=True)
class Partition:
    """The layers of the stages, in order, are not 0..n-1 once each."""


@dataclass(frozen=True, slots=True)
class WrongForm:
    """At op, the linear form of ``name`` on its rank is ``found``, and another is wanted.

    ``found`` has (symbol, coefficient) for what is not zero, as text: ``("g0", "1/2")``.
    """

    op: int
    name: str
    found: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Diverged:
    """The updates of the replicas of ``name`` on these two ranks differ."""

    name: str
    ranks: tuple[int, int]


@dataclass(frozen=True, slots=True)
class EffectCount:
    """How often the side effect runs on the rank is not what is wanted."""

    rank: int
    effect: str
    times: int
    expected: int


@dataclass(frozen=True, slots=True)
class RandomState:
    """The recompute ``op`` uses another random state than its ``forward``."""

    op: int
    forward: int


@dataclass(frozen=True, slots=True)
class ReadsVersion:
    """Op reads ``version`` of the parameter, and should read ``expected``."""

    op: int
    parameter: str
    version: int
    expected: int


@dataclass(frozen=True, slots=True)
class NoVersion:
    """Op names a version of the parameter that its rank has not had."""

    op: int
    parameter: str
    version: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of the program is ``found``, which is above ``bound``, or not equal to
    it: one of all ranks, or of ``rank``. Times are under ``costs``. Of an update
    rule, ``text`` is the name that it does not deserve."""

    figure: str
    found: float = 0
    bound: float = 0
    equal: bool = False
    rank: int | None = None
    costs: Costs = field(default_factory=Costs)
    text: str = ""


Claim = (
    Stuck
    | TakesEither
    | Crossed
    | Unmatched
    | Ran
    | Repeated
    | Misplaced
    | Lacks
    | Sharding
    | InFlight
    | Overtakes
    | UnequalCalls
    | Unjoined
    | Exceeds
    | PilesUp
    | Illegal
    | Remains
    | Partition
    | WrongForm
    | Diverged
    | EffectCount
    | RandomState
    | ReadsVersion
    | NoVersion
    | Measured
)


# --- results ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One sentence of the story: who, where, and why."""

    where: Place
    text: str


@dataclass(frozen=True, slots=True)
class Counterexample:
    """What happens: ``moves[i]`` ops of lane i complete, and then ``claim`` is so.

    ``steps`` tell it, one sentence each; where ``cyclic``, the last waits for
    the first.
    """

    claim: Claim
    moves: tuple[int, ...]
    steps: tuple[Step, ...]
    cyclic: bool = False


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A stretch of one lane around a finding: consecutive ops from ``first`` on.

    ``marks`` has a word an op: ``done``, ``stuck`` (its lane cannot get past
    it), ``in flight`` (posted, not completed), ``here`` (the finding's op) or
    the empty string.
    """

    rank: int
    lane: str
    first: int
    ops: tuple[str, ...]
    marks: tuple[str, ...]
    before: int  # ops left out before
    after: int  # and after


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect. ``count`` says how many of its kind there are; it is the first.

    ``message`` says what is wrong, ``cause`` the usual reason, ``cures`` what
    would make it hold.
    """

    check: str
    verdict: Verdict
    message: str
    where: tuple[Place, ...]
    counterexample: Counterexample
    cause: str = ""
    cures: tuple[str, ...] = ()
    count: int = 1
    replayed: bool = False
    excerpts: tuple[Excerpt, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The answer of one check.

    ``evidence`` is what a *holds* rests on (plain values, ready for JSON);
    ``reason`` says why an answer is undetermined; ``summary`` is one line.
    """

    check: str
    status: Status
    scope: str
    engine: str
    summary: str
    evidence: Mapping[str, Any] = field(default_factory=_nothing)
    reason: str | None = None
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TransportRow:
    """Whether a plan runs to its end under one transport.

    ``capacity`` is the smallest number of buffer slots at which it does: 0 as
    a rendezvous, None at none; -1 where it was not sought.
    """

    name: str
    status: Status
    capacity: int | None = -1


@dataclass(frozen=True, slots=True)
class Report:
    """Everything known about one target: a file, a case, or a named schedule."""

    file: str
    name: str
    status: Status
    transport: Mapping[str, Any] = field(default_factory=_nothing)
    sizes: Mapping[str, int] = field(default_factory=_nothing)
    checks: tuple[CheckResult, ...] = ()
    transports: tuple[TransportRow, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=_nothing)
    notes: tuple[str, ...] = ()
    error: Mapping[str, Any] | None = None
    findings: tuple[Finding, ...] = field(default=())
