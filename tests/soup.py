"""Programs of everything: ops of every kind, in no order that makes sense.

Most of what can be wrong is wrong in them somewhere, beside much that is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from pipeproof.program.programs import Program
from tests.programs import ALL_TRANSPORTS, program


def soup(random: Random) -> Program:
    """A program of 1 to 3 ranks, a lane each, of up to ten ops."""
    ranks = random.randint(1, 3)
    requests = iter(range(1000))
    transport = random.choice(ALL_TRANSPORTS)
    stages = random.choice((2, 2, 1))
    hosts: list[Any] = [random.choice((0, ranks - 1, [0, ranks - 1])) for _ in range(stages)]
    lanes = []
    for _ in range(ranks):
        pending: list[str] = []
        ops: list[Any] = []
        for _ in range(random.randint(0, 9)):
            ops.extend(_some_op(random, ranks, requests, pending))
        if pending and random.random() < 0.7:
            ops.append(["WAIT", *pending])
        lanes.append(ops)
    return program(
        *lanes,
        stages=stages,
        microbatches=random.choice((2, 2, 1)),
        placement=random.choice(([], hosts)),
        transport=transport,
        complete=random.random() < 0.3,
        held={r: ["act:0:0"] for r in range(ranks) if random.random() < 0.3},
        leak_check=random.random() < 0.5,
        may_remain=frozenset({"m"}),
        budget={0: random.randint(0, 3)} if random.random() < 0.5 else {},
        layers=random.choice((None, None, ((0,), (1,)), ((1,), (0,)))),
    )


def _some_op(
    random: Random, ranks: int, requests: Iterator[int], pending: list[str]
) -> Iterator[list[Any]]:
    attributes: dict[str, Any] = {}
    name = random.choice("ab")
    for key, value in (
        ("alloc", {name: random.randint(0, 2)}),
        ("free", [random.choice("ab")]),
        ("needs", ["r"]),
        ("w", [[name, random.choice(("x", "y", "act:0:0"))]]),
        ("r", [[name, random.choice(("x", "y", "act:0:0"))]]),
    ):
        if random.random() < 0.12:
            attributes[key] = value
    what = random.choice(("compute",) * 4 + ("message",) * 5 + ("memory", "slot", "wait", "wait"))
    if what == "compute":
        for lifted in ("redo", "anywhere", "nodeps"):
            if random.random() < 0.1:
                attributes[lifted] = True
        letter = random.choice(("F", "F", "B", "BI", "W", "R"))
        yield [letter, random.randint(0, 2), random.randint(0, 2), attributes]
    elif what == "message":
        yield _some_message(random, ranks, requests, pending, attributes)
    elif what == "memory":
        yield random.choice(
            (["ALLOC", name, random.randint(1, 2)], ["FREE", name], ["MAKE", "r"], ["DROP", "r"])
        )
    elif what == "slot":
        request = f"c{next(requests)}"
        if random.random() < 0.5:
            yield ["COPY", "a", "b", attributes]
        else:
            pending.append(request)
            yield ["ICOPY", "a", "b", {**attributes, "req": request}]
    elif pending:
        some = pending[: random.randint(1, len(pending))]
        del pending[: len(some)]
        yield ["WAIT", *some, attributes]


def _some_message(
    random: Random,
    ranks: int,
    requests: Iterator[int],
    pending: list[str],
    attributes: dict[str, Any],
) -> list[Any]:
    def end() -> list[Any]:
        traits: dict[str, Any] = {}
        if random.random() < 0.3:
            traits["buf"] = random.choice("ab")
        if random.random() < 0.2:
            traits["shape"] = [random.randint(1, 2)]
        payload = random.choice((["x"], ["act", 0, random.randint(0, 1)], ["grad", 1, 0]))
        return [random.choice(("SEND", "RECV")), *payload, random.randrange(ranks), traits]

    request = f"q{next(requests)}"
    posted = random.random() < 0.5
    if posted:
        pending.append(request)
        attributes["req"] = request
    if random.random() < 0.3:
        return ["GROUP", [end() for _ in range(random.randint(1, 3))], attributes]
    word, *rest, traits = end()
    return ["I" + word if posted else word, *rest, {**attributes, **traits}]
