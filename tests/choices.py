"""Random small programs with choice: receives from any sender, and WAITANY."""

from __future__ import annotations

from random import Random
from typing import Any

from pipeproof.program.programs import Program
from tests.programs import program


def random_choices(random: Random, *, messages: int = 5) -> Program:
    """A program of 2 to 4 ranks whose messages mostly go to rank 0, half of them to
    receives from any sender."""
    count = random.choice((2, 3, 3, 3, 4))
    loose: list[tuple[int, list[Any]]] = []
    for _ in range(random.randint(1, messages)):
        sender = random.randrange(count)
        receiver = 0 if random.random() < 0.6 else random.randrange(count)
        extra = [{"comm": "c"}] if random.random() < 0.15 else []
        payload = random.choice("xxy")
        if random.random() < 0.93:
            loose.append((sender, ["SEND", payload, receiver, *extra]))
        if random.random() < 0.93:
            expected = payload if random.random() < 0.9 else random.choice("xy")
            source = "any" if random.random() < 0.5 else sender
            loose.append((receiver, ["RECV", expected, source, *extra]))
    random.shuffle(loose)
    return program(
        *(_issued(random, [end for rank, end in loose if rank == own]) for own in range(count))
    )


def _issued(random: Random, ends: list[list[Any]]) -> list[list[Any]]:
    ops: list[list[Any]] = []
    pending: list[str] = []
    while ends:
        size = random.randint(1, 3) if random.random() < 0.2 else 1
        taken, ends = ends[:size], ends[size:]
        if pending and random.random() < 0.4:
            some = random.sample(pending, random.randint(1, len(pending)))
            anyone = random.random() < 0.5
            ops.append(["WAITANY" if anyone else "WAIT", *some])
            pending = pending if anyone else [p for p in pending if p not in some]
        request = f"r{len(ops)}"
        attributes = {"req": request} if random.random() < 0.5 else {}
        pending += attributes.values()
        if len(taken) > 1 or random.random() < 0.1:
            ops.append(["GROUP", taken, attributes])
        else:
            (end,) = taken
            extra = end[-1] if isinstance(end[-1], dict) else {}
            word = ("I" if attributes else "") + end[0]
            ops.append([word, *end[1:3], {**extra, **attributes}])
    if pending and random.random() < 0.8:
        ops.append([random.choice(("WAIT", "WAIT", "WAITANY")), *pending])
    return ops
