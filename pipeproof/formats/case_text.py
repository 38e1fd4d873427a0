"""A case as text: a program, and what a check is to say of it."""

from __future__ import annotations

import json

from pipeproof.formats.program_text import program_text
from pipeproof.program.programs import Program


def case_text(program: Program, *, note: str, verdict: str, where: str, why: str) -> str:
    """The text of a case, which `read_program` reads again."""
    model = program_text(program).rstrip("\n").replace("\n", "\n ")
    expected = [
        f'  "{key}": {_text(value)}'
        for key, value in (("verdict", verdict), ("where", where), ("why", why))
    ]
    joined = ",\n".join(expected)
    return f'{{\n "note": {_text(note)},\n "model": {model},\n "expected": {{\n{joined}\n }}\n}}\n'


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
