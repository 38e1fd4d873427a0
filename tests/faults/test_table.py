"""The kill table: every fault of a healthy target is caught by a check that its rule
names, or changes nothing that the target speaks of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeproof.cli.reading import Reading, read
from pipeproof.faults.harmless import ALLOWED, HARMLESS
from pipeproof.faults.rules import ISSUED_RULES, PROGRAM_RULES, SCHEDULE_RULES
from pipeproof.faults.sites import Target
from pipeproof.faults.table import KILLED, SURVIVES, UNDETERMINED, KillTable, Seeding, kill_table
from pipeproof.formats.sources import Source, gather
from pipeproof.verdict import Status
from tests.faults.programs import DOCUMENTS, program

ROOT = Path(__file__).parent.parent.parent
SPECS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "specs").glob("*.csv"))
SCHEDULES = [
    "tests/data/torch_csv/GPipe_2_4_1.comms.csv",
    "tests/data/torch_csv/Interleaved1F1B_2_4_2.comms.csv",
    "tests/data/torch_csv/ZBVZeroBubble_2_4_2.comms.csv",
    "tests/data/torch_csv/DualPipeV_2_4_2.comms.csv",
    "tests/data/torch_csv/InterleavedZeroBubble_2_4_2.compute_only.csv",
    "tests/data/torch_csv/1F1B_2_4_1.executed.txt",
]
TRACES = [
    "tests/data/traces/megatron/main_interleaved_overlap_p2_m4_v2.jsonl",
    "tests/data/traces/deepspeed/train_p2_m1.json",
    "tests/data/traces/dualpipe/dualpipev_p2_m4.json",
    "tests/data/traces/chimera/chimera_p4_m4.json",
]
CASES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/data/cases").glob("*.json"))


def targets(file: str, *, fixed: bool = False) -> list[Target]:
    """What a file of the repository holds."""
    (source,) = gather([str(ROOT / file)], format=None, stdin=lambda: b"")
    assert isinstance(source, Source)
    return read(source, Reading(fixed=fixed))


def seeded(target: Target, per_rule: int | None, recipe: str = "torch") -> KillTable:
    """The kill table of a healthy target, with nothing left open."""
    table = kill_table("plan", target, Seeding(per_rule, recipe))
    assert table.status is Status.HOLDS and not table.objections
    assert table.mutants(SURVIVES) == []
    for mutant in table.mutants(KILLED, UNDETERMINED):
        assert mutant.named, (mutant.rule, mutant.words, mutant.checks)
    for mutant in table.mutants(HARMLESS, ALLOWED):
        assert mutant.reason and not mutant.checks
    return table


@pytest.mark.parametrize("file", SPECS)
def test_specs(file: str) -> None:
    for target in targets(file):
        table = seeded(target, 1)
        assert [row.rule for row in table.rows] == [*SCHEDULE_RULES, *ISSUED_RULES]
        # Whole schedules state everything: nothing is allowed because it is not stated.
        assert not table.mutants(UNDETERMINED, ALLOWED)


@pytest.mark.parametrize("file", SCHEDULES)
def test_recorded_schedules(file: str) -> None:
    for target in targets(file):
        assert len(seeded(target, 2).mutants(KILLED)) > 12


def test_other_recipes() -> None:
    (target,) = targets("tests/data/torch_csv/GPipe_4_4_1.compute_only.csv")
    for recipe in ("naive", "grouped"):
        seeded(target, 1, recipe)


@pytest.mark.parametrize("file", TRACES)
def test_recordings(file: str) -> None:
    for target in targets(file):
        assert len(seeded(target, 1).mutants(KILLED)) > 12


@pytest.mark.parametrize("file", CASES)
def test_repaired_cases(file: str) -> None:
    """Fragments of real programs, with all that they state."""
    if "fixed_model" in (ROOT / file).read_text():
        for target in targets(file, fixed=True):
            seeded(target, 1)


def test_every_rule_kills() -> None:
    """Between them the programs give every rule a place where it does harm."""
    killed: Counter[str] = Counter()
    tables = [seeded(program(name), 4) for name in DOCUMENTS]
    (sharded,) = targets("tests/data/torch_csv/InterleavedZeroBubble_2_4_2.comms.csv")
    tables.append(seeded(sharded, 4))
    for table in tables:
        killed.update({row.rule.name: row.fates()[KILLED] for row in table.rows})
    # These are harmless wherever they were put: see ``late UNSHARD`` for the other side.
    never = {"early UNSHARD"}
    assert {rule.name for rule in PROGRAM_RULES if not killed[rule.name]} == never


def test_a_violated_target_is_not_broken_further() -> None:
    (target,) = targets("tests/data/traces/megatron/interleaved_batch_p2_m4_v2.jsonl")
    table = kill_table("plan", target, Seeding())
    assert table.status is Status.VIOLATED and table.rows == ()
    assert len(table.objections) == 1 and table.objections[0].startswith("matching: 8 messages")


def test_the_same_mutants_every_time() -> None:
    one, other = (kill_table("plan", program("groups"), Seeding(2)) for _ in range(2))
    assert [(m.rule, m.words, m.fate) for m in one.mutants(KILLED, HARMLESS)] == [
        (m.rule, m.words, m.fate) for m in other.mutants(KILLED, HARMLESS)
    ]
    assert all(len(row.mutants) == min(row.places, 2) for row in one.rows)


def test_names_of_rules_are_told_apart() -> None:
    for rules in (PROGRAM_RULES, (*SCHEDULE_RULES, *ISSUED_RULES)):
        assert len({rule.name for rule in rules}) == len(rules)
        assert all(rule.must for rule in rules)
