"""The whole table: every figure agrees, and the page in docs/ is what is computed.

One test, so that the table (some 20 seconds) is computed once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeproof.published.figures import Outcome
from pipeproof.published.table import entries, reproduced, units
from pipeproof.report.reproduce import exit_status, render
from pipeproof.report.style import Style

PAGE = Path(__file__).parent.parent.parent / "docs" / "published.md"


def test_every_figure_agrees_and_the_page_says_so(request: pytest.FixtureRequest) -> None:
    found = entries()
    claims = reproduced(found, iter(units(found)))
    figures = [(claim.claim, figure) for claim in claims for figure in claim.figures]
    assert not [f for f in figures if f[1].outcome is Outcome.DISAGREES]
    assert exit_status(claims) == 0
    plain = [
        f
        for claim, f in figures
        if claim.startswith(("bubble rate of 1f1b", "bubble rate of zb-h"))
    ]
    assert [f.outcome for f in plain] == [Outcome.AGREES] * 63
    flips = [f for claim, f in figures if "flip" in claim and f.outcome is Outcome.FINDING]
    assert len(flips) == 6

    text = render(claims, "text", Style())
    assert max(map(len, text.splitlines())) <= 80
    page = render(claims, "markdown", Style())
    if request.config.getoption("--regenerate"):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page)
    assert PAGE.read_text() == page
