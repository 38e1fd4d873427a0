"""Receives from any sender: do different executions match them differently?

Then what a rank computes depends on timing. ``"commutes": true`` on the receive
says that it makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeproof.checks.executions import taken
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import finding, spell
from pipeproof.engines.explore.search import Decision
from pipeproof.program.notation import message_text
from pipeproof.program.programs import ANY, NOTHING, Attributes, Program
from pipeproof.verdict import Finding, TakesEither, Verdict


def several_senders(subject: Subject, check: str) -> tuple[list[Finding], list[str]]:
    """(the receives that take from several senders in one finding, what is open)."""
    program, m = subject.program, subject.program.messages
    bad: list[tuple[int, dict[int, tuple[Decision, ...]]]] = []
    for receive in np.flatnonzero(m.peer == ANY).tolist():
        sends = subject.executions.takes.get(receive, NOTHING)
        by_sender: dict[int, tuple[Decision, ...]] = {}
        for send, decisions in sorted(sends.items()):
            by_sender.setdefault(int(m.rank[send]), decisions)
        if len(by_sender) > 1 and not _commutes(program, receive):
            bad.append((receive, by_sender))
    if not bad:
        return [], []
    return list(_told(subject, check, bad)), _gaps(bad)


def _gaps(bad: list[tuple[int, dict[int, tuple[Decision, ...]]]]) -> list[str]:
    """Where no execution can be replayed because lanes took turns in all of them."""
    replayable = [_shown(by_sender) is not None for _, by_sender in bad]
    return [] if any(replayable) else ["a receive takes from several senders as lanes take turns"]


def _shown(
    by_sender: dict[int, tuple[Decision, ...]],
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]] | None:
    shown = [t for t in map(taken, by_sender.values()) if t is not None]
    return (shown[0], shown[1]) if len(shown) > 1 else None


def _told(
    subject: Subject, check: str, bad: list[tuple[int, dict[int, tuple[Decision, ...]]]]
) -> Iterator[Finding]:
    program, m = subject.program, subject.program.messages
    for receive, by_sender in bad:
        pair = _shown(by_sender)
        if pair is None:
            continue
        one, other = pair
        text, op = message_text(program, receive), int(m.op[receive])
        sends = [pair[-1][1] for pair in (one, other)]
        yield finding(
            subject,
            check,
            Verdict.RACE,
            f"rank {m.rank[receive]}'s {text} takes the message of rank "
            f"{' or '.join(map(str, sorted(by_sender)))}, whichever comes first",
            op,
            TakesEither(receive, one, other),
            cause="The messages of several senders are under way at once, and nothing says "
            "which of them this receive is for.",
            cures=(
                f"Name the sender: one receive from each of ranks {spell(sorted(by_sender))}.",
                'Or state that it makes no difference: "commutes": true.',
            ),
            count=len(bad),
            where=[op, *(int(m.op[send]) for send in sends)],
            steps=[
                (
                    int(m.op[send]),
                    f"in {'one' if send == sends[0] else 'another'} execution it takes "
                    f"{message_text(program, send)} of rank {m.rank[send]}",
                )
                for send in sends
            ],
        )
        return


def _commutes(program: Program, receive: int) -> bool:
    """Whether the receive, alone or a member of its group, states that it commutes."""
    op = int(program.messages.op[receive])
    attributes = program.details.attributes.get(op)
    members = attributes.more.get("commutes", ()) if isinstance(attributes, Attributes) else ()
    return receive - program.rows_of(op)[0] in members
