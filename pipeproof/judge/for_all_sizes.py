"""A definition for all its sizes: proved, refuted by small ones, or left open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pipeproof.judge.claims import claim_text
from pipeproof.judge.definitions import Run, judge_definition
from pipeproof.judge.options import Options
from pipeproof.proofs.sizes.prove import Note, Proof, prove
from pipeproof.spec.definition import Definition, Sizes, spelled
from pipeproof.spec.sizes import NotLoops
from pipeproof.spec.tracing import Loops, traced, unrolled
from pipeproof.verdict import CheckResult, Report, Status

RECIPE = "grouped"
"""The recipe whose communication is proved: see `pipeproof.proofs.sizes.ranking`."""

TRIED = {"p": (1, 2, 3, 4), "m": (1, 2, 3, 4, 5, 6)}
"""Sizes at which a violation is looked for where the proof is not complete, and at
which the reading of the loops is compared with the definition itself."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``report`` has the checks. ``proof`` is what was proved; None where the
    definition is no loops (``reason``). ``refuted`` is the report on the smallest
    sizes that violate it, where there are any."""

    report: Report
    proof: Proof | None
    reason: str | None = None
    refuted: Report | None = None


Read = Callable[[Definition], Loops]
"""Reads the loops of a definition, as `pipeproof.spec.tracing.traced` does."""


def judge_for_all(
    file: str, definition: Definition, run: Run, note: Note, read: Read = traced
) -> Outcome:
    """Prove a definition for all sizes, or refute it at small ones. InputError where it
    fails at some of them."""
    try:
        proof = prove(definition, read(definition), note)
        _compare(definition, proof)
    except NotLoops as error:
        reason = f"it is not proved for all sizes: {error}"
        return _small(file, definition, run, None, reason)
    results = proof.results
    report = Report(
        file=file,
        name=definition.name,
        status=min(r.status for r in results),
        transport={"name": "rendezvous", "recipe": RECIPE},
        sizes={},
        checks=results,
        notes=_notes(definition),
    )
    if report.status is Status.HOLDS:
        return Outcome(report, proof)
    return _small(file, definition, run, (report, proof), None)


def _notes(definition: Definition) -> tuple[str, ...]:
    if definition.recipe == RECIPE:
        return ()
    return (
        f"Its messages are issued by the recipe {definition.recipe}; the proof is of "
        f"{RECIPE}, in which neighbouring ones are posted together and waited for.",
    )


def _compare(definition: Definition, proof: Proof) -> None:
    """Compare the loops, run for small sizes, with the definition run for them.

    `NotLoops` where they differ: the definition keeps something between its turns.
    """
    for sizes in _tried(definition):
        for rank in range(sizes["p"]):
            known = {**sizes, "rank": rank}
            arguments = {n: known[n] for n in definition.parameters}
            try:
                own = list(definition.function(**arguments))
            except Exception as error:  # judging these sizes tells it
                raise NotLoops(f"it raises {type(error).__name__} at small sizes") from error
            if unrolled(proof.loops, sizes, rank) != own:
                raise NotLoops(
                    f"the loops that were read are not what it does at {spelled(sizes)} on "
                    f"rank {rank}: it keeps something between its turns"
                )


def _tried(definition: Definition) -> Iterator[Sizes]:
    grid = {**definition.grid, **TRIED}
    yield from replace(definition, grid=grid).on_grid()


def _small(
    file: str,
    definition: Definition,
    run: Run,
    tried: tuple[Report, Proof] | None,
    reason: str | None,
) -> Outcome:
    """Judge small sizes one by one: the smallest violation refutes, and where there is
    none nothing is decided."""
    smaller = replace(definition, grid={**definition.grid, **TRIED})
    found = judge_definition(file, smaller, Options(), {}, run, lambda points, count: points)
    count = len(list(_tried(definition)))
    if found.status is Status.VIOLATED:
        broken = tuple(c for c in found.checks if c.status is Status.VIOLATED)
        report = replace(found, checks=broken)
        return Outcome(report, None if tried is None else tried[1], reason, found)
    covered = f"nothing is violated at the {count} small sizes that were judged one by one"
    if tried is None:
        assert reason is not None
        result = CheckResult(
            check="proof",
            status=Status.UNDETERMINED,
            scope=f"{count} sizes",
            engine="none",
            summary=f"{reason}; {covered}",
            reason=f"{reason}; {covered}",
        )
        report = Report(
            file=file,
            name=definition.name,
            status=Status.UNDETERMINED,
            transport={"name": "rendezvous", "recipe": RECIPE},
            checks=(result,),
        )
        return Outcome(report, None, reason)
    report, proof = tried
    notes = (*report.notes, f"{covered[0].upper()}{covered[1:]}.")
    return Outcome(replace(report, notes=notes), proof)


def claims_left(proof: Proof) -> list[str]:
    """The claims that the proof does not reach, in words."""
    return [claim_text(claim) for claim in proof.left]
