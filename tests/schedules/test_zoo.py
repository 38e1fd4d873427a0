"""Every schedule of the zoo holds on nccl under its own recipe, and does what it claims."""

from __future__ import annotations

import inspect

import pytest

from pipeproof.errors import InputError
from pipeproof.program.costs import Costs
from pipeproof.schedules.table import SCHEDULES, find
from pipeproof.spec.definition import Sizes, evaluated
from pipeproof.spec.running import run
from pipeproof.spec.sizes import NotLoops
from pipeproof.spec.tracing import traced, unrolled
from pipeproof.verdict import Status
from tests.schedules.zoo import judged, sizes_of, timed

SMALL = {"p": (1, 2, 3, 4), "m": (1, 2, 5, 8)}
LARGE = {"p": (6,), "m": (6, 12)}
MORE = {
    "interleaved": {"v": (1, 2, 3)},
    "interleaved-zb": {"v": (1, 2, 3)},
    "breadth-first": {"v": (1, 2, 3)},
    "chimera-doubling": {"m": (4, 8, 16, 24)},
    "dualpipe": {"m": (4, 8, 10, 12, 14)},
    "hanayo": {"v": (2, 4)},
    "pipedream": {"p": (2, 3, 4), "m": (2, 3, 8)},
    "pipemare": {"p": (2, 3, 4), "m": (2, 3, 8)},
    "seq1f1b": {"k": (1, 2, 3)},
    "terapipe": {"k": (1, 2, 3)},
}
"""Sizes beside p and m, or instead of those."""


def grid(name: str) -> list[Sizes]:
    found: list[Sizes] = []
    for base in (SMALL, LARGE):
        more = MORE.get(name, {})
        if base is LARGE:
            more = {size: values[-1:] for size, values in more.items()}
        found += sizes_of(name, {**base, **more})
        if set(more) & set(base):
            break
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_holds_and_does_what_it_claims(name: str) -> None:
    all_sizes = grid(name)
    assert len(all_sizes) >= 5
    for sizes in all_sizes:
        report = judged(name, sizes)
        assert report.status is Status.HOLDS, (sizes, [f.message for f in report.findings])


UNEVEN = Costs(F=2, I=3, W=1, R=2)


@pytest.mark.parametrize("name", SCHEDULES)
def test_formulas_of_the_costs_hold_for_other_costs(name: str) -> None:
    for claim in find(name).claims:
        if claim.figure != "makespan" or not callable(claim.bound):
            continue
        if not {"F", "B", "I", "W", "R"} & set(inspect.signature(claim.bound).parameters):
            continue  # one of F = I = W = 1
        for sizes in grid(name):
            span = timed(run(find(name), sizes), UNEVEN).makespan
            known = {**sizes, "F": 2, "I": 3, "W": 1, "B": 4, "R": 2}
            assert span == evaluated(claim.bound, known), sizes


LOOPS = (
    "gpipe",
    "1f1b",
    "eager-1f1b",
    "gpipe-recompute",
    "1f1b-recompute",
    "inference",
    "breadth-first",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "pipedream",
    "pipemare",
    "terapipe",
    "encoder-decoder",
    "two-towers",
    "generation",
)
"""Those that can be read for their loops."""


@pytest.mark.parametrize("name", LOOPS)
def test_its_loops_run_as_it_does(name: str) -> None:
    definition = find(name)
    for sizes in grid(name):
        loops = traced(definition, {"v": sizes["v"]} if "v" in definition.parameters else None)
        arguments = {n: sizes[n] for n in definition.parameters if n != "rank"}
        for rank in range(sizes["p"]):
            expected = list(definition.function(**arguments, rank=rank))
            assert unrolled(loops, sizes, rank) == expected


@pytest.mark.parametrize("name", [n for n in SCHEDULES if n not in LOOPS])
def test_it_has_no_loops(name: str) -> None:
    with pytest.raises(NotLoops):
        traced(find(name), {"v": find(name).defaults["v"] or 1})


@pytest.mark.parametrize("name", SCHEDULES)
def test_it_says_what_it_is(name: str) -> None:
    definition, entry = find(name), SCHEDULES[name]
    assert definition.name == name
    assert definition.title and definition.paper and entry.title
    assert any(claim.figure == "deadlock_free" for claim in definition.claims)
    assert list(definition.on_grid()), "its grid has valid sizes"


@pytest.mark.parametrize(
    ("name", "sizes", "complaint"),
    [
        ("interleaved", {"p": 4, "m": 6, "v": 2}, "the last group has m % g = 2"),
        ("interleaved", {"p": 4, "m": 8, "v": 2, "g": 2}, "must have p=4 or more"),
        ("interleaved-zb", {"p": 2, "m": 4, "v": 2, "g": 5}, "needs m=5 or more"),
        ("zb-v", {"p": 2, "m": 4, "v": 1}, "v=2 chunks"),
        ("v-half", {"p": 2, "m": 4, "v": 1}, "v=2 chunks"),
        ("hanayo", {"p": 2, "m": 4, "v": 3}, "v must be even"),
        ("dualpipe", {"p": 3, "m": 8}, "p must be even"),
        ("dualpipe", {"p": 4, "m": 9}, "m must be even"),
        ("dualpipe", {"p": 4, "m": 6}, "m = 2 p = 8"),
        ("dualpipe-v", {"p": 4, "m": 6}, "m = 2 p = 8"),
        ("chimera", {"p": 3, "m": 6}, "p must be even"),
        ("chimera", {"p": 4, "m": 6}, "a multiple of it"),
        ("chimera-doubling", {"p": 4, "m": 4}, "a multiple of it"),
        ("pipedream-2bw", {"p": 4, "m": 4}, "twice it or more"),
        ("pipedream-2bw", {"p": 4, "m": 8, "a": 2}, "a=4 or more"),
        ("1f1b", {"p": 2, "m": 4, "v": 2}, "one chunk a rank"),
    ],
)
def test_other_sizes_are_refused(name: str, sizes: Sizes, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        find(name).sizes(sizes)


def test_schedules_are_made_for_one_rank_too() -> None:
    for name in SCHEDULES:
        for sizes in sizes_of(name, {"p": (1,), "m": (1, 2, 4)}):
            assert run(find(name), sizes).ranks == 1


VERSIONS = {
    "pipedream": ("stashed", [3, 2, 1, 0], [4, 3, 2, 1]),
    "pipedream-2bw": ("delayed by 1 on every stage", [1, 1, 1, 1], [2, 2, 2, 2]),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_weight_versions_are_those_of_the_paper(name: str) -> None:
    rule, stale, kept = VERSIONS[name]
    report = judged(name, find(name).sizes({"p": 4, "m": 12}))
    evidence = next(c.evidence for c in report.checks if c.check == "versions")
    assert evidence["rule"].startswith(rule)
    assert list(evidence["staleness"].values()) == stale
    assert list(evidence["versions_kept"].values()) == kept


@pytest.mark.parametrize("p", [4, 6, 8])
def test_v_schedules_hold_what_their_paper_says(p: int) -> None:
    # Microbatches, as half a stage is an activation here.
    for name, microbatches in (
        ("1f1b-v", 2 * p // 3 + 1),
        ("v-half", (p + 2) // 2),
        ("v-min", (p + 4) // 3),
    ):
        report = judged(name, find(name).sizes({"p": p, "m": 2 * p}))
        peaks = report.metrics["peak_memory"].values()
        assert max(peaks) == 2 * microbatches
        assert name == "1f1b-v" or set(peaks) == {2 * microbatches}


def test_zero_bubble_has_none() -> None:
    for name in ("zb-h2", "zb-v"):
        schedule = run(find(name), find(name).sizes({"p": 4, "m": 8}))
        assert timed(schedule).bubble["idle_over_span"] == 0
