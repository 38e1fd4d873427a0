"""The text report: its lines, their width, and what names may do to them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.program.notation import Place
from pipeproof.report.grid import grid
from pipeproof.report.style import Style, escaped
from pipeproof.report.text import render
from pipeproof.verdict import (
    CheckResult,
    Counterexample,
    Excerpt,
    Finding,
    Report,
    Status,
    Step,
    Stuck,
    TransportRow,
    Verdict,
)

PLAIN = Style()


def place(op: str = "0SEND_F2", rank: int = 0, index: int = 8, **more: Any) -> Place:
    return Place(rank, "main", index, op, **{"line": 1, "column": 9, **more})


def finding(**fields: Any) -> Finding:
    usual: dict[str, Any] = {
        "check": "matching",
        "verdict": Verdict.MISMATCH,
        "message": "2 messages cross: 0SEND_F2 is received as 2RECV_B0",
        "where": (place(), place("2RECV_B0", 1, 10, line=2, column=11)),
        "counterexample": Counterexample(Stuck(()), (), ()),
        "replayed": True,
    }
    return Finding(**{**usual, **fields})


def report(*findings: Finding, **fields: Any) -> Report:
    check = CheckResult(
        check=findings[0].check if findings else "matching",
        status=Status.VIOLATED if findings else Status.HOLDS,
        scope="this program",
        engine="counting",
        summary=findings[0].message if findings else "all is well",
        findings=findings,
    )
    usual: dict[str, Any] = {
        "file": "a.csv",
        "name": "a.csv",
        "status": check.status,
        "transport": {"name": "nccl", "recipe": "torch"},
        "sizes": {"ranks": 2, "stages": 4, "microbatches": 3, "ops": 74},
        "checks": (check,),
        "findings": findings,
    }
    return Report(**{**usual, **fields})


def lines(*reports: Report, style: Style = PLAIN, quiet: bool = False) -> list[str]:
    return render(reports, style, quiet=quiet).splitlines()


def section(found: Finding, **fields: Any) -> list[str]:
    """The lines of a finding's section."""
    text = lines(report(found, **fields))
    return text[next(i for i, line in enumerate(text) if line.startswith("──")) :]


# --- a target ----------------------------------------------------------------------


def test_what_holds() -> None:
    assert lines(report()) == [
        "a.csv",
        "  holds on nccl (torch recipe): 2 ranks, 4 stages, 3 microbatches, 74 ops",
        "",
        "  matching   holds        all is well",
        "",
    ]


def test_what_is_violated() -> None:
    assert lines(report(finding(cause="Why not.", cures=("Do this.", "Or that.")))) == [
        "a.csv",
        "  VIOLATED on nccl (torch recipe): 2 ranks, 4 stages, 3 microbatches, 74 ops",
        "",
        "  matching   VIOLATED     2 messages cross",
        "",
        "── matching: mismatch " + "─" * 58,
        "2 messages cross: 0SEND_F2 is received as 2RECV_B0.",
        "",
        "why   Why not.",
        "cure  Do this.",
        "      Or that.",
        "at    0SEND_F2 (rank 0, op 8)  a.csv:1:9",
        "      2RECV_B0 (rank 1, op 10)  a.csv:2:11",
        "      confirmed by a step-by-step run of the program",
        "",
    ]


def test_one_of_a_thing_is_singular() -> None:
    sizes = {"ranks": 1, "stages": 1, "microbatches": 1, "ops": 1}
    (line,) = lines(report(sizes=sizes, transport={"name": "gloo"}))[1:2]
    assert line == "  holds on gloo: 1 rank, 1 stage, 1 microbatch, 1 op"


def test_transports_metrics_and_notes() -> None:
    text = lines(
        report(
            transports=(
                TransportRow("gloo", Status.HOLDS, 0),
                TransportRow("nccl", Status.VIOLATED, 1),
                TransportRow("nccl-eager", Status.VIOLATED, 2),
                TransportRow("blocking", Status.VIOLATED, None),
                TransportRow("grouped", Status.VIOLATED),
            ),
            metrics={
                "makespan": 19,
                "bubble": {"idle_over_elapsed": 0.0526, "overhead_over_ideal": 0.0556},
                "peak_bytes": {"0": 4096},
            },
            notes=("This is so.",),
        )
    )
    assert text[text.index("runs to its end on") :] == [
        "runs to its end on",
        "  gloo           yes",
        "  nccl           no; with 1 buffer slot, yes",
        "  nccl-eager     no; with 2 buffer slots, yes",
        "  blocking       no, with any number of buffer slots",
        "  grouped        no",
        "",
        "makespan 19; bubble 5.3% of elapsed time, 5.6% over the ideal; peak 4096 bytes",
        "note: This is so.",
        "",
    ]


# --- the line of a check -----------------------------------------------------------


def check_line(*found: Finding) -> str:
    return lines(report(*found))[3]


@pytest.mark.parametrize(
    ("message", "gist"),
    [
        ("2 messages cross: and so on", "2 messages cross"),
        ("it is sent 2 times; once is enough", "it is sent 2 times"),
        ("rank 0 reads act:0:1", "rank 0 reads act:0:1"),
        ("word " * 30, "word word word word word word word word word word ..."),
        ("x" * 60, "x" * 51 + "..."),
        ("a " + "x" * 60, "a ..."),
    ],
)
def test_the_line_of_a_check_says_how_the_finding_begins(message: str, gist: str) -> None:
    assert check_line(finding(message=message)) == f"  matching   VIOLATED     {gist}"


def test_the_line_of_a_check_counts_its_findings() -> None:
    assert check_line(finding(), finding()).endswith(" 2 messages cross (and 1 more)")
    line = check_line(finding(message="word " * 30), finding(), finding())
    assert line.endswith("     word word word word word word word ... (and 2 more)")
    assert len(line) <= 80


def test_no_message_stands_twice_in_full() -> None:
    message = "rank 3 runs 3F8, but the step has no microbatch 8, as it has 8 of them from 0"
    text = " ".join(" ".join(lines(report(finding(message=message)))).split())
    assert text.count("as it has 8 of them") == 1


# --- a finding ---------------------------------------------------------------------


def test_a_verdict_that_has_the_name_of_its_check_is_said_once() -> None:
    found = finding(check="deadlock", verdict=Verdict.DEADLOCK)
    assert section(found)[0] == "── deadlock " + "─" * 68


@pytest.mark.parametrize(
    ("count", "message", "said"),
    [
        (1, "0F0 never runs", False),
        (8, "rank 3 runs 3F8", True),  # an 8 in the message is not the count
        (3, "message 3 from rank 0 is lost", True),
        (2, "2 messages cross", False),
        (2, "20 messages cross", True),
    ],
)
def test_how_many_there_are_of_a_kind(count: int, message: str, said: bool) -> None:
    text = section(finding(count=count, message=message))
    assert (f"({count} of this kind; this is the first.)" in text) == said


def test_a_finding_without_picture_leaves_no_gap() -> None:
    text = section(finding(cause="Why not."))
    assert text[1:4] == [
        "2 messages cross: 0SEND_F2 is received as 2RECV_B0.",
        "",
        "why   Why not.",
    ]


def test_at_most_four_places_are_listed() -> None:
    text = section(finding(where=tuple(place(index=i) for i in range(7))))
    at = text.index("at    0SEND_F2 (rank 0, op 0)  a.csv:1:9")
    assert text[at + 3] == "      0SEND_F2 (rank 0, op 3)  a.csv:1:9"
    assert text[at + 4] == "      and 3 more"


LONG = "folder/" * 12 + "file with a blank.csv"


def test_a_long_path_stands_whole_on_its_own_line() -> None:
    text = section(finding(), file=LONG)
    at = text.index("at    0SEND_F2 (rank 0, op 8)")
    assert text[at + 1 : at + 4] == [
        f"      {LONG}:1:9",
        "      2RECV_B0 (rank 1, op 10)",
        f"      {LONG}:2:11",
    ]


def test_all_places_of_a_finding_are_written_alike() -> None:
    """If one does not fit on a line with its path, none is put on one."""
    name = "f" * 40
    short, long = place("0F0"), place("SEND activation.of.a.layer to 1")
    text = section(finding(where=(short, long)), file=name)
    assert text[text.index("at    0F0 (rank 0, op 8)") + 1] == f"      {name}:1:9"
    text = section(finding(where=(short,)), file=name)
    assert f"at    0F0 (rank 0, op 8)  {name}:1:9" in text


@pytest.mark.parametrize(("length", "fits"), [(45, True), (46, False)])
def test_a_line_may_be_80_columns_wide(length: int, fits: bool) -> None:
    line = f"at    0SEND_F2 (rank 0, op 8)  {'f' * length}:1:9"
    assert (len(line) <= 80) == fits
    text = section(finding(where=(place(),)), file="f" * length)
    assert (line in text) == fits


def test_places_in_json_have_a_path() -> None:
    where = place("0F0", line=None, column=None, path="model.programs.0[3]")
    assert "at    0F0 (rank 0, op 8)  a.json: model.programs.0[3]" in section(
        finding(where=(where,)), file="a.json"
    )


# --- the picture -------------------------------------------------------------------


def excerpt(rank: int, *ops: str, mark: str = "", **more: Any) -> Excerpt:
    usual = {"lane": "main", "before": 0, "after": 0}
    marks = tuple(mark if i == 0 else "" for i in range(len(ops)))
    return Excerpt(rank=rank, first=0, ops=ops, marks=marks, **{**usual, **more})


def story(*texts: str, cyclic: bool = False) -> Counterexample:
    steps = tuple(Step(place(), text) for text in texts)
    return Counterexample(Stuck(()), (), steps, cyclic)


def test_the_story_stands_beside_the_grid() -> None:
    found = finding(
        excerpts=(
            excerpt(0, "0SEND_F0", "0F1", mark="stuck", before=2),
            excerpt(1, "1SEND_B0", mark="in flight", after=10),
        ),
        counterexample=story("rank 0 waits for rank 1.", "rank 1 waits.", cyclic=True),
    )
    assert section(found)[3:10] == [
        "rank 0       │ rank 1          1. Rank 0 waits for rank 1.",
        "  (2 before) │ ~ 1SEND_B0      2. Rank 1 waits.",
        "▶ 0SEND_F0   │   (10 more)        ... which waits for 1.",
        "  0F1        │",
        "",
        "▶ stuck   ~ posted, not done",
        "",
    ]


def test_the_story_stands_under_a_wide_grid() -> None:
    found = finding(
        excerpts=tuple(excerpt(r, "SEND a.long.name to 1") for r in range(2)),
        counterexample=story("word " * 30),
    )
    text = section(found)
    assert text[5] == "" and text[6].startswith("1. Word word") and len(text[6]) > 70


def test_marks_are_explained_where_they_are_used() -> None:
    ascii_only = Style(unicode=False)
    found = finding(excerpts=(excerpt(0, "0F0", mark="done"), excerpt(1, "0F0", mark="here")))
    assert "▶ here   · done" in section(found)
    assert "> here   . done" in lines(report(found), style=ascii_only)
    assert not any("done" in line for line in section(finding(excerpts=(excerpt(0, "0F0"),))))


def test_a_group_is_broken_between_its_members() -> None:
    two = "(0SEND_F12;0RECV_B10)GROUP"
    many = f"({';'.join(f'0SEND_F{i}' for i in range(6))})GROUP"
    assert grid((excerpt(0, two, "0F1", mark="here"), excerpt(1, many)), PLAIN) == [
        "rank 0             │ rank 1",
        "▶ (0SEND_F12;      │   (0SEND_F0;",
        "   0RECV_B10)GROUP │    0SEND_F1;",
        "  0F1              │    4 more)",
    ]


def test_a_group_of_three_stands_whole() -> None:
    three = "(0SEND_F12;0RECV_B10;0SEND_F13)GROUP"
    assert grid((excerpt(0, three),), PLAIN)[1:] == [
        "  (0SEND_F12;",
        "   0RECV_B10;",
        "   0SEND_F13)GROUP",
    ]
    assert grid((excerpt(0, "(0SEND_F0;0RECV_B0)"),), PLAIN)[1:] == ["  (0SEND_F0;0RECV_B0)"]


def test_long_ops_are_cut() -> None:
    assert grid((excerpt(0, "SEND a.long.name to 12"),), PLAIN)[1] == "  SEND a.long.name..."
    four = grid(tuple(excerpt(r, "SEND name.1 to 12") for r in range(4)), PLAIN)
    assert four[1] == " │ ".join(["  SEND name.1..."] * 4)
    assert max(map(len, four)) <= 80


@given(
    st.lists(
        st.builds(
            excerpt,
            st.integers(0, 10**6),
            st.text(max_size=40),
            st.sampled_from(["0F0", "(0SEND_F1;0RECV_B22)GROUP", "x" * 50, ";;;;;;" * 9]),
            lane=st.text(max_size=30),
            before=st.integers(0, 10**9),
            after=st.integers(0, 10**9),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_any_grid_fits(excerpts: list[Excerpt], unicode: bool) -> None:
    for line in grid(tuple(excerpts), Style(unicode=unicode)):
        assert len(line) <= 80 and line.isprintable()
        assert unicode or line.isascii()


# --- several targets ---------------------------------------------------------------

FAILED = Report("b.csv", "b.csv", Status.UNDETERMINED, error={"message": "no"})


def test_the_tally() -> None:
    assert lines(report(), report(finding()), report(), FAILED)[-1] == (
        "4 targets: 1 violated, 2 holds, 1 not judged"
    )
    assert lines(report(), FAILED)[-1] == "2 targets: 1 holds, 1 not judged"
    assert "targets" not in render([report()], PLAIN)
    assert render([FAILED], PLAIN) == ""


def test_quiet() -> None:
    leak = finding(verdict=Verdict.LEAK)
    undetermined = report(status=Status.UNDETERMINED)
    assert lines(report(), report(finding(), leak, leak), undetermined, FAILED, quiet=True) == [
        "a.csv: holds",
        "a.csv: mismatch, leak",
        "a.csv: undetermined",
    ]


# --- colour, encodings and names ---------------------------------------------------


def test_colour_only_repeats_words() -> None:
    reports = [report(), report(finding(excerpts=(excerpt(0, "0F0", mark="here"),))), FAILED]
    for quiet in (False, True):
        coloured = render(reports, Style(colour=True), quiet=quiet)
        assert "\x1b[31m" in coloured and "\x1b[32m" in coloured
        assert re.sub("\x1b\\[[0-9]*m", "", coloured) == render(reports, PLAIN, quiet=quiet)


@pytest.mark.parametrize(
    ("text", "shown", "in_ascii"),
    [
        ("0F0 a-b", "0F0 a-b", "0F0 a-b"),
        ("a\nb\tc\r", r"a\nb\tc\r", r"a\nb\tc\r"),
        ("\x1b[31mred\x07\0", r"\x1b[31mred\x07\x00", r"\x1b[31mred\x07\x00"),
        ("\u202eevil\u200b", r"\u202eevil\u200b", r"\u202eevil\u200b"),
        ("\ud800", r"\ud800", r"\ud800"),
        ("é → 界", "é → 界", r"\xe9 \u2192 \u754c"),
        ("\x85\u2028", r"\x85\u2028", r"\x85\u2028"),
        (r"a\n", r"a\n", r"a\n"),
    ],
)
def test_names_are_escaped(text: str, shown: str, in_ascii: str) -> None:
    assert escaped(text) == shown
    assert escaped(text, unicode=False) == in_ascii


names = st.one_of(st.text(max_size=30), st.text("\n\t\x1b \u202eé;", max_size=100))


@given(names, names, names, st.booleans(), st.booleans())
def test_names_can_do_nothing_to_the_report(
    file: str, op: str, text: str, unicode: bool, quiet: bool
) -> None:
    """Every line can be printed, and fits, but for a path that is longer itself."""
    where = (place(op), place(op, line=None, column=None, path=text))
    found = finding(
        message=text,
        cause=text,
        cures=(text, op),
        where=where,
        excerpts=(excerpt(0, op, text, lane=text), excerpt(1, op)),
        counterexample=story(text, op),
    )
    target = report(found, file=file, notes=(text,), transport={"name": text})
    unsure = replace(target.checks[0], findings=(), summary=text)
    style = Style(unicode=unicode)
    output = render([target, report(checks=(unsure,), file=file)], style, quiet=quiet)
    path, at = escaped(file, unicode=unicode), escaped(text, unicode=unicode)
    for line in output.split("\n"):
        assert line.isprintable()
        assert unicode or line.isascii()
        assert len(line) <= 80 or path in line or f": {at}" in line
    if quiet:
        assert output.count("\n") == 2
