"""Prove a definition for all its sizes: property by property.

Each property is a list of questions that must have no answer; *holds* where z3
says so of all. A question with an answer proves nothing by itself (the case may be
one that the property does not turn on), so it makes the property undetermined,
and the caller looks for a violation at small sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pipeproof.proofs.sizes import counting
from pipeproof.proofs.sizes.counting import Question
from pipeproof.proofs.sizes.decide import Decider, Undecided
from pipeproof.proofs.sizes.lane import Lane, lane_of
from pipeproof.proofs.sizes.ranking import Ranking, questions, ranking
from pipeproof.proofs.sizes.wires import Scene
from pipeproof.spec.claims import Claim, linear_form
from pipeproof.spec.definition import RANK, Definition, spelled
from pipeproof.spec.sizes import Form
from pipeproof.spec.tracing import Loops
from pipeproof.verdict import CheckResult, Status

Note = Callable[[str, int], None]
"""Told how far a proof has come: the property, and how many questions were put."""

ENGINE = "linear integer arithmetic (z3)"
RANKING_ENGINE = "ranking function (linear programming), checked by z3"


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved of a definition. ``asked`` are the questions behind it, each of
    which z3 found to have no answer; ``left`` are claims that the method does not
    reach."""

    loops: Loops
    lane: Lane
    scope: str
    results: tuple[CheckResult, ...]
    ranking: Ranking | None
    asked: tuple[Question, ...]
    left: tuple[Claim, ...]


def prove(definition: Definition, loops: Loops, note: Note) -> Proof:
    """Prove what can be proved of a definition with these loops; `NotLoops` says why
    nothing can."""
    lane = lane_of(definition, loops)
    return _Prover(definition, loops, lane, note).proof()


class _Prover:
    def __init__(self, definition: Definition, loops: Loops, lane: Lane, note: Note) -> None:
        self.definition, self.loops, self.lane, self.note = definition, loops, lane, note
        self.scope = f"all sizes: {', '.join(f'{name} >= 1' for name in lane.free)}"
        self.scene = Scene(lane, Decider())
        self.asked: list[Question] = []
        self.ranking: Ranking | None = None

    def proof(self) -> Proof:
        results = [
            self._no_answer("coverage", self._coverage(), "every microbatch runs exactly once"),
        ]
        counted = results[0].status is Status.HOLDS
        rest: list[tuple[str, Callable[[], Iterable[Question]], str]] = [
            ("order", lambda: counting.order(self.scene), "every op runs after what it builds on"),
            (
                "matching",
                lambda: counting.matching(self.scene),
                "the k-th send of every channel is its k-th receive",
            ),
        ]
        for name, asked, words in rest:
            # Counts and partners are those of a schedule that is covered.
            results.append(
                self._no_answer(name, asked(), words)
                if counted
                else self._open(name, "it rests on coverage, which is not proved")
            )
        matched = all(r.status is Status.HOLDS for r in results)
        results.append(
            self._deadlock()
            if matched
            else self._open("deadlock", "it rests on matching, which is not proved")
        )
        # A backward before its forward gives nothing back: counts are of what is in order.
        ordered = all(r.status is Status.HOLDS for r in results[:2])
        left: list[Claim] = []
        for claim in self.definition.claims:
            found = self._claim(claim, ordered)
            if found is not None:
                results.append(found)
            elif claim.figure not in ("deadlock_free", "same_gradients"):
                left.append(claim)
        return Proof(
            self.loops,
            self.lane,
            self.scope,
            tuple(results),
            self.ranking,
            tuple(self.asked),
            tuple(left),
        )

    # --- properties ------------------------------------------------------------

    def _coverage(self) -> Iterator[Question]:
        yield from counting.well_formed(self.scene)
        yield from counting.coverage(self.scene, self.definition.forward_only)

    def _deadlock(self) -> CheckResult:
        begun = time.perf_counter()
        try:
            found = ranking(self.scene, lambda count: self.note("deadlock", count))
        except Undecided as error:
            return self._open("deadlock", f"z3 does not decide a question: {error}", begun)
        if found is None:
            reason = "no ranking function that is linear in index, rank and sizes was found"
            return self._open("deadlock", reason, begun)
        self.ranking = found
        self.asked += questions(found)
        return self._result(
            "deadlock",
            Status.HOLDS,
            f"no group waits for itself: a number grows along all {len(found.pairs)} ways of "
            "waiting",
            begun,
            engine=RANKING_ENGINE,
            evidence={"ranking": found.lines(self.lane), "ways": len(found.pairs)},
        )

    def _claim(self, claim: Claim, ordered: bool) -> CheckResult | None:
        """The answer on a claim that the method reaches."""
        if claim.figure not in ("peak_activations", "staleness"):
            return None
        bound = _bound(claim, self.lane)
        relation = "=" if claim.equal else "at most"
        name = "memory" if claim.figure == "peak_activations" else "versions"
        if bound is None:
            return None
        if name == "versions":
            relation = "at most"  # that it is reached is not asked
        words = f"{claim.title} {relation} {bound}"
        if not ordered:
            return self._open(name, f"{words}: it rests on coverage and order, not both proved")
        if claim.figure == "staleness":
            asked = counting.stale(self.scene, bound)
        else:
            asked = counting.peak(self.scene, bound, equal=claim.equal)
        return self._no_answer(name, asked, words)

    # --- answers ---------------------------------------------------------------

    def _no_answer(self, name: str, asked: Iterable[Question], words: str) -> CheckResult:
        """Holds where no question has an answer."""
        begun = time.perf_counter()
        put: list[Question] = []
        for question in asked:
            put.append(question)
            self.note(name, len(put))
            try:
                example = self.scene.decider.example(question.extra, question.base)
            except Undecided as error:
                return self._open(name, f"z3 does not decide a question: {error}", begun)
            if example is not None:
                at = {n: v for n, v in example.items() if n in self.lane.free}
                where = f" on rank {example['s']}" if "s" in example else ""
                return self._open(name, f"{question.what}, as at {spelled(at)}{where}", begun)
        self.asked += put
        evidence = {"questions": len(put)}
        return self._result(name, Status.HOLDS, words, begun, evidence=evidence)

    def _open(self, name: str, reason: str, begun: float | None = None) -> CheckResult:
        return self._result(name, Status.UNDETERMINED, reason, begun, reason=reason)

    def _result(
        self,
        name: str,
        status: Status,
        words: str,
        begun: float | None,
        *,
        engine: str = ENGINE,
        evidence: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> CheckResult:
        return CheckResult(
            check=name,
            status=status,
            scope=self.scope,
            engine=engine,
            summary=words,
            evidence=evidence or {},
            reason=reason,
            seconds=0.0 if begun is None else time.perf_counter() - begun,
        )


def _bound(claim: Claim, lane: Lane) -> Form | None:
    """The bound of a claim as a form, None where it is none or names what is unknown."""
    form = None if claim.bound is None else linear_form(claim.bound)
    known = form is not None and form.unknowns() <= {*lane.free, RANK}
    return form if known else None
