"""Seeded faults: whatever is broken in a healthy plan is found, and only that.

Every mutant of a dozen recorded plans is judged, and run over terms by an
oracle that shares no code (``tests.sequential``). The two must agree: a mutant
that *holds* computes the sequential step's gradients and nothing else, and one
that is violated does something wrong. The package's own oracle agrees, too.
"""

from __future__ import annotations

from collections import Counter

import pytest

from pipeproof.faults.harmless import HARMLESS, Oracle
from pipeproof.faults.rules import SCHEDULE_RULES
from pipeproof.faults.sites import Site, listing_of
from pipeproof.formats.torch_schedule import print_schedule, read_schedule
from pipeproof.judge.judge import judge_schedule
from pipeproof.judge.options import Options
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import PRESETS
from pipeproof.recipes.issuing import build
from pipeproof.recipes.lowering import lower_as_torch
from pipeproof.verdict import Report, Status
from tests.sequential import COMPUTES, parse, wrongs_of
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
MAY_BE_RIGHT = {
    "swap neighbours",  # of two that touch different things
    "move an op earlier",
    "move an op later",
    "one warm-up forward more",
    "one warm-up forward fewer",
    "swap receives",  # from different ranks
    "swap sends",
    "receive before send",  # what is posted does not block
    "send before receive",
    "late receive",  # but before its consumer, and before no other of its channel
    "early REDUCE_GRAD",  # after the last compute all the same
    "early RESHARD",
    "early UNSHARD",
    "late UNSHARD",  # before the first compute all the same
}
"""Rules whose mutants may be right; those of every other rule never are."""

UNREADABLE = {"wrong stage", "wrong placement"}
"""Rules whose mutants no CSV can say: a stage lives where its actions stand."""

MOST = 4
"""Mutants of one rule and plan: spread evenly where there are more places."""


def _sampled(sites: list[Site]) -> list[Site]:
    if len(sites) <= MOST:
        return sites
    return [sites[i * (len(sites) - 1) // (MOST - 1)] for i in range(MOST)]


def _judged(schedule: Schedule, transport: str) -> tuple[Report, list[str]]:
    """Pipeproof's report on a plan, and what the oracle says is wrong with it."""
    report = judge_schedule("mutant", schedule, Options(transport=PRESETS[transport]))
    rows = parse(print_schedule(schedule))
    if not schedule.lists_communication:
        listed = parse(print_schedule(lower_as_torch(schedule)))
        # Lowering may add what is not compute, and must lose nothing.
        kept = [[a for a in row if a.word in COMPUTES] for row in listed]
        assert kept == [[a for a in row if a.word in COMPUTES] for row in rows]
        rows = listed
    return report, wrongs_of(rows, schedule.stages, schedule.microbatches, transport)


@pytest.mark.parametrize("name", HEALTHY)
def test_every_fault_is_found(name: str) -> None:
    schedule = read_schedule(text(name), name)
    oracles = {}
    for transport in PRESETS:
        report, wrongs = _judged(schedule, transport)
        assert report.status is Status.HOLDS and not wrongs
        oracles[transport] = Oracle(build(schedule, "torch", PRESETS[transport]))
    listing = listing_of(schedule)
    survivors: Counter[str] = Counter()
    for rule in SCHEDULE_RULES:
        if rule.name in UNREADABLE:
            continue
        for number, site in enumerate(_sampled(list(rule.sites(listing)))):
            transport = list(PRESETS)[number % len(PRESETS)]
            mutant = site.build()
            assert isinstance(mutant, Schedule)
            report, wrongs = _judged(mutant, transport)
            assert all(finding.replayed for finding in report.findings)
            found = [f"{f.check}: {f.message}" for f in report.findings]
            assert bool(found) == bool(wrongs), (site.words, transport, found, wrongs)
            assert (report.status is Status.VIOLATED) == bool(found)
            if not found:
                survivors[rule.name] += 1
                program = build(mutant, "torch", PRESETS[transport])
                assert oracles[transport].shown(program).fate == HARMLESS
    assert set(survivors) <= MAY_BE_RIGHT
