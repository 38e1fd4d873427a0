"""What a program states about its values, read again and compared directly.

The checks follow everything forward; here each statement is put as questions to
``replay.values``, which answers them backwards and shares no code with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pipeproof.program.ops import COMPUTE, Kind
from pipeproof.program.programs import Program
from pipeproof.replay.ledger import attributes_of
from pipeproof.replay.values import Values


def broken_statement(program: Program, values: Values) -> str | None:
    """A statement of the program that it does not keep, in words."""
    return next(_broken(program, values), None)


def _broken(program: Program, values: Values) -> Iterator[str]:
    details = program.details
    compared: set[str] = set()
    for op, attributes in details.attributes.items():
        name = attributes.label
        compares = program.kind[op] in (Kind.STEP, Kind.REPORT)
        if compares and name is not None and name in details.want:
            compared.add(name)
            if values.form(op, name) != {s: c for s, c in details.want[name].items() if c}:
                yield f"{name} is not what is wanted"
    for name in details.want:
        if name not in compared:
            yield f"nothing compares {name} with what is wanted"
    for name, ranks in details.replicas.items():
        updates = [values.updates(rank, name) for rank in ranks]
        if any(other != updates[0] for other in updates[1:]):
            yield f"the replicas of {name} differ"
    if details.want_effects:
        yield from _effects(program)
    yield from _random_states(program, values)
    if details.versions is not None:
        yield from _versions(program, values)


def _effects(program: Program) -> Iterator[str]:
    times = Counter(
        (program.rank_of(op), effect)
        for op, attributes in program.details.attributes.items()
        for effect in attributes.more.get("effects", ())
    )
    for key, expected in program.details.want_effects.items():
        if times[key] != expected:
            yield f"{key[1]} happens another number of times"


def _random_states(program: Program, values: Values) -> Iterator[str]:
    for op in (program.kind == Kind.R).nonzero()[0].tolist():
        forward = values.forward_of(op)
        if forward is None:
            continue
        states = [attributes_of(program, o).more.get("rng") for o in (op, forward)]
        if states[1] is not None and states[0] != states[1]:
            yield "a recompute draws other random numbers than its forward"


def _versions(program: Program, values: Values) -> Iterator[str]:
    for op in range(program.ops):
        if program.kind[op] not in COMPUTE or program.kind[op] == Kind.F:
            continue
        forward = values.forward_of(op)
        if forward is not None and values.version_used(op) != values.version_used(forward):
            yield "a backward uses another weight version than its forward"
