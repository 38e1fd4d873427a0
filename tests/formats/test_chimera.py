"""Chimera's schedules: what they say, what is refused, and what is found in them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from pipeproof.errors import InputError
from pipeproof.formats.chimera import read_chimera
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from tests.formats import trace_files
from tests.formats.trace_files import damaged, found, judged, peaks

ALL = trace_files.names("chimera")
SMALL, MIDDLE, SHORT = "chimera_p4_m4.json", "chimera_p8_m16.json", "chimera_p8_m32.json"

Document = dict[str, Any]


def document(name: str) -> Document:
    stated: Document = json.loads(trace_files.text("chimera", name))
    return stated


def program(name: str) -> Program:
    return read_chimera(trace_files.text("chimera", name), name)


def read(stated: Document) -> Program:
    return read_chimera(json.dumps(stated), "x")


def computes(own: Program, kind: Kind, rank: int) -> list[int]:
    lane = own.lanes[rank]
    return [op for op in range(lane.first, lane.stop) if own.kind[op] == kind]


# --- what the schedules show -----------------------------------------------------------


def test_all_schedules_are_there() -> None:
    assert set(ALL) == {SMALL, MIDDLE, SHORT}


@pytest.mark.parametrize("name", [SMALL, MIDDLE])
def test_complete(name: str) -> None:
    own = program(name)
    assert found(judged(own)) == []
    for rank in range(own.ranks):
        assert len(computes(own, Kind.F, rank)) == own.microbatches
        assert len(computes(own, Kind.B, rank)) == own.microbatches


def test_the_generator_drops_operations() -> None:
    own = program(SHORT)
    report = judged(own)
    for rank in range(8):
        assert len(computes(own, Kind.F, rank)) == 20
        assert len(computes(own, Kind.B, rank)) == 16
    # 8 stages, held twice, run 32 microbatches: 256 of either letter are due.
    assert found(report) == [
        ("coverage", "order-violation", 256 - 8 * 20),
        ("coverage", "order-violation", 256 - 8 * 16),
    ]
    assert [f.message.split(":")[0] for f in report.findings] == [
        "0F9 never runs",
        "0B8 never runs (or I and W)",
    ]


def test_peaks() -> None:
    assert peaks(judged(program(SMALL))) == [3, 4, 4, 3]
    assert peaks(judged(program(MIDDLE))) == [5, 6, 7, 8, 8, 7, 6, 5]


def test_two_pipelines_hold_every_stage_twice() -> None:
    own = program(SMALL)
    assert own.hosts == ((0, 3), (1, 2), (2, 1), (3, 0))
    assert own.recipe == "grouped" and own.complete
    # Replica 0 runs microbatches 0 and 1 down, replica 1 runs 2 and 3 up.
    for rank in range(4):
        for kind in (Kind.F, Kind.B):
            for op in computes(own, kind, rank):
                down = own.microbatch[op] < 2
                assert own.stage[op] == (rank if down else 3 - rank)
    assert [op_text(own, op) for op in range(own.lanes[0].stop)] == [
        "0F0",
        "0SEND_F0",
        "0F1",
        "(0SEND_F1;3RECV_F2)GROUP",
        "3F2",
        "3B2",
        "(3SEND_B2;3RECV_F3)GROUP",
        "3F3",
        "3B3",
        "(3SEND_B3;0RECV_B0)GROUP",
        "0B0",
        "allreduce stage 3 unit 0",
        "0RECV_B1",
        "0B1",
        "allreduce stage 0 unit 0",
    ]
    assert own.origin.path[2:4] == ("per_rank[0][1]", "per_rank[0][1]")


@pytest.mark.parametrize("name", ALL)
def test_no_microbatch_runs_in_both_directions(name: str) -> None:
    own = program(name)
    ran = Counter(
        (int(own.kind[op]), int(own.stage[op]), int(own.microbatch[op]))
        for op in np.flatnonzero(own.kind <= Kind.B)
    )
    assert set(ran.values()) == {1}


@pytest.mark.parametrize("name", ALL)
def test_both_holders_reduce_a_stage_together(name: str) -> None:
    own = program(name)
    calls: dict[str, dict[int, list[str | None]]] = {}
    for op in np.flatnonzero(own.kind == Kind.COLL).tolist():
        attributes = own.details.attributes[op]
        members = calls.setdefault(attributes.more["group"], {})
        members.setdefault(own.rank_of(op), []).append(attributes.label)
    assert set(calls) == {f"stage {s}" for s in range(own.stages)}
    for group, members in calls.items():
        assert tuple(sorted(members)) == own.details.groups[group]
        one, other = members.values()
        assert one == other


# --- defects -----------------------------------------------------------------------------


def test_reductions_in_different_orders_hang() -> None:
    stated = document(SMALL)
    row = stated["per_rank"][0]
    assert [each[1] for each in row[-3:]] == ["1@up@s", "0@down@b", "0@down@s"]
    row[-3][1], row[-1][1] = row[-1][1], row[-3][1]
    assert ("deadlock", "deadlock", 1) in found(judged(read(stated)))


def test_a_reduction_that_only_one_holder_makes_hangs() -> None:
    stated = document(SMALL)
    del stated["per_rank"][3][-1]
    assert [check for check, _, _ in found(judged(read(stated)))] == ["deadlock"]


def test_a_backward_before_its_forward() -> None:
    stated = document(SMALL)
    row = stated["per_rank"][3]
    assert [each[1] for each in row[2:4]] == ["0@down@f", "0@down@b"]
    row[2][1], row[3][1] = row[3][1], row[2][1]
    assert "order" in [check for check, _, _ in found(judged(read(stated)))]


# --- what is refused ------------------------------------------------------------------------


def _set(*keys: Any) -> Callable[[Document], None]:
    """Set the entry at a path to the last of the values."""

    def change(stated: Any) -> None:
        *path, key, value = keys
        for step in path:
            stated = stated[step]
        stated[key] = value

    return change


ENTRY = ("per_rank", 0, 1)


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        (_set("stages", 5), "stages", "an even number"),
        (_set("stages", 2), "per_rank", "a list of 2, one a rank"),
        (_set("stages", 0), "stages", "1 or more"),
        (_set("micro_batches", 6), "micro_batches", "a multiple of 4, the number of stages"),
        (_set("unheard", 6), "unheard", "unknown key"),
        (_set("producer", 6), "producer", "expected a text"),
        (_set("per_rank", 2, {}), "per_rank[2]", "a list of entries"),
        (_set(*ENTRY, []), "per_rank[0][1]", "an empty list"),
        (_set(*ENTRY, 0, 0), "per_rank[0][1][0]", "a slot, 1 or later"),
        (_set("nsteps", 10), "per_rank[0][9][0]", "a slot below 10"),
        (_set(*ENTRY, 1, "0@down"), "per_rank[0][1][1]", 'a text such as "0@down@f"'),
        (_set(*ENTRY, 1, "0@down@w"), "per_rank[0][1][1]", 'a text such as "0@down@f"'),
        (_set(*ENTRY, 1, "0@up@f"), "per_rank[0][1][1]", '"0@down@f"'),
        (_set(*ENTRY, 1, "2@down@f"), "per_rank[0][1][1]", "a replica, 0 to 1"),
        (_set(*ENTRY, 1, "1@up@f"), "per_rank[0][4][1]", "at most 2 entries f of replica 1"),
    ],
)
def test_refusals(change: Callable[[Document], None], path: str, words: str) -> None:
    stated = document(SMALL)
    change(stated)
    with pytest.raises(InputError) as caught:
        read(stated)
    assert words in f"{caught.value.message} {caught.value.cause}"
    assert caught.value.path == path


@pytest.mark.parametrize("key", ["producer", "stages", "micro_batches", "per_rank"])
def test_every_key_is_needed(key: str) -> None:
    stated = document(SMALL)
    del stated[key]
    with pytest.raises(InputError, match=f'"{key}" is missing'):
        read(stated)


@given(damaged(document(SMALL)))
def test_damaged_schedules_are_read_or_refused(stated: Document) -> None:
    try:
        own = read(stated)
    except InputError as error:
        assert error.message and (error.path or error.line)
        return
    judged(own)
