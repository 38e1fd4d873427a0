"""The model executor: a program, run one smallest move at a time.

``rules`` says which moves there are; here they are made, one after the other,
until none is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from random import Random

from pipeproof.replay.choices import Unsupported
from pipeproof.replay.rules import Rules
from pipeproof.replay.state import Move, Outcome, State

__all__ = ["Model", "Unsupported"]


class Model(Rules):
    """A program under a transport, ready to run."""

    def stuck(self, state: State) -> tuple[int, ...]:
        """The current op of each unfinished lane where no move is enabled, else nothing."""
        if any(self.enabled(state, move) for move in self._conceivable()):
            return ()
        return self._unfinished_lanes(state)

    def _unfinished_lanes(self, state: State) -> tuple[int, ...]:
        return tuple(op for op, stop in zip(state.at, self._stop, strict=True) if op < stop)

    def outcome(self, state: State) -> Outcome:
        """What to say of a state in which no move is enabled."""
        stuck = self._unfinished_lanes(state)
        unmatched: list[int] = []
        if not stuck:
            for row, send in enumerate(self._send):
                if not (self._read(state, row) if send else state.finished[row]):
                    unmatched.append(row)
        return Outcome(
            completed=tuple(op - first for op, first in zip(state.at, self._first, strict=True)),
            stuck=stuck,
            unmatched=tuple(unmatched),
        )

    def run(self, choose: Random | None = None) -> Outcome:
        """One maximal run, in an order of the model's choosing or a random one."""
        state = self.initial()
        self._exhaust(state, choose)
        while takes := self.takes(state):
            take = takes[0] if choose is None else choose.choice(takes)
            self._exhaust(state, choose, again=self._effect(state, take))
        return self.outcome(state)

    def follow(self, taken: Iterable[tuple[int, int]]) -> State | None:
        """The run in which these receives take these sends, (receive, send) rows in
        this order, and nothing else is taken; None where one of them cannot."""
        state = self.initial()
        self._exhaust(state, None)
        for receive, send in taken:
            take = Move("take", receive, send)
            if not self.enabled(state, take):
                return None
            self._exhaust(state, None, again=self._effect(state, take))
        return state

    def reaches(self, op: int, without: int) -> bool:
        """Whether some execution enters ``op`` while ``without`` has not completed, or,
        where that is posted, while nothing that waits for it has gone on. Unsupported
        where messages are taken: no one run decides it there."""
        if self._choices.rows:
            raise Unsupported("order among executions that differ in who takes what")
        posted = self._request[without] >= 0
        state = self.held_at(self._waiters.get(without, ()) if posted else (without,))
        lane = self._lane[op]
        return state.at[lane] > op or (state.at[lane] == op and bool(state.entered[lane]))

    def held_at(self, ops: Collection[int]) -> State:
        """The state in which no move is left but to leave one of ``ops``."""
        state = self.initial()
        self._exhaust(state, None, ops)
        return state

    def _exhaust(
        self,
        state: State,
        choose: Random | None,
        held: Collection[int] = (),
        again: list[Move] | None = None,
    ) -> None:
        """Make moves until none is left but takes; no lane leaves one of the ``held``
        ops. ``again`` are the moves to look at, where only those can have come up.

        A move that is not enabled is dropped: whatever enables it later names
        it again. So the work is linear in the ops, their rows and their waits.
        """
        if again is None:
            again = [Move("enter", lane) for lane in range(len(self._first))]
        while again:
            if choose is not None:
                pick = choose.randrange(len(again))
                again[pick], again[-1] = again[-1], again[pick]
            move = again.pop()
            if move.what == "leave" and state.at[move.number] in held:
                continue
            if self.enabled(state, move):
                again += self._effect(state, move)
