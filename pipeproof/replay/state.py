"""What the model executor remembers between two moves, and how a run ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, NamedTuple

WhatAlone = Literal["enter", "post", "start", "finish", "meet", "leave"]
What = WhatAlone | Literal["take"]


class Move(NamedTuple):
    """One smallest step. ``number`` is a lane (enter, post, leave), an op (start, meet)
    or a message row (finish; take: a receive, with the ``send`` it takes); ``Model``
    says when each is enabled."""

    what: What
    number: int
    send: int = -1


@dataclass(slots=True)
class State:
    """Where a run of a program stands.

    The first eight fields are the state; the others follow from them, and are
    kept so that no rule has to search.
    """

    at: list[int]  # by lane: its current op; one past its last when the lane is done
    entered: bytearray  # by lane: whether the current op was entered
    posted: bytearray  # by op: an op that posts messages (or a copy) has done so
    started: bytearray  # by op: ... and its messages may meet their counterparts
    finished: bytearray  # by message row: this end has completed
    unfinished: list[int]  # by op: its rows, or its meeting, that have not completed
    streams: list[deque[int]]  # by stream: ops posted and not completed, oldest first
    mate: list[int]  # by message row: its other end; -1 where that is open or missing

    awaited: list[int]  # by op: the requests it waits for that have not completed
    absent: list[int]  # by cluster of groups: its parties that have not started
    missing: list[int]  # by meeting of a collective: members whose call has not started
    given: set[tuple[int, str | None]]  # (rank, name) of the signals given
    room: list[int]  # by channel: position of the last send that may use a slot

    def copy(self) -> State:
        """An independent state that is equal now."""
        return State(
            self.at.copy(),
            self.entered.copy(),
            self.posted.copy(),
            self.started.copy(),
            self.finished.copy(),
            self.unfinished.copy(),
            [stream.copy() for stream in self.streams],
            self.mate.copy(),
            self.awaited.copy(),
            self.absent.copy(),
            self.missing.copy(),
            self.given.copy(),
            self.room.copy(),
        )

    def key(self) -> Hashable:
        """A value that is equal for equal states, and only for those."""
        return (
            tuple(self.at),
            bytes(self.entered),
            bytes(self.posted),
            bytes(self.started),
            bytes(self.finished),
            tuple(self.unfinished),
            tuple(map(tuple, self.streams)),
            tuple(self.mate),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a maximal run ended.

    ``completed`` counts the ops that each lane completed. ``stuck`` is the
    current op of each lane that is not done, ascending. ``unmatched``, told
    only where no lane is stuck, is the message rows that met nothing: never
    completed, or completed into a buffer from which nobody read.
    """

    completed: tuple[int, ...]
    stuck: tuple[int, ...]
    unmatched: tuple[int, ...]
