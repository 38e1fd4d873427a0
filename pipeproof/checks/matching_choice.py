"""matching, where there is choice: what meets in each execution agrees.

Messages that no receive from any sender can touch meet whatever happens; of the
others, the search tells every receive with every send that it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeproof.checks.executions import answer, gap, taken, visited
from pipeproof.checks.slots import uses_slots
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import count, finding
from pipeproof.program.notation import message_text, payload_name
from pipeproof.program.programs import Program, Traits
from pipeproof.verdict import CheckResult, Crossed, Finding, Taken, Unmatched, Verdict

NO_TRAITS = Traits()


def every_execution(subject: Subject, check: str, found: Sequence[Finding]) -> CheckResult:
    """Compare the ends of all that meets in some execution; look for what is left over.

    ``found`` has the findings that no choice has a part in.
    """
    program = subject.program
    missing = gap(subject)
    gaps = [] if missing is None else [missing]
    found = list(found)
    met = 0
    if visited(subject):
        explored = subject.executions
        pairs: list[tuple[int, int, Taken]] = [(s, r, ()) for s, r in explored.pairs]
        for receive, sends in explored.takes.items():
            for send, decisions in sends.items():
                script = taken(decisions)
                if script is not None:
                    pairs.append((send, receive, script))
        met = len(pairs)
        found += _unequal(subject, check, pairs)
        found += _left_over(subject, check)
        if explored.takes_turns:
            gaps.append("which messages meet depends on which lane of a rank posts first")
        if explored.stuck is not None:
            gaps.append("some execution gets stuck, and what would meet behind that is open")
    if uses_slots(program):
        gaps.append("what a slot holds depends on the execution")
    return answer(
        subject,
        check,
        found,
        gaps,
        f"{count(met, 'pair')} of sends and receives meet in some execution, and agree",
        {"pairs": met, "match": program.transport.match.value},
    )


def _unequal(
    subject: Subject, check: str, pairs: list[tuple[int, int, Taken]]
) -> Iterator[Finding]:
    program, m = subject.program, subject.program.messages
    bad = [
        (send, receive, trait, script)
        for send, receive, script in sorted(pairs)
        for trait in _differing(program, send, receive)
    ]
    if not bad:
        return
    send, receive, trait, script = bad[0]
    can = "can be" if script else "is"
    message = (
        f"{message_text(program, send)} of rank {m.rank[send]} {can} received as "
        f"{message_text(program, receive)} on rank {m.rank[receive]}"
    )
    if trait != "payload":
        ours, theirs = (_stated(program, row, trait) for row in (send, receive))
        message += f", which expects {trait} {theirs} and gets {ours}"
    yield finding(
        subject,
        check,
        Verdict.MISMATCH,
        message,
        int(m.op[send]),
        Crossed(send, receive, trait, script),
        cause="The receive takes a message that is meant for another.",
        cures=("Name the sender, or give the message a tag or a communicator of its own.",),
        count=len(bad),
        where=[int(m.op[send]), int(m.op[receive])],
    )


def _differing(program: Program, send: int, receive: int) -> Iterator[str]:
    for trait in ("payload", "shape", "dtype", "count"):
        ours, theirs = (_stated(program, row, trait) for row in (send, receive))
        if ours is not None and theirs is not None and ours != theirs:
            yield trait


def _stated(program: Program, row: int, trait: str) -> object:
    if trait == "payload":
        return payload_name(program, int(program.messages.payload[row]))
    value = getattr(program.details.traits.get(row, NO_TRAITS), trait)
    return list(value) if isinstance(value, tuple) else value


def _left_over(subject: Subject, check: str) -> Iterator[Finding]:
    """Messages that nothing meets in an execution that runs to its end."""
    program, m, end = subject.program, subject.program.messages, subject.executions.loose
    script = None if end is None else taken(end.decisions)
    if end is None or script is None:
        return
    row = end.unmatched[0]
    yield finding(
        subject,
        check,
        Verdict.MISMATCH,
        f"{message_text(program, row)} on rank {m.rank[row]} meets no "
        f"{'receive' if m.send[row] else 'send'} in an execution that runs to its end, and "
        "nothing waits for it",
        int(m.op[row]),
        Unmatched(row, script),
        cause="The ranks disagree on how many messages there are; what is left over is taken "
        "for the first message of the next step.",
        count=len(end.unmatched),
        where=[int(m.op[r]) for r in end.unmatched[:5]],
    )
