"""Chimera's bidirectional schedules (JSON): ``[slot, "IDX@down|up@f|b|s"]``.

Two pipelines run over the same p ranks. Stage s lives on rank s of the down
pipeline and on rank p-1-s of the up pipeline, so every stage is held twice.
IDX is a replica of a pipeline: even ones run down, odd ones up, each with p/2
microbatches. ``f`` and ``b`` are forward and backward, ``s`` reduces a
replica's gradients of the stage over its two holders.

The schedule does not number its microbatches. Here the n-th forward of a
replica on a rank, and its n-th backward, run microbatch IDX * p/2 + n, so that
no two replicas share one. Nor does it list messages; see ``side_by_side``.

Replicas 2u and 2u+1 make unit u. A reduction is an allreduce that blocks where it
stands, in a group of the stage's two holders: both must get to it, one with each
replica of the unit. Holders that reduce their stages in different orders hang.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from pipeproof.formats.json_text import parse_json
from pipeproof.formats.json_values import integer, items, text, wrong
from pipeproof.formats.recordings import entry, record, size
from pipeproof.formats.side_by_side import Compute, SideBySide
from pipeproof.program.ops import Kind
from pipeproof.program.programs import Attributes, Program

_FILE = ("producer", "stages", "micro_batches", "per_rank")
_ENTRY = re.compile(r"(0|[1-9][0-9]{0,8})@(down|up)@([fbs])")
_EXPECTED = 'an entry [slot, "IDX@down|up@f|b|s"]'
_COMPUTES = {"f": Kind.F, "b": Kind.B}

_NOTE = (
    "No messages are listed: each is put beside the ops it joins, and neighbours are posted "
    "together (the grouped recipe)."
)


def read_chimera(text: str, name: str) -> Program:
    """Read a schedule; InputError has the JSON path of what is wrong."""
    optional = ("commit", "format", "nsteps")
    found = record(parse_json(text), "", _FILE, "a Chimera schedule", optional)
    return _Reader(found).program(name)


class _Reader:
    """The sizes, the entries of each rank, and the program they make."""

    def __init__(self, found: dict[str, Any]) -> None:
        for key in ("producer", "commit", "format"):
            if key in found:
                text(found, key, "", "a text")
        listed = items(found, "per_rank", "", "a list of entries a rank")
        entries = sum(len(own) for own in listed if isinstance(own, list))
        self.ranks = size(found, "stages", "", "stages", entries)
        if self.ranks % 2:
            raise wrong(found, "stages", "", "an even number", "two pipelines meet in the middle")
        self.unit = self.ranks // 2
        self.microbatches = size(found, "micro_batches", "", "microbatches", entries)
        if self.microbatches % self.ranks:
            expected = f"a multiple of {self.ranks}, the number of stages"
            raise wrong(found, "micro_batches", "", expected, "each pipeline takes half of them")
        if len(listed) != self.ranks:
            raise wrong(found, "per_rank", "", f"a list of {self.ranks}, one a rank")
        self.slots = integer(found, "nsteps", "") if "nsteps" in found else None
        self.rows = [self._row(listed, rank) for rank in range(self.ranks)]

    def _row(self, listed: list[Any], rank: int) -> list[tuple[str, int, Compute | None]]:
        """(path, replica, the compute or None for a reduction) of a rank's entries."""
        own = items(listed, rank, "per_rank", "a list of entries")
        counted: Counter[tuple[int, str]] = Counter()
        row: list[tuple[str, int, Compute | None]] = []
        due = 0
        for i in range(len(own)):
            above, path = entry("per_rank", rank), entry("per_rank", rank, i)
            pair = items(own, i, above, _EXPECTED)
            if len(pair) != 2:
                raise wrong(own, i, above, _EXPECTED)
            slot = integer(pair, 0, path, f"a slot, {due} or later", due)
            if self.slots is not None and slot >= self.slots:
                raise wrong(pair, 0, path, f"a slot below {self.slots}, the number of steps")
            due = slot + 1
            replica, letter = self._entry(pair, path)
            compute = None
            if letter in _COMPUTES:
                n = counted[replica, letter]
                counted[replica, letter] += 1
                if n >= self.unit:
                    raise wrong(
                        pair,
                        1,
                        path,
                        f"at most {self.unit} entries {letter} of replica {replica} on a rank",
                        "a replica runs p/2 microbatches",
                    )
                stage = self.stage(rank, replica)
                compute = _COMPUTES[letter], stage, replica * self.unit + n
            row.append((path, replica, compute))
        return row

    def _entry(self, pair: list[Any], path: str) -> tuple[int, str]:
        found = _ENTRY.fullmatch(text(pair, 1, path, 'a text "IDX@down|up@f|b|s"'))
        if found is None:
            raise wrong(pair, 1, path, 'a text such as "0@down@f"')
        replica, letter = int(found[1]), found[3]
        replicas = self.microbatches // self.unit
        if replica >= replicas:
            raise wrong(pair, 1, path, f"a replica, 0 to {replicas - 1}")
        direction = "up" if replica % 2 else "down"
        if found[2] != direction:
            expected = f'"{replica}@{direction}@{letter}"'
            raise wrong(pair, 1, path, expected, "even replicas run down, odd ones up")
        return replica, letter

    def stage(self, rank: int, replica: int) -> int:
        """The stage that a rank holds for a replica."""
        return self.ranks - 1 - rank if replica % 2 else rank

    def host(self, stage: int, microbatch: int) -> int:
        """The rank that runs a microbatch on a stage: the same rule, the other way."""
        return self.stage(stage, microbatch // self.unit)

    def program(self, name: str) -> Program:
        """The program, rank after rank."""
        computes = [compute for row in self.rows for _, _, compute in row if compute is not None]
        made = SideBySide(self.ranks, self.host, computes)
        for rank, row in enumerate(self.rows):
            made.lane(rank)
            for path, replica, compute in row:
                if compute is not None:
                    made.compute(compute, path)
                    continue
                stage = self.stage(rank, replica)
                attributes = Attributes(
                    label=f"stage {stage} unit {replica // 2}",
                    more={"kind": "allreduce", "group": f"stage {stage}"},
                )
                made.other(Kind.COLL, path, attributes)
        last = self.ranks - 1
        groups = {f"stage {s}": tuple(sorted((s, last - s))) for s in range(self.ranks)}
        return made.program(
            name,
            microbatches=self.microbatches,
            hosts=tuple((s, last - s) for s in range(self.ranks)),
            details={"groups": groups},
            notes=(_NOTE,),
        )
