"""Figures of a program counted anew, to confirm what was measured.

Written from the meaning of the ops alone: a small event loop for time, one walk
along each lane for the rest. Programs whose ranks have one lane each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pipeproof.program.costs import Costs, Release
from pipeproof.program.graph import StageGraph, chain
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Program
from pipeproof.verdict import Measured

_BACKWARD = (Kind.B, Kind.I)


def times(program: Program, costs: Costs) -> list[tuple[float, float]] | None:
    """(start, end) of every op, as long as one another where they compute nothing;
    None where the ops wait for each other in a circle.

    An op starts when the one before it on its lane has ended and its inputs have
    come, from another rank after the latency. Overlapped pairs are not looked at.
    """
    key_of: dict[int, tuple[bool, int, int]] = {}
    graph = program.details.graph or chain(program.stages)
    makers: dict[tuple[bool, int, int], int] = {}
    kinds = [Kind(k) for k in program.kind.tolist()]
    stages, microbatches = program.stage.tolist(), program.microbatch.tolist()
    for op, kind in enumerate(kinds):
        if kind is Kind.F or kind in _BACKWARD:
            key = (kind is not Kind.F, stages[op], microbatches[op])
            key_of[op] = key
            makers.setdefault(key, op)
    span: list[tuple[float, float] | None] = [None] * program.ops
    at = [lane.first for lane in program.lanes]
    clock = [0.0] * len(at)
    moved = True
    while moved:
        moved = False
        for number, lane in enumerate(program.lanes):
            while at[number] < lane.stop:
                op = at[number]
                start = clock[number]
                if op in key_of:
                    arrived = _arrival(program, costs, graph, key_of[op], makers, span, lane.rank)
                    if arrived is None:
                        break
                    start = max(start, arrived)
                end = start + float(costs.of(kinds[op], stages[op]))
                span[op] = (start, end)
                clock[number] = end
                at[number] += 1
                moved = True
    known = [s for s in span if s is not None]
    return known if len(known) == len(span) else None


def _arrival(
    program: Program,
    costs: Costs,
    graph: StageGraph,
    key: tuple[bool, int, int],
    makers: Mapping[tuple[bool, int, int], int],
    span: list[tuple[float, float] | None],
    rank: int,
) -> float | None:
    """When the last input of an op is there; None where one is not made yet."""
    back, stage, microbatch = key
    if not 0 <= stage < len(graph.inputs):
        return 0.0
    sources = graph.sources(stage, microbatch)
    if back:
        sources = [(s, microbatch) for s in graph.outputs[stage]]
    latest = 0.0
    for source in sources:
        maker = makers.get((back, *source))
        if maker is not None:
            made = span[maker]
            if made is None:
                return None
            away = program.rank_of(maker) != rank
            delay = float(costs.delay(min(stage, source[0]))) if away else 0.0
            latest = max(latest, made[1] + delay)
    return latest


def countable(claim: Measured) -> bool:
    """Whether what a claim is about can be counted here: no bytes, and no times of
    overlapped pairs or of sends that wait for others."""
    costs = claim.costs
    return claim.figure != "peak_bytes" and costs.pair is None and costs.release is Release.OP


def time_figures(program: Program, costs: Costs) -> Mapping[str, float]:
    """The makespan and the three bubbles by their names; empty where there are none."""
    found = times(program, costs)
    if found is None:
        return {}
    busy: dict[int, float] = defaultdict(float)
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for lane in program.lanes:
        for op in range(lane.first, lane.stop):
            if program.kind[op] <= Kind.R:
                start, end = found[op]
                busy[lane.rank] += end - start
                first.setdefault(lane.rank, start)
                last[lane.rank] = end
    makespan = max(last.values(), default=0.0)
    work = max(busy.values(), default=0.0)
    if not makespan or not work:
        return {"makespan": makespan}
    longest = max(last[r] - first[r] for r in last)
    return {
        "makespan": makespan,
        "overhead_over_ideal": makespan / work - 1,
        "idle_over_elapsed": 1 - sum(busy.values()) / (makespan * program.ranks),
        "idle_over_span": 1 - work / longest,
    }


def peak_activations(program: Program, rank: int) -> int:
    """The most activations that the rank's lane holds: a forward's until its B or W."""
    held: set[tuple[int, int]] = set()
    most = 0
    for lane in program.lanes:
        for op in range(lane.first, lane.stop) if lane.rank == rank else ():
            key = int(program.stage[op]), int(program.microbatch[op])
            kind = program.kind[op]
            if kind == Kind.F:
                held.add(key)
                most = max(most, len(held))
                if program.forward_only:
                    held.discard(key)
            elif kind in (Kind.B, Kind.W):
                held.discard(key)
    return most


def weights(program: Program, rank: int) -> Mapping[str, int]:
    """``staleness`` and ``weight_versions`` of a rank: the most updates between the
    version that a forward used and its backward's update, and the most versions
    that it has to keep at once, over its stages; and whether all its backwards
    ``agree`` with their forwards, and whether some forward took an ``older`` version
    than the current one."""
    now: dict[int, int] = defaultdict(int)
    used: dict[tuple[int, int], int] = {}
    stale, agree, older, uses = 0, True, False, []
    for lane in program.lanes:
        for op in range(lane.first, lane.stop) if lane.rank == rank else ():
            kind, stage = program.kind[op], int(program.stage[op])
            own = program.details.attributes.get(op)
            if kind == Kind.STEP and own is not None and own.label is not None:
                now[int(own.label.removeprefix("w"))] += 1
            if kind > Kind.R:
                continue
            key = stage, int(program.microbatch[op])
            version = now[stage] if own is None else own.more.get("wv", now[stage])
            uses.append((op, stage, version, now[stage]))
            if kind == Kind.F:
                used[key] = version
                older |= version < now[stage]
            elif key in used:
                stale = max(stale, now[stage] - used[key])
                agree &= version == used[key]
    return {"staleness": stale, "weight_versions": _kept(uses), "agree": agree, "older": older}


def _kept(uses: list[tuple[int, int, int, int]]) -> int:
    """The most versions of one stage that are current or still to be used."""
    last: dict[tuple[int, int], int] = {}
    for op, stage, version, _ in uses:
        last[stage, version] = op
    most = 1
    for op, stage, _, current in uses:
        live = {v for (s, v), until in last.items() if s == stage and v < current and until >= op}
        most = max(most, len(live | {current}))
    return most


_TOLERANCE = 1e-9


def confirm_measured(program: Program, claim: Measured) -> str | None:
    """None where the figure is what the claim says, otherwise what it is instead."""
    if claim.figure == "update_rule":
        return _rule_differs(program, claim.text)
    found = _figure(program, claim)
    if found is None:
        return f"{claim.figure} cannot be counted"
    if abs(found - claim.found) > _TOLERANCE * max(1.0, abs(claim.found)):
        return f"{claim.figure} is {found:g}, not {claim.found:g}"
    over = found - claim.bound
    room = _TOLERANCE * max(1.0, abs(claim.bound))
    if over > room or (claim.equal and over < -room):
        return None
    return f"{claim.figure} {found:g} is within {claim.bound:g}"


def _figure(program: Program, claim: Measured) -> float | None:
    if claim.figure == "messages":
        return float(program.messages.send.sum())
    if claim.figure == "peak_activations" and claim.rank is not None:
        return peak_activations(program, claim.rank)
    if claim.rank is not None:
        return weights(program, claim.rank).get(claim.figure)
    return time_figures(program, claim.costs).get(claim.figure)


def _rule_differs(program: Program, name: str) -> str | None:
    found = [weights(program, rank) for rank in range(program.ranks)]
    agree = all(f["agree"] for f in found)
    stale = [f["staleness"] for f in found]
    if not agree:
        rule = "inconsistent"
    elif not any(stale):
        rule = "synchronous"
    else:
        later = program.ranks > 1 or any(f["older"] for f in found)
        rule = "delayed" if len(set(stale)) == 1 and later else "stashed"
    return f"the update rule is {name}" if rule == name else None
