"""What a schedule claims of itself: to be checked at every size, or proved.

A bound is a number or a function of sizes by their names: ``p``, ``m``, ``v`` and
the schedule's own, ``rank`` for what is said of each rank, and for times ``F``,
``I``, ``W``, ``B``, ``R`` and ``comm`` of the cost model. A bound on time that names
none of these is one for F = I = W = 1, and without ``comm`` messages take no time:
it is judged so, whatever costs are asked for. ``least`` and ``most``
instead of ``min`` and ``max`` keep it provable for all sizes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipeproof.program.transports import parse_transport
from pipeproof.spec.sizes import Form, NotLoops, Size

Bound = int | float | Fraction | Callable[..., Any]

BUBBLES = ("overhead_over_ideal", "idle_over_elapsed", "idle_over_span")
"""The three figures that are all called bubble; see `pipeproof.engines.timing`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """``figure`` is at most, or equal to, ``bound``; ``per_rank`` where every rank
    has its own. A claim without a bound is a property that holds or does not."""

    figure: str
    bound: Bound | None = None
    equal: bool = False
    per_rank: bool = False
    text: str = ""  # a transport's or an update rule's name

    @property
    def title(self) -> str:
        """The claim in a few words."""
        words = self.figure.replace("_", " ")
        return f"{words} {self.text}".rstrip()


def deadlock_free(transport: str = "nccl") -> Claim:
    """It runs to its end on this transport, issued by the schedule's recipe;
    ``blocking`` and ``grouped`` name recipes, as in the table of `check`."""
    if transport not in ("blocking", "grouped"):
        parse_transport(transport)  # ValueError says what is wrong
    return Claim("deadlock_free", text=transport)


def same_gradients() -> Claim:
    """Every microbatch adds its gradient once to every stage, made from its own
    activations and on the weights of its forward, before nothing but the step:
    what the sequential step computes."""
    return Claim("same_gradients")


def update_rule(name: str) -> Claim:
    """How weights are updated: ``synchronous``, ``stashed`` (a backward meets the
    weights of its forward, whatever was stepped in between), ``delayed`` (all
    microbatches of a step use one older version) or ``inconsistent``."""
    return Claim("update_rule", text=name)


def _bounded(figure: str, at_most: Bound | None, equals: Bound | None, **more: Any) -> Claim:
    if (at_most is None) == (equals is None):
        raise TypeError(f"{figure} takes either at_most= or equals=")
    return Claim(figure, equals if at_most is None else at_most, at_most is None, **more)


def peak_activations(at_most: Bound | None = None, *, equals: Bound | None = None) -> Claim:
    """Live activations that a rank holds at most, over every legal timing. One is
    what the forward of one stage on one microbatch keeps for its backward."""
    return _bounded("peak_activations", at_most, equals, per_rank=True)


def peak_bytes(at_most: Bound | None = None, *, equals: Bound | None = None) -> Claim:
    """Bytes that a rank holds at most: of activations, kept or recomputed, and of
    weights, as the cost model (``--costs``) has them. Open where it names none."""
    return _bounded("peak_bytes", at_most, equals, per_rank=True)


def makespan(at_most: Bound | None = None, *, equals: Bound | None = None) -> Claim:
    """Time from the first op's start to the last op's end."""
    return _bounded("makespan", at_most, equals)


def bubble(name: str, at_most: Bound | None = None, *, equals: Bound | None = None) -> Claim:
    """One of `BUBBLES`, as a fraction."""
    if name not in BUBBLES:
        raise ValueError(f"found the bubble {name!r}; expected {', '.join(BUBBLES)}")
    return _bounded(name, at_most, equals)


def messages(at_most: Bound | None = None, *, equals: Bound | None = None) -> Claim:
    """Messages between ranks in one step."""
    return _bounded("messages", at_most, equals)


def staleness(at_most: Bound | None = None, *, equals: Bound | None = None) -> Claim:
    """Updates of a rank's weights between the version that a forward used and the
    update that its backward is for."""
    return _bounded("staleness", at_most, equals, per_rank=True)


def weight_versions(at_most: Bound | None = None, *, equals: Bound | None = None) -> Claim:
    """Versions of its weights that a rank has to keep at the same time."""
    return _bounded("weight_versions", at_most, equals, per_rank=True)


class _NoLoops:
    """A bound has no loops; only forms are made of the unknowns."""

    def loop(self, start: Form, stop: Form) -> Iterator[Size]:
        raise NotLoops("a bound has no loops")


def linear_form(bound: Bound) -> Form | None:
    """A bound as a linear form in the names it takes; None where it is none."""
    if callable(bound):
        names = inspect.signature(bound).parameters
        try:
            bound = bound(**{name: Size(Form(((name, 1),)), _NoLoops()) for name in names})
        except Exception:  # something else than sums and multiples
            return None
        if isinstance(bound, Size):
            return bound.form
    return Form(constant=bound) if isinstance(bound, int) else None
