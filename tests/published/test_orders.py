"""The orders that the claims add to the zoo: searched ones; and the count of states."""

from __future__ import annotations

import pytest

from pipeproof.judge.judge import judged
from pipeproof.program.costs import Costs
from pipeproof.program.ops import Kind
from pipeproof.published import zero_bubble
from pipeproof.published.blocking import states
from pipeproof.published.searched import Found, in_a_chain, in_a_v
from pipeproof.published.zoo import compute_only, made, timed
from pipeproof.recipes.issuing import issued
from pipeproof.verdict import Status
from tests.exhaustive import explore

UNEVEN = Costs(F=3, I=4, W=2, comm=0.25)


def schedule(found: Found | None, p: int, m: int, v: int):  # type: ignore[no-untyped-def]
    assert found is not None
    return zero_bubble._schedule(found, p, m, v)


def most_held(found: Found) -> float:
    """Activations; an input gradient gives back a half."""
    most = 0
    for row in found.rows:
        held = 0
        for op in row:
            held += {Kind.F: 2, Kind.I: -1, Kind.W: -1}[op.kind]
            most = max(most, held)
    return most / 2


@pytest.mark.parametrize(
    ("p", "m", "room"), [(1, 3, 1), (3, 2, 3), (4, 8, 4), (4, 8, 8), (5, 16, 10)]
)
def test_searched_chains_are_schedules_within_their_room(p: int, m: int, room: int) -> None:
    found = in_a_chain(p, m, UNEVEN, room)
    assert found is not None and most_held(found) <= room
    own = schedule(found, p, m, 1)
    assert all(c.status is Status.HOLDS for c in judged(issued(own, "torch")))
    assert max(timed(compute_only(own), UNEVEN).span) == pytest.approx(found.span)


@pytest.mark.parametrize(("p", "m"), [(1, 3), (3, 5), (4, 8)])
def test_searched_vs_are_schedules_within_their_room(p: int, m: int) -> None:
    found = in_a_v(p, m, UNEVEN, 2 * p)
    assert found is not None and most_held(found) <= 2 * p
    own = schedule(found, p, m, 2)
    assert all(c.status is Status.HOLDS for c in judged(issued(own, "torch")))
    assert max(timed(compute_only(own), UNEVEN).span) == pytest.approx(found.span)


def test_no_order_is_found_without_room() -> None:
    assert in_a_v(4, 8, UNEVEN, 2) is None


def test_memory_until_the_weight_gradient_is_what_holds_zb_2p_back() -> None:
    """What the note of the table says: kept whole until then, not much below zb-h2."""
    costs = Costs(F=29.718, I=29.444, W=19.927, comm=0.527)
    work = 24 * (29.718 + 29.444 + 19.927)
    rates = {}
    for owed in (1, 2):
        found = in_a_chain(8, 24, costs, 16, owed)
        assert found is not None
        rates[owed] = 1 - work / found.span
    assert rates[1] < 0.003
    assert 0.06 < rates[2] < 0.0698  # of zb-h2


@pytest.mark.parametrize(("p", "m"), [(2, 2), (3, 4)])
@pytest.mark.parametrize("capacity", [1, None])
def test_states_are_counted_coarser_than_the_model_executor_does(
    p: int, m: int, capacity: int | None
) -> None:
    from pipeproof.program.transports import parse_transport

    program = issued(made("1f1b", p=p, m=m), "naive")
    transport = parse_transport("gloo:inf" if capacity is None else "gloo:1")
    finer = explore(program, transport)
    assert not finer.truncated and states(program, capacity) < finer.states
