"""Seeded faults: whatever is broken in a healthy plan is found, and only that.

Every mutant of a dozen recorded plans is judged, and run over terms by an
oracle that shares no code (``tests.sequential``). The two must agree: a mutant
that *holds* computes the sequential step's gradients and nothing else, and one
that is violated does something wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from pipeproof.formats.torch_schedule import print_schedule, read_schedule
from pipeproof.judge.judge import judge_schedule
from pipeproof.judge.options import Options
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.lowering import lower_as_torch
from pipeproof.verdict import Report, Status
from tests.sequential import COMPUTES, Action, Rows, parse, write, wrongs_of
from tests.torch_files import text

HEALTHY = [
    "GPipe_2_4_1.comms.csv",
    "Interleaved1F1B_2_4_2.comms.csv",
    "InterleavedZeroBubble_2_4_2.comms.csv",
    "LoopedBFS_2_4_2.comms.csv",
    "ZBVZeroBubble_2_4_2.comms.csv",
    "DualPipeV_2_4_2.comms.csv",
    "Interleaved1F1B_4_4_1.comms.csv",
    "InterleavedZeroBubble_4_4_2.comms.csv",
    "GPipe_4_4_1.compute_only.csv",
    "Interleaved1F1B_2_4_2.compute_only.csv",
    "InterleavedZeroBubble_4_8_1.compute_only.csv",
    "ZBVZeroBubble_4_8_2.compute_only.csv",
]
HARMLESS = {
    "swap neighbours",  # of two that touch different things
    "swap receives",  # from different ranks
    "receive later",  # but before its consumer, and before no other of its channel
    "early RESHARD",  # after the last compute all the same
    "early UNSHARD",
    "late UNSHARD",  # before the first compute all the same
}
"""Rules whose mutants may be right; those of every other rule never are."""

MOST = 6
"""Mutants of one rule and plan: spread evenly where there are more places."""


# --- the rules -----------------------------------------------------------------

Mutants = Iterator[Rows]


def _places(rows: Rows, *words: str) -> Iterator[tuple[int, int]]:
    for rank, row in enumerate(rows):
        for at, action in enumerate(row):
            if action.word in words:
                yield rank, at


def _with(rows: Rows, rank: int, row: list[Action]) -> Rows:
    return [*rows[:rank], row, *rows[rank + 1 :]]


def _without(rows: Rows, rank: int, at: int) -> Rows:
    return _with(rows, rank, rows[rank][:at] + rows[rank][at + 1 :])


def _instead(rows: Rows, rank: int, at: int, action: Action) -> Rows:
    return _with(rows, rank, [*rows[rank][:at], action, *rows[rank][at + 1 :]])


def _dropped(*words: str) -> Callable[[Rows], Mutants]:
    def mutants(rows: Rows) -> Mutants:
        for rank, at in _places(rows, *words):
            yield _without(rows, rank, at)

    return mutants


def _repeated(*words: str) -> Callable[[Rows], Mutants]:
    def mutants(rows: Rows) -> Mutants:
        for rank, at in _places(rows, *words):
            row = rows[rank]
            yield _with(rows, rank, [*row[: at + 1], row[at], *row[at + 1 :]])
            yield _with(rows, rank, [*row, row[at]])

    return mutants


def swapped_neighbours(rows: Rows) -> Mutants:
    for rank, row in enumerate(rows):
        for at in range(len(row) - 1):
            yield _with(rows, rank, [*row[:at], row[at + 1], row[at], *row[at + 2 :]])


def swapped_receives(rows: Rows) -> Mutants:
    for rank, row in enumerate(rows):
        places = [at for r, at in _places(rows, "RECV_F", "RECV_B") if r == rank]
        for i, j in pairwise(places):
            other = row.copy()
            other[i], other[j] = row[j], row[i]
            yield _with(rows, rank, other)


def receive_later(rows: Rows) -> Mutants:
    for rank, at in _places(rows, "RECV_F", "RECV_B"):
        row = rows[rank]
        for by in (1, 2, 4, len(row)):
            rest = row[:at] + row[at + 1 :]
            yield _with(rows, rank, [*rest[: at + by], row[at], *rest[at + by :]])


def other_microbatch(rows: Rows) -> Mutants:
    for rank, row in enumerate(rows):
        for at, action in enumerate(row):
            if action.microbatch >= 0:
                for change in (-1, 1):
                    if action.microbatch + change >= 0:
                        there = action._replace(microbatch=action.microbatch + change)
                        yield _instead(rows, rank, at, there)


def _relettered(old: str, new: str) -> Callable[[Rows], Mutants]:
    def mutants(rows: Rows) -> Mutants:
        for rank, at in _places(rows, old):
            yield _instead(rows, rank, at, rows[rank][at]._replace(word=new))

    return mutants


def stage_relettered(rows: Rows) -> Mutants:
    """B becomes I for every microbatch of a stage."""
    for stage in sorted({a.stage for row in rows for a in row if a.word == "B"}):
        yield [[a._replace(word="I") if a[:2] == (stage, "B") else a for a in row] for row in rows]


def _moved(word: str, by: int) -> Callable[[Rows], Mutants]:
    def mutants(rows: Rows) -> Mutants:
        for rank, at in _places(rows, word):
            rest = rows[rank][:at] + rows[rank][at + 1 :]
            to = max(at + by, 0)
            yield _with(rows, rank, [*rest[:to], rows[rank][at], *rest[to:]])

    return mutants


RULES: dict[str, Callable[[Rows], Mutants]] = {
    "drop a compute": _dropped("F", "B", "I"),
    "drop a W": _dropped("W"),
    "repeat a compute": _repeated(*COMPUTES),
    "swap neighbours": swapped_neighbours,
    "drop a send": _dropped("SEND_F", "SEND_B"),
    "drop a receive": _dropped("RECV_F", "RECV_B"),
    "repeat a message": _repeated("SEND_F", "SEND_B", "RECV_F", "RECV_B"),
    "swap receives": swapped_receives,
    "receive later": receive_later,
    "another microbatch": other_microbatch,
    "B to I": _relettered("B", "I"),
    "I to B": _relettered("I", "B"),
    "B to I on a stage": stage_relettered,
    "drop REDUCE_GRAD": _dropped("REDUCE_GRAD"),
    "repeat REDUCE_GRAD": _repeated("REDUCE_GRAD"),
    "early REDUCE_GRAD": _moved("REDUCE_GRAD", -3),
    "drop UNSHARD": _dropped("UNSHARD"),
    "drop RESHARD": _dropped("RESHARD"),
    "early RESHARD": _moved("RESHARD", -3),
    "early UNSHARD": _moved("UNSHARD", -3),
    "late UNSHARD": _moved("UNSHARD", 3),
}


# --- judging them --------------------------------------------------------------


def _sampled(mutants: list[Rows]) -> list[Rows]:
    if len(mutants) <= MOST:
        return mutants
    return [mutants[i * (len(mutants) - 1) // (MOST - 1)] for i in range(MOST)]


def _judged(rows: Rows, sizes: tuple[int, int], transport: str) -> tuple[Report, list[str]]:
    """Pipeproof's report on a plan, and what the oracle says is wrong with it."""
    schedule = read_schedule(write(rows), "mutant")
    assert (schedule.stages, schedule.microbatches) == sizes
    report = judge_schedule("mutant", schedule, Options(transport=PRESETS[transport]))
    if not schedule.lists_communication:
        listed = parse(print_schedule(lower_as_torch(schedule)))
        # Lowering may add what is not compute, and must lose nothing.
        kept = [[a for a in row if a.word in COMPUTES] for row in listed]
        assert kept == [[a for a in row if a.word in COMPUTES] for row in rows]
        rows = listed
    return report, wrongs_of(rows, *sizes, transport)


def _sizes(rows: Rows) -> tuple[int, int]:
    actions = [a for row in rows for a in row]
    return max(a.stage for a in actions) + 1, max(a.microbatch for a in actions) + 1


@pytest.mark.parametrize("name", HEALTHY)
def test_every_fault_is_found(name: str) -> None:
    rows = parse(text(name))
    sizes = _sizes(rows)
    for transport in PRESETS:
        report, wrongs = _judged(rows, sizes, transport)
        assert report.status is Status.HOLDS and not wrongs
    survivors: Counter[str] = Counter()
    for rule, mutate in RULES.items():
        for number, mutant in enumerate(_sampled([m for m in mutate(rows) if m != rows])):
            transport = list(PRESETS)[number % len(PRESETS)]
            report, wrongs = _judged(mutant, sizes, transport)
            assert all(finding.replayed for finding in report.findings)
            found = [f"{f.check}: {f.message}" for f in report.findings]
            assert bool(found) == bool(wrongs), (rule, number, transport, found, wrongs)
            assert (report.status is Status.VIOLATED) == bool(found)
            if not found:
                survivors[rule] += 1
    assert set(survivors) <= HARMLESS
