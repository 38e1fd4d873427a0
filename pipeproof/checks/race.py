"""race: nothing is touched while a message is still using it.

A payload is there when its receive was waited for, not when it was posted: a
compute or send that uses it before runs on whatever the buffer held.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding, result
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import Kind
from pipeproof.verdict import CheckResult, Finding, InFlight, Verdict

NAME = "race"
TITLE = "no payload is used before its receive was waited for, no buffer while in flight"


def check(subject: Subject) -> CheckResult:
    """Look for uses of what is still in flight."""
    program = subject.program
    found = [*_early_uses(subject), *_buffers(subject)]
    posted = int((program.request >= 0).sum())
    return result(
        subject,
        NAME,
        found,
        f"{posted} posted operations; nothing they use is touched before they are waited for"
        if posted
        else "nothing is posted without being waited for",
        evidence={"posted": posted, "waits": len(program.waits.op)},
    )


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


def _buffers(subject: Subject) -> Iterator[Finding]:
    """Slots (``buf``) freed or taken again between the post and the wait."""
    program = subject.program
    details = program.details
    named = {row: traits.buf for row, traits in details.traits.items() if traits.buf is not None}
    if not named:
        return
    messages, waits = program.messages, program.waits
    wait_of = dict(zip(waits.request.tolist()[::-1], waits.op.tolist()[::-1], strict=True))
    # (slot, op that touches it, whether it writes, whether it frees)
    touches: dict[tuple[int, str], list[tuple[int, bool, bool]]] = {}
    for row, slot in named.items():
        op = int(messages.op[row])
        touches.setdefault((int(messages.rank[row]), slot), []).append(
            (op, not bool(messages.send[row]), False)
        )
    for op, attributes in details.attributes.items():
        for slot in attributes.free:
            touches.setdefault((int(subject.rank[op]), slot), []).append((op, True, True))
    bad: list[tuple[int, int, str, bool]] = []
    for row, slot in named.items():
        poster = int(messages.op[row])
        if program.request[poster] < 0:
            continue
        until = wait_of.get(int(program.request[poster]), program.ops)
        reads_only = bool(messages.send[row])
        for op, writes, frees in touches[int(messages.rank[row]), slot]:
            # A free that an op carries happens after it completes, so after its waits.
            if poster < op < until and (writes or not reads_only):
                bad.append((op, poster, slot, frees))
    if not bad:
        return
    bad.sort()
    op, poster, slot, frees = bad[0]
    yield finding(
        subject,
        NAME,
        Verdict.RACE,
        f"rank {subject.rank[op]} runs {op_text(program, op)}, which "
        f"{'frees' if frees else 'takes'} {slot} while {op_text(program, poster)} still uses it",
        op,
        InFlight(op, poster),
        cause="The buffer is used again before the wait for the operation that uses it.",
        cures=(f"Wait for {op_text(program, poster)} before {op_text(program, op)}.",),
        count=len(bad),
        where=[op, poster],
    )
