"""deadlock: no maximal execution is stuck.

Where every receive names its sender, enabled events commute and one greedy run of
the event graph decides: what it cannot reach, no execution reaches. A finished
run is its own certificate, a topological order of all events. A stuck one has
a cycle of waits, of which the shortest is told, or a wait for a message that
never comes. Where there is choice, a search of all executions decides
(``deadlock_choice``).
"""

from __future__ import annotations

from pipeproof.checks.deadlock_choice import every_execution
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import ENGINE, result, spell
from pipeproof.checks.waits import Told, tell
from pipeproof.engines.events.blame import blame
from pipeproof.engines.events.times import times
from pipeproof.program.notation import op_text, place
from pipeproof.program.transports import PRESETS, Transport
from pipeproof.verdict import (
    CheckResult,
    Counterexample,
    Finding,
    Status,
    Step,
    Stuck,
    Verdict,
)

WRITTEN_OPS = 200
"""Up to this many ops the certificate itself, the times of all events, is part of
the evidence; ``proofs/schedule_of_events.py`` re-checks it."""

NAME = "deadlock"
TITLE = "every execution runs to its end"


def check(subject: Subject) -> CheckResult:
    """Run the event graph, or search; explain where it gets stuck."""
    program = subject.program
    if program.chooses or subject.contended:
        return every_execution(subject, NAME)
    found = [] if subject.runs_to_end else [_stuck(subject)]
    evidence: dict[str, object] = {
        "certificate": "topological order",
        "events": 2 * program.ops,
        "transport": program.transport.name,
    }
    if subject.implied_by is not None:
        evidence["legal_under"] = subject.implied_by
    if not found and program.ops <= WRITTEN_OPS:
        names = ("posted", "start", "complete", "done")
        columns = times(program, subject.graph, subject.run)
        evidence["times"] = {
            name: column.tolist() for name, column in zip(names, columns, strict=True)
        }
    return result(
        subject,
        NAME,
        found,
        f"all {program.ops} ops complete under {program.transport.name}",
        engine=ENGINE,
        evidence=evidence,
    )


def _stuck(subject: Subject) -> Finding:
    program, graph, run = subject.program, subject.graph, subject.run
    told = tell(subject, blame(graph, run))
    completed = tuple(run.progress[c] // 2 for c in range(1, graph.lanes + 1))
    stuck = tuple(
        lane.first + done
        for lane, done in zip(program.lanes, completed, strict=True)
        if lane.first + done < lane.stop
    )
    return Finding(
        check=NAME,
        verdict=Verdict.DEADLOCK,
        message=_message(subject, told, stuck),
        where=tuple(place(program, op) for op in told.ops),
        counterexample=Counterexample(
            claim=Stuck(stuck),
            moves=completed,
            steps=tuple(Step(place(program, op), text) for op, text in told.steps),
            cyclic=told.cyclic,
        ),
        cause=told.cause,
        cures=_cures(subject, cyclic=told.cyclic),
    )


def _message(subject: Subject, told: Told, stuck: tuple[int, ...]) -> str:
    program = subject.program
    ranks = sorted({int(subject.rank[op]) for op in told.ops})
    here = spell(f"rank {subject.rank[op]} at {op_text(program, op)}" for op in told.ops[:3])
    if told.cyclic:
        many = len(ranks)
        who = f"ranks {spell(ranks)} wait" if many > 1 else f"rank {ranks[0]} waits"
        each = "for each other" if many > 1 else "for itself"
        return f"{who} {each} under {program.transport.name}: {here}"
    rest = len(stuck) - 1
    others = ""
    if rest > 0:
        others = f"; {rest} more rank{'s wait' if rest > 1 else ' waits'} with it"
    return f"{here} waits for what never comes{others}"


def _cures(subject: Subject, *, cyclic: bool) -> tuple[str, ...]:
    """What would make it hold, from the rows that were tried."""
    own: Transport = subject.program.transport
    cures: list[str] = []
    base = own.name.partition(":")[0]
    for row in subject.rows:
        if row.name == base and row.capacity is not None and row.capacity > (own.capacity or 0):
            slots = "slot" if row.capacity == 1 else "slots"
            cures.append(
                f"It would hold with {row.capacity} buffer {slots} a channel"
                f"{f' ({base}:{row.capacity})' if base in PRESETS else ''}, which "
                f"{_promise(base)}."
            )
    holding = [r.name for r in subject.rows if r.status is Status.HOLDS and r.name != base]
    if "grouped" in holding:
        cures.append("Posting neighbouring sends and receives together (grouped) makes it hold.")
    for name, cure in OTHERWISE.items():
        if name in holding:
            cures.append(cure)
    elsewhere = [n for n in holding if n not in ("grouped", "blocking", *OTHERWISE)]
    if elsewhere:
        cures.append(f"It holds as it is under {spell(elsewhere)}.")
    if not cyclic:
        cures.append("Give it the counterpart that is missing, or leave it out.")
    elif not cures and subject.rows:
        cures.append("No buffer, stream or grouping makes it hold: its order has to change.")
    return tuple(cures)


OTHERWISE = {
    "independent groups": "It holds where the members of a batch move on their own.",
    "background progress": "It holds where posted sends progress in the background.",
}
"""Rows that change a program's own semantics, and what to say where they hold."""


def _promise(base: str) -> str:
    if base.startswith("nccl"):
        return "NCCL has only while messages are small: never count on it"
    return "the transport must promise"
