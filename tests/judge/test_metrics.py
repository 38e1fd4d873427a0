"""The metrics of a report: what is measured, by hand, and what is null."""

from __future__ import annotations

from typing import Any

import pytest

from pipeproof.formats.pipedream import read_pipedream
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.judge.judge import judge_program, judge_schedule
from pipeproof.judge.options import Options
from pipeproof.program.costs import Costs
from pipeproof.program.transports import PRESETS
from tests.formats import trace_files
from tests.programs import program
from tests.torch_files import executed

EVERY = 10**9
PLAN = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def measured(plan: str = PLAN, **options: Any) -> dict[str, Any]:
    schedule = read_schedule(plan, "plan")
    return dict(judge_schedule("plan", schedule, Options(**options)).metrics)


def test_the_keys_are_always_there() -> None:
    keys = {
        *("makespan", "bubble", "idle", "timing", "peak_memory", "memory_unit"),
        *("peak_activations", "peak_bytes", "messages", "message_bytes", "links"),
        *("weight_versions", "staleness", "critical_path", "slack", "lifetimes"),
    }
    assert keys <= measured().keys()
    none = judge_program("x", program([["X", "a"]]), Options()).metrics
    assert keys <= none.keys()
    for key in ("makespan", "bubble", "idle", "peak_bytes", "message_bytes", "weight_versions"):
        assert none[key] is None


def test_time() -> None:
    """Two ranks, two microbatches: 3 slots of F and B."""
    found = measured(costs=Costs())
    assert found["makespan"] == 9 and found["idle"] == {"0": 3, "1": 3}
    assert found["bubble"]["idle_over_elapsed"] == pytest.approx(1 / 3)
    assert found["peak_activations"] == {"0": 2, "1": 1}


def test_bytes() -> None:
    costs = Costs(activation_bytes=(10, 100), weight_bytes=(1, 2), message_bytes=7)
    found = measured(costs=costs)
    assert found["peak_bytes"] == {"0": 21, "1": 102}
    assert found["message_bytes"] == 28
    assert found["links"] == [
        {"from": 0, "to": 1, "messages": 2, "bytes": 14},
        {"from": 1, "to": 0, "messages": 2, "bytes": 14},
    ]


def recomputing(**costs: Any) -> dict[str, Any]:
    ops = [["F", 0, b] for b in (0, 1, 2)]
    ops += [[letter, 0, b] for b in (0, 1, 2) for letter in ("R", "B")]
    own = program(ops, placement=[0])
    return dict(judge_program("x", own, Options(costs=Costs(**costs))).metrics)


def test_recompute_keeps_less() -> None:
    """Three kept at 10; the first one made again, 100: 120 at the most."""
    assert recomputing(activation_bytes=100)["peak_bytes"] == {"0": 300}
    assert recomputing(activation_bytes=100, recompute_bytes=10)["peak_bytes"] == {"0": 120}


def test_bytes_of_several_lanes() -> None:
    own = program(
        {"main": [["F", 0, 0], ["F", 1, 0], ["I", 1, 0], ["I", 0, 0]], "w": [["W", 1, 0]]},
        placement=[0, 0],
    )
    found = judge_program("x", own, Options(costs=Costs(activation_bytes=(1, 10)))).metrics
    assert found["peak_activations"] == {"0": 2} and found["peak_bytes"] == {"0": 11}


def test_the_critical_path_is_made_where_it_is_asked_for() -> None:
    assert measured()["critical_path"] is None
    found = measured(explained=EVERY, costs=Costs(comm=1))
    path = found["critical_path"]
    assert path[0] == {"op": "0F0", "stage": 0, "rank": 0, "start": 0, "end": 1}
    assert path[1] == {"message": "act:0:0", "from": 0, "to": 1, "start": 1, "end": 2}
    assert path[-2] == {"message": "grad:1:1", "from": 1, "to": 0, "start": 8, "end": 9}
    assert path[-1]["op"] == "0B1" and path[-1]["end"] == found["makespan"] == 11
    assert found["slack"]["ranks"] == found["slack"]["stages"] == {"0": 0, "1": 0}
    assert found["lifetimes"] == {
        "0": {"min": 8, "mean": 9, "max": 10},
        "1": {"min": 3, "mean": 3, "max": 3},
    }


def test_communication_counts_where_it_is_asked_for() -> None:
    compute = measured(costs=Costs(comm=1))["makespan"]
    found = measured(costs=Costs(comm=1), timing="recipe", explained=EVERY)
    assert found["timing"] == "recipe" and found["makespan"] >= compute
    assert found["critical_path"][-1]["end"] == found["makespan"]
    assert {"act:0:0", "grad:1:1"} <= {hop.get("message") for hop in found["critical_path"]}
    stuck = measured(
        "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0,1RECV_F0\n", timing="recipe", recipe="naive"
    )
    assert stuck["makespan"] is None and stuck["critical_path"] is None


def test_costs_of_all_that_a_rank_hosts() -> None:
    plan = "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n"
    assert measured(plan)["makespan"] == 2 * measured(plan, per_rank=True)["makespan"]


def test_versions_are_those_of_the_check() -> None:
    """PipeDream keeps p - s versions and is p - 1 - s updates late (arXiv 1806.03377)."""
    name = "pipedream_versions.json"
    found = read_pipedream(trace_files.text("pipedream", name), name)
    own = next(p for p in found if "macro" not in p.name.lower() or "False" in p.name)
    report = judge_program(own.name, own, Options())
    evidence = next(c.evidence for c in report.checks if c.check == "versions")
    assert report.metrics["weight_versions"] == evidence["versions_kept"]
    assert report.metrics["staleness"] == evidence["staleness"]
    if own.stages == 4:
        assert list(report.metrics["weight_versions"].values()) == [4, 3, 2, 1]
        assert list(report.metrics["staleness"].values()) == [3, 2, 1, 0]


def test_a_recording_of_one_batch_per_step() -> None:
    own = executed("1F1B_4_8_1.executed.txt")
    report = judge_program("x", own, Options(transport=PRESETS["nccl"], timing="recipe"))
    assert report.metrics["makespan"] == 33
