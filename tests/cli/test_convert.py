"""``pipeproof convert``: what comes back from another format, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeproof.cli import convert
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import PRESETS
from tests import torch_files
from tests.cli.conftest import Answer, Run
from tests.formats import trace_files

CASES = torch_files.FOLDER.parent / "cases"
TRACES = trace_files.FOLDER
GPIPE = torch_files.FOLDER / "GPipe_2_2_1.comms.csv"
TRAIN = TRACES / "deepspeed" / "train_p4_m8.json"
STASHING = TRACES / "pipedream" / "pipedream_versions.json"


def written(answer: Answer) -> str:
    assert answer.status == 0, answer.err
    return answer.out


def left_out(answer: Answer) -> list[str]:
    """What is said to be missing, a line each."""
    first, *rest = answer.err.splitlines() or [""]
    assert not rest or first.endswith("leaves out")
    return [line.strip() for line in rest]


def checked(run: Run, *arguments: Any) -> dict[str, Any]:
    """The verdicts and findings of the only target."""
    (target,) = json.loads(run("check", "--format", "json", *arguments).out)["targets"]
    return {
        "checks": {c["check"]: c["status"] for c in target["checks"]},
        "findings": [(f["check"], f["verdict"], f["count"]) for f in target["findings"]],
        "metrics": target["metrics"],
        "transports": target["transports"],
    }


def actions(schedule: Schedule) -> list[list[tuple[int, ...]]]:
    """The actions of each rank, whatever cells they stand in."""
    columns = zip(
        schedule.kind.tolist(),
        schedule.stage.tolist(),
        schedule.microbatch.tolist(),
        schedule.backward.tolist(),
        strict=True,
    )
    listed = list(columns)
    bounds = zip(schedule.first, schedule.first[1:], strict=False)
    return [listed[low:high] for low, high in bounds]


# --- to JSON ---------------------------------------------------------------------------

PLANS = [
    torch_files.FOLDER / name
    for name in (*torch_files.COMMS, *torch_files.COMPUTE_ONLY, *torch_files.EXECUTED)
    if "_8_" not in name
]
DEFERRED = [torch_files.DEFERRED / entry["file"] for entry in torch_files.INDEX[::6]]
RECORDED = [p for p in sorted(TRACES.rglob("*.json*")) if p.parent.name != "pipedream"]
CASE_FILES = sorted(CASES.glob("*.json"))
ALL = [*PLANS, *DEFERRED, *RECORDED, *CASE_FILES]


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_json_has_the_same_verdicts(run: Run, tmp_path: Path, path: Path) -> None:
    program = tmp_path / "program.json"
    assert run("convert", path, "-o", program).status == 0
    before, after = checked(run, path), checked(run, program)
    rows, again = before.pop("transports"), after.pop("transports")
    # Beside the presets a schedule has rows of other recipes, a program of its own.
    assert {n: w for n, w in again.items() if n in PRESETS}.items() <= rows.items()
    if "inference" in path.stem:
        # JSON cannot say that no backward will come, so it counts every forward as held.
        for figures in (before, after):
            for key in ("peak_memory", "peak_activations"):
                assert set(figures["metrics"].pop(key)) == {"0", "1", "2", "3"}
    assert after == before


@pytest.mark.parametrize("part", ["macroFalse_p4", "macroTrue_p4"])
def test_json_of_a_part(run: Run, tmp_path: Path, part: str) -> None:
    program = tmp_path / "program.json"
    assert run("convert", STASHING, "--part", part, "-o", program).status == 0
    report = json.loads(run("check", "--format", "json", STASHING).out)
    (before,) = (t for t in report["targets"] if t["name"].endswith(f"[{part}]"))
    after = checked(run, program)
    assert after["checks"] == {c["check"]: c["status"] for c in before["checks"]}


@pytest.mark.parametrize("path", ALL[::9], ids=lambda path: path.stem)
def test_json_of_json_is_itself(run: Run, path: Path) -> None:
    once = written(run("convert", path))
    again = run("convert", "-", stdin=once.encode())
    assert written(again) == once
    assert left_out(again) == []


def test_an_op_a_line(run: Run) -> None:
    lines = written(run("convert", GPIPE)).splitlines()
    assert lines[0] == "{" and lines[-1] == "}"
    assert '   ["ISEND", "act", 0, 0, 1, {"req": "r0"}],' in lines
    assert ' "semantics": {' in "\n".join(lines)


def test_the_recipe_and_the_transport_are_chosen(run: Run) -> None:
    compute = torch_files.FOLDER / "GPipe_2_2_1.compute_only.csv"
    answer = run("convert", compute, "--recipe", "grouped", "--transport", "gloo:2")
    document = json.loads(written(answer))
    assert document["semantics"]["p2p"] == {"buffered": 2}
    assert document["semantics"]["streams"] == "free"
    ops = [op[0] for listed in document["programs"].values() for op in listed]
    assert "SEND" in ops and "ISEND" not in ops
    assert left_out(answer)[-1] == "the recipe that issued its messages (grouped)"
    train = json.loads(written(run("convert", TRAIN, "--transport", "nccl-eager")))
    assert train["semantics"]["streams"] == "rank"


def test_what_json_cannot_hold_is_named(run: Run) -> None:
    assert left_out(run("convert", torch_files.FOLDER / "DualPipeV_2_4_2.comms.csv")) == [
        "overlaps (the actions of a cell stand one after the other): 6",
        'actions on sharded parameters (as X, such as "0UNSHARD", to which no check gives '
        "meaning): 12",
        "the recipe that issued its messages (torch)",
    ]
    assert left_out(run("convert", TRACES / "deepspeed" / "inference_p4_m8.json")) == [
        "that a step of forwards is complete: no coverage is demanded",
        "the recipe that issued its messages (executed)",
    ]
    assert "notes: 1" in left_out(run("convert", TRAIN))
    assert left_out(run("convert", CASE_FILES[0])) == []


def test_the_repaired_program_of_a_case(run: Run) -> None:
    case = CASES / "01_cross_send_before_recv.json"
    stated = json.loads(case.read_text())
    ops = json.loads(written(run("convert", case)))["programs"]
    assert ops == stated["model"]["programs"]
    assert (
        json.loads(written(run("convert", "--fixed", case)))["programs"]
        == stated["fixed_model"]["programs"]
    )


# --- to CSV ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", torch_files.COMMS)
def test_csv_to_json_to_csv(run: Run, name: str) -> None:
    path = torch_files.FOLDER / name
    program = written(run("convert", path))
    answer = run("convert", "-", "--to", "torch-csv", stdin=program.encode())
    again = read_schedule(written(answer), name)
    assert actions(again) == actions(torch_files.schedule(name))
    missing = left_out(answer)
    assert all(line.startswith(("WAIT: ", "how messages are issued (")) for line in missing)


@pytest.mark.parametrize("name", [*torch_files.COMMS[::7], *torch_files.COMPUTE_ONLY[::7]])
def test_csv_to_csv(run: Run, name: str) -> None:
    """A schedule stays one: it is not issued, and overlaps stay."""
    answer = run("convert", torch_files.FOLDER / name, "--to", "torch-csv")
    again, own = read_schedule(written(answer), name), torch_files.schedule(name)
    assert actions(again) == actions(own) and left_out(answer) == []
    assert written(answer).count("OVERLAP") == torch_files.text(name).count("OVERLAP")


def test_older_notation_becomes_the_current_one(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("0F0,0BW0\n")
    answer = run("convert", "--notation", "older", "--to", "torch-csv", path)
    assert written(answer) == "0F0,0B0\n"


def test_a_recording_as_csv(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    answer = run("convert", TRAIN, "--to", "torch-csv", "-o", plan)
    assert answer.status == 0 and answer.out == ""
    assert left_out(answer) == [
        "X: 28",
        "how messages are issued (0 posted, 96 blocking): a recipe decides",
        "attribute w: 64",
        "attribute r: 64",
        "attribute buf: 96",
        "what it states beside its ops: budget",
    ]
    before, after = checked(run, TRAIN), checked(run, plan, "--recipe", "naive")
    for check in ("coverage", "order", "matching", "deadlock"):
        assert after["checks"][check] == before["checks"][check] == "holds"
    assert after["metrics"]["makespan"] == before["metrics"]["makespan"]


def test_what_a_csv_cannot_hold_is_named(run: Run, tmp_path: Path) -> None:
    answer = run("convert", STASHING, "--part", "macroTrue_p4", "--to", "torch-csv")
    assert left_out(answer) == [
        "GROUP (its messages stand one by one): 46",
        "STEP: 24",
        "how messages are issued (0 posted, 144 blocking): a recipe decides",
        "attribute wv: 96",
        "what it states beside its ops: versions",
    ]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (TRACES / "chimera" / "chimera_p4_m4.json", "stage 1 computes on ranks 1 and 2"),
        (CASES / "01_cross_send_before_recv.json", "found no F, B, I or W"),
        (CASES / "18_both_directions_on_one_comm_stream.json", "rank 0 has several lanes"),
        (CASES / "19_eval_pass_on_last_rank_only.json", "rank 0 has no op that torch-csv can"),
        (CASES / "29_warmup_not_clamped.json", "no torch-csv can hold this program"),
    ],
)
def test_what_no_csv_can_hold(run: Run, path: Path, words: str) -> None:
    answer = run("convert", path, "--to", "torch-csv")
    assert answer.status == 2 and answer.out == ""
    assert answer.err.startswith(f"pipeproof: {path}: {words}")


# --- inputs and outputs ---------------------------------------------------------------------


def test_one_input(run: Run, tmp_path: Path) -> None:
    assert "no such file" in run("convert", tmp_path / "gone.csv").err
    folder = tmp_path / "plans"
    folder.mkdir()
    assert "no file to check in this folder" in run("convert", folder).err
    (folder / "a.csv").write_text("0F0\n")
    assert written(run("convert", folder, "--to", "torch-csv")) == "0F0\n"
    (folder / "b.csv").write_text("0F0\n")
    answer = run("convert", folder)
    assert answer.status == 2 and "found 2 files in this folder, expected one" in answer.err
    assert "Missing argument 'FILE'" in run("convert").err


def test_bad_input(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("0X0\n")
    answer = run("convert", path)
    assert answer.status == 2 and answer.out == ""
    assert f"{path}:1:1: found '0X0'" in answer.err


def test_parts(run: Run) -> None:
    answer = run("convert", STASHING)
    assert answer.status == 2 and answer.out == ""
    assert "found 2 programs in this file, expected one" in answer.err
    assert "--part: macroFalse_p4, macroTrue_p4" in answer.err
    answer = run("convert", STASHING, "--part", "macro")
    assert answer.status == 2 and "no part 'macro' in this file" in answer.err
    answer = run("convert", TRAIN, "--part", "macro")
    assert answer.status == 2 and "one program, which has no parts" in answer.err


def test_an_output_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    for output in (tmp_path, tmp_path / "gone" / "a.json", "a\0"):
        answer = run("convert", CASE_FILES[0], "-o", output)
        assert answer.status == 2 and "it cannot be written: " in answer.err


def test_an_output_is_replaced_as_it_is(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("something longer than what is written")
    assert run("convert", GPIPE, "--to", "torch-csv", "-o", path).status == 0
    assert path.read_bytes() == GPIPE.read_bytes().replace(b"\r\n", b"\n").rstrip(b"\n") + b"\n"


def test_targets_are_formats_that_are_read(run: Run) -> None:
    for target in convert.TARGETS:
        answer = run("convert", GPIPE, "--to", target)
        assert run("check", "--from", target, "-q", "-", stdin=answer.out.encode()).status == 0
