"""``pipeproof compare``: targets side by side, in four forms."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeproof.cli.compare import SORT_KEYS
from pipeproof.report.compare import COLUMNS
from tests.cli.conftest import Answer, Run
from tests.cli.test_check import HOLDS, VIOLATED
from tests.torch_files import FOLDER

# Blocking 1F1B: neighbours send to each other first, which needs a slot.
SENDS_FIRST = (
    b"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    b"1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
)
GPIPE = FOLDER / "GPipe_4_4_1.comms.csv"
ONE = FOLDER / "1F1B_4_4_1.executed.txt"
CHUNKS = FOLDER / "Interleaved1F1B_4_4_2.comms.csv"
KEYS = [column.key for column in COLUMNS]


def test_every_column_can_be_sorted_by() -> None:
    assert ("name", "verdict", *KEYS) == SORT_KEYS


def document(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.out)
    assert found["exit_status"] == answer.status
    return found


def test_text(run: Run) -> None:
    answer = run("compare", GPIPE, ONE)
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "on nccl, F=1, I=1, W=1, comm=0",
        "",
        "                         verdict  makespan  over ideal  of elapsed  of span",
        "GPipe_4_4_1.comms.csv      holds       21       75.0%       42.9%    42.9%",
        "1F1B_4_4_1.executed.txt    holds       21       75.0%       42.9%    42.9%",
        "",
        "                         peak act.  messages  slots",
        "GPipe_4_4_1.comms.csv           4        24      0",
        "1F1B_4_4_1.executed.txt         4        24      0",
        "",
        "GPipe_4_4_1.comms.csv: idle over elapsed 42.9 % = (p-1)/(m+p-1), fill and drain",
        "  (p = 4, m = 4); overhead over ideal 75.0 % = (p-1)/m",
        "1F1B_4_4_1.executed.txt: idle over elapsed 42.9 % = (p-1)/(m+p-1), fill and",
        "  drain (p = 4, m = 4); overhead over ideal 75.0 % = (p-1)/m",
    ]


def test_what_is_violated_is_shown_as_such_and_marks_nothing(run: Run) -> None:
    answer = run("compare", VIOLATED, HOLDS, "--format", "json")
    assert answer.status == 1
    bad, good = document(answer)["targets"]
    assert (bad["verdict"], good["verdict"]) == ("violated", "holds")
    assert bad["best"] == [] and bad["findings"] == ["deadlock", "mismatch"]
    text = run("compare", VIOLATED, HOLDS).out
    assert "VIOLATED" in text and "violated: deadlock, mismatch" in text


def test_the_best_of_each_column_is_marked(run: Run) -> None:
    cost = ("--cost", "F=1,I=1,W=1,comm=1,activation_bytes=10,message_bytes=5")
    answer = run("compare", GPIPE, CHUNKS, *cost, "--format", "json")
    first, second = document(answer)["targets"]
    for key in KEYS:
        values = first[key], second[key]
        for target in (first, second):
            best = values[0] != values[1] and target[key] == min(values)
            assert (key in target["best"]) == best
    assert first["peak_bytes"] == 40 and first["message_bytes"] == 24 * 5
    marked = [
        line for line in run("compare", GPIPE, CHUNKS, *cost).out.splitlines() if "*" in line
    ]
    assert len(marked) >= 3 and marked[-1] == "* best of its column among what is not violated"


def test_all_costs_of_a_rank(run: Run) -> None:
    """Megatron-LM's 28.5 (arXiv 2104.04473), and 5.5 activations (2205.05198)."""
    files = FOLDER / "GPipe_4_8_1.comms.csv", FOLDER / "Interleaved1F1B_4_8_2.comms.csv"
    answer = run("compare", *files, "--per-rank", "--format", "json")
    plain, chunked = document(answer)["targets"]
    assert (plain["makespan"], chunked["makespan"]) == (33, 28.5)
    assert (plain["peak_activations"], chunked["peak_activations"]) == (8, 5.5)
    assert chunked["overhead_over_ideal"] == 3 / 16 and chunked["messages"] == 112
    assert chunked["in_words"] == [
        "idle over elapsed 15.8 % = (p-1)/(v m+p-1), fill and drain (p = 4, m = 8, v = 2)",
        "overhead over ideal 18.8 % = (p-1)/(v m)",
    ]
    hint = "--per-rank\n  gives all targets the same work"
    assert (
        hint in run("compare", *files).out and hint not in run("compare", *files, "--per-rank").out
    )


def test_csv(run: Run) -> None:
    answer = run("compare", GPIPE, VIOLATED, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert [row["verdict"] for row in rows] == ["holds", "violated"]
    assert list(rows[0]) == ["file", "name", "verdict", *KEYS]
    assert rows[0]["makespan"] == "21" and rows[0]["peak_bytes"] == ""
    assert float(rows[0]["idle_over_elapsed"]) == 3 / 7


def test_markdown(run: Run) -> None:
    lines = run("compare", GPIPE, CHUNKS, "--per-rank", "--format", "markdown").out.splitlines()
    assert lines[2].startswith("| | verdict | makespan |") and lines[3].startswith(
        "|---|---|---:|"
    )
    assert len({line.count("|") for line in lines[2:6]}) == 1
    assert "| **" in lines[5] and "- Bold: best of its column among what is not violated." in lines


@pytest.mark.parametrize("key", SORT_KEYS)
def test_sort(run: Run, key: str) -> None:
    answer = run("compare", VIOLATED, GPIPE, CHUNKS, HOLDS, "--sort", key, "--format", "json")
    values = [target[key] for target in document(answer)["targets"]]
    known = [value for value in values if value is not None]
    assert values[: len(known)] == known  # what has no value comes last
    expected = sorted(known, key=("holds", "violated").index if key == "verdict" else None)
    assert known == expected


def test_one_transport_for_all(run: Run) -> None:
    assert run("compare", "-", stdin=SENDS_FIRST).out.startswith("on nccl, ")
    naive = ("compare", "-", "--recipe", "naive")
    answer = run(*naive, "--transport", "gloo:1", stdin=SENDS_FIRST)
    assert answer.status == 0 and answer.out.startswith("on gloo:1, ")
    answer = run(*naive, "--format", "json", stdin=SENDS_FIRST)
    (found,) = document(answer)["targets"]
    assert answer.status == 1 and found["smallest_safe_capacity"] == 1


def test_communication_that_counts(run: Run) -> None:
    cost = ("--cost", "comm=1", "--format", "json")
    (pure,) = document(run("compare", GPIPE, *cost))["targets"]
    (counted,) = document(run("compare", GPIPE, "--timing", "recipe", *cost))["targets"]
    assert counted["makespan"] > pure["makespan"]
    (line,) = run("compare", GPIPE, "--timing", "recipe").out.splitlines()[:1]
    assert line.endswith("with the communication of each program counted")


def test_what_cannot_be_read(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("0F0\n1X0\n")
    answer = run("compare", bad, GPIPE)
    assert answer.status == 2 and str(bad) in answer.err
    assert "bad.csv: not judged: found '1X0'" in answer.out
    assert run("compare").status == 2


def test_two_files_of_one_name(run: Run, tmp_path: Path) -> None:
    paths = [tmp_path / folder / "plan.csv" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("0F0,0B0\n")
    answer = run("compare", *paths, "--format", "csv")
    assert [row["file"] for row in csv.DictReader(io.StringIO(answer.out))] == list(
        map(str, paths)
    )
    assert max(map(len, run("compare", *paths).out.splitlines())) <= 80


# --- costs files, and what holds a step back ---------------------------------------


def test_a_costs_file(run: Run, tmp_path: Path) -> None:
    costs = tmp_path / "costs.toml"
    costs.write_text("F = [1, 1, 5, 1]\ncomm = 0.5\n")
    answer = run("compare", GPIPE, "--costs", costs, "--cost", "comm=1")
    assert answer.out.startswith("on nccl, F=1:1:5:1, I=1, W=1, comm=1\n")
    assert run("check", GPIPE, "--costs", costs).status == 0


@pytest.mark.parametrize("command", ["check", "compare"])
def test_costs_files_that_are_none(run: Run, tmp_path: Path, command: str) -> None:
    costs = tmp_path / "costs.toml"
    for text, words in (
        ("F = [1, -2]", ": F[1]: found the number -2, expected a number of 0 or more\n"),
        ("bandwith = 1", ": bandwith: found the key"),
        ("F = ", ": found no TOML: invalid value"),
    ):
        costs.write_text(text)
        answer = run(command, GPIPE, "--costs", costs)
        assert (answer.status, answer.out) == (2, "")
        assert answer.err.startswith(f"pipeproof: {costs}") and words in answer.err
    answer = run(command, GPIPE, "--costs", tmp_path / "gone")
    assert answer.status == 2 and "no such file" in answer.err
    answer = run(command, GPIPE, "--costs", tmp_path)
    assert answer.status == 2 and "it cannot be read: is a directory" in answer.err


def test_costs_that_do_not_fit(run: Run) -> None:
    answer = run("check", GPIPE, "--cost", "F=1:2")
    assert answer.status == 2
    assert f"{GPIPE}: the costs list F for 2 stages, this has 4" in answer.err


def test_explain_time(run: Run) -> None:
    answer = run("check", GPIPE, "--explain-time", "--cost", "F=1:1:2:1,comm=0.5,message_bytes=8")
    lines = answer.out.splitlines()
    assert max(map(len, lines[1:])) <= 80
    assert any(line.startswith("makespan 28; bubble ") for line in lines)
    text = re.sub(" +", " ", answer.out)
    for words in (
        "held back by ",
        "\n 0 to 1 rank 0: 0F0\n",
        "\n 1 to 1.5 act:0:0 from rank 0 to rank 1\n",
        "\nrank on the path least slack idle\n",
        "\nstage least slack activation lives: min mean max\n",
        "\nlink messages bytes\n0 to 1 4 32\n",
    ):
        assert words in text, words
    assert "held back by" not in run("check", GPIPE).out


def test_explain_time_of_a_counted_program(run: Run) -> None:
    answer = run("check", CHUNKS, "--explain-time", "--timing", "recipe", "--cost", "comm=0.25")
    assert answer.status == 0 and re.search(r"\.\.\. \d+ more \.\.\.", answer.out)
    assert max(map(len, answer.out.splitlines()[1:])) <= 80
