"""Specs and named schedules on the command line."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

PLAIN = """
    from pipeproof.spec import B, F, least, loop, messages, peak_activations, schedule

    @schedule(claims=[CLAIMS])
    def plain(p, m, rank):
        warm_up = least(p - 1 - rank, m)
        for i in loop(warm_up):
            yield F(i)
        for i in loop(m - warm_up):
            yield F(warm_up + i)
            yield B(i)
        for i in loop(m - warm_up, m):
            yield B(i)
"""


@pytest.fixture
def spec(tmp_path: Path) -> Any:
    def write(text: str, name: str = "spec.py") -> str:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write


def report(run: Run, *arguments: Any, status: int) -> Any:
    answer = run("check", "--format", "json", *arguments)
    assert answer.status == status, answer.err
    return json.loads(answer.out)["targets"]


def claims_of(target: Any) -> list[tuple[str, str]]:
    (found,) = (c for c in target["checks"] if c["check"] == "claims")
    return [(c["claim"], c["status"]) for c in found["evidence"]["claims"]]


def test_a_named_schedule_at_its_sizes(run: Run) -> None:
    (target,) = report(run, "1f1b", "--stages", 4, "--microbatches", 4, status=0)
    assert target["file"] == "1f1b"
    assert target["name"] == "1f1b (p=4, m=4)"
    assert target["sizes"]["ranks"] == target["sizes"]["stages"] == 4
    assert target["transport"]["recipe"] == "megatron"
    assert target["metrics"]["bubble"]["idle_over_elapsed"] == pytest.approx(3 / 7)
    assert ("makespan = 21", "holds") in claims_of(target)


def test_a_named_schedule_over_its_grid(run: Run) -> None:
    (target,) = report(run, "gpipe", status=0)
    assert target["name"] == "gpipe (p=1..4, m=1..8)"
    assert {c["scope"] for c in target["checks"]} == {"24 sizes: p=1..4, m=1..8"}
    (target,) = report(run, "gpipe", "--stages", 3, status=0)
    assert target["name"] == "gpipe (p=3, m=1..8)"


def test_a_name_that_is_none(run: Run) -> None:
    answer = run("check", "1f1bb")
    assert answer.status == 2
    assert "no such file, folder or schedule" in answer.err
    assert "did you mean 1f1b or" in answer.err


def test_a_file_hides_the_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "1f1b").write_text("0F0,0B0\n")
    assert run("check", "1f1b").status == 2  # no extension says what it is
    assert run("check", "--from", "torch-csv", "1f1b").status == 0


def test_a_spec_that_holds(run: Run, spec: Any) -> None:
    path = spec(PLAIN.replace("CLAIMS", "peak_activations(lambda p, rank: p - rank)"))
    (target,) = report(run, path, status=0)
    assert target["name"] == "spec.py [plain (p=1..4, m=1..8)]"
    assert claims_of(target) == [("peak activations at most p - rank", "holds")]


def test_a_claim_fails_at_the_smallest_sizes(run: Run, spec: Any) -> None:
    path = spec(
        PLAIN.replace(
            "CLAIMS", "messages(at_most=lambda p, m: 2 * m * (p - 1) - (m > 2 and p > 1))"
        )
    )
    (target,) = report(run, path, status=1)
    assert target["name"] == "spec.py [plain (p=2, m=3)]"
    (finding,) = target["findings"]
    assert finding["verdict"] == "claim-violated"
    assert finding["replayed"] is True
    assert finding["message"].startswith("messages: found 6, claimed at most 5")
    assert any("violated at 12 of 24 sizes" in note for note in target["notes"])


def test_a_claim_on_time_is_one_for_the_times_that_it_names(run: Run, spec: Any) -> None:
    """Costs that a formula does not speak of do not break it, and those it does count."""
    text = PLAIN.replace("messages,", "makespan,")
    bounds = (
        "makespan(equals=lambda p, m: 3 * (m + p - 1)), "
        "makespan(equals=lambda p, m, F, B: (m + p - 1) * (F + B))"
    )
    at = ("--stages", 3, "--microbatches", 4)
    right = spec(text.replace("CLAIMS", bounds))
    for costs in ("F=2", "comm=1", "F=2,I=3,W=5,comm=0.5", "F=1,B=4"):
        report(run, right, *at, "--cost", costs, status=0)
    wrong = spec(text.replace("CLAIMS", "makespan(equals=lambda p, m, F: 3 * F * (m + p - 1))"))
    report(run, wrong, *at, status=0)
    (target,) = report(run, wrong, *at, "--cost", "F=2", status=1)
    assert target["findings"][0]["message"].startswith("makespan: found 24, claimed = 36")
    assert target["findings"][0]["replayed"] is True
    for name in ("1f1b", "zb-h1", "dualpipe-v"):
        sizes = ("--stages", 2, "--microbatches", 4)
        report(run, name, *sizes, "--per-rank", "--cost", "comm=1", status=0)


def test_bytes_are_those_of_the_cost_model(run: Run, spec: Any) -> None:
    text = PLAIN.replace("messages,", "messages, peak_bytes,")
    path = spec(text.replace("CLAIMS", "peak_bytes(lambda p, m, rank: 10 * min(m, p - rank))"))
    at = ("--stages", 2, "--microbatches", 3)
    (target,) = report(run, path, *at, status=3)
    assert claims_of(target)[0][1] == "undetermined"
    report(run, path, *at, "--cost", "activation_bytes=10", status=0)
    (target,) = report(run, path, *at, "--cost", "activation_bytes=11", status=1)
    assert target["findings"][0]["message"].startswith("peak bytes on rank 0: found 22")


def test_only_claims(run: Run, spec: Any) -> None:
    path = spec(PLAIN.replace("CLAIMS", "messages(equals=lambda p, m: 2 * m * (p - 1))"))
    (target,) = report(run, "--only", "claims", path, status=0)
    assert [c["check"] for c in target["checks"]] == ["claims"]
    (target,) = report(run, "--only", "order", path, status=0)
    assert [c["check"] for c in target["checks"]] == ["order"]


def test_a_schedule_that_is_wrong(run: Run, spec: Any) -> None:
    path = spec(PLAIN.replace("loop(m - warm_up, m)", "loop(m - warm_up + 1, m)"))
    path = spec(Path(path).read_text().replace("CLAIMS", ""))
    (target,) = report(run, path, status=1)
    assert target["name"] == "spec.py [plain (p=2, m=1)]"
    assert {f["verdict"] for f in target["findings"]} >= {"order-violation"}
    line = target["findings"][0]["where"][0]["line"]
    assert "yield" in Path(path).read_text().splitlines()[line - 1]


def test_a_schedule_without_backwards_is_no_inference(run: Run, spec: Any) -> None:
    text = """
        from pipeproof.spec import F, loop, schedule

        @schedule(MORE)
        def forwards(m, rank):
            for i in loop(m):
                yield F(i)
    """
    (target,) = report(run, spec(text.replace("MORE", "name='x'")), status=1)
    assert target["findings"][0]["check"] == "coverage"
    report(run, spec(text.replace("MORE", "forward_only=True")), status=0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = (\n", "it is no Python"),
        ("import nowhere_at_all\n", "raises ModuleNotFoundError when it is run"),
        ("raise SystemExit(0)\n", "raises SystemExit when it is run"),
        ("x = 1\n", "found no schedule in this file"),
        ("while True:\n    pass\n", "running the file takes longer than 0.5 seconds"),
        (
            "from pipeproof.spec import schedule\n@schedule\ndef f(m, rank):\n    while 1: pass\n",
            "f at p=1, m=1 takes longer than 0.5 seconds",
        ),
        (
            "from pipeproof.spec import F, schedule\n@schedule\ndef f(m, rank):\n"
            "    yield F(0)\n    try:\n        while 1: pass\n    except Exception: pass\n",
            "takes longer than 0.5 seconds",
        ),
        (
            "from pipeproof.spec import F, schedule\n\n@schedule\ndef f(m, rank): yield 1 / 0\n",
            ":4: f raised ZeroDivisionError at p=1, m=1",
        ),
        (
            "from pipeproof.spec import bubble, schedule\n"
            "@schedule(claims=[bubble('size', 1)])\ndef f(m, rank): ...\n",
            "found the bubble 'size'",
        ),
        (
            "from pipeproof.spec import F, B, makespan, schedule\n"
            "@schedule(claims=[makespan(lambda q: q)])\ndef f(m, rank):\n    yield F(0)\n",
            "a formula takes q, which is no size here",
        ),
        (
            "from pipeproof.spec import F, makespan, schedule\n"
            "@schedule(claims=[makespan(lambda m: 6 // (m - 1))])\n"
            "def f(m, rank):\n    yield F(0)\n",
            ":2: a formula raises ZeroDivisionError at m=1",
        ),
        (
            "from pipeproof.spec import F, makespan, schedule\n"
            "@schedule(claims=[makespan(lambda m: 'm')])\ndef f(m, rank):\n    yield F(0)\n",
            "the bound on makespan is 'm'; expected a number",
        ),
        (
            "from pipeproof.spec import F, schedule\n@schedule(valid=lambda p: 1 / 0)\n"
            "def f(m, rank):\n    yield F(0)\n",
            ":2: a formula raises ZeroDivisionError at p=1",
        ),
        (
            "from pipeproof.spec import F, schedule\n@schedule\ndef f(m, rank):\n    yield F(0)\n"
            "g = f\n@schedule\ndef f(m, rank):\n    yield F(0)\n",
            "found two schedules named f",
        ),
    ],
)
def test_a_spec_that_fails_says_how(run: Run, spec: Any, text: str, says: str) -> None:
    answer = run("check", "--time-limit", 0.5, spec(text))
    assert answer.status == 2
    assert says in answer.err
    assert "Traceback" not in answer.err


def test_what_a_spec_prints_does_not_mix_with_the_report(run: Run, spec: Any) -> None:
    text = PLAIN.replace("CLAIMS", "") + "\n    print('loud')\n"
    answer = run("check", "--format", "json", spec(text))
    assert answer.status == 0
    json.loads(answer.out)
    assert "loud" in answer.err


def test_a_folder_runs_only_what_is_a_spec(run: Run, spec: Any, tmp_path: Path) -> None:
    spec(PLAIN.replace("CLAIMS", ""))
    spec("raise SystemExit('never run me')\n", "other.py")
    answer = run("check", "--quiet", tmp_path)
    assert answer.status == 0
    assert answer.out.splitlines() == [f"{tmp_path}/spec.py [plain (p=1..4, m=1..8)]: holds"]


def test_new_writes_a_spec_that_holds(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("new", "my-schedule").out == (
        "Wrote my-schedule.py. Check it: pipeproof check my-schedule.py\n"
    )
    (target,) = report(run, "my-schedule.py", status=0)
    assert len(claims_of(target)) == 5
    assert run("new", "my-schedule").status == 2  # it is never overwritten
    assert run("new", "class", "-o", tmp_path / "no" / "x.py").status == 2
    assert run("new", "for", "-o", "x.py").status == 0
    assert run("check", "--quiet", "x.py").status == 0


def test_schedules_are_listed_and_described(run: Run) -> None:
    assert "1f1b" in run("schedules").out
    told = run("schedules", "1f1b").out
    assert "peak activations = least(m, p - rank)" in told
    assert "yield B(i)" in run("schedules", "gpipe", "--source").out
    assert run("schedules", "1f1bb").status == 2
    assert run("schedules", "--source").status == 2
    listed = json.loads(run("schedules", "--format", "json").out)["schedules"]
    assert {"gpipe", "1f1b"} <= {entry["name"] for entry in listed}
    assert all(len(line) <= 80 for line in run("schedules").out.splitlines())


def test_convert_takes_definitions_too(run: Run) -> None:
    out = run("convert", "1f1b", "--to", "torch-csv", "--stages", 2, "--microbatches", 2).out
    assert out == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert run("convert", "1f1b").status == 2  # a size is missing
    made = run("convert", "1f1b", "--stages", 2, "--microbatches", 2)
    assert run("check", "-", stdin=made.out.encode()).status == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("dualpipe", "stages that two ranks host"),
        ("terapipe", "slices of sequences"),
        ("pipedream", "actions of the kind STEP"),
    ],
)
def test_a_csv_refuses_what_it_cannot_hold(run: Run, name: str, says: str) -> None:
    sizes = ("--stages", 2, "--microbatches", 4)
    answer = run("convert", name, "--to", "torch-csv", *sizes)
    assert answer.status == 2
    assert says in answer.err


def test_json_names_what_it_leaves_out(run: Run) -> None:
    answer = run("convert", "two-towers", "--stages", 2, "--microbatches", 1)
    assert answer.status == 0
    assert "the graph of its stages" in answer.err


def test_sizes_that_are_none(run: Run) -> None:
    for wrong in (["--size", "k"], ["--size", "k=x"], ["--size", "k=1", "--size", "k=2"]):
        assert run("check", "1f1b", *wrong).status == 2
    assert run("check", "1f1b", "--stages", 2, "--size", "p=3").status == 2
    assert "has no size k" in run("check", "1f1b", "--size", "k=1").err
    assert run("check", "1f1b", "--size", "p=2", "--size", "m=2").status == 0
