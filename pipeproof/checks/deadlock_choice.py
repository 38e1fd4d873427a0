"""deadlock, where there is choice: no execution that the search visits is stuck.

The search goes breadth first, so the execution that is told settles as little
as any that gets stuck: which message each receive takes, up to where the lanes
stand.
"""

from __future__ import annotations

from pipeproof.checks.executions import answer, gap, open_takes, take_text, taken, visited
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import count, spell
from pipeproof.engines.explore.search import End, Take
from pipeproof.program.notation import message_text, op_text, place
from pipeproof.program.ops import Kind
from pipeproof.program.programs import ANY
from pipeproof.program.transports import Match
from pipeproof.verdict import (
    CheckResult,
    Counterexample,
    Finding,
    Step,
    Stuck,
    Taken,
    Verdict,
)


def every_execution(subject: Subject, check: str) -> CheckResult:
    """Search all executions for one that gets stuck."""
    program = subject.program
    missing = gap(subject)
    found: list[Finding] = []
    gaps = [] if missing is None else [missing]
    evidence: dict[str, object] = {}
    states = 0
    if visited(subject):
        explored = subject.executions
        stuck = explored.stuck
        script = None if stuck is None else taken(stuck.decisions)
        if stuck is not None and script is not None:
            found.append(_finding(subject, check, stuck, script))
        elif stuck is not None:
            gaps.append("an order in which lanes take turns gets stuck: see race")
        states = explored.states
        evidence = {
            "states": states,
            "ends": len(explored.ends),
            "transport": program.transport.name,
        }
    explored_states = count(states, "state")
    summary = f"all {program.ops} ops complete in every execution ({explored_states} explored)"
    return answer(subject, check, found, gaps, summary, evidence)


def _finding(subject: Subject, check: str, end: End, script: Taken) -> Finding:
    program = subject.program
    choices = open_takes(subject, end.decisions)
    m = program.messages
    steps = [(int(m.op[take.receive]), _choice(subject, take)) for take in choices]
    steps += [(op, _waiting(subject, op, end)) for op in end.stuck]
    ops = dict.fromkeys([*end.stuck, *(int(m.op[t.receive]) for t in choices)])
    return Finding(
        check=check,
        verdict=Verdict.DEADLOCK,
        message=_message(subject, end, choices),
        where=tuple(place(program, op) for op in ops),
        counterexample=Counterexample(
            claim=Stuck(end.stuck, script),
            moves=end.completed,
            steps=tuple(Step(place(program, op), text) for op, text in steps),
        ),
        cause="A receive from any sender takes whatever comes first, and what a later receive "
        "needs may be gone."
        if choices
        else "",
        cures=("Name the senders, or give what is not meant a tag or a communicator of its own.",)
        if choices
        else (),
    )


def _message(subject: Subject, end: End, choices: list[Take]) -> str:
    program = subject.program
    lanes = [f"rank {subject.rank[op]} at {op_text(program, op)}" for op in end.stuck[:3]]
    more = len(end.stuck) - 3
    if more > 0:
        lanes.append(f"{more} more lane{'s' if more > 1 else ''}")
    waits = f"{spell(lanes)} {'wait' if len(end.stuck) > 1 else 'waits'}"
    if not choices:
        return f"{waits} for what never comes, in every execution"
    # The last choice is the one that was still to go wrong.
    told = f"when {take_text(program, choices[-1])} first"
    if len(choices) > 1:
        told += f", after {len(choices) - 1} more such choice{'s' if len(choices) > 2 else ''}"
    return f"{told}, {waits} for what never comes"


def _choice(subject: Subject, take: Take) -> str:
    m, takes = subject.program.messages, subject.executions.takes
    others = {int(m.rank[s]) for s in takes[take.receive]} - {int(m.rank[take.send])}
    ranks = f"rank{'s' if len(others) > 1 else ''} {spell(sorted(others))}"
    return f"{take_text(subject.program, take)}; it could take that of {ranks} instead."


def _waiting(subject: Subject, op: int, end: End) -> str:
    """What a lane waits for, as far as one sentence says it."""
    program, m = subject.program, subject.program.messages
    here = f"rank {subject.rank[op]} is in {op_text(program, op)}"
    kind = Kind(int(program.kind[op]))
    if kind in (Kind.WAIT, Kind.WAITANY):
        which = "none" if kind is Kind.WAITANY else "not all"
        return f"{here}, of whose requests {which} can complete."
    if kind is Kind.COLL:
        return f"{here}, which not all members of its group come to call."
    if kind is Kind.AWAIT:
        return f"{here}, a signal that is not given."
    for row in program.rows_of(op) if kind in (Kind.SEND, Kind.RECV) else ():
        if m.send[row]:
            return f"{here}, which no receive of rank {m.peer[row]} is left to take."
        if m.peer[row] == ANY:
            return f"{here}, and no message is left for it."
        thief = _thief(subject, row, end)
        if thief is not None:
            return f"{here}, but what rank {m.peer[row]} sent went to {thief}."
        return f"{here}, and rank {m.peer[row]} sends nothing that it could take."
    return f"{here}, which cannot complete."


def _thief(subject: Subject, receive: int, end: End) -> str | None:
    """The receive from any sender that took a message of the sender waited for."""
    program, m = subject.program, subject.program.messages
    for decision in end.decisions:
        if not isinstance(decision, Take) or m.peer[decision.receive] != ANY:
            continue
        takeable = m.comm[decision.send] == m.comm[receive]
        if program.transport.match is Match.TAG:
            takeable &= m.payload[decision.send] == m.payload[receive]
        ends = (m.rank[decision.send], m.peer[decision.send]) == (m.peer[receive], m.rank[receive])
        if takeable and ends:
            return message_text(program, decision.receive)
    return None
