"""The table joins facts to what computes them, and objects to a wrong one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from pipeproof.published.facts import CLAIMS, RATES, document
from pipeproof.published.figures import Outcome, compared, value
from pipeproof.published.table import Entry, Reproduced, chosen, entries, reproduced, units
from pipeproof.report.reproduce import exit_status

SIZES = ("p", "D", "ranks", "m", "N", "v", "k")


def computed(found: list[Entry]) -> list[Reproduced]:
    return reproduced(found, iter(units(found)))


def places() -> Iterator[tuple[int, int, str]]:
    """(entry, case, key) of every published value; cases without one are left out."""
    for number, fact in enumerate(document(CLAIMS)["entries"]):
        for i, case in enumerate(fact["cases"]):
            yield from ((number, i, key) for key in case if key not in SIZES)


def corrupted(given: Any) -> Any:
    """Another value of the same form."""
    if isinstance(given, list):
        return [corrupted(given[0]), *given[1:]]
    if isinstance(given, str):
        top, _, bottom = given.partition("/")
        return f"{int(top) + 1}/{bottom}"
    return given + 1


def test_every_claim_of_the_data_is_computed() -> None:
    found = entries()
    assert [e.claim for e in found[:19]] == [f["claim"] for f in document(CLAIMS)["entries"]]
    assert len(found) == 19 + 8 + 1
    assert all(entry.cases and entry.source for entry in found)


@pytest.mark.parametrize(("number", "i", "key"), list(places()))
def test_a_wrong_fact_disagrees(number: int, i: int, key: str) -> None:
    data = copy.deepcopy(document(CLAIMS))
    case = data["entries"][number]["cases"][i]
    case[key] = corrupted(case[key])
    data["entries"][number]["cases"] = [case]
    claims = computed([entries(data)[number]])
    wrong = [f for f in claims[0].figures if f.outcome is Outcome.DISAGREES]
    assert wrong and all(figure.published != figure.ours for figure in wrong)
    assert exit_status(claims) == 1


@pytest.mark.parametrize("column", ["1f1b", "zb-h1", "zb-h2", "interleaved", "all edges"])
def test_a_wrong_rate_disagrees(column: str) -> None:
    data = copy.deepcopy(document(RATES))
    data["rows"] = data["rows"][:1]
    row = data["rows"][0]
    if column == "all edges":
        row["interleaved_all_edges"] += 0.0001
    else:
        row["published"][column] += 0.0001
    claims = computed(entries(rates=data)[19:24])
    assert sum(not claim.agrees for claim in claims) == 1
    assert exit_status(claims) == 1


@pytest.mark.parametrize("column", ["zb-1p", "zb-2p", "zb-v"])
def test_another_searched_order_is_no_disagreement(column: str) -> None:
    data = copy.deepcopy(document(RATES))
    data["rows"] = [row for row in data["rows"] if column in row["published"]][:1]
    data["rows"][0]["published"][column] = 0.01
    (claim,) = computed([e for e in entries(rates=data) if f"of {column}," in e.claim])
    (figure,) = claim.figures
    assert figure.outcome is Outcome.SEARCHED and figure.note.endswith(" worse")
    assert claim.agrees and exit_status([claim]) == 0


def test_rankings_that_do_not_flip_disagree() -> None:
    data = copy.deepcopy(document(RATES))
    data["rows"] = data["rows"][:2]  # two of the three against zb-h2
    (claim,) = computed(entries(rates=data)[-1:])
    assert [f.outcome for f in claim.figures] == [Outcome.FINDING] * 2 + [Outcome.DISAGREES] * 3


def test_a_claim_that_nothing_computes_is_refused() -> None:
    data = {"entries": [{"claim": "pigs fly", "source": "hearsay", "cases": [{}]}]}
    with pytest.raises(ValueError, match="0 functions compute the claim 'pigs fly'"):
        entries(data)


def test_claims_are_chosen_by_words_and_source() -> None:
    assert [e.claim[:7] for e in chosen(entries(), "CHIMERA")] == ["Chimera"] * 3
    assert len(chosen(entries(), "2211.05953")) == 1
    assert chosen(entries(), "no such words") == []


@pytest.mark.parametrize(
    ("published", "ours", "agrees"),
    [
        ("3/7", value("3/7"), True),
        (0.2, value("1/5"), True),
        (33, 33.0, True),
        (33, 33.0001, False),
        ([1, 2], (1, 2), True),
        ([1, 2], (1, 2, 3), False),
        ([1, 2], 1, False),
        (True, True, True),
        (True, False, False),
        (1, True, False),
    ],
)
def test_values_are_compared_exactly(published: Any, ours: Any, agrees: bool) -> None:
    found = compared("", "", published, ours)
    assert (found.outcome is Outcome.AGREES) is agrees
