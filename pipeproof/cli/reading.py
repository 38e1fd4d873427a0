"""Inputs to values: which reader takes which format, and what is said of the
inputs that none can read."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from pipeproof.errors import InputError
from pipeproof.formats.sources import Source, decode
from pipeproof.report.style import escaped

if TYPE_CHECKING:
    from pipeproof.program.programs import Program
    from pipeproof.program.schedules import Schedule


@dataclass(frozen=True, slots=True)
class Reading:
    """How inputs are to be read, as far as their format leaves it open."""

    microbatches: int | None = None
    older: bool = False
    fixed: bool = False


class Reader(NamedTuple):
    """A function of ``pipeproof.formats``: (text, name) to a program, a schedule or a
    list of programs; ``takes`` are the fields of `Reading` that it is given as well."""

    module: str
    function: str
    takes: tuple[str, ...] = ()


READERS: Mapping[str, Reader] = {
    "torch-csv": Reader("torch_schedule", "read_schedule", ("older", "microbatches")),
    "torch-executed": Reader("torch_executed", "read_executed"),
    "program-json": Reader("program_json", "read_program", ("fixed",)),
    "megatron": Reader("megatron", "read_megatron"),
    "deepspeed": Reader("deepspeed", "read_deepspeed"),
    "zero-bubble": Reader("zero_bubble", "read_zero_bubble"),
    "dualpipe": Reader("dualpipe", "read_dualpipe"),
    "chimera": Reader("chimera", "read_chimera"),
    "pipedream": Reader("pipedream", "read_pipedream"),
}
"""Format -> its reader, imported when it is used."""


def read(source: Source, reading: Reading) -> list[Program | Schedule]:
    """What a source holds; InputError where it is not what it claims to be."""
    text = decode(source.data)
    reader = READERS[source.format]
    if reading.fixed and "fixed" not in reader.takes:
        raise InputError(
            "found a schedule; expected a case with a repaired program (--fixed)",
            cause="Only cases in JSON carry a repaired program. Leave out --fixed.",
        )
    function = getattr(
        importlib.import_module(f"pipeproof.formats.{reader.module}"), reader.function
    )
    wishes = {name: getattr(reading, name) for name in reader.takes}
    found: Program | Schedule | list[Program | Schedule]
    found = function(text, os.path.basename(source.file), **wishes)
    return found if isinstance(found, list) else [found]


def read_stdin() -> bytes:
    """All of standard input."""
    # None where the shell closed it. Annotated as never None: hence the getattr.
    buffer = getattr(sys.stdin, "buffer", None)
    if buffer is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    data: bytes = buffer.read()
    return data


def complain(file: str, error: InputError) -> None:
    """Say on standard error why an input cannot be read, and where."""
    lines = error.located(escaped(file)).split("\n")
    click.echo("pipeproof: " + "\n".join(map(escaped, lines)), err=True)
