"""gradients: every update and every reported value is the one that is wanted.

What a parameter is stepped on is an exact linear form over microbatches, samples
or tokens; it is compared with the form of the sequential step, coefficient by
coefficient, so scaling, lost and doubled contributions show whatever the model
and the data. Beside it: replicas whose updates differ, side effects that ran
another number of times, recomputes that drew other random numbers than their
forwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pipeproof.checks.accumulators import Reading, Unknown, accumulator_uses, readings
from pipeproof.checks.apart import forward_uses, left_to_chance
from pipeproof.checks.blame import blamed
from pipeproof.checks.linear import Difference, compared, difference, times
from pipeproof.checks.replicas import Replicas, diverged, replicas
from pipeproof.checks.subject import Subject
from pipeproof.checks.telling import SCOPE, finding, result, spell
from pipeproof.program.notation import op_text
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.verdict import (
    CheckResult,
    EffectCount,
    Finding,
    RandomState,
    Status,
    Verdict,
    WrongForm,
)

NAME = "gradients"
TITLE = "updates, replicas, metrics, side effects and random states are those of a sequential step"
ENGINE = "exact linear forms"


def applies(subject: Subject) -> bool:
    """Whether the program demands anything of what this check looks at."""
    details = subject.program.details
    if details.want or details.replicas or details.want_effects:
        return True
    order: Iterable[int] = range(subject.program.ops)
    if subject.program.several_lanes:
        # The order of events is not asked for: with choice there is no single one.
        order = sorted(_random_states(subject), key=lambda op: int(subject.program.kind[op]))
    return bool(_recomputes(subject, order))


def check(subject: Subject) -> CheckResult:
    """Compare what the program makes with what it says it should make."""
    program = subject.program
    details = program.details
    follows = bool(details.want or details.replicas)
    chance = left_to_chance(subject, accumulator_uses(program)) if follows else None
    sequence = subject.sequence if follows and chance is None else []
    ended = chance is not None or not follows or len(sequence) == 2 * program.ops
    read = readings(program, sequence)
    copies = Replicas({}, (), ())
    if chance is None:
        copies = replicas(program, read, sequence, ended)
    order: Iterable[int] = range(program.ops)
    if subject.program.several_lanes:
        order = [op for op, completed in subject.sequence if completed]
    recomputes = _recomputes(subject, order)
    unordered = left_to_chance(subject, forward_uses(program)) if recomputes else None
    effects = _effects(subject)
    found = [
        *_wrong_forms(subject, read),
        *diverged(subject, NAME, copies),
        *_wrong_effects(subject, effects),
        *_other_random_states(subject, [] if unordered else recomputes),
    ]
    gaps = [chance] if chance is not None else list(_gaps(program, read, copies, ended))
    if unordered is not None:
        gaps.append(unordered)
    elif not (follows or effects or recomputes):
        gaps.append("no recompute follows a forward that states its random state")
    if gaps and not found:
        return CheckResult(
            check=NAME,
            status=Status.UNDETERMINED,
            scope=SCOPE,
            engine=ENGINE,
            summary=gaps[0],
            reason="; ".join(gaps),
        )
    asked = [r for r in read if r.name in details.want]
    return result(
        subject,
        NAME,
        found,
        _summary(asked, program, copies, recomputes),
        evidence={
            "forms": dict(Counter(r.name for r in asked)),
            "replicas": {name: list(ranks) for name, ranks in copies.agreeing.items()},
            "effects": {f"{rank}:{name}": len(ops) for (rank, name), ops in effects.items()},
            "recomputes": len(recomputes),
        },
        engine=ENGINE,
    )


def _summary(
    asked: list[Reading], program: Program, copies: Replicas, recomputes: list[tuple[int, int]]
) -> str:
    parts = []
    for kind, word in ((Kind.STEP, "update"), (Kind.REPORT, "reported value")):
        count = sum(program.kind[r.op] == kind for r in asked)
        if count:
            parts.append(f"{_count(count, word)} as wanted")
    if copies.agreeing:
        parts.append(f"{_count(len(copies.agreeing), 'replicated parameter')} in step")
    if program.details.want_effects:
        parts.append(f"{_count(len(program.details.want_effects), 'side effect')} as often as due")
    if recomputes:
        parts.append(f"{_count(len(recomputes), 'recompute')} with the forward's random state")
    return "; ".join(parts)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _gaps(program: Program, read: list[Reading], copies: Replicas, ended: bool) -> Iterator[str]:
    """Why something that is demanded could not be judged."""
    want = program.details.want
    if not ended:
        yield "the program gets stuck; what stands behind that was not compared"
    else:
        seen = {r.name for r in read}
        never = [name for name in want if name not in seen]
        if never:
            pronoun = "it is" if len(never) == 1 else "they are"
            yield (
                f"nothing compares {_some(never)} with what is wanted: {pronoun} never "
                "stepped or reported"
            )
    for reading in read:
        if reading.name in want and isinstance(reading.value, Unknown):
            yield (
                f"{reading.name} is open at {op_text(program, reading.op)} on rank "
                f"{reading.rank}: {reading.value.why}"
            )
            break
    yield from copies.gaps


def _some(names: list[str]) -> str:
    return spell(names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"])


# --- forms --------------------------------------------------------------------


def _wrong_forms(subject: Subject, read: list[Reading]) -> Iterator[Finding]:
    """Forms that are not the wanted ones, one finding for all that differ alike."""
    want = subject.program.details.want
    alike: dict[object, list[tuple[Reading, Difference]]] = {}
    for reading in sorted(read):
        if reading.name in want and not isinstance(reading.value, Unknown):
            by = difference(reading.value, want[reading.name])
            if by is not None:
                alike.setdefault((by.kind, by.ratio), []).append((reading, by))
    for wrong in alike.values():
        yield _wrong_form(subject, *wrong[0], [r.op for r, _ in wrong])


def _wrong_form(subject: Subject, reading: Reading, by: Difference, ops: list[int]) -> Finding:
    program, value = subject.program, reading.value
    assert not isinstance(value, Unknown)
    verb = "reports" if program.kind[reading.op] == Kind.REPORT else "steps"
    reason = blamed(subject, reading, by)
    return finding(
        subject,
        NAME,
        Verdict.NUMERIC,
        f"rank {reading.rank} {verb} {reading.name} "
        f"{'as' if verb == 'reports' else 'on'} "
        f"{compared(value, program.details.want[reading.name], by)}: {by.text}",
        reading.op,
        WrongForm(reading.op, reading.name, tuple((s, str(c)) for s, c in sorted(value.items()))),
        cause=reason.cause,
        cures=reason.cures,
        count=len(ops),
        where=[*ops[:4], *reason.where],
        steps=reason.steps,
    )


# --- side effects -------------------------------------------------------------


def _effects(subject: Subject) -> Mapping[tuple[int, str], list[int]]:
    """The ops that have each demanded effect on its rank; once each time it is named."""
    ops: dict[tuple[int, str], list[int]] = {k: [] for k in subject.program.details.want_effects}
    if ops:
        for op, attributes in sorted(subject.program.details.attributes.items()):
            for effect in attributes.more.get("effects", ()):
                key = int(subject.rank[op]), effect
                if key in ops:
                    ops[key].append(op)
    return ops


def _wrong_effects(
    subject: Subject, effects: Mapping[tuple[int, str], list[int]]
) -> Iterator[Finding]:
    program = subject.program
    wanted = program.details.want_effects
    wrong = [(key, ops) for key, ops in effects.items() if len(ops) != wanted[key]]
    if not wrong:
        return
    (rank, effect), ops = wrong[0]
    again = [op for op in ops if program.kind[op] == Kind.R]
    cause, cures = "An op that has it is missing, or runs without it.", list[str]()
    if len(ops) > wanted[rank, effect]:
        cause = "Ops that have it run too often."
        if again:
            cause = (
                f"The forward has run it, and recomputing ({op_text(program, again[0])}) runs "
                "it again: state that outlives the op is updated twice."
            )
            cures = [f"Suspend {effect} while a forward is recomputed."]
    yield finding(
        subject,
        NAME,
        Verdict.NUMERIC,
        f"rank {rank} runs the side effect {effect} {times(len(ops))} instead of "
        f"{times(wanted[rank, effect])}",
        next(iter(again or ops), None),
        EffectCount(rank, effect, len(ops), wanted[rank, effect]),
        cause=cause,
        cures=cures,
        count=len(wrong),
        where=(again or ops)[:4],
    )


# --- random states ------------------------------------------------------------


def _random_states(subject: Subject) -> dict[int, object]:
    """The random state that each op states to use."""
    attributes = subject.program.details.attributes.items()
    return {op: own.more["rng"] for op, own in attributes if "rng" in own.more}


def _recomputes(subject: Subject, order: Iterable[int]) -> list[tuple[int, int]]:
    """(recompute, its forward), where both say which random state they used.

    The forward is the last one of that stage and microbatch on its rank before it
    in ``order``, in which the ops happen.
    """
    program, states = subject.program, _random_states(subject)
    if not any(program.kind[op] == Kind.R for op in states):
        return []
    kinds, ranks = program.kind.tolist(), subject.rank.tolist()
    stages, microbatches = program.stage.tolist(), program.microbatch.tolist()
    pairs: list[tuple[int, int]] = []
    latest: dict[tuple[int, int, int], int] = {}
    for op in order:
        key = ranks[op], stages[op], microbatches[op]
        if kinds[op] == Kind.F:
            latest[key] = op
        elif kinds[op] == Kind.R and op in states and latest.get(key) in states:
            pairs.append((op, latest[key]))
    return pairs


def _other_random_states(
    subject: Subject, recomputes: Iterable[tuple[int, int]]
) -> Iterator[Finding]:
    program, state = subject.program, _random_states(subject)
    wrong = [(again, first) for again, first in recomputes if state[again] != state[first]]
    if not wrong:
        return
    again, first = wrong[0]
    yield finding(
        subject,
        NAME,
        Verdict.NUMERIC,
        f"rank {subject.rank[again]} recomputes {op_text(program, again)} with the random state "
        f"{state[again]}; its forward {op_text(program, first)} had {state[first]}",
        again,
        RandomState(again, first),
        cause="The state is not saved for recomputing, so dropout draws a new mask: the "
        "gradient belongs to another network than the loss.",
        cures=("Save the random state before the forward; restore it around the recompute.",),
        count=len(wrong),
        where=[again, first],
    )
