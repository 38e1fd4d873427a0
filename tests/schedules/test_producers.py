"""Schedules of the zoo equal the orders that their producers run."""

from __future__ import annotations

import pytest

from tests import torch_files
from tests.schedules.zoo import made, rows, trace

CLASSES = {
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
    ("zero_bubble/1f1b_p4_m8_f1000b1000w1000c1.json", "1f1b", {"p": 4, "m": 8}),
    ("zero_bubble/vpp2_p4_m8_f1000b1000w1000c1.json", "interleaved", {"p": 4, "m": 8, "v": 2}),
    ("zero_bubble/zb_p4_m8_f1000b1000w1000c1_H1.json", "zb-h1", {"p": 4, "m": 8}),
]


@pytest.mark.parametrize(("path", "name", "sizes"), RECORDED, ids=[r[0] for r in RECORDED])
def test_recordings(path: str, name: str, sizes: dict[str, int]) -> None:
    assert rows(made(name, **sizes)) == rows(trace(path))
