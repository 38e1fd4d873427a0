"""``pipeproof check``: options, exit statuses, and the two forms of its report."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeproof.checks.table import CHECKS
from pipeproof.cli import check, options
from pipeproof.judge import judge
from pipeproof.judge.claims import NAME as CLAIMS
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import RECIPES
from tests.cli.conftest import Answer, Run
from tests.torch_files import DEFERRED, FOLDER

CASES = FOLDER.parent / "cases"
HOLDS = FOLDER / "GPipe_2_2_1.comms.csv"
VIOLATED = DEFERRED / "ZBVZeroBubble_2_3_2.deferred.comms.csv"
EXECUTED = FOLDER / "1F1B_2_2_1.executed.txt"
CASE = CASES / "01_cross_send_before_recv.json"

# Neighbours send first: it needs a buffer slot, and it has no memory to spare.
CROSSED = b"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0,1RECV_F0\n"


@pytest.fixture
def undetermined(tmp_path: Path) -> Path:
    """A program with a choice of which the format does not say what it means."""
    path = tmp_path / "undetermined.json"
    ops = [["IRECV", "x", "any", {"req": "a"}], ["WAIT", "a"]]
    programs = {"0": ops, "1": [["SEND", "x", 0]]}
    path.write_text(json.dumps({"programs": programs, "semantics": {"streams": "pair"}}))
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.csv"
    path.write_text("0F0\n1F0,,1X0\n")
    return path


def report(answer: Answer) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(answer.out)
    assert document["exit_status"] == answer.status
    return document


def target(run: Run, *arguments: Any, **options: Any) -> dict[str, Any]:
    """The only target of a JSON report."""
    (found,) = report(run("check", "--format", "json", *arguments, **options))["targets"]
    assert isinstance(found, dict)
    return found


# --- exit statuses -----------------------------------------------------------------


def test_holds(run: Run) -> None:
    answer = run("check", HOLDS)
    assert answer.status == 0 and answer.err == ""
    assert answer.out.startswith(f"{HOLDS}\n  holds on nccl (torch recipe): 2 ranks, 2 stages")


def test_violated(run: Run) -> None:
    answer = run("check", VIOLATED)
    assert answer.status == 1 and answer.err == ""
    assert "── matching: mismatch ─" in answer.out and "── deadlock ─" in answer.out


def test_undetermined(run: Run, undetermined: Path) -> None:
    answer = run("check", undetermined)
    assert answer.status == 3 and answer.err == ""
    assert "  undetermined on rendezvous, pair str" in answer.out


def test_bad_input(run: Run, bad: Path) -> None:
    answer = run("check", bad)
    assert answer.status == 2 and answer.out == ""
    assert answer.err.startswith(f"pipeproof: {bad}:2:3: found '1X0'; expected one of F, I")
    assert answer.err.endswith("\n  X is no action that torch writes.\n")


def test_missing_files(run: Run, tmp_path: Path) -> None:
    answer = run("check", tmp_path / "gone.csv", tmp_path / "gone")
    assert answer.status == 2
    assert answer.err.count("no such file or folder") == 2


def test_a_folder_without_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("0F0")
    answer = run("check", tmp_path)
    assert answer.status == 5 and answer.out == ""
    assert "no file to check in this folder, expected .csv or .executed.txt" in answer.err
    assert report(run("check", tmp_path, tmp_path, "--format", "json")) == {
        "schema": 1,
        "verdict": "undetermined",
        "exit_status": 5,
        "targets": [],
    }
    # Beside files it is more likely a slip.
    assert run("check", tmp_path, HOLDS).status == 2
    assert run("check", tmp_path, tmp_path / "gone").status == 2


def test_the_worst_status_counts(run: Run, bad: Path, undetermined: Path) -> None:
    """4, 2, 1, 3, 0, in any order of the targets."""
    by_status = {2: bad, 1: VIOLATED, 3: undetermined, 0: HOLDS}
    order = list(by_status)
    for i, worse in enumerate(order):
        for other in order[i:]:
            for pair in ((worse, other), (other, worse)):
                assert run("check", "-q", *(by_status[s] for s in pair)).status == worse
    assert run("check", "-q", *by_status.values()).status == 2


def test_one_bad_file_does_not_hide_the_others(run: Run, bad: Path) -> None:
    answer = run("check", VIOLATED, bad, HOLDS)
    assert answer.status == 2
    assert f"{VIOLATED}\n" in answer.out and f"{HOLDS}\n" in answer.out
    assert "3 targets: 1 violated, 1 holds, 1 not judged" in answer.out
    assert answer.err.count("\n") == 2


def test_an_internal_error_does_not_hide_the_others(
    run: Run, bad: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = judge.judge_schedule

    def broken(file: str, *arguments: Any) -> Any:
        if file == str(VIOLATED):
            raise ZeroDivisionError("oh no")
        return judged(file, *arguments)

    monkeypatch.setattr(judge, "judge_schedule", broken)
    answer = run("check", VIOLATED, bad, HOLDS)
    assert answer.status == 4
    assert f"internal error on {VIOLATED}: ZeroDivisionError: oh no" in answer.err
    assert "Traceback" not in answer.err
    assert f"{HOLDS}\n  holds on nccl" in answer.out
    document = report(run("check", VIOLATED, HOLDS, "--format", "json"))
    assert [t["verdict"] for t in document["targets"]] == ["error", "holds"]
    assert document["targets"][0]["error"] == {
        "message": "internal error: oh no",
        "internal": True,
    }


def test_too_little_memory_is_no_defect(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(judge, "judge_schedule", exhausted)
    answer = run("check", HOLDS)
    assert answer.status == 2
    assert "too large for this machine's memory" in answer.err


# --- inputs ------------------------------------------------------------------------


def test_standard_input(run: Run) -> None:
    answer = run("check", "-", stdin=HOLDS.read_bytes())
    assert answer.status == 0 and answer.out.startswith("-\n  holds on nccl")
    assert run("check", "-", stdin=CASE.read_bytes()).status == 1
    assert "-:1:2: found '0X0'" in run("check", "-", stdin=b"0F0,0X0").err
    answer = run("check", "-", "-", stdin=b"")
    assert answer.status == 2
    assert "nothing stands on standard input" in answer.err and "read once" in answer.err


def test_from(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "recording.log"
    path.write_bytes(EXECUTED.read_bytes())
    assert "the extension .log says no format" in run("check", path).err
    assert run("check", "--from", "torch-executed", path).status == 0
    assert run("check", "--from", "torch-csv", path).status == 2
    assert "case, an object" in run("check", "--from", "program-json", "-", stdin=b"[]").err
    assert "Invalid value for '--from'" in run("check", "--from", "csv", path).err


def test_folders(run: Run, tmp_path: Path, bad: Path) -> None:
    for name in ("b.csv", "sub/a.csv", "c.executed.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        source = EXECUTED if name.endswith(".txt") else HOLDS
        (tmp_path / name).write_bytes(source.read_bytes())
    answer = run("check", "-q", tmp_path)
    assert answer.status == 2
    assert answer.out.splitlines() == [
        f"{tmp_path}/b.csv: holds",
        f"{tmp_path}/c.executed.txt: holds",
        f"{tmp_path}/sub/a.csv: holds",
    ]
    assert f"{bad}:2:3:" in answer.err
    assert run("check", "-q", "--from", "torch-executed", tmp_path).status == 0


def test_encoded_otherwise(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("0F0,0B0\n".encode("utf-16"))
    assert "UTF-16" in run("check", path).err
    path.write_bytes(b"\xef\xbb\xbf0F0,0B0\r\n")
    assert run("check", path).status == 0


def test_names_are_escaped(run: Run, tmp_path: Path) -> None:
    name = "new\nline\x1b[31m.csv"
    (tmp_path / name).write_text("0F0")
    answer = run("check", "-q", tmp_path / name)
    assert answer.out == f"{tmp_path}/new\\nline\\x1b[31m.csv: holds\n"
    (tmp_path / name).write_text("0X0")
    answer = run("check", tmp_path / name)
    assert answer.err.startswith(f"pipeproof: {tmp_path}/new\\nline\\x1b[31m.csv:1:1: found")
    assert report(run("check", "--format", "json", tmp_path / name))["targets"][0]["name"] == name


# --- options -----------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(
    ("slots", "p2p"),
    [
        ("", "rendezvous"),
        (":0", "rendezvous"),
        (":1", {"buffered": 1}),
        (":inf", {"buffered": None}),
    ],
)
def test_transport(run: Run, name: str, slots: str, p2p: Any) -> None:
    found = target(run, "--transport", name + slots, VIOLATED)
    assert found["transport"]["p2p"] == p2p
    assert found["transport"]["name"] == name + slots.replace(":0", "")
    deadlock = [f for f in found["findings"] if f["check"] == "deadlock"]
    rendezvous = p2p == "rendezvous"
    assert bool(deadlock) == (rendezvous and name in ("nccl", "nccl-eager"))
    # The rows beside it do not depend on what is asked for.
    assert found["transports"]["gloo"] == "holds"


@pytest.mark.parametrize("text", ["mpi", "", "nccl:", "nccl:-1", "nccl:one", "NCCL", "nccl:1:1"])
def test_transports_that_are_none(run: Run, text: str) -> None:
    answer = run("check", "--transport", text, HOLDS)
    assert answer.status == 2
    assert "Invalid value for '--transport'" in answer.err and answer.out == ""


def test_a_program_keeps_its_own_transport(run: Run) -> None:
    assert target(run, CASE)["transport"]["name"] == "rendezvous"
    assert target(run, CASE, "--transport", "gloo")["transport"]["name"] == "gloo"


def test_recipe(run: Run) -> None:
    path = FOLDER / "1F1B_4_8_1.compute_only.csv"
    for recipe in ("torch", "naive", "grouped"):
        found = target(run, "--recipe", recipe, "--only", "deadlock", path)
        assert found["transport"]["recipe"] == recipe
        assert found["verdict"] == ("holds" if recipe == "torch" else "violated")
    assert "Invalid value for '--recipe'" in run("check", "--recipe", "mpi", path).err


def test_only(run: Run) -> None:
    found = target(run, "--only", "coverage", VIOLATED)
    assert [c["check"] for c in found["checks"]] == ["coverage"]
    assert found["verdict"] == "holds" and found["transports"] == {}
    found = target(run, "--only", "race", "--only", "matching", VIOLATED)
    assert [c["check"] for c in found["checks"]] == ["matching", "race"]
    assert "Invalid value for '--only'" in run("check", "--only", "bubbles", VIOLATED).err


def test_the_names_of_checks_and_recipes() -> None:
    """They are written out beside the options, for a fast --help."""
    assert (*(entry.name for entry in CHECKS), CLAIMS) == check.CHECK_NAMES
    assert options.RECIPE_NAMES == RECIPES


def test_a_check_that_does_not_apply_passes_nothing(run: Run) -> None:
    answer = run("check", "--only", "gradients", HOLDS)
    assert answer.status == 5
    assert "nothing to check: none of the checks asked for applies" in answer.out
    assert run("check", "--only", "gradients", "--only", "order", HOLDS).status == 0


def test_fixed(run: Run) -> None:
    assert target(run, CASE)["verdict"] == "violated"
    assert target(run, CASE, "--fixed")["verdict"] == "holds"
    answer = run("check", "--fixed", HOLDS)
    assert answer.status == 2 and "Leave out --fixed" in answer.err


def test_the_limit_of_a_search(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "chosen.json"
    ops = [["RECV", "x", "any", {"commutes": True}]] * 3
    programs = {"0": ops, **{str(r): [["SEND", "x", 0]] for r in (1, 2, 3)}}
    path.write_text(json.dumps({"programs": programs}))
    found = target(run, path)
    assert found["verdict"] == "holds"
    (deadlock,) = [c for c in found["checks"] if c["check"] == "deadlock"]
    states = deadlock["evidence"]["states"]
    assert deadlock["scope"] == f"every execution of this program: {states} states explored"
    assert target(run, "--states", states, path)["verdict"] == "holds"
    assert target(run, "--states", states - 1, path)["verdict"] == "undetermined"


def test_budget(run: Run) -> None:
    """GPipe with two microbatches holds two activations on each rank."""
    for units, verdict in (
        ("2", "holds"),
        ("1", "violated"),
        ("0=2,1=2", "holds"),
        ("1=1", "violated"),
        (" 9 , 1=1", "violated"),
        ("0=0,5", "violated"),
        ("9", "holds"),
    ):
        assert target(run, "--budget", units, HOLDS)["verdict"] == verdict, units
    found = target(run, "--budget", "1=1", HOLDS)["findings"][0]
    assert found["verdict"] == "memory-exceeded" and found["where"][0]["rank"] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found ''; expected a number, or RANK=NUMBER"),
        ("x", "found 'x'"),
        ("-1", "found '-1'"),
        ("1.5", "found '1.5'"),
        ("0=", "found '0='"),
        ("=1", "found '=1'"),
        ("0=1=2", "found '0=1=2'"),
        ("1,,2", "found ''"),
        ("9" * 30, "found '999"),
        ("\u0661", "found '\u0661'"),
        ("1,2", "every rank is given twice"),
        ("0=1,0=2", "rank 0 is given twice"),
    ],
)
def test_budgets_that_are_none(run: Run, text: str, words: str) -> None:
    answer = run("check", "--budget", text, HOLDS)
    assert answer.status == 2
    assert "Invalid value for '--budget'" in answer.err and words in answer.err


def test_a_budget_of_a_rank_that_is_not_there_is_refused(run: Run) -> None:
    for file in (HOLDS, CASE, EXECUTED):
        answer = run("check", "--budget", "2=4", file)
        assert answer.status == 2
        assert "found 2 ranks; --budget names rank 2" in answer.err


def test_activation_bytes(run: Run) -> None:
    found = target(run, "--activation-bytes", 2**40, HOLDS)
    assert found["metrics"]["peak_bytes"] == {"0": 2**41, "1": 2**41}
    answer = run("check", "--activation-bytes", 2**40, HOLDS)
    assert "peak 2199023255552 bytes" in " ".join(answer.out.split())
    assert run("check", "--activation-bytes", -1, HOLDS).status == 2


def test_microbatches(run: Run) -> None:
    found = target(run, "--microbatches", 3, HOLDS)
    assert found["verdict"] == "violated" and found["sizes"]["microbatches"] == 3
    assert "0F2 never runs" in found["findings"][0]["message"]
    assert target(run, "--microbatches", 2, HOLDS)["verdict"] == "holds"
    assert target(run, "--microbatches", 2**30 - 1, HOLDS)["verdict"] == "violated"
    for number in (0, -1, "x", 1.5, 2**30, 10**30):
        assert run("check", "--microbatches", number, HOLDS).status == 2


def test_notation(run: Run) -> None:
    older = b"0F0,0BW0\n"
    answer = run("check", "-", stdin=older)
    assert answer.status == 2 and "say so: --notation older" in answer.err
    assert run("check", "--notation", "older", "-", stdin=older).status == 0
    assert run("check", "--notation", "oldest", "-", stdin=older).status == 2


def test_cost(run: Run) -> None:
    """One microbatch through two ranks: two forwards, two backwards, two messages."""
    text = b"0F0,0B0\n1F0,1B0\n"
    for cost, makespan in (
        ("F=1", 6),
        ("F=2,B=1", 6),
        ("F=1,I=0.5,W=0.25,comm=10", 23.5),
        ("comm=1", 8),
        ("F=0,I=0,W=0", 0),
    ):
        metrics = target(run, "--cost", cost, "-", stdin=text)["metrics"]
        assert metrics["makespan"] == makespan, cost
    assert (
        "makespan 23.5;" in run("check", "--cost", "F=1,I=.5,W=.25,comm=10", "-", stdin=text).out
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found ''"),
        ("F", "found 'F'"),
        ("X=1", "found 'X=1'"),
        ("F=x", "found 'x' for F"),
        ("F=-1", "found -1 for F"),
        ("F=nan", "found nan for F"),
        ("F=inf", "found inf for F"),
        ("F=1,F=2", "F is given twice"),
    ],
)
def test_costs_that_are_none(run: Run, text: str, words: str) -> None:
    answer = run("check", "--cost", text, HOLDS)
    assert answer.status == 2
    assert "Invalid value for '--cost'" in answer.err and words in answer.err


def test_quiet(run: Run, undetermined: Path) -> None:
    answer = run("check", "--quiet", HOLDS, VIOLATED, undetermined)
    assert answer.out.splitlines() == [
        f"{HOLDS}: holds",
        f"{VIOLATED}: mismatch, deadlock",
        f"{undetermined}: undetermined",
    ]


# --- the JSON report ---------------------------------------------------------------

VERDICTS = {
    *("deadlock", "order-violation", "mismatch", "version-violation", "memory-exceeded"),
    *("numeric-mismatch", "leak", "race", "claim-violated"),
}
STATUSES = {"holds", "violated", "undetermined"}


def is_place(where: Any) -> bool:
    return (
        isinstance(where["rank"], int)
        and isinstance(where["lane"], str)
        and isinstance(where["index"], int)
        and isinstance(where["op"], str)
        and all(isinstance(where[k], int | None) for k in ("line", "column"))
        and isinstance(where.get("path", ""), str)
    )


def check_target(found: dict[str, Any]) -> None:
    """The keys that users' scripts rely on, and what they hold."""
    assert isinstance(found["file"], str) and isinstance(found["name"], str)
    assert found["verdict"] in STATUSES
    assert isinstance(found["transport"]["name"], str)
    for size in ("ranks", "stages", "microbatches", "ops"):
        assert isinstance(found["sizes"][size], int)
    for result in found["checks"]:
        for key in ("check", "scope", "engine", "summary"):
            assert isinstance(result[key], str)
        assert result["status"] in STATUSES
        assert isinstance(result["seconds"], int | float) and result["seconds"] >= 0
        assert isinstance(result["evidence"], dict)
        assert (result["status"] == "undetermined") == ("reason" in result)
    statuses = {c["status"] for c in found["checks"]}
    worst = [s for s in ("violated", "undetermined", "holds") if s in statuses]
    assert found["verdict"] == worst[0]
    assert bool(found["findings"]) == (found["verdict"] == "violated")
    for finding in found["findings"]:
        assert finding["check"] in {c["check"] for c in found["checks"]}
        assert finding["verdict"] in VERDICTS
        assert isinstance(finding["message"], str) and finding["count"] >= 1
        assert all(is_place(where) for where in finding["where"])
        assert finding["replayed"] is True
        example = finding["counterexample"]
        assert isinstance(example["claim"]["kind"], str)
        assert all(isinstance(move, int) for move in example["moves"])
        assert isinstance(example["cyclic"], bool)
        assert all(is_place(s["where"]) and isinstance(s["text"], str) for s in example["steps"])
    assert all(v in STATUSES for v in found["transports"].values())
    assert isinstance(found["metrics"], dict)
    assert all(isinstance(note, str) for note in found["notes"])


def test_json_of_what_was_judged(run: Run, undetermined: Path) -> None:
    files = [HOLDS, VIOLATED, EXECUTED, CASE, undetermined]
    document = report(run("check", "--format", "json", *files))
    assert document["schema"] == 1 and document["verdict"] == "violated"
    assert [t["file"] for t in document["targets"]] == [str(f) for f in files]
    for found in document["targets"]:
        check_target(found)
    holds, violated, executed, case, unsure = document["targets"]
    assert [t["verdict"] for t in document["targets"]] == [
        *("holds", "violated", "holds", "violated", "undetermined"),
    ]
    names = ["coverage", "order", "matching", "deadlock", "race", "memory"]
    for found in (holds, violated, executed, case):
        assert [c["check"] for c in found["checks"]] == names
    for found in (holds, violated, executed):
        assert {"gloo", "nccl", "nccl-directed", "nccl-eager"} <= set(found["transports"])
    assert {"blocking", "grouped"} <= set(holds["transports"])
    assert holds["metrics"]["makespan"] == 9
    assert holds["metrics"]["peak_memory"] == {"0": 2, "1": 2}
    assert holds["metrics"]["smallest_safe_capacity"] == 0
    assert violated["metrics"]["smallest_safe_capacity"] == 1
    assert unsure["findings"] == []
    mismatch, deadlock = violated["findings"]
    assert (mismatch["verdict"], deadlock["verdict"]) == ("mismatch", "deadlock")
    place = dict(rank=0, lane="main", index=8, op="0SEND_F2", line=1, column=9)  # noqa: C408
    assert mismatch["where"][0] == place
    assert case["findings"][0]["where"][0]["path"] == "model.programs.0[0]"


def test_json_of_what_was_not(run: Run, bad: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"programs": {"0": [["F", 0]]}}')
    gone = tmp_path / "gone.csv"
    document = report(run("check", "--format", "json", bad, broken, gone, HOLDS))
    assert document["verdict"] == "undetermined" and document["exit_status"] == 2
    csv, program, missing, held = document["targets"]
    for found in (csv, program, missing):
        assert found["verdict"] == "error"
        assert found["checks"] == found["findings"] == []
        assert isinstance(found["error"]["message"], str)
    assert (csv["error"]["line"], csv["error"]["column"]) == (2, 3)
    assert (csv["file"], csv["name"]) == (str(bad), "bad.csv")
    assert "programs" in program["error"]["path"]
    assert missing["error"]["message"] == "no such file or folder"
    check_target(held)
    worse = report(run("check", "--format", "json", bad, VIOLATED))
    assert worse["verdict"] == "violated"


def test_json_is_one_object_in_ascii(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "zéro.csv"
    path.write_text("0F0,0B0")
    answer = run("check", "--format", "json", "--quiet", path)
    assert answer.out.isascii() and answer.out.endswith("}\n")
    assert target(run, path)["file"] == str(path)


# --- the text report ---------------------------------------------------------------


def test_colour_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    plain = run("check", VIOLATED).out
    assert "\x1b" not in plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    coloured = run("check", VIOLATED).out
    assert "\x1b[31mVIOLATED\x1b[0m" in coloured
    assert re.sub("\x1b\\[[0-9]*m", "", coloured) == plain
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as context:
            context.setenv(name, value)
            assert run("check", VIOLATED).out == plain
    with monkeypatch.context() as context:
        context.setenv("NO_COLOR", "")  # set to nothing, it asks for nothing
        assert run("check", VIOLATED).out == coloured


def shares() -> list[Any]:
    """The real files in shares of a second or two each; the small ones by other recipes too."""
    files = sorted(map(str, FOLDER.glob("*.[ct]*")))
    small = [f for f in files if re.search("_[24]_[248]_", f)]
    deferred = sorted(map(str, DEFERRED.glob("*.csv")))
    cases = sorted(map(str, CASES.glob("*.json")))
    parts = {
        **{f"torch {i}": ("torch", files[i::4]) for i in range(4)},
        "deferred": ("torch", deferred),
        "cases": ("torch", cases),
        "naive": ("naive", [*small[::4], *deferred[::6]]),
        "grouped": ("grouped", [*small[1::4], *deferred[1::6]]),
    }
    return [pytest.param(recipe, part, id=name) for name, (recipe, part) in parts.items()]


@pytest.mark.parametrize(("recipe", "files"), shares())
def test_every_line_fits(run: Run, recipe: str, files: list[str]) -> None:
    """On real files: at most 80 columns, but for lines that only hold a long path."""
    answer = run("check", "--recipe", recipe, *files)
    assert answer.status in (0, 1, 3) and answer.err == ""
    for line in answer.out.splitlines():
        assert len(line) <= 80 or re.fullmatch(r" *\S+(:\d+:\d+|: [\w.\[\]]+)?", line), line
        assert line == line.rstrip()
    assert f"{len(files)} targets: " in answer.out


def test_every_real_file_has_a_quiet_line(run: Run) -> None:
    answer = run("check", "-q", "--only", "coverage", FOLDER / "deferred", CASES)
    assert answer.status == 2  # INDEX.json is no program
    lines = answer.out.splitlines()
    assert len(lines) == 44 + 32
    assert all(re.fullmatch(r"\S+: [a-z-]+(, [a-z-]+)*", line) for line in lines)


# --- recordings ------------------------------------------------------------------------

TRACES = FOLDER.parent / "traces"


def test_recordings_are_told_by_their_contents(run: Run) -> None:
    document = report(run("check", "--format", "json", TRACES / "chimera", TRACES / "deepspeed"))
    verdicts = {t["name"]: t["verdict"] for t in document["targets"]}
    assert len(verdicts) == 7
    assert [name for name, word in verdicts.items() if word != "holds"] == ["chimera_p8_m32.json"]


def test_a_file_of_several_programs_is_several_targets(run: Run) -> None:
    path = TRACES / "pipedream" / "pipedream_versions.json"
    document = report(run("check", "--format", "json", path))
    assert [(t["file"], t["name"], t["verdict"]) for t in document["targets"]] == [
        (str(path), "pipedream_versions.json [macroFalse_p4]", "holds"),
        (str(path), "pipedream_versions.json [macroTrue_p4]", "violated"),
    ]
    answer = run("check", "-q", path)
    assert answer.out.splitlines() == [
        f"{path} [macroFalse_p4]: holds",
        f"{path} [macroTrue_p4]: version-violation",
    ]
    assert f"\n{path} [macroTrue_p4]\n  VIOLATED" in run("check", path).out


def test_only_cases_have_a_repaired_program(run: Run) -> None:
    path = TRACES / "deepspeed" / "train_p2_m1.json"
    assert "expected a case with a repaired program" in run("check", "--fixed", path).err


def test_a_recording_asked_for_as_another(run: Run) -> None:
    path = TRACES / "deepspeed" / "train_p2_m1.json"
    answer = run("check", "--from", "chimera", path)
    assert answer.status == 2 and "unknown key" in answer.err
