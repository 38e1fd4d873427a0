"""Re-enacting claims about gradients, replicas, side effects and weight versions."""

from __future__ import annotations

from typing import assert_never

from pipeproof.program.notation import op_text
from pipeproof.program.ops import COMPUTE, Kind
from pipeproof.program.programs import Program
from pipeproof.program.transports import Transport
from pipeproof.replay.ledger import attributes_of, compute_of
from pipeproof.replay.values import Form, Values
from pipeproof.verdict import (
    Diverged,
    EffectCount,
    NoVersion,
    RandomState,
    ReadsVersion,
    WrongForm,
)

ValueClaim = WrongForm | Diverged | EffectCount | RandomState | ReadsVersion | NoVersion


def confirm_value(program: Program, transport: Transport, claim: ValueClaim) -> str | None:
    """None where the claim is confirmed, otherwise a sentence that says what differed."""
    match claim:
        case WrongForm():
            return _wrong_form(program, Values(program, transport), claim)
        case Diverged():
            return _diverged(program, Values(program, transport), claim)
        case EffectCount():
            return _effect_count(program, claim)
        case RandomState():
            return _random_state(program, Values(program, transport), claim)
        case ReadsVersion():
            return _reads_version(program, Values(program, transport), claim)
        case NoVersion():
            return _no_version(program, Values(program, transport), claim)
        case _:
            assert_never(claim)


def _wrong_form(program: Program, values: Values, claim: WrongForm) -> str | None:
    op, name, text = claim.op, claim.name, op_text(program, claim.op)
    label = attributes_of(program, op).label
    if program.kind[op] not in (Kind.STEP, Kind.REPORT) or label != name:
        return f"{text} compares nothing with what is wanted of {name}."
    if name not in program.details.want:
        return f"Nothing is wanted of {name}."
    form = values.form(op, name)
    if form is None:
        return f"{text} is never reached: collectives before it wait for each other."
    if {s: str(c) for s, c in form.items()} != dict(claim.found):
        return f"At {text}, {name} is {_told(form)}."
    if form == {s: c for s, c in program.details.want[name].items() if c}:
        return f"At {text}, {name} is what is wanted."
    return None


def _told(form: Form) -> str:
    return " + ".join(f"{c} {s}" for s, c in sorted(form.items())) or "nothing"


def _diverged(program: Program, values: Values, claim: Diverged) -> str | None:
    ranks = program.details.replicas.get(claim.name, ())
    if not set(claim.ranks) <= set(ranks):
        return f"{claim.name} has no replicas on these ranks."
    one, other = (values.updates(rank, claim.name) for rank in claim.ranks)
    if one == other:
        return f"The {len(one)} updates of {claim.name} are equal on these ranks."
    return None


def _effect_count(program: Program, claim: EffectCount) -> str | None:
    wanted = program.details.want_effects.get((claim.rank, claim.effect))
    times = sum(
        list(attributes.more.get("effects", ())).count(claim.effect)
        for op, attributes in program.details.attributes.items()
        if program.rank_of(op) == claim.rank
    )
    if times != claim.times:
        return f"{claim.effect} runs {times} times on rank {claim.rank}, not {claim.times}."
    if wanted is None or wanted != claim.expected or wanted == times:
        return f"{claim.effect} is wanted {wanted} times on rank {claim.rank}."
    return None


def _random_state(program: Program, values: Values, claim: RandomState) -> str | None:
    op, forward = claim.op, claim.forward
    text = op_text(program, op)
    if program.kind[op] != Kind.R or values.forward_of(op) != forward:
        return f"{text} does not recompute {op_text(program, forward)}."
    one, other = (attributes_of(program, o).more.get("rng") for o in (op, forward))
    if one is None or other is None or one == other:
        return f"{text} and its forward do not state different random states."
    return None


def _reads_version(program: Program, values: Values, claim: ReadsVersion) -> str | None:
    op, text = claim.op, op_text(program, claim.op)
    more = attributes_of(program, op).more
    if claim.version == claim.expected:
        return f"{text} reads version {claim.version}, as it should."
    current = values.versions(op, claim.parameter)[-1]
    if (claim.parameter in more.get("uses", ())) and more["it"] == claim.expected:
        if current == claim.version:
            return None
        return f"{text} finds version {current} of {claim.parameter}."
    own = compute_of(program, op)
    if own.kind not in COMPUTE or claim.parameter != f"w{own.stage}":
        return f"{text} does not use {claim.parameter}."
    if program.details.versions != "fb-equal":
        return f"Nothing demands that {text} uses the version of its forward."
    forward = values.forward_of(op)
    if own.kind == Kind.F or forward is None:
        return f"{text} builds on no forward."
    used, first = values.version_used(op), values.version_used(forward)
    if (used, first) != (claim.version, claim.expected):
        return f"{text} uses version {used}, its forward version {first}."
    return None


def _no_version(program: Program, values: Values, claim: NoVersion) -> str | None:
    op, text = claim.op, op_text(program, claim.op)
    attributes, own = attributes_of(program, op), compute_of(program, op)
    named = None
    if program.kind[op] == Kind.ROLLBACK and attributes.label == claim.parameter:
        named = attributes.more["version"]
    elif own.kind in COMPUTE and claim.parameter == f"w{own.stage}":
        named = attributes.more.get("wv")
    if named != claim.version:
        return f"{text} does not name version {claim.version} of {claim.parameter}."
    if claim.version in values.versions(op, claim.parameter):
        return f"When {text} is reached, there has been such a version."
    return None
