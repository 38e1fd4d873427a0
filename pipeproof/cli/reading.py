"""Inputs to values: which reader takes which format, and what is said of the
inputs that none can read."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pipeproof.cli import options
from pipeproof.cli.deadline import deadline
from pipeproof.errors import InputError
from pipeproof.formats.sources import NAMED, Failure, Source, decode, gather
from pipeproof.schedules.table import SCHEDULES

if TYPE_CHECKING:
    from pipeproof.program.programs import Program
    from pipeproof.program.schedules import Schedule
    from pipeproof.spec.definition import Definition


DEFINED = (NAMED, "spec")
"""Formats whose sources are definitions: schedules of any size."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How inputs are to be read, as far as their format leaves it open."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    older: bool = False
    fixed: bool = False
    time_limit: float = 60.0

    @property
    def microbatches(self) -> int | None:
        """The number of microbatches that was asked for."""
        return self.sizes.get("m")


def with_reading(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options that say how its inputs are read, as the one
    argument ``reading``."""

    @wraps(function)
    def call(
        *,
        fixed: bool,
        stages: int | None,
        microbatches: int | None,
        chunks: int | None,
        more_sizes: Mapping[str, int],
        time_limit: float,
        notation: str,
        **others: Any,
    ) -> int:
        sizes = options.sizes_of(stages, microbatches, chunks, more_sizes)
        reading = Reading(sizes, notation == "older", fixed, time_limit)
        return function(reading=reading, **others)

    for option in reversed(
        (
            options.FIXED,
            options.STAGES,
            options.MICROBATCHES,
            options.CHUNKS,
            options.SIZE,
            options.TIME_LIMIT,
            options.NOTATION,
        )
    ):
        call = option(call)
    return call


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


def sources(files: Sequence[str], format: str | None) -> Iterator[Source | Failure]:
    """The inputs that the arguments name: files, folders, standard input, and the
    names of known schedules."""
    return gather(files, format=format, stdin=read_stdin, names=SCHEDULES)


def read(source: Source, reading: Reading) -> list[Program | Schedule]:
    """What a source holds; InputError where it is not what it claims to be.

    A definition is run for the sizes that are given, which must be all it needs.
    """
    if source.format not in DEFINED:
        return _read(source, reading)
    return [at_sizes(found, reading) for found in definitions(source, reading)]


def definitions(source: Source, reading: Reading) -> list[Definition]:
    """The schedules that a source of one of the formats `DEFINED` defines."""
    _refuse_fixed(reading, "a schedule")
    if source.format == NAMED:
        from pipeproof.schedules.table import find

        return [find(source.file)]
    from pipeproof.spec.loading import load

    with deadline(reading.time_limit, "running the file"):
        return load(decode(source.data), source.file)


def at_sizes(definition: Definition, reading: Reading) -> Schedule | Program:
    """A definition's schedule at the sizes that were given."""
    return run_at(definition, definition.sizes(reading.sizes), reading.time_limit)


def run_at(
    definition: Definition, sizes: Mapping[str, int], time_limit: float
) -> Schedule | Program:
    """A definition's schedule at these sizes, within the time limit."""
    from pipeproof.spec.definition import spelled
    from pipeproof.spec.running import run

    with deadline(time_limit, f"{definition.name} at {spelled(sizes)}"):
        return run(definition, dict(sizes))


def _refuse_fixed(reading: Reading, found: str) -> None:
    if reading.fixed:
        raise InputError(
            f"found {found}; expected a case with a repaired program (--fixed)",
            cause="Only cases in JSON carry a repaired program. Leave out --fixed.",
        )


def _read(source: Source, reading: Reading) -> list[Program | Schedule]:
    text = decode(source.data)
    reader = READERS[source.format]
    if "fixed" not in reader.takes:
        _refuse_fixed(reading, "a schedule")
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
    from pipeproof.report.style import escaped  # with what it needs, half of a --help

    lines = error.located(escaped(file)).split("\n")
    click.echo("pipeproof: " + "\n".join(map(escaped, lines)), err=True)
