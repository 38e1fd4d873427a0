"""Judge one target: run every check, replay what they find, measure the rest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pipeproof.checks.subject import Subject
from pipeproof.checks.table import CHECKS
from pipeproof.checks.telling import undetermined
from pipeproof.errors import InputError
from pipeproof.judge.excerpt import excerpts
from pipeproof.judge.metrics import metrics
from pipeproof.judge.options import Options
from pipeproof.judge.rows import SideBySide, program_rows, schedule_rows
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import Transport
from pipeproof.recipes import issuing
from pipeproof.verdict import CheckResult, Finding, Report, Status, Verdict


class EnginesDisagree(Exception):
    """A finding that a step-by-step run of the program does not confirm: a
    defect of pipeproof, never of the program."""


def judge_schedule(file: str, schedule: Schedule, options: Options) -> Report:
    """Report on a schedule under the recipe and transport of ``options``, its own
    where they name none."""
    program = issuing.issued(schedule, options.recipe, options.transport)
    subject = _subject(program, options)
    if options.wants("deadlock"):
        _set_rows(subject, schedule_rows(schedule, program, subject.pairing))
    return _judge(file, subject, options)


def judge_program(file: str, program: Program, options: Options) -> Report:
    """Report on a program under its own transport, or the one asked for."""
    program = issuing.issued(program, transport=options.transport)
    subject = _subject(program, options)
    decidable = not program.chooses and not subject.contended
    if options.wants("deadlock") and decidable:
        _set_rows(subject, program_rows(program, holds=subject.runs_to_end))
    return _judge(file, subject, options)


def judged(program: Program, only: tuple[str, ...] = ()) -> tuple[CheckResult, ...]:
    """What the checks say of a program under its own transport, each finding replayed;
    without the rows and metrics that a report has beside them."""
    return tuple(_run_checks(Subject(program), Options(only=only)))


def _subject(program: Program, options: Options) -> Subject:
    return Subject(
        program,
        budget=_budget(program, options),
        limit=options.states,
    )


def _set_rows(subject: Subject, rows: SideBySide) -> None:
    subject.rows = rows.rows
    subject.implied_by = rows.shown_by.get(subject.program.transport.name.partition(":")[0])


def _judge(file: str, subject: Subject, options: Options) -> Report:
    program = subject.program
    misfit = options.costs.misfit(program.stages)
    if misfit is not None:
        raise InputError(
            misfit, cause="list one value a stage (a boundary), or one number for all"
        )
    checks = tuple(_run_checks(subject, options))
    findings = tuple(f for c in checks for f in c.findings)
    return Report(
        file=file,
        name=program.name,
        status=min((c.status for c in checks), default=Status.UNDETERMINED),
        transport=_transport(program),
        sizes={
            "ranks": program.ranks,
            "stages": program.stages,
            "microbatches": program.microbatches,
            "ops": program.ops,
        },
        checks=checks,
        transports=subject.rows,
        metrics=metrics(subject, options, checks),
        notes=_notes(program),
        findings=findings,
    )


def _budget(program: Program, options: Options) -> dict[int, int]:
    everywhere = options.budget.get(None)
    budget = {r: everywhere for r in range(program.ranks) if everywhere is not None}
    budget.update({r: units for r, units in options.budget.items() if r is not None})
    return budget


def _run_checks(subject: Subject, options: Options) -> list[CheckResult]:
    results: list[CheckResult] = []
    program = subject.program
    if not program.ops and not program.complete and program.details.layers is None:
        return results  # nothing to judge, and nothing that could hold
    for check in CHECKS:
        if not options.wants(check.name) or not check.applies(subject):
            continue
        start = time.perf_counter()
        result = undetermined(subject, check.name) or check.run(subject)
        replayed = tuple(_replayed(subject, f) for f in result.findings)
        seconds = time.perf_counter() - start
        results.append(replace(result, findings=replayed, seconds=seconds))
    return results


def _replayed(subject: Subject, finding: Finding) -> Finding:
    # Only a defect costs the import.
    from pipeproof.replay.confirm import confirm

    program = subject.program
    objection = confirm(program, program.transport, finding.counterexample)
    if objection is not None:
        raise EnginesDisagree(
            f"{finding.check} found: {finding.message}. The step-by-step run says: {objection}"
        )
    unfinished = subject.unfinished if finding.verdict is Verdict.DEADLOCK else ()
    return replace(finding, replayed=True, excerpts=excerpts(program, finding, unfinished))


def _transport(program: Program) -> Mapping[str, Any]:
    t: Transport = program.transport
    return {
        "name": t.name,
        "streams": t.streams.value,
        "p2p": "rendezvous" if t.capacity == 0 else {"buffered": t.capacity},
        "match": t.match.value,
        "group": t.group.value,
        "isend_progress": t.isend_progress.value,
        "recipe": program.recipe,
    }


def _notes(program: Program) -> tuple[str, ...]:
    notes = list(program.notes)
    if program.forward_only and program.complete:
        notes.append("No backward is listed: judged as a forward-only (inference) schedule.")
    # A definition lists no REDUCE_GRAD where there is nothing to reduce over.
    trains = not program.forward_only and program.recipe == "torch" and program.origin.cells
    if trains and not (program.kind == Kind.REDUCE_GRAD).any():
        notes.append(
            "No REDUCE_GRAD is listed: torch 2.13's runtime then neither divides the gradients "
            "by the number of microbatches nor reduces them over replicas."
        )
    return tuple(notes)
