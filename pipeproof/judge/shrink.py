"""Shrinking: the smallest form of a program that still shows the same finding.

Smallest in this order: fewest ranks, then microbatches, then stages, then ops,
then what ops carry. Cuts are tried greedily, ops in halves, quarters and so on
(delta debugging), until none is left that can be made. A cut counts if

- the check that found it finds it again, with the same verdict and the same sort
  of claim (``sort_of``), no more often than before, and the replay confirms it;
- nothing of another sort is found that was not before: the smaller program is
  wrong in this one way, and its missing inputs are given (``cuts``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pipeproof.errors import InputError
from pipeproof.formats.program_json import read_program
from pipeproof.formats.program_text import left_out, program_text
from pipeproof.judge import cuts
from pipeproof.judge.judge import judged
from pipeproof.program.programs import Program
from pipeproof.verdict import (
    Crossed,
    Diverged,
    EffectCount,
    Finding,
    Illegal,
    Lacks,
    Ran,
    Stuck,
    WrongForm,
)

_T = TypeVar("_T")

MOST_TRIES = 20_000
"""Candidates judged at most; what is smallest by then is the answer."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest program found, what is found in it, and how many were tried."""

    program: Program
    finding: Finding
    tries: int


def shrink(program: Program, finding: Finding) -> Shrunk:
    """Cut a program to what ``finding`` needs.

    InputError where the program format, in which the answer is written, has no
    words for what the finding is about.
    """
    search = _Search(finding)
    start = search.start(program)
    return search.run(start)


class _Search:
    """One finding, and the smallest program so far that shows it."""

    def __init__(self, finding: Finding) -> None:
        self.sought = finding
        self.tries = 0
        self.objecting: set[tuple[object, ...]] = set()

    def start(self, program: Program) -> Program:
        """The program as its text says it, as a fragment where it may be one."""
        text = program_text(program)
        named = read_program(text, program.name)
        # Its requests are told by their numbers: names tell where they came from.
        whole = replace(named, details=replace(named.details, requests=()))
        self.objecting = _objecting(whole)
        fragment = replace(whole, complete=False)
        for start in (fragment, whole):
            if self.found(start) is not None:
                return start
        lost = "; ".join(left_out(program)) or "what it is about"
        raise InputError(
            f"the finding of {self.sought.check} cannot be written as a program in JSON",
            cause=f"The program format leaves out: {lost}.",
        )

    def found(self, program: Program) -> Finding | None:
        """The finding in a program, if it is there."""
        for result in judged(program, (self.sought.check,)):
            for finding in result.findings:
                alike = sort_of(finding) == sort_of(self.sought)
                if alike and finding.count <= self.sought.count:
                    return finding
        return None

    def holds(self, program: Program | None) -> bool:
        """Whether a candidate counts."""
        if program is None or not program.ops or self.tries >= MOST_TRIES:
            return False
        self.tries += 1
        return self.found(program) is not None and _objecting(program) <= self.objecting

    def run(self, program: Program) -> Shrunk:
        """Cut until nothing can be cut."""
        size = None
        while size != (size := _size(program)):
            for step in _STEPS:
                program = step(self, program)
        finding = self.found(program)
        assert finding is not None  # every program accepted shows it
        return Shrunk(program, finding, self.tries)


def sort_of(finding: Finding) -> tuple[object, ...]:
    """What makes two findings the same defect, whatever the ids: a wrong sum that has
    become an empty one is another, and so is a circle of waits that is none any more."""
    claim = finding.counterexample.claim
    detail: tuple[object, ...] = ()
    match claim:
        case Stuck():
            detail = (finding.counterexample.cyclic,)
        case Crossed():
            detail = (claim.trait,)
        case Ran():
            detail = (claim.kind, claim.times, claim.expected)
        case Lacks():
            detail = (claim.kind, claim.payload is None)
        case WrongForm():
            detail = (claim.name, claim.found)
        case EffectCount():
            detail = (claim.effect, claim.times, claim.expected)
        case Diverged():
            detail = (claim.name, len(finding.where))  # updates that differ, or one too few
        case Illegal():
            detail = (claim.what,)
    return (finding.check, finding.verdict, type(claim), *detail)


def _objecting(program: Program) -> set[tuple[object, ...]]:
    """The sorts of everything that is found."""
    return {sort_of(finding) for result in judged(program) for finding in result.findings}


def _size(program: Program) -> tuple[int, ...]:
    sizes = (program.ranks, program.microbatches, program.stages, program.ops)
    carried = len(program.messages.op) + len(program.waits.op) + len(program.details.attributes)
    return (*sizes, carried, len(program_text(program)))


# --- steps ---------------------------------------------------------------------


def _one_less(
    search: _Search,
    program: Program,
    ids: Callable[[Program], Iterable[int]],
    without: Callable[[Program, int], Program | None],
) -> Program:
    """The program without as many of its ids as can be, the last ones first."""
    for number in ids(program):
        candidate = without(program, number)
        if search.holds(candidate) and candidate is not None:
            program = candidate
    return program


def _ranks(search: _Search, program: Program) -> Program:
    return _one_less(search, program, lambda p: reversed(range(p.ranks)), cuts.without_rank)


def _microbatches(search: _Search, program: Program) -> Program:
    return _one_less(
        search, program, lambda p: reversed(range(p.microbatches)), cuts.without_microbatch
    )


def _stages(search: _Search, program: Program) -> Program:
    for first in (False, True):
        while search.holds(candidate := cuts.without_end_stage(program, first)):
            assert candidate is not None
            program = candidate
    return program


def _ops(search: _Search, program: Program) -> Program:
    """Delta debugging over the units of the program."""
    listed = cuts.units(program)
    chunk = max(len(listed) // 2, 1)
    while listed:
        kept = list(listed)
        for part in _chunks(listed, chunk):
            left = [unit for unit in kept if unit not in part]
            gone = [unit for unit in listed if unit not in left]
            if search.holds(cuts.without_units(program, gone)):
                kept = left
        if len(kept) < len(listed):
            program = cuts.without_units(program, [u for u in listed if u not in kept])
            listed = cuts.units(program)
            chunk = min(chunk, max(len(listed) // 2, 1))
        elif chunk > 1:
            chunk //= 2
        else:
            break
    return program


def _chunks(listed: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """Stretches of a list, the last ones first: what comes late often needs the rest."""
    for start in reversed(range(0, len(listed), size)):
        yield listed[start : start + size]


def _plain(search: _Search, program: Program) -> Program:
    candidate = cuts.plainer(program)
    return candidate if candidate is not None and search.holds(candidate) else program


def _carried(search: _Search, program: Program) -> Program:
    """The program whose ops carry as little as can be."""
    progress = True
    while progress:
        progress = False
        for candidate in cuts.simpler_pieces(program):
            if search.holds(candidate):
                program, progress = candidate, True
                break
    return program


_STEPS = (_ranks, _microbatches, _stages, _ops, _plain, _carried)
