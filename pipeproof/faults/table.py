"""The kill table: each rule's mutants of one target, judged.

A mutant is *killed* where a check is violated. Of the others it is *harmless* or
*allowed* where the oracle shows it, *undetermined* where a check cannot answer
(it may be the one that would object), and it *survives* otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from pipeproof.faults.harmless import UNSHOWN, Oracle
from pipeproof.faults.rules import ISSUED_RULES, PROGRAM_RULES, SCHEDULE_RULES
from pipeproof.faults.sites import Listing, Rule, Site, Target, listing_of
from pipeproof.judge.judge import EnginesDisagree, judged
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import Transport
from pipeproof.recipes.issuing import issued
from pipeproof.verdict import CheckResult, Status

KILLED, UNDETERMINED, SURVIVES = "killed", "undetermined", "survives"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken target and what became of it. ``checks`` are those that object (or,
    where it is undetermined, that cannot answer); ``reason`` says why it is harmless,
    or why that was not shown."""

    rule: str
    words: str
    fate: str
    checks: tuple[str, ...]
    named: bool  # whether a check that the rule names is among them
    reason: str
    target: Target


@dataclass(frozen=True, slots=True)
class Row:
    """A rule: its places in the target (0: it does not apply), and the mutants judged."""

    rule: Rule
    places: int
    mutants: tuple[Mutant, ...]

    def fates(self) -> Counter[str]:
        """How many mutants met which fate."""
        return Counter(mutant.fate for mutant in self.mutants)

    def caught_by(self) -> Counter[str]:
        """How many mutants each check killed."""
        killed = (m for m in self.mutants if m.fate == KILLED)
        return Counter(check for mutant in killed for check in mutant.checks)


@dataclass(frozen=True, slots=True)
class KillTable:
    """The rows of one target, and what its own checks say: only a healthy target
    (``status`` holds or undetermined) has rows."""

    file: str
    name: str
    status: Status
    objections: tuple[str, ...]  # where the target itself is violated: what is found
    rows: tuple[Row, ...]

    def mutants(self, *fates: str) -> list[Mutant]:
        """The mutants of these fates, rule by rule."""
        return [m for row in self.rows for m in row.mutants if m.fate in fates]


@dataclass(frozen=True, slots=True)
class Seeding:
    """How faults are put in: at most ``per_rule`` mutants a rule (None: all there are),
    under a recipe and a transport (None: the target's own)."""

    per_rule: int | None = 4
    recipe: str | None = None
    transport: Transport | None = None


def kill_table(file: str, target: Target, seeding: Seeding) -> KillTable:
    """Break a target by every rule, and judge what results."""
    seeder = _Seeder(target, seeding)
    status = min((c.status for c in seeder.own), default=Status.UNDETERMINED)
    objections = tuple(
        dict.fromkeys(f"{f.check}: {f.message}" for c in seeder.own for f in c.findings)
    )
    rows = () if status is Status.VIOLATED or not seeder.own else tuple(seeder.rows())
    return KillTable(file, target.name, status, objections, rows)


class _Seeder:
    """Seeds faults in one target and judges the mutants."""

    def __init__(self, target: Target, seeding: Seeding) -> None:
        self.target, self.seeding = target, seeding
        self.program = self._issued(target)
        self.own = judged(self.program)
        self.oracle = Oracle(self.program)

    def _issued(self, target: Target) -> Program:
        """The program that is judged: a mutant of a program keeps its transport."""
        return issued(target, self.seeding.recipe, self.seeding.transport)

    def rows(self) -> Iterator[Row]:
        """A row a rule, in the order of the table."""
        if isinstance(self.target, Schedule):
            listing = listing_of(self.target)
            yield from (self._row(rule, listing) for rule in SCHEDULE_RULES)
            issued = listing_of(self.program)
            yield from (self._row(rule, issued) for rule in ISSUED_RULES)
        else:
            listing = listing_of(self.program)
            yield from (self._row(rule, listing) for rule in PROGRAM_RULES)

    def _row(self, rule: Rule, listing: Listing) -> Row:
        sites = list(rule.sites(listing))
        chosen = sites
        if self.seeding.per_rule is not None and len(sites) > self.seeding.per_rule:
            # The same places in every run.
            places = Random(0).sample(range(len(sites)), self.seeding.per_rule)
            chosen = [sites[place] for place in sorted(places)]
        return Row(rule, len(sites), tuple(self._judge(rule, site) for site in chosen))

    def _judge(self, rule: Rule, site: Site) -> Mutant:
        target = site.build()
        program = self._issued(target)
        try:
            results = judged(program)
        except EnginesDisagree as error:  # say with which mutant, or nobody finds it again
            raise EnginesDisagree(f"{error} (where {site.words})") from error
        objecting = _checks(results, Status.VIOLATED)
        doubting = _checks(results, Status.UNDETERMINED)
        fate, reason = KILLED, ""
        if not objecting:
            fate = SURVIVES
            shown = self.oracle.shown(program)
            reason = shown.reason
            if shown.fate != UNSHOWN:
                fate = shown.fate
            elif doubting:
                fate = UNDETERMINED
        checks = tuple(objecting or doubting) if fate in (KILLED, UNDETERMINED) else ()
        named = any(check in rule.must for check in checks)
        return Mutant(rule.name, site.words, fate, checks, named, reason, target)


def _checks(results: tuple[CheckResult, ...], status: Status) -> list[str]:
    return [c.check for c in results if c.status is status]
