"""matching: the sends and receives of each channel pair up, with equal contents.

Which send meets which receive follows from the order of posting alone, so it is
judged even where the program gets stuck elsewhere. First in, first out, the
n-th send meets the n-th receive of its channel, whatever the two mean: a plan
whose ends disagree runs to its end, with tensors swapped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.checks.collectives import unequal_calls, unjoined_calls
from pipeproof.checks.matching_choice import every_execution
from pipeproof.checks.slots import misreads
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import count, finding, result
from pipeproof.program.notation import message_text, op_text
from pipeproof.program.transports import Match
from pipeproof.verdict import (
    CheckResult,
    Crossed,
    Finding,
    Illegal,
    Partition,
    Unmatched,
    Verdict,
)

if TYPE_CHECKING:
    from pipeproof.program.programs import Bools

NAME = "matching"
TITLE = "every message arrives where it is expected, with the contents expected"


def check(subject: Subject) -> CheckResult:
    """Pair all messages and compare the two ends."""
    if subject.program.chooses:
        return every_execution(subject, NAME, [*unequal_calls(subject, NAME), *_layers(subject)])
    pairing = subject.pairing
    found = [
        *_crossed(subject),
        *_traits(subject),
        *_unmatched(subject),
        *_misread(subject),
        *unequal_calls(subject, NAME),
        *unjoined_calls(subject, NAME),
        *_layers(subject),
    ]
    messages = len(pairing.sends)
    channels = int((np.diff(pairing.sends_first) + np.diff(pairing.recvs_first) > 0).sum())
    fifo = subject.program.transport.match is Match.FIFO
    return result(
        subject,
        NAME,
        found,
        f"{count(messages, 'message')} on {count(channels, 'channel')} meet their receives"
        + (", in order" if fifo else ", by tag"),
        engine="pairing",
        evidence={
            "certificate": "pairing",
            "match": subject.program.transport.match.value,
            "messages": messages,
            "channels": channels,
        },
    )


def _crossed(subject: Subject) -> Iterator[Finding]:
    program, pairing = subject.program, subject.pairing
    payload = program.messages.payload
    sends = pairing.sends[pairing.match[pairing.sends] >= 0]
    wrong = sends[payload[sends] != payload[pairing.match[sends]]]
    if not len(wrong):
        return
    order = np.argsort(pairing.ordinal[wrong], kind="stable")
    send = int(wrong[order[0]])
    recv = int(pairing.match[send])
    messages = program.messages
    a, b = int(messages.rank[send]), int(messages.peer[send])
    nth = int(pairing.ordinal[send])
    same = wrong[pairing.channel[wrong] == pairing.channel[send]]
    named = [
        (
            int(messages.op[s]),
            f"message {int(pairing.ordinal[s]) + 1} from rank {a} to rank {b}: rank {a} sends "
            f"{message_text(program, int(s))}, rank {b} takes it for "
            f"{message_text(program, int(pairing.match[s]))}",
        )
        for s in same[np.argsort(pairing.ordinal[same], kind="stable")][:4]
    ]
    subject_count = "1 message crosses" if len(wrong) == 1 else f"{len(wrong)} messages cross"
    yield finding(
        subject,
        NAME,
        Verdict.MISMATCH,
        f"{subject_count}: {message_text(program, send)} (message {nth + 1} from rank {a} to "
        f"rank {b}) is received as {message_text(program, recv)}",
        int(messages.op[send]),
        Crossed(send, recv, "payload"),
        cause="The two ranks list these messages in different orders. Messages without tags "
        "meet first in, first out, so each receive gets the other's tensor: the run ends "
        "normally and trains on wrong values.",
        cures=(
            f"Give both ranks the same order: on rank {b}, post "
            f"{_right_receive(subject, send)} as receive {nth + 1} from rank {a}.",
            "Or tag the messages (a transport that matches by tag).",
        ),
        count=len(wrong),
        where=[int(messages.op[send]), int(messages.op[recv])],
        steps=named,
    )


def _right_receive(subject: Subject, send: int) -> str:
    """The receive that expects what this send carries."""
    program = subject.program
    m = program.messages
    rows = np.flatnonzero(~m.send & (m.payload == m.payload[send]) & (m.rank == m.peer[send]))
    return message_text(program, int(rows[0])) if len(rows) else "the receive of its payload"


def _traits(subject: Subject) -> Iterator[Finding]:
    """Shapes, types and counts that both ends state, and state differently."""
    program, pairing = subject.program, subject.pairing
    traits, messages = program.details.traits, program.messages
    bad: list[tuple[int, int, str]] = []
    for row in sorted(traits):
        if not messages.send[row]:
            continue
        other = int(pairing.match[row])
        if other < 0 or other not in traits:
            continue
        for trait in ("shape", "dtype", "count"):
            ours, theirs = getattr(traits[row], trait), getattr(traits[other], trait)
            if ours is not None and theirs is not None and ours != theirs:
                bad.append((row, other, trait))
    if not bad:
        return
    send, recv, trait = bad[0]
    ours, theirs = getattr(traits[send], trait), getattr(traits[recv], trait)
    ours, theirs = (list(v) if isinstance(v, tuple) else v for v in (ours, theirs))
    yield finding(
        subject,
        NAME,
        Verdict.MISMATCH,
        f"{message_text(program, send)} on rank {messages.rank[send]} has {trait} {ours}, but "
        f"rank {messages.rank[recv]} receives it with {trait} {theirs}",
        int(messages.op[send]),
        Crossed(send, recv, trait),
        cause="The receiver's buffer was made for another microbatch or a cached shape.",
        cures=(f"Exchange the {trait} before the message, or set it anew when it changes.",),
        count=len(bad),
        where=[int(messages.op[send]), int(messages.op[recv])],
    )


def _unmatched(subject: Subject) -> Iterator[Finding]:
    """Messages that nothing meets, where the program runs to its end all the same.

    Where it does not, the deadlock is the finding: what never came to be posted
    is not a defect of its own.
    """
    program, pairing = subject.program, subject.pairing
    if not len(program.messages.op) or not subject.runs_to_end:
        return
    unmet = pairing.match < 0
    if _unwaited(subject):
        unmet |= ~_received(subject)
    rows = np.flatnonzero(unmet)
    if not len(rows):
        return
    row = int(rows[0])
    messages = program.messages
    send = bool(messages.send[row])
    rank, peer = int(messages.rank[row]), int(messages.peer[row])
    met = pairing.match[row] >= 0
    yield finding(
        subject,
        NAME,
        Verdict.MISMATCH,
        f"{message_text(program, row)} on rank {rank} "
        + ("never moves" if met else f"meets no {'receive' if send else 'send'} on rank {peer}")
        + ", and nothing waits for it",
        int(messages.op[row]),
        Unmatched(row),
        cause="The two ranks disagree on how many messages there are; what is left over is "
        "taken for the first message of the next step.",
        count=len(rows),
        where=messages.op[rows[:5]],
    )


def _unwaited(subject: Subject) -> bool:
    """Whether something is posted that nothing waits for, so that a run may end without it."""
    program = subject.program
    waited = np.zeros(int(program.request.max(initial=-1)) + 1, np.bool_)
    waited[program.waits.request] = True
    return not bool(waited[program.request[program.request >= 0]].all())


def _received(subject: Subject) -> Bools:
    """For each message row, whether its message arrives: at the end of a run its
    receive has started, and all that it needs has happened."""
    messages, match = subject.program.messages, subject.pairing.match
    receive = np.where(messages.send, match, np.arange(len(match)))
    return subject.arrived[receive] & (match >= 0)


def _misread(subject: Subject) -> Iterator[Finding]:
    """Slots that hold something else than the op that reads them expects."""
    program = subject.program
    bad = list(misreads(subject))
    if not bad:
        return
    first = bad[0]
    text = op_text(program, first.op)
    since = f" since {op_text(program, first.writer)}" if first.writer is not None else ""
    yield finding(
        subject,
        NAME,
        Verdict.MISMATCH,
        f"rank {subject.rank[first.op]} runs {text}, which expects {first.expected} in "
        f"{first.slot}, but that holds {first.found or 'nothing yet'}{since}",
        first.op,
        Illegal(first.op, f"slot {first.slot}"),
        cause="The slot was filled again before it was used, or never got its own contents.",
        count=len(bad),
        where=[first.op] if first.writer is None else [first.op, first.writer],
    )


def _layers(subject: Subject) -> Iterator[Finding]:
    """The layers of the stages, in stage order, are 0..n-1 once each."""
    details = subject.program.details
    if details.layers is None:
        return
    listed = [layer for stage in details.layers for layer in stage]
    count = details.n_layers if details.n_layers is not None else len(listed)
    if listed == list(range(count)):
        return
    at = next((i for i, layer in enumerate(listed) if layer != i), min(len(listed), count))
    owner = next(
        (
            s
            for s in range(len(details.layers))
            if sum(len(x) for x in details.layers[: s + 1]) > at
        ),
        len(details.layers) - 1,
    )
    found = f"layer {listed[at]}" if at < len(listed) else "no further layer"
    yield finding(
        subject,
        NAME,
        Verdict.MISMATCH,
        f"stage {owner} has {found} where layer {at} is due: the stages hold "
        f"{[list(x) for x in details.layers]}, which is not 0 to {count - 1} once each",
        None,
        Partition(),
        cause="A layer offset counts from the wrong rank or chunk.",
    )
