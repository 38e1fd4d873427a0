"""Random programs of messages alone, from a generator of random numbers.

Like the strategy ``tests.programs.programs``, for tests that want many and do
not need small ones: most messages are matched, ends stand in any order, alone or
in groups, and what is posted is waited for later or never.
"""

from __future__ import annotations

from random import Random
from typing import Any

from pipeproof.program.programs import Program
from tests.programs import program


def random_messages(random: Random, *, ranks: int = 4, messages: int = 7) -> Program:
    """A program of 2 to ``ranks`` ranks and up to ``messages`` messages."""
    count = random.randint(2, ranks)
    ends: list[list[list[Any]]] = [[] for _ in range(count)]
    for _ in range(random.randint(1, messages)):
        sender = random.randrange(count)
        receiver = (sender + random.choice((1, 1, 1, 2, 0))) % count
        payload = random.choice("xyz")
        extra = [{"comm": "c"}] if random.random() < 0.2 else []
        kept = random.random()
        if kept < 0.96:
            ends[sender].append(["SEND", payload, receiver, *extra])
        if kept > 0.04:
            ends[receiver].append(["RECV", payload, sender, *extra])
    for own in ends:
        if random.random() < 0.7:
            random.shuffle(own)
    return program(*(_issued(random, own) for own in ends))


def _issued(random: Random, ends: list[list[Any]]) -> list[list[Any]]:
    ops: list[list[Any]] = []
    pending: list[str] = []
    number = 0
    while ends:
        size = random.choice((0, 0, 1, 2, 3))
        taken, ends = ends[: size or 1], ends[size or 1 :]
        attributes: dict[str, Any] = {}
        number += 1
        if random.random() < 0.5:
            attributes["req"] = f"q{number}"
        if size:
            ops.append(["GROUP", taken, attributes])
        else:
            (end,) = taken
            extra = end[-1] if isinstance(end[-1], dict) else {}
            word = ("I" if attributes else "") + end[0]
            ops.append([word, *end[1:3], {**extra, **attributes}])
        pending += [attributes["req"]] if attributes else []
        if pending and random.random() < 0.4:
            some = random.randint(1, len(pending))
            ops.append(["WAIT", *pending[:some]])
            del pending[:some]
    if pending and random.random() < 0.7:
        ops.append(["WAIT", *pending])
    return ops
