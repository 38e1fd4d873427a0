"""Regrouping: a program's neighbouring sends and receives, posted together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeproof.program.ops import Kind
from pipeproof.program.programs import Lane, Origin, Program, Waits


def regrouped(program: Program) -> Program | None:
    """The program with every run of blocking sends and receives that stand side by
    side on a lane made one GROUP; None where there is no such run."""
    kind = program.kind
    message = ((kind == Kind.SEND) | (kind == Kind.RECV)) & (program.request < 0)
    keep = np.ones(program.ops, np.bool_)
    keep[1:] = ~(message[1:] & message[:-1])
    keep[[lane.first for lane in program.lanes if lane.first < lane.stop]] = True
    if keep.all():
        return None
    place = (np.cumsum(keep) - 1).astype(np.int32)
    bounds = np.append(place, keep.sum())
    kept = np.flatnonzero(keep)
    kinds = kind[kept].copy()
    kinds[np.bincount(place, minlength=len(kept)) > 1] = Kind.GROUP
    details = program.details
    attributes = {int(place[op]): a for op, a in details.attributes.items()}
    path = program.origin.path
    return replace(
        program,
        lanes=tuple(
            Lane(x.rank, x.name, int(bounds[x.first]), int(bounds[x.stop])) for x in program.lanes
        ),
        kind=kinds,
        stage=program.stage[kept],
        microbatch=program.microbatch[kept],
        request=program.request[kept],
        messages=replace(program.messages, op=place[program.messages.op]),
        waits=Waits(place[program.waits.op], program.waits.request),
        origin=Origin(
            program.origin.line[kept],
            program.origin.column[kept],
            tuple(path[op] for op in kept.tolist()) if path else (),
        ),
        details=replace(details, attributes=attributes),
    )
