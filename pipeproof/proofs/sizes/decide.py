"""Deciding whether conditions can be met: the one place that asks z3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import z3

from pipeproof.proofs.sizes.lane import Forms
from pipeproof.spec.sizes import Form

PATIENCE_MS = 20_000
"""Milliseconds that one question may take; after that it is undecided."""


class Undecided(Exception):
    """z3 gave no answer to a question."""


class Decider:
    """A z3 solver over whole numbers that keeps what has been said to it."""

    def __init__(self) -> None:
        self.solver: Any = z3.SolverFor("QF_LIA")
        self.solver.set("timeout", PATIENCE_MS)
        self.names: dict[str, Any] = {}
        self.base: Forms | None = None  # what has been said for good, one level down

    def term(self, form: Form) -> Any:
        """A linear form as z3's."""
        parts = [z3.IntVal(form.constant)]
        for atom, coefficient in form.terms:
            assert isinstance(atom, str), "forms are resolved before they are decided"
            known = self.names.get(atom)
            if known is None:
                known = self.names[atom] = z3.Int(atom)
            parts.append(coefficient * known)
        return z3.Sum(parts)

    def example(self, conditions: Iterable[Form], base: Forms = ()) -> dict[str, int] | None:
        """Values that make all conditions 0 or more, None where there are none.

        ``base`` are conditions too; questions with the same ones stand together, so
        that they are said once.
        """
        if base is not self.base:
            if self.base is not None:
                self.solver.pop()
            self.base = base
            self.solver.push()
            for form in base:
                self.solver.add(self.term(form) >= 0)
        self.solver.push()
        try:
            for form in conditions:
                self.solver.add(self.term(form) >= 0)
            answer = self.solver.check()
            if answer == z3.unsat:
                return None
            if answer == z3.unknown:
                raise Undecided(self.solver.reason_unknown())
            model = self.solver.model()
            return {
                name: model.eval(known, model_completion=True).as_long()
                for name, known in self.names.items()
            }
        finally:
            self.solver.pop()

    def possible(self, conditions: Forms, base: Forms = ()) -> bool:
        """Whether the conditions can be met at all."""
        return self.example(conditions, base) is not None
