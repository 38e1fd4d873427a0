"""race: nothing is touched while a message is still using it.

A payload is there when its receive was waited for, not when it was posted: a
compute or send that uses it before runs on whatever the buffer held. A receive
from any sender that different executions match differently is a race, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeproof.checks.accesses import Access, Storage, conflicts, ends_before
from pipeproof.checks.executions import answer, gap, in_both_readings, visited
from pipeproof.checks.senders import several_senders
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import count, finding, result
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import Kind
from pipeproof.program.programs import ANY, Program
from pipeproof.verdict import CheckResult, Claim, Finding, InFlight, Overtakes, Verdict

NAME = "race"
TITLE = "no payload is used before its receive was waited for, no buffer while in flight"


def check(subject: Subject) -> CheckResult:
    """Look for uses of what is still in flight."""
    program = subject.program
    if program.chooses:
        return _every_execution(subject)
    found = [*_in_flight(subject), *_contended(subject)]
    posted = int((program.request >= 0).sum())
    return result(
        subject,
        NAME,
        found,
        f"{count(posted, 'posted operation')}; nothing they use is touched before the wait"
        if posted
        else "nothing is posted without being waited for",
        evidence={"posted": posted, "waits": len(program.waits.op)},
    )


def _every_execution(subject: Subject) -> CheckResult:
    """The same where there is choice, and whether receives from any sender meet one."""
    found: list[Finding] = []
    gaps: list[str] = []
    if visited(subject):
        found, gaps = several_senders(subject, NAME)
    missing = gap(subject)
    gaps += [] if missing is None else [missing]
    if subject.program.several_lanes:
        gaps.append("what lanes of a rank have in common depends on the execution")
    else:
        used, unsure = in_both_readings(subject, NAME, _in_flight)
        found, gaps = [*found, *used], [*gaps, *unsure]
    receives = int((subject.program.messages.peer == ANY).sum())
    summary = (
        f"{count(receives, 'receive')} from any sender, each of one sender or stated to "
        "commute; nothing posted is touched before the wait"
    )
    return answer(subject, NAME, found, gaps, summary, {"from_any": receives})


def _in_flight(subject: Subject) -> list[Finding]:
    """Uses of what a message or copy under way still uses."""
    return [*_early_uses(subject), *_overtaking(subject), *_overlaps(subject)]


def _early_uses(subject: Subject) -> Iterator[Finding]:
    program, pending = subject.program, subject.holdings.pending
    if not len(pending):
        return
    pending = pending[np.argsort(pending[:, 0], kind="stable")]
    op, payload, poster = (int(v) for v in pending[0])
    verb = "sends" if program.kind[op] in (Kind.SEND, Kind.GROUP) else "uses"
    yield finding(
        subject,
        NAME,
        Verdict.RACE,
        f"rank {subject.rank[op]} runs {op_text(program, op)}, which {verb} "
        f"{payload_name(program, payload)} while its receive is still in flight",
        op,
        InFlight(op, poster),
        cause="The wait for the receive is missing, or stands behind the op that needs it.",
        cures=(f"Wait for {op_text(program, poster)} before {op_text(program, op)}.",),
        count=len(pending),
        where=[op, poster],
    )


def _overtaking(subject: Subject) -> Iterator[Finding]:
    """Uses of what another lane provides, with no order between the two."""
    program, rows = subject.program, subject.holdings.overtaking
    if not rows:
        return
    op, provider = rows[0]
    lane = program.lanes[program.lane_of(provider)].name
    yield finding(
        subject,
        NAME,
        Verdict.RACE,
        f"rank {subject.rank[op]} runs {op_text(program, op)}, which needs what "
        f"{op_text(program, provider)} on lane {lane} provides, and nothing makes it wait",
        op,
        Overtakes(op, provider),
        cause="Two lanes of a rank share data without a signal between them.",
        cures=(
            f"Signal after {op_text(program, provider)} and wait for it before "
            f"{op_text(program, op)}.",
        ),
        count=len(rows),
        where=[op, provider],
    )


def _overlaps(subject: Subject) -> Iterator[Finding]:
    """Accesses to one storage that may overlap, of which one writes."""
    program = subject.program
    bad = [
        (late, early, storage)
        for storage, first, second in conflicts(subject)
        for late, early in (_by_time(subject, first, second),)
    ]
    bad.extend(_within_a_group(program))
    if not bad:
        return
    late, early, (rank, what, name) = min(bad, key=lambda b: (b[0].op, b[1].op))
    op, other = late.op, early.op
    verb = "frees" if late.frees else "writes" if late.writes else "reads"
    if program.kind[op] == Kind.STEP:  # it clears the accumulator too, but that is not the point
        verb = "reads"
    place = name if what == "slot" else f"the {what} {name}"
    if op == other:
        message = f"uses {place} twice at once, and one of its members fills it"
        cause, cure = "The members of a batch progress on their own.", "Give each a slot."
        claim: Claim = InFlight(op, other)
    elif _posted_before(program, early, late):
        message = f"{verb} {place} while {op_text(program, other)} still uses it"
        cause = "The storage is used again before the wait for the operation that uses it."
        cure = f"Wait for {op_text(program, other)} before {op_text(program, op)}."
        claim = InFlight(op, other)
    else:
        where = program.lanes[program.lane_of(other)].name
        message = (
            f"{verb} {place}, and nothing orders it and {op_text(program, other)} on lane {where}"
        )
        cause = "Two lanes touch the same storage without a signal between them."
        cure = f"Signal the end of {op_text(program, other)} and wait for it before."
        claim = Overtakes(op, other)
    yield finding(
        subject,
        NAME,
        Verdict.RACE,
        f"rank {rank} runs {op_text(program, op)}, which {message}",
        op,
        claim,
        cause=cause,
        cures=(cure,),
        count=len(bad),
        where=dict.fromkeys((op, other)),
    )


def _by_time(subject: Subject, first: Access, second: Access) -> tuple[Access, Access]:
    """(the access at fault, the one it disturbs): the later one on a lane; across
    lanes one that can begin before the other has ended."""
    program = subject.program
    if program.lane_of(first.op) == program.lane_of(second.op):
        return second, first
    if not ends_before(subject, first, second):
        return second, first
    return first, second


def _posted_before(program: Program, early: Access, late: Access) -> bool:
    same = program.lane_of(early.op) == program.lane_of(late.op)
    return same and bool(program.request[early.op] >= 0)


def _within_a_group(program: Program) -> Iterator[tuple[Access, Access, Storage]]:
    """Groups that use one slot for two members, of which one fills it."""
    m = program.messages
    users: dict[tuple[int, str], list[bool]] = {}
    for row, traits in program.details.traits.items():
        if traits.buf is not None:
            users.setdefault((int(m.op[row]), traits.buf), []).append(bool(m.send[row]))
    for (op, slot), sends in users.items():
        if len(sends) > 1 and not all(sends):
            access = Access(op, True, op)
            yield access, access, (program.rank_of(op), "slot", slot)


def _contended(subject: Subject) -> Iterator[Finding]:
    """Lanes that post on one channel, group or stream with no order between them."""
    program, pairs = subject.program, subject.contended
    if not pairs:
        return
    one, other = pairs[0]
    lanes = [program.lanes[program.lane_of(op)].name for op in (one, other)]
    yield finding(
        subject,
        NAME,
        Verdict.RACE,
        f"rank {subject.rank[one]} posts {op_text(program, one)} on lane {lanes[0]} and "
        f"{op_text(program, other)} on lane {lanes[1]}, and nothing orders the two: which "
        "message, call or turn comes first is left to chance",
        other,
        Overtakes(other, one),
        cause="Two threads or streams share a communicator without synchronising.",
        cures=("Give each lane its own communicator, or signal between the two.",),
        count=len(pairs),
        where=[one, other],
    )
