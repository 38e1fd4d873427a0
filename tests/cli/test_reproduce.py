"""``pipeproof reproduce`` as a user meets it."""

from __future__ import annotations

import copy
import json

import pytest

from pipeproof.published import facts, table
from tests.cli.conftest import Run


def test_text(run: Run) -> None:
    answer = run("reproduce", "--only", "overhead over ideal is")
    assert answer.status == 0
    assert answer.out == (
        "overhead over ideal is (p-1)/m\n"
        "  Megatron-LM, 2104.04473\n"
        "\n"
        "                   published  ours\n"
        "  p=4, m=8  gpipe        3/8   3/8  agrees\n"
        "            1f1b         3/8   3/8  agrees\n"
        "\n" + "─" * 80 + "\n"
        "2 of 2 figures in 1 claim agree.\n"
    )


def test_markdown(run: Run) -> None:
    answer = run("reproduce", "--only", "chimera activations", "--format", "markdown")
    assert answer.out == (
        "# Published figures, and ours\n"
        "\n"
        "`pipeproof reproduce --format markdown` prints this page.\n"
        "\n"
        "1 of 1 figure in 1 claim agrees.\n"
        "\n"
        "## Chimera activations per device, D=8\n"
        "\n"
        "2107.06925, table 2\n"
        "\n"
        "| case | | published | ours | |\n"
        "|---|---|---:|---:|---|\n"
        "| D=8, N=8 | by device | 5 6 7 8 8 7 6 5 | 5 6 7 8 8 7 6 5 | agrees |\n"
    )


def test_json(run: Run) -> None:
    answer = run("reproduce", "--only", "2BW", "--format", "json")
    document = json.loads(answer.out)
    assert (document["schema"], document["exit_status"], answer.status) == (1, 0, 0)
    (claim,) = document["claims"]
    assert claim["agrees"] and claim["source"] == "2006.16668"
    first, last = claim["cases"][0], claim["cases"][-1]
    assert (first["published"], first["ours"], first["agrees"]) == ([2] * 4, [2] * 4, True)
    assert (last["outcome"], last["agrees"], last["ours"]) == ("finding", None, 3)


def test_a_wrong_fact_is_answered_with_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    data = copy.deepcopy(facts.document(facts.CLAIMS))
    data["entries"][1]["cases"][0]["value"] = "2/8"
    monkeypatch.setattr(
        table, "document", lambda name: data if name == facts.CLAIMS else facts.document(name)
    )
    answer = run("reproduce", "--only", "overhead over ideal is")
    assert answer.status == 1
    assert "  p=4, m=8  gpipe        1/4   3/8  DISAGREES\n" in answer.out
    assert "0 of 2 figures in 1 claim agree; 2 disagree.\n" in answer.out


def test_words_that_no_claim_has(run: Run) -> None:
    answer = run("reproduce", "--only", "pigs")
    assert answer.status == 2
    assert "no claim has 'pigs' in its words" in answer.err
