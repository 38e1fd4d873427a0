"""Building a program op by op, for producers that list one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from pipeproof.program.ops import Kind, named
from pipeproof.program.programs import (
    Attributes,
    Details,
    Lane,
    Messages,
    Origin,
    Program,
    Traits,
    Waits,
)
from pipeproof.program.transports import Transport


class ProgramBuilder:
    """Collects ops lane after lane; ``build`` makes the program.

    Lanes of one rank stand together, ranks ascend. Requests are named by the
    producer, each unique on its rank from its posting to its last wait; a wait
    means the latest posting of that name on the rank.
    """

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        self._columns: dict[str, list[int]] = {
            n: [] for n in ("kind", "stage", "microbatch", "request", "line", "column")
        }
        self._rows: list[tuple[int, bool, int, int, int, int]] = []
        self._waits: list[tuple[int, int]] = []
        self._attributes: dict[int, Attributes] = {}
        self._traits: dict[int, Traits] = {}
        self._names: dict[str, int] = {}
        self._comms: dict[str, int] = {"": 0}
        self._requests: list[str] = []
        self._latest: dict[tuple[int, str], int] = {}

    @property
    def ops(self) -> int:
        """Number of ops so far."""
        return len(self._columns["kind"])

    def lane(self, rank: int, name: str = "main") -> None:
        """Start the next lane."""
        self._close()
        self._lanes.append(Lane(rank, name, self.ops, self.ops))

    def _close(self) -> None:
        if self._lanes:
            self._lanes[-1] = replace(self._lanes[-1], stop=self.ops)

    def payload(self, name: str) -> int:
        """The payload id of a name that is neither act nor grad."""
        return named(self._names.setdefault(name, len(self._names)))

    def op(
        self,
        kind: Kind,
        stage: int = -1,
        microbatch: int = -1,
        *,
        request: str | None = None,
        waits: Iterable[str] = (),
        line: int = 0,
        column: int = 0,
        attributes: Attributes | None = None,
    ) -> int:
        """Append an op to the current lane; its number. ``waits`` names requests
        (KeyError where the rank has posted none of that name)."""
        number, rank = self.ops, self._lanes[-1].rank
        for name in waits:
            self._waits.append((number, self._latest[rank, name]))
        posted = -1
        if request is not None:
            posted = len(self._requests)
            self._requests.append(request)
            self._latest[rank, request] = posted
        for column_name, value in zip(
            self._columns, (int(kind), stage, microbatch, posted, line, column), strict=True
        ):
            self._columns[column_name].append(value)
        if attributes is not None:
            self._attributes[number] = attributes
        return number

    def message(
        self, send: bool, peer: int, payload: int, *, comm: str = "", traits: Traits | None = None
    ) -> None:
        """Add a send or receive to the last op, a SEND, RECV or GROUP."""
        if traits is not None:
            self._traits[len(self._rows)] = traits
        channel = self._comms.setdefault(comm, len(self._comms))
        rank = self._lanes[-1].rank
        self._rows.append((self.ops - 1, send, rank, peer, payload, channel))

    def build(
        self,
        name: str,
        *,
        stages: int,
        microbatches: int,
        hosts: tuple[tuple[int, ...], ...],
        transport: Transport,
        details: Mapping[str, Any] = MappingProxyType({}),
        **more: Any,
    ) -> Program:
        """The program; ``details`` are further fields of ``Details``, ``more`` of
        ``Program``."""
        self._close()
        int32 = np.int32
        columns = {k: np.array(v, int32) for k, v in self._columns.items()}
        op, send, rank, peer, payload, comm = (
            list(c) for c in (zip(*self._rows, strict=True) if self._rows else ((),) * 6)
        )
        return Program(
            name=name,
            ranks=1 + max((lane.rank for lane in self._lanes), default=-1),
            stages=stages,
            microbatches=microbatches,
            hosts=hosts,
            lanes=tuple(self._lanes),
            kind=columns["kind"].astype(np.uint8),
            stage=columns["stage"],
            microbatch=columns["microbatch"],
            request=columns["request"],
            messages=Messages(
                op=np.array(op, int32),
                send=np.array(send, np.bool_),
                rank=np.array(rank, int32),
                peer=np.array(peer, int32),
                payload=np.array(payload, np.int64),
                comm=np.array(comm, int32),
            ),
            waits=Waits(
                np.array([w for w, _ in self._waits], int32),
                np.array([r for _, r in self._waits], int32),
            ),
            origin=Origin(columns["line"], columns["column"]),
            transport=transport,
            details=Details(
                names=tuple(self._names),
                comms=tuple(self._comms),
                requests=tuple(self._requests),
                attributes=MappingProxyType(self._attributes),
                traits=MappingProxyType(self._traits),
                **details,
            ),
            **more,
        )
