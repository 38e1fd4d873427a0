"""What a rank holds, where it has several lanes.

On one lane "there when it is needed" is a comparison of positions. Across lanes
it is a question to happens-before: an input is there when some op that provides
it has completed before the consumer starts in every execution. Where one
provides it but nothing orders the two, it is a race.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeproof.engines.events.ordering import Before, end_of, start_of
from pipeproof.program.graph import chain
from pipeproof.program.ops import COMPUTE, Kind, activation, gradient
from pipeproof.program.programs import Program


@dataclass(frozen=True, slots=True)
class LaneNeeds:
    """Rows like those of ``Holdings``; ``overtaking`` are (op, provider): the
    provider is on another lane and not ordered before op."""

    missing: tuple[tuple[int, int], ...]
    pending: tuple[tuple[int, int, int], ...]
    unprepared: tuple[tuple[int, int, int], ...]
    overtaking: tuple[tuple[int, int], ...]
    obligations: int


def lane_needs(program: Program, before: Before) -> LaneNeeds:
    """Check every need of every op against what its rank provides."""
    return _Needs(program, before).judged()


class _Needs:
    def __init__(self, program: Program, before: Before) -> None:
        self.program, self.before = program, before
        self.graph = program.details.graph or chain(program.stages)
        self.outputs = self.graph.outputs
        self.kind = program.kind.tolist()
        self.stage, self.microbatch = program.stage.tolist(), program.microbatch.tolist()
        self.rank = [program.rank_of(op) for op in range(program.ops)]
        self.waiter = program.waiters()
        self.providers: dict[tuple[int, int], list[int]] = {}  # (rank, payload) -> ops
        self.posted: dict[tuple[int, int], list[int]] = {}
        self.computes: dict[tuple[int, int, int, int], list[int]] = {}
        self._collect()

    def _collect(self) -> None:
        program = self.program
        for op, kind in enumerate(self.kind):
            stage, microbatch = self.stage[op], self.microbatch[op]
            if kind in COMPUTE and stage >= 0 and microbatch >= 0:
                self.computes.setdefault((self.rank[op], kind, stage, microbatch), []).append(op)
                if kind == Kind.F:
                    self._provide(op, activation(stage, microbatch))
                elif kind in (Kind.B, Kind.I):
                    self._provide(op, gradient(stage, microbatch))
        m = program.messages
        for row, op in enumerate(m.op.tolist()):
            if m.send[row]:
                continue
            request, payload = int(program.request[op]), int(m.payload[row])
            if request < 0:
                self._provide(op, payload)
            else:
                self.posted.setdefault((self.rank[op], payload), []).append(op)
                if request in self.waiter:
                    self._provide(self.waiter[request], payload)

    def _provide(self, op: int, payload: int) -> None:
        self.providers.setdefault((self.rank[op], payload), []).append(op)

    def _wanted(self, op: int) -> Iterator[tuple[int, int] | int]:
        """What op needs: payload ids, and (kind, microbatch) of earlier computes."""
        program, kind = self.program, self.kind[op]
        attributes = program.details.attributes.get(op)
        if attributes is not None and attributes.nodeps:
            return
        stage, microbatch = self.stage[op], self.microbatch[op]
        if kind in COMPUTE:
            if not (0 <= stage < program.stages and 0 <= microbatch < program.microbatches):
                return
            if kind == Kind.F:
                yield from (activation(s, m) for s, m in self.graph.sources(stage, microbatch))
            if kind in (Kind.B, Kind.I):
                yield (int(Kind.F), microbatch)
                yield from (gradient(s, microbatch) for s in self.outputs[stage])
            if kind == Kind.R:
                yield (int(Kind.F), microbatch)
            if kind == Kind.W:
                yield (int(Kind.I), microbatch)
            if kind in (Kind.F, Kind.B, Kind.I):
                before = self.graph.before(microbatch, backward=kind != Kind.F)
                if before is not None:
                    yield (kind, before)
        for row in program.rows_of(op):
            payload = int(program.messages.payload[row])
            if program.messages.send[row] and payload >= 0:
                yield payload

    def _ready(self, op: int, providers: Iterable[int]) -> bool:
        program = self.program
        for provider in providers:
            if provider == op:  # op's own waits
                if self.kind[op] not in (Kind.SEND, Kind.RECV, Kind.GROUP):
                    return True
            elif self.before(end_of(program, provider), start_of(program, op)):
                return True
        return False

    def judged(self) -> LaneNeeds:
        missing, pending, unprepared, overtaking = [], [], [], []
        count = 0
        for op in range(self.program.ops):
            for want in self._wanted(op):
                count += 1
                if isinstance(want, tuple):
                    key = (self.rank[op], want[0], self.stage[op], want[1])
                    providers = self.computes.get(key, [])
                else:
                    if (self.rank[op], want) in self.program.details.held:
                        continue
                    providers = self.providers.get((self.rank[op], want), [])
                if self._ready(op, providers):
                    continue
                racing = self._racing(op, providers)
                if racing is not None:
                    overtaking.append((op, racing))
                elif isinstance(want, tuple):
                    unprepared.append((op, *want))
                else:
                    poster = self._in_flight(op, want)
                    if poster is None:
                        missing.append((op, want))
                    else:
                        pending.append((op, want, poster))
        return LaneNeeds(
            tuple(missing), tuple(pending), tuple(unprepared), tuple(overtaking), count
        )

    def _racing(self, op: int, providers: Iterable[int]) -> int | None:
        """A provider on another lane that op neither follows nor precedes."""
        program = self.program
        for provider in providers:
            if program.lane_of(provider) == program.lane_of(op):
                continue
            if not self.before(end_of(program, op), start_of(program, provider)):
                return provider
        return None

    def _in_flight(self, op: int, payload: int) -> int | None:
        program = self.program
        for poster in self.posted.get((self.rank[op], payload), ()):
            if self.before(start_of(program, poster), start_of(program, op)):
                return poster
        return None
