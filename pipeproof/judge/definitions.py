"""Judge a definition: at the sizes asked for, or at every size of its grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeproof.errors import InputError
from pipeproof.judge.claims import NAME as CLAIMS
from pipeproof.judge.claims import claim_text, claims_result
from pipeproof.judge.judge import EnginesDisagree, judge_program, judge_schedule
from pipeproof.judge.metrics import costs_of
from pipeproof.judge.options import Options
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import parse_transport
from pipeproof.recipes.issuing import issued
from pipeproof.replay.confirm import confirm
from pipeproof.replay.measure import countable
from pipeproof.spec.definition import Definition, Sizes, spelled
from pipeproof.verdict import CheckResult, Finding, Measured, Report, Status, TransportRow

Made = Schedule | Program
Run = Callable[[Definition, Sizes], Made]
"""Runs a definition at given sizes; InputError where it fails."""

Progress = Callable[[Iterable[Sizes], int], Iterable[Sizes]]
"""Shows how far the grid has come: the sizes, and how many there are."""


@dataclass(frozen=True, slots=True)
class _At:
    """The report on one point of the grid."""

    sizes: Sizes
    report: Report


def judge_definition(
    file: str,
    definition: Definition,
    options: Options,
    given: Mapping[str, int],
    run: Run,
    progress: Progress,
) -> Report:
    """Report on a definition at the sizes that are given, and where they leave some
    open, at those of its grid that agree with them.

    Of several sizes the smallest that is violated is reported (fewest ranks, then
    microbatches, then the rest), with how many are. InputError where the
    definition fails, has no such size, or is not meant for the one that is asked.
    """
    points = _points(definition, given)
    found = [
        _At(sizes, _judged(file, definition, sizes, options, run))
        for sizes in progress(points, len(points))
    ]
    if len(found) == 1:
        return found[0].report
    return _of_all(file, definition, found)


def _points(definition: Definition, given: Mapping[str, int]) -> list[Sizes]:
    needed = [name for name, default in definition.defaults.items() if default is None]
    if all(name in given for name in needed):
        return [definition.sizes(given)]
    points = list(definition.on_grid(given))
    if not points:
        raise InputError(
            f"{definition.name} has no valid size on its grid"
            + (f" with {spelled(given)}" if given else ""),
            cause="Give its sizes (--stages, --microbatches), or the schedule a grid.",
        )
    return points


def _judged(file: str, definition: Definition, sizes: Sizes, options: Options, run: Run) -> Report:
    made = run(definition, sizes)
    asks = definition.claims and options.wants(CLAIMS)
    others = tuple(name for name in options.only if name != CLAIMS)
    if asks and options.only:  # claims are about what all checks find
        checks = _report(file, made, replace(options, only=(), timing="compute"))
        kept = [c for c in checks.checks if c.check in others]
        findings = tuple(f for f in checks.findings if f.check in others)
        report = replace(checks, checks=tuple(kept), findings=findings)
    else:
        report = checks = _report(file, made, options)
        if asks and options.timing != "compute":  # their times are those of the compute order
            checks = _report(file, made, replace(options, timing="compute"))
    if not asks:
        return report

    def elsewhere(transport: str) -> Report:
        asked = replace(options, only=("deadlock",), transport=parse_transport(transport))
        return _report(file, made, asked)

    costs = costs_of(made, options)
    result = claims_result(definition, sizes, made, checks, costs, elsewhere)
    result = replace(result, findings=_confirmed(result, made, options))
    checked = (*report.checks, result)
    return replace(
        report,
        status=min(c.status for c in checked),
        checks=checked,
        findings=(*report.findings, *result.findings),
    )


def _report(file: str, made: Made, options: Options) -> Report:
    if isinstance(made, Program):
        return judge_program(file, made, options)
    return judge_schedule(file, made, options)


def _confirmed(result: CheckResult, made: Made, options: Options) -> tuple[Finding, ...]:
    """The findings on figures, each counted again."""
    if all(f.replayed for f in result.findings):
        return result.findings
    program = issued(made, options.recipe, options.transport)
    confirmed = []
    for finding in result.findings:
        claim = finding.counterexample.claim
        if isinstance(claim, Measured) and not countable(claim):
            confirmed.append(finding)
            continue
        if not finding.replayed:
            objection = confirm(program, program.transport, finding.counterexample)
            if objection is not None:
                raise EnginesDisagree(f"claims: {finding.message}. Counted again: {objection}")
        confirmed.append(replace(finding, replayed=True))
    return tuple(confirmed)


# --- several sizes ------------------------------------------------------------


def _of_all(file: str, definition: Definition, found: Sequence[_At]) -> Report:
    """One report for all: the smallest of the worst, or what holds everywhere."""
    worst = min(at.report.status for at in found)
    bad = [at for at in found if at.report.status is worst]
    scope = f"{len(found)} sizes: {ranges(at.sizes for at in found)}"
    if worst is not Status.HOLDS:
        first = bad[0].report
        word = "violated" if worst is Status.VIOLATED else "undetermined"
        note = f"{word} at {len(bad)} of {scope}; these are the smallest"
        return replace(first, notes=(*first.notes, f"{note}.{_others(first, bad)}"))
    largest = found[-1].report
    checks = tuple(_everywhere(c, definition, scope) for c in largest.checks)
    return replace(
        largest,
        name=f"{definition.name} ({ranges(at.sizes for at in found)})",
        checks=checks,
        transports=_rows(found),
        notes=(*largest.notes, f"Judged at {scope}. Figures are those of the largest."),
    )


def _everywhere(result: CheckResult, definition: Definition, scope: str) -> CheckResult:
    """What holds at the largest size, said of all of them."""
    if result.check != CLAIMS:
        return replace(result, scope=scope)
    listed = [{"claim": claim_text(c), "status": result.status.word} for c in definition.claims]
    return replace(result, scope=scope, evidence={"claims": listed})


def _others(first: Report, bad: Sequence[_At]) -> str:
    """The checks that object at other sizes only."""
    known = {f.check for f in first.findings}
    text = ""
    for at in bad[1:]:
        for finding in at.report.findings:
            if finding.check not in known:
                known.add(finding.check)
                text += f" {finding.check} objects first at {spelled(at.sizes)}."
    return text


def _rows(found: Sequence[_At]) -> tuple[TransportRow, ...]:
    """Each transport by its worst answer."""
    rows: dict[str, TransportRow] = {}
    for at in found:
        for row in at.report.transports:
            before = rows.get(row.name)
            if before is None or _badness(row) > _badness(before):
                rows[row.name] = row
    return tuple(rows.values())


def _badness(row: TransportRow) -> tuple[int, float]:
    return -row.status, float("inf") if row.capacity is None else row.capacity


def ranges(points: Iterable[Sizes]) -> str:
    """``p=1..4, m=1..8``: the least and the greatest of each size."""
    values: dict[str, set[int]] = {}
    for sizes in points:
        for name, value in sizes.items():
            values.setdefault(name, set()).add(value)
    words = []
    for name, own in values.items():
        if (name, own) != ("v", {1}):
            words.append(
                f"{name}={min(own)}..{max(own)}" if len(own) > 1 else f"{name}={min(own)}"
            )
    return ", ".join(words)
