"""Schedules of the zoo equal the orders that their producers run."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import pytest

from pipeproof.engines.timing import timing
from pipeproof.program.costs import Costs
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from tests import torch_files
from tests.schedules.zoo import Row, made, rows, timed, trace

CLASSES = {
    "DualPipeV": "dualpipe-v",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved",
    "InterleavedZeroBubble": "interleaved-zb",
    "LoopedBFS": "breadth-first",
    "ZBVZeroBubble": "zb-v",
}

PLANS = [name for name in torch_files.COMPUTE_ONLY if name.partition("_")[0] in CLASSES]


@pytest.mark.parametrize("file", PLANS)
def test_torch_plans(file: str) -> None:
    name, p, m, v = file.partition(".")[0].split("_")
    schedule = made(CLASSES[name], p=int(p), m=int(m), v=int(v))
    assert rows(schedule) == rows(torch_files.schedule(file))


EXECUTED = {"1F1B": "1f1b", "GPipe": "gpipe"}


@pytest.mark.parametrize("file", torch_files.EXECUTED)
def test_torch_runs(file: str) -> None:
    name, p, m, _ = file.partition(".")[0].split("_")
    schedule = made(EXECUTED[name], p=int(p), m=int(m))
    assert rows(schedule) == rows(torch_files.executed(file))


RECORDED = [
    ("megatron/1f1b_p4_m8.jsonl", "1f1b", {"p": 4, "m": 8}),
    ("megatron/1f1b_nobatch_p4_m8.jsonl", "1f1b", {"p": 4, "m": 8}),
    ("megatron/interleaved_batch_p2_m4_v2.jsonl", "interleaved", {"p": 2, "m": 4, "v": 2}),
    ("megatron/interleaved_batch_p4_m8_v2.jsonl", "interleaved", {"p": 4, "m": 8, "v": 2}),
    ("megatron/interleaved_overlap_p4_m8_v2.jsonl", "interleaved", {"p": 4, "m": 8, "v": 2}),
    ("deepspeed/train_p2_m1.json", "1f1b", {"p": 2, "m": 1}),
    ("deepspeed/train_p4_m8.json", "1f1b", {"p": 4, "m": 8}),
    ("deepspeed/inference_p4_m8.json", "inference", {"p": 4, "m": 8}),
    ("dualpipe/dualpipe_p4_m8.json", "dualpipe", {"p": 4, "m": 8}),
    ("dualpipe/dualpipe_p4_m10.json", "dualpipe", {"p": 4, "m": 10}),
    ("dualpipe/dualpipev_p2_m4.json", "dualpipe-v", {"p": 2, "m": 4}),
    ("dualpipe/dualpipev_p4_m8.json", "dualpipe-v", {"p": 4, "m": 8}),
    ("chimera/chimera_p4_m4.json", "chimera", {"p": 4, "m": 4}),
    ("chimera/chimera_p8_m16.json", "chimera", {"p": 8, "m": 16}),
    ("zero_bubble/1f1b_p4_m8_f1000b1000w1000c1.json", "1f1b", {"p": 4, "m": 8}),
    ("zero_bubble/vpp2_p4_m8_f1000b1000w1000c1.json", "interleaved", {"p": 4, "m": 8, "v": 2}),
    ("zero_bubble/zb_p4_m8_f1000b1000w1000c1_H1.json", "zb-h1", {"p": 4, "m": 8}),
]


Rows = list[Row]


def whole_backwards(found: Rows) -> Rows:
    """The rows without W, and B instead of I."""
    return [
        [("B" if letter == "I" else letter, s, m) for letter, s, m in row if letter != "W"]
        for row in found
    ]


def test_deepspeed_runs_dualpipe_v_with_whole_backwards() -> None:
    schedule = made("dualpipe-v", p=4, m=8)
    recorded = trace("deepspeed/dualpipev_p4_m8.json")
    assert whole_backwards(rows(schedule)) == rows(recorded)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("chimera/chimera_p4_m4.json", "chimera"),
        ("chimera/chimera_p8_m16.json", "chimera"),
    ],
)
def test_chimera_sums_gradients_where_its_producer_does(path: str, name: str) -> None:
    recorded = trace(path)
    schedule = made(name, p=recorded.ranks, m=recorded.microbatches)

    def order(what: Any, bounds: list[int]) -> list[list[tuple[int, int, str | None]]]:
        labels = what.attributes if what is schedule else what.details.attributes
        return [
            [
                (int(what.stage[op]), int(what.microbatch[op]), op in labels and labels[op].label)
                for op in range(start, stop)
                if what.kind[op] in (Kind.F, Kind.B, Kind.COLL)
            ]
            for start, stop in pairwise(bounds)
        ]

    lanes = [lane.first for lane in recorded.lanes] + [recorded.ops]
    assert order(schedule, list(schedule.first)) == order(recorded, lanes)


def test_pipedream_uses_the_versions_that_were_recorded() -> None:
    stashing, _ = trace("pipedream/pipedream_versions.json")
    schedule = made("pipedream", p=4, m=12)
    assert rows(schedule) == rows(stashing)
    recorded = [o for o, kind in enumerate(stashing.kind) if kind == Kind.B]
    ours = [o for o, kind in enumerate(schedule.kind) if kind == Kind.B]
    for mine, theirs in zip(ours, recorded, strict=True):
        version = stashing.details.attributes[theirs].more["wv"]
        assert schedule.attributes[mine].more["wv"] == version


def test_pipedream_2bw_uses_the_versions_that_were_recorded() -> None:
    for recorded in trace("pipedream/pipedream_2bw_versions.json"):
        p, a = (int(part[1:]) for part in recorded.name.split("[")[1][:-1].split("_"))
        if a < p:
            continue
        schedule = made("pipedream-2bw", p=p, m=recorded.microbatches, a=a)
        assert rows(schedule) == rows(recorded)
        assert used(schedule) == used(recorded)


def used(what: Schedule | Program) -> list[int]:
    """The weight version of every op, rank after rank."""
    computes = [op for op in range(len(what.kind)) if what.kind[op] <= Kind.R]
    found = what.attributes if isinstance(what, Schedule) else what.details.attributes
    return [found[op].more["wv"] for op in computes]


COSTS = Costs(F=1000, I=1000, W=1000, comm=1)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("zero_bubble/zb_p4_m8_f1000b1000w1000c1_H1.json", "zb-h1"),
        ("zero_bubble/zb_p4_m8_f1000b1000w1000c1_H2.json", "zb-h2"),
        ("zero_bubble/zbv_p4_m8_f1000b1000w1000c1.json", "zb-v"),
        ("zero_bubble/vhalf_p4_m8_f1000b1000w1000c1.json", "v-half"),
        ("zero_bubble/vmin_p4_m8_f1000b1000w1000c1.json", "v-min"),
    ],
)
def test_what_a_search_found_is_not_better(path: str, name: str) -> None:
    recorded, schedule = trace(path), made(name, p=4, m=8)
    theirs, ours = timing(recorded, COSTS), timed(schedule, COSTS)
    assert theirs is not None
    assert ours.makespan <= theirs.makespan
    for measure in (peaks, half_peaks):
        assert max(measure(rows(schedule))) <= max(measure(rows(recorded)))


def peaks(found: Rows) -> list[int]:
    """Activations that ranks hold at most, each until its weight gradient."""
    return held(found, {"F": 1, "I": 0, "W": -1})


def half_peaks(found: Rows) -> list[int]:
    """The same in the producer's units: an input gradient gives back a half."""
    return held(found, {"F": 2, "I": -1, "W": -1})


def held(found: Rows, change: dict[str, int]) -> list[int]:
    return [max(accumulate(change[letter] for letter, _, _ in row)) for row in found]


@pytest.mark.parametrize(("path", "name", "sizes"), RECORDED, ids=[r[0] for r in RECORDED])
def test_recordings(path: str, name: str, sizes: dict[str, int]) -> None:
    assert rows(made(name, **sizes)) == rows(trace(path))
