"""Random plans: a step's actions in some order that a generator might write.

``random_plan`` takes a legal order of the computes, puts the messages where
they belong or a little off, and may exchange a few neighbours. So most plans
are complete, many hold somewhere, and many hang under some transports only.
"""

from __future__ import annotations

from random import Random

from tests.sequential import Action, Rows


def random_plan(random: Random, *, communication: bool = True) -> Rows:
    """A plan of up to 3 ranks, 2 stages a rank and 3 microbatches."""
    ranks, chunks, microbatches = (
        random.randint(1, 3),
        random.choice((1, 1, 2)),
        random.randint(1, 3),
    )
    stages = ranks * chunks
    turned = random.random() < 0.5  # the second chunk the other way round
    host = [ranks - 1 - s % ranks if turned and s >= ranks else s % ranks for s in range(stages)]
    split = random.random() < 0.4
    rows: Rows = [[] for _ in range(ranks)]
    waiting = [
        Action(stage, word, microbatch)
        for microbatch in range(microbatches)
        for stage in range(stages)
        for word in ("FIW" if split else "FB")
    ]
    done: set[Action] = set()
    while waiting:
        ready = [a for a in waiting if all(n in done for n in _needs(a, stages, split))]
        # Low microbatches first, mostly.
        action = random.choice(ready[: random.choice((1, 2, len(ready)))])
        waiting.remove(action)
        done.add(action)
        rows[host[action.stage]].append(action)
    if communication:
        rows = _with_messages(random, rows, host)
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        row = random.choice(rows)
        if len(row) > 1:
            at = random.randrange(len(row) - 1)
            row[at], row[at + 1] = row[at + 1], row[at]
    return rows


def _needs(action: Action, stages: int, split: bool) -> list[Action]:
    stage, word, microbatch = action
    back = "I" if split else "B"
    if word == "F":
        return [Action(stage - 1, "F", microbatch)] if stage else []
    if word == "W":
        return [Action(stage, "I", microbatch)]
    above = [Action(stage + 1, back, microbatch)] if stage < stages - 1 else []
    return [Action(stage, "F", microbatch), *above]


def _with_messages(random: Random, rows: Rows, host: list[int]) -> Rows:
    """Sends right after their op or a little later, receives right before or earlier."""
    result: Rows = []
    for row in rows:
        placed: list[tuple[float, Action]] = []
        for at, action in enumerate(row):
            placed.append((at, action))
            if action.word == "W":
                continue
            letter = "F" if action.word == "F" else "B"
            step = 1 if letter == "F" else -1
            stage = action.stage
            if 0 <= stage + step < len(host) and host[stage + step] != host[stage]:
                late = random.choice((0, 0, 0, 1, 2))
                placed.append((at + late + 0.4, action._replace(word=f"SEND_{letter}")))
            if 0 <= stage - step < len(host) and host[stage - step] != host[stage]:
                early = random.choice((0, 0, 1, 1, 2, 3))
                placed.append((at - early - 0.4, action._replace(word=f"RECV_{letter}")))
        result.append([action for _, action in sorted(placed, key=lambda entry: entry[0])])
    return result
