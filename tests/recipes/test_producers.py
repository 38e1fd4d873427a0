"""Recipes of frameworks issue a schedule of the zoo as the framework's recording does."""

from __future__ import annotations

from typing import Any

import pytest

from pipeproof.judge.judge import judge_schedule
from pipeproof.judge.options import Options
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import RECIPES, build
from pipeproof.verdict import Status
from tests import torch_files
from tests.schedules.zoo import made, trace


def issued(program: Program) -> list[list[Any]]:
    """What every rank does: computes with the batches that they wait for, batches with
    their messages in order, and waits. Batches count from 0 on every rank."""
    messages = program.messages
    rows = []
    for lane in program.lanes:
        handles: dict[int, int] = {}
        row: list[Any] = []
        for op in range(lane.first, lane.stop):
            kind, request = Kind(program.kind[op]), int(program.request[op])
            if request >= 0:
                handles[request] = len(handles)
            awaited = [handles[r] for r in program.requests_of(op)]
            posted = [
                (bool(messages.send[r]), int(messages.peer[r]), int(messages.payload[r]))
                for r in program.rows_of(op)
            ]
            if kind <= Kind.R:
                row.append(
                    (kind.name, int(program.stage[op]), int(program.microbatch[op]), awaited)
                )
            elif posted:
                row.append((kind.name, handles.get(request), posted))
            elif kind is Kind.WAIT:
                row.append((kind.name, awaited))
        rows.append(row)
    return rows


ZERO_BUBBLE = "p4_m8_f1000b1000w1000c1"

RECORDED = [
    ("megatron", "megatron/1f1b_p4_m8.jsonl", "1f1b", {"p": 4, "m": 8}),
    (
        "megatron",
        "megatron/interleaved_batch_p4_m8_v2.jsonl",
        "interleaved",
        {"p": 4, "m": 8, "v": 2},
    ),
    (
        "megatron",
        "megatron/interleaved_batch_p2_m4_v2.jsonl",
        "interleaved",
        {"p": 2, "m": 4, "v": 2},
    ),
    ("megatron-unbatched", "megatron/1f1b_nobatch_p4_m8.jsonl", "1f1b", {"p": 4, "m": 8}),
    ("deepspeed", "deepspeed/train_p4_m8.json", "1f1b", {"p": 4, "m": 8}),
    ("deepspeed", "deepspeed/train_p2_m1.json", "1f1b", {"p": 2, "m": 1}),
    ("deepspeed", "deepspeed/inference_p4_m8.json", "inference", {"p": 4, "m": 8}),
    ("dualpipe", "dualpipe/dualpipe_p4_m8.json", "dualpipe", {"p": 4, "m": 8}),
    ("dualpipe", "dualpipe/dualpipe_p4_m10.json", "dualpipe", {"p": 4, "m": 10}),
    ("dualpipe", "dualpipe/dualpipev_p2_m4.json", "dualpipe-v", {"p": 2, "m": 4}),
    ("dualpipe", "dualpipe/dualpipev_p4_m8.json", "dualpipe-v", {"p": 4, "m": 8}),
    ("zero-bubble", f"zero_bubble/1f1b_{ZERO_BUBBLE}.json", "1f1b", {"p": 4, "m": 8}),
    ("zero-bubble", f"zero_bubble/zb_{ZERO_BUBBLE}_H1.json", "zb-h1", {"p": 4, "m": 8}),
    (
        "zero-bubble",
        f"zero_bubble/vpp2_{ZERO_BUBBLE}.json",
        "interleaved",
        {"p": 4, "m": 8, "v": 2},
    ),
]


@pytest.mark.parametrize(
    ("recipe", "path", "name", "sizes"), RECORDED, ids=[r[1] for r in RECORDED]
)
def test_it_issues_as_recorded(recipe: str, path: str, name: str, sizes: dict[str, int]) -> None:
    program = build(made(name, **sizes), recipe, PRESETS["nccl"])
    assert program.recipe == recipe
    assert issued(program) == issued(trace(path))


PRODUCERS = [recipe for recipe in RECIPES if recipe not in ("torch", "naive", "grouped")]


@pytest.mark.parametrize("recipe", PRODUCERS)
def test_listed_communication_keeps_its_order(recipe: str) -> None:
    schedule = torch_files.schedule("GPipe_4_8_1.comms.csv")
    grouped = build(schedule, "grouped", PRESETS["nccl"])
    naive = build(schedule, "naive", PRESETS["nccl"])
    program = build(schedule, recipe, PRESETS["nccl"])
    assert program.recipe == recipe
    assert issued(program) in (issued(grouped), issued(naive))


@pytest.mark.parametrize("recipe", PRODUCERS)
def test_an_order_that_nobody_can_run_is_found_wrong(recipe: str) -> None:
    schedule = torch_files.schedule("1F1B_4_8_1.compute_only.csv")  # torch's own bad export
    report = judge_schedule("bad", schedule, Options(recipe=recipe))
    assert report.status is Status.VIOLATED


@pytest.mark.parametrize("recipe", [r for r in PRODUCERS if r != "dualpipe"])
def test_recomputing_belongs_to_the_backward(recipe: str) -> None:
    for m in (1, 2, 5):
        schedule = made("1f1b-recompute", p=3, m=m)
        report = judge_schedule("recompute", schedule, Options(recipe=recipe))
        assert report.status is Status.HOLDS


def test_batches_of_an_interleaved_pair_of_ranks_mix_up_messages() -> None:
    # Both neighbours of a rank are the other one, so activations and gradients cross.
    report = judge_schedule(
        "interleaved", made("interleaved", p=2, m=4, v=2), Options(recipe="megatron")
    )
    assert {f.check for f in report.findings} >= {"matching"}
