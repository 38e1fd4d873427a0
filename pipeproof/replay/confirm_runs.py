"""Claims that runs of the model confirm: what gets stuck, meets, or comes first."""

from __future__ import annotations

from pipeproof.program.notation import message_text, op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import Transport
from pipeproof.replay.layout import NOBODY, meetings_of, pairing
from pipeproof.replay.ledger import NO_TRAITS
from pipeproof.replay.model import Model
from pipeproof.replay.state import Outcome
from pipeproof.verdict import (
    Crossed,
    Overtakes,
    Stuck,
    Taken,
    TakesEither,
    UnequalCalls,
    Unjoined,
    Unmatched,
)


def _end(program: Program, transport: Transport, taken: Taken) -> Outcome | str:
    """How the execution ends in which messages are taken so; an objection where it
    is none, or goes on."""
    model = Model(program, transport)
    state = model.follow(taken)
    if state is None:
        return "No execution has these receives take these messages in this order."
    left = model.takes(state)
    if left:
        receive, send = (message_text(program, row) for row in (left[0].number, left[0].send))
        return f"The run goes on: {receive} can take {send}."
    return model.outcome(state)


def stuck(
    program: Program, transport: Transport, claim: Stuck, moves: tuple[int, ...]
) -> str | None:
    """Where messages are taken so, the program is stuck at these ops."""
    outcome = _end(program, transport, claim.taken)
    if isinstance(outcome, str):
        return outcome
    if not outcome.stuck:
        return "The program runs to its end: nothing is stuck."
    if tuple(sorted(claim.ops)) != outcome.stuck:
        there, claimed = _texts(program, outcome.stuck), _texts(program, claim.ops)
        return f"The run is stuck at {there}, not at {claimed}."
    if tuple(moves) != outcome.completed:
        so_far, claimed = _counts(outcome.completed), _counts(moves)
        return f"Before it is stuck, the lanes complete {so_far} ops, not {claimed}."
    return None


def unmatched(program: Program, transport: Transport, claim: Unmatched) -> str | None:
    """The program ends, and this message meets nothing."""
    outcome = _end(program, transport, claim.taken)
    if isinstance(outcome, str):
        return outcome
    if outcome.stuck:
        return f"The program does not reach its end: stuck at {_texts(program, outcome.stuck)}."
    if claim.row not in outcome.unmatched:
        return f"{message_text(program, claim.row)} meets its counterpart."
    return None


def unjoined(program: Program, transport: Transport, claim: Unjoined) -> str | None:
    """The program ends, and this posted collective has not completed."""
    model = Model(program, transport)
    state = model.held_at(())
    if ended_stuck := model.outcome(state).stuck:
        return f"The program does not reach its end: stuck at {_texts(program, ended_stuck)}."
    if program.kind[claim.op] != Kind.COLL or not state.unfinished[claim.op]:
        return f"{_texts(program, (claim.op,))} completes."
    return None


def takes_either(program: Program, transport: Transport, claim: TakesEither) -> str | None:
    """Two executions have the receive take messages of different senders."""
    senders = set()
    for taken in (claim.one, claim.other):
        if not taken or taken[-1][0] != claim.receive:
            return f"{message_text(program, claim.receive)} is not what takes a message last."
        if Model(program, transport).follow(taken) is None:
            return "No execution has these receives take these messages in this order."
        senders.add(int(program.messages.rank[taken[-1][1]]))
    if len(senders) < 2:
        return f"{message_text(program, claim.receive)} takes messages of one sender."
    return None


def overtakes(program: Program, transport: Transport, claim: Overtakes) -> str | None:
    """Some execution has the one op before the other is over."""
    if Model(program, transport).reaches(claim.op, without=claim.other):
        return None
    first, second = (_texts(program, (op,)) for op in (claim.other, claim.op))
    return f"No execution reaches {second} before {first} has completed."


def unequal_calls(program: Program, claim: UnequalCalls) -> str | None:
    """The two calls meet, and differ."""
    meeting, _ = meetings_of(program)
    if meeting.get(claim.one, -1) != meeting.get(claim.other, -2):
        return "The two calls do not meet."
    one, other = (program.details.attributes[op] for op in (claim.one, claim.other))
    if (one.more["kind"], one.label) == (other.more["kind"], other.label):
        return "The two calls are the same."
    return None


def crossed(program: Program, transport: Transport, claim: Crossed) -> str | None:
    """The two ends meet, and differ."""
    send, recv = claim.send, claim.recv
    meets = pairing(program, transport.match)[send]
    if claim.taken:
        if Model(program, transport).follow(claim.taken) is None:
            return "No execution has these receives take these messages in this order."
        taker, meets = claim.taken[-1]
        meets = taker if meets == send else NOBODY
    if not program.messages.send[send] or program.messages.send[recv] or meets != recv:
        other = "nothing" if meets == NOBODY else message_text(program, meets)
        return f"{message_text(program, send)} meets {other}, not {message_text(program, recv)}."
    if claim.trait == "payload":
        differ = program.messages.payload[send] != program.messages.payload[recv]
    elif claim.trait in ("shape", "dtype", "count"):
        sent, expected = (
            getattr(program.details.traits.get(row, NO_TRAITS), claim.trait)
            for row in (send, recv)
        )
        differ = sent is not None and expected is not None and sent != expected
    else:
        return f"A message has no {claim.trait}."
    if not differ:
        return f"The two ends of {message_text(program, send)} agree in {claim.trait}."
    return None


def _texts(program: Program, ops: tuple[int, ...]) -> str:
    return ", ".join(f"rank {program.rank_of(op)} {op_text(program, op)}" for op in ops)


def _counts(counts: tuple[int, ...]) -> str:
    return ", ".join(map(str, counts))
