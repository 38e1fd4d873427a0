"""Costs: how long each letter takes, how long messages travel, what bytes weigh.

Units are the user's: whatever unit the times are given in, bandwidth is bytes
per that unit. A value for stages is one number for all of them or a tuple with
one a stage; a value for boundaries likewise, boundary s being between stage s
and stage s + 1.

Numbers are taken as they are written: the float 18.522 means 18522/1000, not the
binary number next to it, so sums of decimal times are exact. Fractions are exact
too. Where the smallest common unit of all times is too small for 64-bit
integers, timing falls back to float64 (see ``engines.timing_network``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from fractions import Fraction
from typing import Any

from pipeproof.program.ops import LETTER, Kind

Number = int | float | Fraction
PerStage = Number | tuple[Number, ...]


class Release(Enum):
    """When a message leaves the rank that makes it.

    The published figures of DualPipe need COMMIT: at p = 8, m = 20 they say 66 time
    units, and OP gives 63 (DualPipe repository, README; DeepSeek-V3, arXiv
    2412.19437, figure 5).
    """

    OP = "op"  # when the op that makes it ends
    BLOCK = "block"  # when the overlapped pair ends, of which that op is part
    COMMIT = "commit"  # with the sender's next batch: behind all it computes before the SEND


@dataclass(frozen=True, slots=True)
class Costs:
    """Times, latencies and sizes. See the module for units.

    ``F`` to ``R`` are times of one op by stage: B is I and W together unless it is
    given, and R as long as F. ``pair`` is the time of an overlapped forward and
    backward (torch's ``(a;b)OVERLAP_F_B``), their sum unless given. With release
    OP the two run one after the other and the second gets what the first leaves of
    it; with BLOCK and COMMIT they are one block that starts when the inputs of
    both are there.

    A message over a boundary takes ``comm`` plus ``message_bytes / bandwidth``.
    ``activation_bytes`` is kept for every live activation of a stage,
    ``recompute_bytes`` instead of it until a recompute (R) makes it again, and
    ``weight_bytes`` for every stage that a rank hosts.
    """

    F: PerStage = 1
    I: PerStage = 1
    W: PerStage = 1
    B: PerStage | None = None
    R: PerStage | None = None
    comm: PerStage = 0
    pair: Number | None = None
    release: Release = Release.OP
    bandwidth: Number | None = None
    message_bytes: PerStage | None = None
    activation_bytes: PerStage | None = None
    recompute_bytes: PerStage | None = None
    weight_bytes: PerStage | None = None

    def of(self, kind: Kind, stage: int = 0) -> Fraction:
        """Time of one op of ``kind`` on ``stage``; 0 for what is no compute op."""
        if kind is Kind.B and self.B is None:
            return at(self.I, stage) + at(self.W, stage)
        if kind is Kind.R and self.R is None:
            return at(self.F, stage)
        if kind not in LETTER:
            return Fraction(0)
        return at(getattr(self, LETTER[kind]), stage)

    def delay(self, boundary: int) -> Fraction:
        """Time of a message over a boundary."""
        time = at(self.comm, boundary)
        if self.bandwidth is not None and self.message_bytes is not None:
            time += at(self.message_bytes, boundary) / exact(self.bandwidth)
        return time

    @property
    def uniform(self) -> bool:
        """Whether all stages take the same times."""
        return not any(isinstance(getattr(self, name), tuple) for name in LETTER.values())

    @property
    def uniform_delay(self) -> bool:
        """Whether messages take the same time over all boundaries."""
        return not isinstance(self.comm, tuple) and (
            self.bandwidth is None or not isinstance(self.message_bytes, tuple)
        )

    def divided(self, parts: Number) -> Costs:
        """The costs of a stage that is one of ``parts`` equal parts of the one given: times
        of ops, and what is kept of them (whole bytes). Messages stay as they are."""
        changed: dict[str, Any] = {
            name: _divided(getattr(self, name), exact(parts), whole=name in _BYTES)
            for name in (*_OF_STAGES, "pair")
        }
        return replace(self, **changed)

    def misfit(self, stages: int) -> str | None:
        """What does not fit a program of ``stages`` stages, in words; None if all does."""
        for name in _OF_STAGES + _OF_BOUNDARIES:
            listed = getattr(self, name)
            boundaries = name in _OF_BOUNDARIES
            expected = max(stages - 1, 0) if boundaries else stages
            if isinstance(listed, tuple) and len(listed) != expected:
                what = "boundaries between stages" if boundaries else "stages"
                return f"the costs list {name} for {len(listed)} {what}, this has {expected}"
        return None


_OF_STAGES = ("F", "I", "W", "B", "R", "activation_bytes", "recompute_bytes", "weight_bytes")
_OF_BOUNDARIES = ("comm", "message_bytes")
_BYTES = ("message_bytes", "activation_bytes", "recompute_bytes", "weight_bytes")
KEYS = tuple(field.name for field in fields(Costs))
"""The names that ``--cost`` and a costs file may give."""


def exact(value: Number) -> Fraction:
    """A number as it is written: 0.1 is a tenth."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def at(values: PerStage, index: int) -> Fraction:
    """The value for a stage or boundary; beyond the end of a list, its last."""
    if isinstance(values, tuple):
        if not values:
            return Fraction(0)
        return exact(values[min(max(index, 0), len(values) - 1)])
    return exact(values)


def _divided(values: PerStage | None, parts: Fraction, *, whole: bool) -> PerStage | None:
    if values is None:
        return None
    if isinstance(values, tuple):
        return tuple(_kept(exact(v) / parts, whole) for v in values)
    return _kept(exact(values) / parts, whole)


def _kept(value: Fraction, whole: bool) -> int | Fraction:
    """The number itself, or what is whole of it."""
    return int(value) if whole or value.denominator == 1 else value


def plain(value: Fraction) -> int | float:
    """An exact number as JSON can hold it: whole, or the float next to it."""
    return int(value) if value.denominator == 1 else float(value)


# --- reading -------------------------------------------------------------------

_NUMBER = re.compile(
    r"(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][+-]?\d{1,2})?|\d{1,18}/\d{1,18}"
)
_WANTED = "expected a number of 0 or more"
LARGEST = 10**15
"""Largest number accepted: of times in a unit as small as ns, eleven days."""


def number(text: str) -> int | Fraction:
    """A number of 0 or more: ``3``, ``0.25``, ``1e-3``, ``1/3``. ValueError otherwise."""
    if not _NUMBER.fullmatch(text) or text.endswith(("/0", "/00")):
        raise ValueError(_WANTED)
    try:
        value = Fraction(text)
    except ZeroDivisionError:
        raise ValueError(_WANTED) from None
    if value > LARGEST:
        raise ValueError(f"expected at most {LARGEST:.0e}")
    return int(value) if value.denominator == 1 else value


def accepted(name: str, value: Any) -> Any:
    """The value of field ``name`` from text: numbers, a list of them where the
    field has stages or boundaries, a release word. ValueError says what is wrong."""
    if name == "release":
        words = [r.value for r in Release]
        if value not in words:
            raise ValueError(f"expected {', '.join(words[:-1])} or {words[-1]}")
        return Release(value)
    if isinstance(value, tuple) and name not in _OF_STAGES + _OF_BOUNDARIES:
        raise ValueError("expected one number: it is the same for all stages")
    for one in value if isinstance(value, tuple) else (value,):
        if name in _BYTES and one != int(one):
            raise ValueError("expected whole bytes")
        if name == "bandwidth" and not one:
            raise ValueError("expected a number above 0")
    return value


def parse_fields(text: str) -> dict[str, Any]:
    """Read ``F=1,I=1,W=1,comm=0`` to fields of `Costs`; ValueError says what is wrong.

    Every key of a costs file may stand here; ``F=1:2:1`` lists stages.
    """
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, given = (p.strip() for p in part.partition("="))
        if name not in KEYS or not equals:
            letters = ", ".join(f"{k}=" for k in KEYS[:-1])
            raise ValueError(f"found {part.strip()!r}; expected {letters} or {KEYS[-1]}=")
        if name in found:
            raise ValueError(f"{name} is given twice")
        try:
            value: Any = given
            if name != "release":
                listed = tuple(number(one.strip()) for one in given.split(":"))
                value = listed if len(listed) > 1 else listed[0]
            found[name] = accepted(name, value)
        except ValueError as error:
            shown = given if _looks_like_number(given) else repr(given)
            raise ValueError(f"found {shown} for {name}; {error}") from None
    return found


def _looks_like_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse_costs(text: str, base: Mapping[str, Any] | None = None) -> Costs:
    """Costs from ``F=1,I=1,W=1,comm=0``; what it leaves out is as in ``base``."""
    return Costs(**{**(base or {}), **parse_fields(text)})
