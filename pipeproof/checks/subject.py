"""What a check looks at: one program, and what several checks share about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pipeproof.checks.holdings import Holdings, holdings
from pipeproof.checks.holdings_lanes import lane_needs
from pipeproof.checks.peaks import RankPeak, rank_peaks
from pipeproof.checks.usage import Usage, usage
from pipeproof.engines.events.build import build
from pipeproof.engines.events.graph import EventGraph
from pipeproof.engines.events.ordering import Before, contended, sequence
from pipeproof.engines.events.pairing import Pairing, pair
from pipeproof.engines.events.run import Run, run
from pipeproof.engines.events.turns import turns
from pipeproof.engines.explore import LIMIT
from pipeproof.engines.explore.search import Exploration, explore
from pipeproof.engines.explore.tables import objection
from pipeproof.program.lanes import rank_of_ops
from pipeproof.program.programs import Program
from pipeproof.verdict import TransportRow

if TYPE_CHECKING:
    from pipeproof.program.programs import Bools, Ints


LIMIT_OF_TURNS = 5_000
"""States that a search visits at most where nothing is open but who posts first."""


@dataclass
class Subject:
    """A program under its own transport; expensive parts are computed once.

    ``budget`` adds to the program's own: units a rank. ``rows`` are the plan's
    verdicts under other transports, where they were asked for. ``implied_by``
    names the row whose run reached the end under rules at least as strict, where
    one is known: its order of events is legal here too, so no further run is
    needed. ``limit`` is the number of states after which a search gives up.
    """

    program: Program
    budget: dict[int, int] = field(default_factory=dict)
    rows: tuple[TransportRow, ...] = ()
    implied_by: str | None = None
    limit: int = LIMIT

    @cached_property
    def rank(self) -> Ints:
        """The rank of each op."""
        return rank_of_ops(self.program)

    @cached_property
    def pairing(self) -> Pairing:
        """Which message end meets which."""
        return pair(self.program.messages, self.program.transport.match, turns(self.program))

    @cached_property
    def graph(self) -> EventGraph:
        """The event graph under the program's transport."""
        return build(self.program, self.program.transport, self.pairing)

    @cached_property
    def run(self) -> Run:
        """The greedy run of the event graph."""
        return run(self.graph)

    @cached_property
    def before(self) -> Before:
        """Happens-before in the event graph."""
        return Before(self.graph, self.run)

    @cached_property
    def sequence(self) -> list[tuple[int, bool]]:
        """One legal order of what happens: (op, False) where an op starts on its
        lane, (op, True) where its lane has passed it."""
        return sequence(self.program, self.run)

    @cached_property
    def contended(self) -> tuple[tuple[int, int], ...]:
        """Pairs of ops of different lanes whose turn on a channel, in a group or on
        a stream is left to chance. Where there are any, what meets what is not
        fixed, and no single run decides."""
        if not self.program.several_lanes:
            return ()
        streams = self.program.transport.streams
        return tuple(contended(self.program, streams, self.before))

    @cached_property
    def unclear(self) -> str | None:
        """What the program format leaves open about a program with choice, if it does;
        then there are no ``executions`` to speak of."""
        return objection(self.program, self.program.transport)

    @cached_property
    def executions(self) -> Exploration:
        """Every execution of a program with choice, as far as the limit allows. Where
        lanes take turns, states differ in all that came before, and are many and
        large: that is tried, no more."""
        limit = self.limit if self.program.chooses else min(self.limit, LIMIT_OF_TURNS)
        return explore(self.program, self.program.transport, limit)

    @cached_property
    def arrived(self) -> Bools:
        """For each message row, whether it is done when the run ends: it has started,
        and all that it needs has happened."""
        graph, op = self.graph, self.program.messages.op
        done = np.array(self.run.progress, np.int64)
        arrived: Bools = done[graph.chain[op]] > graph.position[op]
        row, chain, position = graph.needs
        arrived[row[done[chain] <= position]] = False
        return arrived

    @cached_property
    def unfinished(self) -> frozenset[int]:
        """Posted ops that have not completed when the run ends: their turn has not
        come, or their messages have not all arrived."""
        if self.program.chooses or self.contended:
            stuck = self.executions.stuck
            return frozenset(stuck.pending if stuck is not None else ())
        graph, program = self.graph, self.program
        done = np.array(self.run.progress, np.int64)
        lacking = done[graph.chain] <= graph.position
        lacking[program.messages.op[~self.arrived]] = True
        op, chain, position = graph.calls
        lacking[op[done[chain] <= position]] = True
        return frozenset(np.flatnonzero((program.request >= 0) & lacking).tolist())

    @cached_property
    def peaks(self) -> list[RankPeak]:
        """The most that each rank can hold, over every legal timing of its lanes."""
        return rank_peaks(self.program, self.before)

    @cached_property
    def runs_to_end(self) -> bool:
        """Whether nothing gets stuck."""
        return self.implied_by is not None or self.run.finished(self.graph)

    @cached_property
    def usage(self) -> Usage:
        """What each rank holds over time."""
        return usage(self.program, self.rank)

    @cached_property
    def holdings(self) -> Holdings:
        """Which op has its inputs, and which uses them too early."""
        if not self.program.several_lanes:
            return holdings(self.program, self.rank)
        found = lane_needs(self.program, self.before)
        return Holdings(
            missing=np.array(found.missing, np.int64).reshape(-1, 2),
            pending=np.array(found.pending, np.int64).reshape(-1, 3),
            unprepared=np.array(found.unprepared, np.int64).reshape(-1, 3),
            obligations=found.obligations,
            overtaking=found.overtaking,
        )
