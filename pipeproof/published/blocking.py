"""Claims on blocking messages: where naive 1F1B hangs, and how many states it has."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from pipeproof.program.programs import Program
from pipeproof.published.figures import Case, Figure, compared, spelled
from pipeproof.published.two_ways import issued_as_produced
from pipeproof.published.zoo import made, runs_to_end
from pipeproof.recipes.issuing import issued

RENDEZVOUS, ONE_SLOT = "gloo", "gloo:1"

_SMALL = (("dualpipe", 2, 4), ("dualpipe", 4, 8), ("dualpipe-v", 2, 4), ("dualpipe-v", 4, 8))
"""Sizes that DualPipe and DualPipeV have, as the cases of naive 1F1B are none of theirs."""


def naive(case: Case) -> Iterator[Figure]:
    """Whether blocking 1F1B ends: as a rendezvous, and with one buffer slot a channel."""
    program = issued(made("1f1b", p=case["p"], m=case["m"]), "naive")
    label = spelled(case)
    yield compared(label, "1f1b hangs", True, not runs_to_end(program, RENDEZVOUS))
    yield compared(label, "1f1b ends with a slot", True, runs_to_end(program, ONE_SLOT))
    if (case["p"], case["m"]) == (2, 2):
        for name, p, m in _SMALL:
            ends = runs_to_end(issued_as_produced(name, p, m), RENDEZVOUS)
            yield compared(spelled({"p": p, "m": m}), f"{name} ends", True, ends)


def state_counts(case: Case) -> Iterator[Figure]:
    """Reachable states of blocking 1F1B."""
    program = issued(made("1f1b", p=case["p"], m=case["m"]), "naive")
    label = spelled(case)
    yield compared(label, "unbounded", case["unbounded"], states(program, None))
    yield compared(label, "capacity 1", case["capacity_1"], states(program, 1))


# --- every interleaving ---------------------------------------------------------


def states(program: Program, capacity: int | None) -> int:
    """Reachable states where an op of a rank is one step, whatever the order between
    ranks: how many tuples of positions some interleaving passes through.

    Every message blocks: a receive needs an unread message on its channel, a send
    fewer than ``capacity`` of them (1 or more; None for any number).
    """
    steps = [[_step(program, op) for op in range(lane.first, lane.stop)] for lane in program.lanes]
    counts = [_counted(row) for row in steps]
    initial = (0,) * len(steps)
    seen = {initial}
    frontier = deque([initial])
    while frontier:
        state = frontier.popleft()
        for rank, at in enumerate(state):
            if at == len(steps[rank]):
                continue
            what, sender, receiver = steps[rank][at]
            if what:
                unread = counts[sender][state[sender]]["send", sender, receiver]
                unread -= counts[receiver][state[receiver]]["receive", sender, receiver]
                blocked = not unread if what == "receive" else capacity == unread
                if blocked:
                    continue
            after = (*state[:rank], at + 1, *state[rank + 1 :])
            if after not in seen:
                seen.add(after)
                frontier.append(after)
    return len(seen)


Step = tuple[str, int, int]
"""``send`` or ``receive`` with the sending and the receiving rank; no word for what
needs nobody."""


def _step(program: Program, op: int) -> Step:
    rows = program.rows_of(op)
    if not rows:
        return "", -1, -1
    m, row = program.messages, rows[0]
    rank, peer = int(m.rank[row]), int(m.peer[row])
    return ("send", rank, peer) if m.send[row] else ("receive", peer, rank)


def _counted(row: list[Step]) -> list[Counter[Step]]:
    """How often each step stands before each position of a row."""
    found: list[Counter[Step]] = [Counter()]
    for step in row:
        found.append(found[-1] + Counter([step]))
    return found
