"""Every published claim, joined to the function that computes our value for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeproof.published import blocking, synchronous, two_ways, weights, zero_bubble
from pipeproof.published.facts import CLAIMS, RATES, document
from pipeproof.published.figures import Case, Figure, Outcome

Compute = Callable[[Case], Iterator[Figure]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A claim with its cases: ``figures`` computes the rows of one of them. ``note`` says
    under which reading ours is computed, or why it may differ."""

    claim: str
    source: str
    cases: tuple[Case, ...]
    figures: Compute
    note: str = ""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """A claim with all its rows."""

    claim: str
    source: str
    note: str
    figures: tuple[Figure, ...]

    @property
    def agrees(self) -> bool:
        """Whether no row disagrees; searched orders and findings do not count."""
        return all(figure.outcome is not Outcome.DISAGREES for figure in self.figures)


class _Row(NamedTuple):
    """The claim is the one that begins so."""

    begins: str
    figures: Compute
    note: str = ""


_CLAIMS = (
    _Row("idle fraction of fill-drain", synchronous.idle_fraction),
    _Row("overhead over ideal is (p-1)/m", synchronous.overhead),
    _Row("interleaved overhead", synchronous.interleaved),
    _Row(
        "interleaved peak activations",
        synchronous.interleaved_activations,
        "Where a case names no m, ours is 2 p: enough to reach the bound.",
    ),
    _Row("1F1B peak activations", synchronous.one_f_one_b_activations),
    _Row("F=I=W=1, p=4, m=8", synchronous.idle_units),
    _Row("Chimera idle fraction with B=F", two_ways.chimera),
    _Row("Chimera with B=2F", two_ways.chimera_twice),
    _Row("Chimera activations", two_ways.chimera_activations),
    _Row(
        "DualPipe with F=I=W=1",
        two_ways.dualpipe,
        "Messages as its producer batches them: they leave with the sender's next batch.",
    ),
    _Row("DualPipeV, 4 ranks", two_ways.dualpipe_v),
    _Row("DualPipe idle units", two_ways.dualpipe_idle),
    _Row("V-Half and V-Min peak", two_ways.v_activations),
    _Row("PipeDream: stage s", weights.pipedream),
    _Row("PipeDream-2BW", weights.pipedream_2bw),
    _Row("Seq1F1B", synchronous.seq_one_f_one_b),
    _Row("Looped breadth-first", synchronous.breadth_first),
    _Row(
        "naive blocking 1F1B",
        blocking.naive,
        "DualPipe and DualPipeV at the smallest sizes they have, as they need m of 2 p.",
    ),
    _Row("states of blocking 1F1B", blocking.state_counts),
)
"""The claims of ``claims.json``, in its order."""

_WRAP = (
    "This is reproduced only where a chunk waits for the one before it, around the ranks, "
    "in the first microbatch of each group of p alone. The later ones must wait too: see "
    "the rates with all dependencies."
)
_UNTOLD = (
    "The order is the output of its authors' search and is not printed: ours is another one, "
    "so that neither value is the only right one."
)
_HALF = (
    "Ours: forwards and input gradients in turn, weight gradients in the gaps, in the memory "
    "that the authors' generator counts: an input gradient gives back half an activation."
)
_SEARCH = f"{_UNTOLD} {_HALF}"
_RATES = (
    ("bubble rate of 1f1b", zero_bubble.one_f_one_b, ""),
    ("bubble rate of zb-h1", zero_bubble.zb_h1, ""),
    ("bubble rate of zb-h2, of the longest stage span", zero_bubble.zb_h2, ""),
    ("bubble rate of interleaved, as published", zero_bubble.interleaved, _WRAP),
    (
        "bubble rate of interleaved, with all dependencies",
        zero_bubble.interleaved_all_edges,
        "Published here is what an independent simulation found.",
    ),
    (
        "bubble rate of zb-1p, a searched order within p activations",
        zero_bubble.zb_1p,
        _SEARCH,
    ),
    (
        "bubble rate of zb-2p, a searched order within 2 p activations",
        zero_bubble.zb_2p,
        f"{_SEARCH} With whole activations kept until the weight gradient, such orders "
        "are not much shorter than zb-h2.",
    ),
    (
        "bubble rate of zb-v, a searched order within p activations",
        zero_bubble.zb_v,
        f"{_UNTOLD} Ours: torch's order, or the same with weight gradients in the gaps that "
        "these costs leave, whichever is shorter.",
    ),
)
"""A claim a column of ``zero_bubble.json``; the cases are its rows."""

_RANKINGS = "with all dependencies six rankings of interleaved flip"


def entries(
    claims: Mapping[str, Any] | None = None, rates: Mapping[str, Any] | None = None
) -> list[Entry]:
    """All claims; the data are those of this package unless given. ValueError for a claim
    that no function, or more than one, computes."""
    claims = document(CLAIMS) if claims is None else claims
    rates = document(RATES) if rates is None else rates
    found = [_entry(fact) for fact in claims["entries"]]
    rows, source = tuple(rates["rows"]), rates["source"]
    found += [Entry(claim, source, rows, figures, note) for claim, figures, note in _RATES]
    whole = ({"rows": rows},)
    note = "How far interleaved is ahead of the schedule named, or behind; then how many flip."
    return [*found, Entry(_RANKINGS, source, whole, zero_bubble.rankings, note)]


def _entry(fact: Mapping[str, Any]) -> Entry:
    rows = [row for row in _CLAIMS if fact["claim"].startswith(row.begins)]
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} functions compute the claim {fact['claim']!r}")
    return Entry(
        fact["claim"], fact["source"], tuple(fact["cases"]), rows[0].figures, rows[0].note
    )


def chosen(found: Sequence[Entry], text: str) -> list[Entry]:
    """The claims that have this text in their words or their source, in any case."""
    wanted = text.casefold()
    return [e for e in found if wanted in f"{e.claim}\n{e.source}".casefold()]


def units(found: Sequence[Entry]) -> list[tuple[int, Case]]:
    """(number of the claim, case): what is computed at a time."""
    return [(number, case) for number, entry in enumerate(found) for case in entry.cases]


def reproduced(found: Sequence[Entry], each: Iterator[tuple[int, Case]]) -> list[Reproduced]:
    """Every claim with its rows; ``each`` are the `units`, as they come."""
    rows: list[list[Figure]] = [[] for _ in found]
    for number, case in each:
        rows[number] += found[number].figures(case)
    return [
        Reproduced(entry.claim, entry.source, entry.note, tuple(own))
        for entry, own in zip(found, rows, strict=True)
    ]
