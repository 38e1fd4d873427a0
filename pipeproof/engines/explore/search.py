"""The search: every state that some execution reaches, breadth first."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from pipeproof.engines.explore import LIMIT
from pipeproof.engines.explore.machine import Machine, Move, State
from pipeproof.program.programs import Program
from pipeproof.program.transports import Transport


@dataclass(frozen=True, slots=True)
class Take:
    """A receive takes a message: two message rows."""

    receive: int
    send: int


@dataclass(frozen=True, slots=True)
class Turn:
    """A lane posts ``op`` before the lanes that share a queue with it go on."""

    op: int


Decision = Take | Turn
"""What an execution settles that the program leaves open."""


@dataclass(frozen=True, slots=True)
class End:
    """Where no move is left, and the ``decisions`` that lead there, in order.

    ``completed`` counts the ops of each lane, ``stuck`` has the op of each lane
    that is not done; ``pending`` are posted ops that have not completed then.
    ``unmatched``, where nothing is stuck, are the message rows that met nothing.
    """

    completed: tuple[int, ...]
    stuck: tuple[int, ...]
    unmatched: tuple[int, ...]
    pending: tuple[int, ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Exploration:
    """What was found in ``states`` states: all there are, unless ``truncated``.

    ``ends`` are the ends seen, in the order of the decisions they take: of those
    that differ in their decisions alone, the one reached first. ``takes`` has for
    each receive of a pool with choice the sends that it takes in some execution,
    each with decisions that lead to it, this take the last. ``pairs`` has (send,
    receive) of the messages that meet whatever is decided.
    """

    states: int
    truncated: bool
    ends: tuple[End, ...]
    takes: Mapping[int, Mapping[int, tuple[Decision, ...]]]
    pairs: tuple[tuple[int, int], ...]

    @property
    def takes_turns(self) -> bool:
        """Whether some end depends on which of two lanes posts first."""
        return any(isinstance(d, Turn) for end in self.ends for d in end.decisions)

    @property
    def stuck(self) -> End | None:
        """The end that gets stuck after the fewest decisions."""
        return next((end for end in self.ends if end.stuck), None)

    @property
    def loose(self) -> End | None:
        """The first end in which nothing is stuck, and something met nothing."""
        return next((e for e in self.ends if not e.stuck and e.unmatched), None)


Known = dict[State, tuple[State | None, tuple[Decision, ...]]]
"""Each state seen: the one it was reached from, and the decisions on the way."""


def explore(
    program: Program, transport: Transport, limit: int = LIMIT, *, reduced: bool = True
) -> Exploration:
    """Visit every state, up to ``limit`` of them.

    ``reduced`` leaves out states between two decisions (see ``machine``); without
    it, every interleaving is visited. ``tables.objection`` says for which programs
    the format leaves open what the moves are.
    """
    return _Search(program, transport, limit, reduced).run()


class _Search:
    def __init__(self, program: Program, transport: Transport, limit: int, reduced: bool) -> None:
        self.machine = Machine(program, transport)
        self.limit, self.reduced = limit, reduced
        self.known: Known = {}
        self.moves: dict[State, list[Move]] = {}  # of states that are still to be visited
        self.ends: dict[tuple[tuple[int, ...], tuple[int, ...]], End] = {}
        self.takes: dict[int, dict[int, tuple[Decision, ...]]] = {}

    def run(self) -> Exploration:
        machine = self.machine
        frontier: deque[State] = deque()
        truncated = not self._reach(machine.initial(), None, [], frontier)
        while frontier and not truncated:
            state = frontier.popleft()
            moves = self.moves.pop(state, None) or machine.moves(state)
            if not moves:
                self._end(state)
            for move in moves:
                decided: list[Decision] = []
                after = self._make(state, move, state, decided)
                if not self._reach(after, state, decided, frontier):
                    truncated = True
                    break
        t = machine.tables
        return Exploration(
            states=len(self.known),
            truncated=truncated,
            ends=tuple(self.ends.values()),
            takes=self.takes,
            pairs=tuple((s, r) for s, r in sorted(t.mate.items()) if t.send[s]),
        )

    def _reach(
        self,
        state: State,
        origin: State | None,
        decided: list[Decision],
        frontier: deque[State],
    ) -> bool:
        """Go on from a state to the next that has to be visited; False at the limit."""
        moves: list[Move] = []
        if self.reduced:
            state, moves = self._settled(state, origin, decided)
        if state in self.known:
            return True
        if len(self.known) >= self.limit:
            return False
        if moves:
            self.moves[state] = moves
        self.known[state] = (origin, tuple(decided))
        frontier.append(state)
        return True

    def _settled(
        self, state: State, origin: State | None, decided: list[Decision]
    ) -> tuple[State, list[Move]]:
        """Make certain moves as long as there are any; the moves that are left."""
        machine = self.machine
        while True:
            moves = machine.moves(state)
            certain = [move for move in moves if machine.certain(state, move)]
            if not certain:
                return state, moves
            for move in certain:  # each stays possible, whichever comes first
                state = self._make(state, move, origin, decided)

    def _make(
        self, state: State, move: Move, origin: State | None, decided: list[Decision]
    ) -> State:
        machine = self.machine
        if machine.decides(state, move):
            if move.what == "take":
                decided.append(Take(move.other, move.number))
                met = self.takes.setdefault(move.other, {})
                if move.number not in met:
                    met[move.number] = (*self._decisions(origin), *decided)
            else:
                decided.append(Turn(state.at[move.number] >> 1))
        return machine.apply(state, move)

    def _decisions(self, state: State | None) -> tuple[Decision, ...]:
        parts: list[tuple[Decision, ...]] = []
        while state is not None:
            state, decided = self.known[state]
            parts.append(decided)
        return tuple(decision for part in reversed(parts) for decision in part)

    def _end(self, state: State) -> None:
        t = self.machine.tables
        ops = [code >> 1 for code in state.at]
        completed = tuple(op - low for op, (low, _) in zip(ops, t.lanes, strict=True))
        stuck = tuple(op for op, (_, stop) in zip(ops, t.lanes, strict=True) if op < stop)
        unmatched: tuple[int, ...] = ()
        if not stuck:
            unmatched = tuple(
                row
                for row, send in enumerate(t.send)
                if not (state.read if send else state.done) >> row & 1
            )
        name = (completed, unmatched)
        if name not in self.ends:
            pending = self.machine.pending(state)
            self.ends[name] = End(completed, stuck, unmatched, pending, self._decisions(state))
