"""What is measured of a target, beside its verdict: the ``metrics`` of a report.

Times are in the units of the cost model. Keys are stable; what does not apply is
null. The explanation (critical path, slack, lifetimes) is made where it is asked
for: it costs more than all the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from pipeproof.checks.bytes_held import byte_peaks
from pipeproof.checks.subject import Subject
from pipeproof.checks.usage import unit_of
from pipeproof.engines.lifetimes import lifetimes, links
from pipeproof.engines.timing import Timing, timing
from pipeproof.engines.timing_path import Explanation, Hop, explain
from pipeproof.engines.timing_recipe import recipe_explain, recipe_timing
from pipeproof.judge.options import Options
from pipeproof.judge.rows import own_capacity
from pipeproof.program.costs import Costs
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import Kind, activation, gradient
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.verdict import CheckResult


def metrics(
    subject: Subject, options: Options, checks: Sequence[CheckResult]
) -> Mapping[str, Any]:
    """The metrics of a target whose checks answered ``checks``; nothing is measured
    that turns on a choice of the execution."""
    program, costs = subject.program, costs_of(subject.program, options)
    found: dict[str, Any] = {"makespan": None, "bubble": None, "idle": None}
    found["timing"] = options.timing
    measured = None if program.chooses else _timing(subject, options, costs)
    if measured is not None:
        found["makespan"] = measured.makespan
        found["bubble"] = measured.bubble
        found["idle"] = {str(r): t for r, t in enumerate(measured.idle)}
    versions = _versions(checks)
    found |= {} if program.chooses else _memory(subject, costs, versions)
    found |= _traffic(program, costs)
    found |= versions
    found |= {"critical_path": None, "slack": None, "lifetimes": None}
    if measured is not None and program.ops <= options.explained:
        found |= _explained(subject, options, costs, measured)
    if not program.chooses and options.wants("deadlock") and not subject.contended:
        found["smallest_safe_capacity"] = _capacity(subject)
    return found


def costs_of(program: Program | Schedule, options: Options) -> Costs:
    """The cost model of a target, as far as it depends on its sizes."""
    costs = options.costs
    if options.activation_bytes is not None:
        costs = replace(costs, activation_bytes=options.activation_bytes)
    chunks = Fraction(program.stages, program.ranks or 1)
    return costs.divided(chunks) if options.per_rank and chunks else costs


def _by_recipe(options: Options) -> bool:
    return options.timing == "recipe"


def _timing(subject: Subject, options: Options, costs: Costs) -> Timing | None:
    if not _by_recipe(options):
        return timing(subject.program, costs)
    if subject.contended or not subject.runs_to_end:
        return None  # what meets what is left to chance, or it never ends
    return recipe_timing(subject.program, costs, subject.graph)


# --- memory, messages, versions ------------------------------------------------


def _memory(subject: Subject, costs: Costs, versions: Mapping[str, Any]) -> dict[str, Any]:
    program = subject.program
    if program.several_lanes:
        peaks = {str(p.rank): p.closure.peak for p in subject.peaks}
    else:
        lanes = zip(program.lanes, subject.usage.peak, strict=True)
        peaks = {str(lane.rank): peak for lane, peak in lanes}
    kept = {int(stage): count for stage, count in (versions["weight_versions"] or {}).items()}
    in_bytes = byte_peaks(subject, costs, kept)
    return {
        "peak_memory": peaks,
        "memory_unit": unit_of(program),
        "peak_activations": None if program.allocates else peaks,
        "peak_bytes": in_bytes and {str(rank): size for rank, size in in_bytes.items()},
    }


def _traffic(program: Program, costs: Costs) -> dict[str, Any]:
    """How many messages there are and their bytes, in all and on each link."""
    loads = links(program, costs)
    sizes = [load.bytes for load in loads if load.bytes is not None]
    return {
        "messages": sum(load.messages for load in loads),
        "message_bytes": sum(sizes) if costs.message_bytes is not None else None,
        "links": [
            {
                "from": load.sender,
                "to": load.receiver,
                "messages": load.messages,
                "bytes": load.bytes,
            }
            for load in loads
        ],
    }


def _versions(checks: Sequence[CheckResult]) -> dict[str, Any]:
    """Versions kept and staleness of each stage, as the versions check found them."""
    evidence = next((c.evidence for c in checks if c.check == "versions"), {})
    updates = evidence.get("rule") not in (None, "no update", "no microbatch is complete")
    return {
        "weight_versions": dict(evidence["versions_kept"]) if updates else None,
        "staleness": dict(evidence["staleness"]) if updates else None,
    }


def _capacity(subject: Subject) -> int | None:
    """The fewest buffer slots at which the program ends; None if no number helps."""
    program = subject.program
    base = program.transport.name.partition(":")[0]
    row = next((r for r in subject.rows if r.name == base), None)
    if row is not None:
        return row.capacity
    if program.transport.capacity == 0 and subject.runs_to_end:
        return 0  # as has been run already
    return own_capacity(program)


# --- what holds it back --------------------------------------------------------


def _explained(
    subject: Subject, options: Options, costs: Costs, measured: Timing
) -> dict[str, Any]:
    program = subject.program
    if _by_recipe(options):
        found = recipe_explain(program, costs, subject.graph)
    else:
        found = explain(program, costs)
    assert found is not None, "what has a makespan has a critical path"
    return {
        "critical_path": [_hop(subject, measured, hop) for hop in found.path],
        "slack": _slack(subject, measured, found),
        "lifetimes": _lifetimes(program, measured),
    }


def _hop(subject: Subject, measured: Timing, hop: Hop) -> dict[str, Any]:
    program = subject.program
    times = {"start": measured.number(hop.start), "end": measured.number(hop.end)}
    if hop.row is not None:
        m = program.messages
        ends = int(m.rank[hop.row]), int(m.peer[hop.row])
        sender, receiver = ends if m.send[hop.row] else ends[::-1]
        name = payload_name(program, int(m.payload[hop.row]))
        return {"message": name, "from": sender, "to": receiver, **times}
    if hop.to is not None:
        make = activation if program.kind[hop.op] == Kind.F else gradient
        payload = make(int(program.stage[hop.op]), int(program.microbatch[hop.op]))
        sender, receiver = int(subject.rank[hop.op]), int(subject.rank[hop.to])
        return {
            "message": payload_name(program, payload),
            "from": sender,
            "to": receiver,
            **times,
        }
    op = hop.op
    return {
        "op": op_text(program, op),
        "stage": int(program.stage[op]),
        "rank": int(subject.rank[op]),
        **times,
    }


def _slack(subject: Subject, measured: Timing, found: Explanation) -> dict[str, Any]:
    """The least slack of the ops of each stage, and of each rank."""
    least: dict[str, dict[int, Any]] = {"stages": {}, "ranks": {}}
    stages = subject.program.stage[found.op].tolist()
    ranks = subject.rank[found.op].tolist()
    for stage, rank, slack in zip(stages, ranks, found.slack.tolist(), strict=True):
        for by, key in (("stages", stage), ("ranks", rank)):
            least[by][key] = min(least[by].get(key, slack), slack)
    return {
        by: {str(key): measured.number(own[key]) for key in sorted(own)}
        for by, own in least.items()
    }


def _lifetimes(program: Program, measured: Timing) -> dict[str, Any]:
    """How long activations live: the shortest, mean and longest of each stage."""
    found = lifetimes(program, measured)
    lasted = (found.gone - found.born).tolist()
    by_stage: dict[int, list[Any]] = {}
    for stage, time in zip(found.stage.tolist(), lasted, strict=True):
        by_stage.setdefault(stage, []).append(time)
    return {
        str(stage): {
            "min": measured.number(min(own)),
            "mean": measured.mean(own),
            "max": measured.number(max(own)),
        }
        for stage, own in sorted(by_stage.items())
    }
