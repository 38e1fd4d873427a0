"""The questions of a proof as SMT-LIB 2: any solver can check that none has an answer."""

from __future__ import annotations

from collections.abc import Iterable

from pipeproof.proofs.sizes.counting import Question
from pipeproof.spec.sizes import Form


def smtlib(title: str, asked: Iterable[Question]) -> str:
    """A script of one check-sat a question, each of which must answer ``unsat``."""
    questions = list(asked)
    names = sorted(
        {
            _name(str(atom))
            for question in questions
            for form in (*question.base, *question.extra)
            for atom, _ in form.terms
        }
    )
    lines = [f"; {title}", "; Every check-sat must answer unsat.", "(set-logic QF_LIA)"]
    lines += [f"(declare-const {name} Int)" for name in names]
    for question in questions:
        lines += [f"; {question.what}", "(push 1)"]
        forms = dict.fromkeys((*question.base, *question.extra))
        lines += [f"(assert (>= {_term(form)} 0))" for form in forms]
        if not forms:
            lines.append("(assert true)")
        lines += ["(check-sat)", "(pop 1)"]
    return "\n".join(lines) + "\n"


def _name(atom: str) -> str:
    return atom.replace("'", "_next")


def _term(form: Form) -> str:
    parts = [f"(* {_number(c)} {_name(str(atom))})" for atom, c in form.terms]
    return f"(+ {_number(form.constant)} {' '.join(parts)})" if parts else _number(form.constant)


def _number(value: int) -> str:
    return str(value) if value >= 0 else f"(- {-value})"
