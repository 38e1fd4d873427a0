"""Known schedules, broken by rule: every fault is caught, or shown harmless."""

from __future__ import annotations

import pytest

from pipeproof.faults.table import SURVIVES, UNDETERMINED, Seeding, kill_table
from tests.schedules.zoo import made

NAMES = ("1f1b", "interleaved", "zb-h2", "zb-v", "dualpipe", "chimera", "pipedream", "seq1f1b")


@pytest.mark.parametrize("name", NAMES)
def test_no_fault_survives(name: str) -> None:
    table = kill_table(name, made(name, p=2, m=4), Seeding(per_rule=2))
    assert len(table.mutants()) == 0
    assert [m.words for m in table.mutants(SURVIVES, UNDETERMINED)] == []
    assert sum(len(row.mutants) for row in table.rows) > 20
