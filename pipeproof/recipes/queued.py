"""DualPipe's recipe: what computes have made waits in a queue.

Before every op, an overlapped pair being one, its inputs are queued too, and the
queue leaves as one batch that is waited for. The stream of microbatches with
which a rank begins is the near one, the other the far one. Where the streams meet,
the order differs:

- where a near forward is followed by a far one, the input of the next near forward
  is queued before that of the far one, and what the near one made leaves after what
  the far one made, except on a rank where the far stream turns into backwards at once;
- there, the last of these far forwards leaves what it made until the near forward
  behind it has run, and that one until the far backward behind it has run;
- between an input gradient and a forward, the weight gradient that stands there
  waits for the input of the forward as well.
"""

from __future__ import annotations

from pipeproof.program.ops import Kind
from pipeproof.program.schedules import Schedule
from pipeproof.recipes.lowering import BACKWARDS, Action, Cell, Wires, cells_of
from pipeproof.recipes.posting import How, Post, Row


def rows_queued(schedule: Schedule) -> list[Row]:
    """The rows of a compute-only schedule."""
    wires = Wires(schedule)
    return [_Queue(wires, cells).row() for cells in cells_of(schedule)]


class _Queue:
    """One rank, and the messages that wait to leave."""

    def __init__(self, wires: Wires, cells: list[Cell]) -> None:
        self.wires, self.cells = wires, cells
        self.near = cells[0][0].stage if cells else -1
        self.waiting: list[Action] = []
        self.taken: set[Action] = set()  # receives that have been queued
        self.turning = any(self._turns(n) for n in range(len(cells)))

    def row(self) -> Row:
        """What the rank does."""
        row: Row = []
        later: list[Action] = []  # made, and not queued yet
        for n, cell in enumerate(self.cells):
            meets = self._is_far(n) and self._is_near(n - 1)
            if meets:
                following = range(n + 1, len(self.cells))
                self._take(next((i for i in following if self._begins_near(i)), -1), early=True)
            if cell[0].kind == Kind.W and self._is_alone(n + 1, (Kind.F,)):
                self._take(n + 1)
            self._take(n)
            row.extend(self._leaving())
            row.append(cell)
            made = [m for action in cell if (m := self.wires.send(action)) is not None]
            if self._turns(n):
                self.waiting += later
                later = made
            elif (self._turns(n + 1) and self._is_far(n)) or (
                self._is_near(n) and self._is_far(n + 1) and not self.turning
            ):
                later = made
            else:
                self.waiting += later + made if self._turns(n - 1) else made + later
                later = []
        self.waiting += later
        row.extend(self._leaving())
        return row

    def _leaving(self) -> Row:
        """The batch that leaves now, if anything waits."""
        batch, self.waiting = tuple(self.waiting), []
        return [Post(How.BATCH_BLOCKS, batch)] if batch else []

    def _take(self, n: int, early: bool = False) -> None:
        """Queue the inputs of a cell that are not queued yet; early on, a forward's."""
        for action in self.cells[n] if n >= 0 else ():
            if early and action.kind != Kind.F:
                continue
            message = self.wires.receive(action)
            if message is not None and message not in self.taken:
                self.taken.add(message)
                self.waiting.append(message)

    # --- where the streams meet ----------------------------------------------------

    def _is_alone(self, n: int, kinds: tuple[int, ...]) -> bool:
        """Whether a cell is one op of these kinds."""
        return (
            0 <= n < len(self.cells) and len(self.cells[n]) == 1 and self.cells[n][0].kind in kinds
        )

    def _is_near(self, n: int) -> bool:
        return self._is_alone(n, (Kind.F,)) and self.cells[n][0].stage == self.near

    def _is_far(self, n: int) -> bool:
        return self._is_alone(n, (Kind.F,)) and self.cells[n][0].stage != self.near

    def _begins_near(self, n: int) -> bool:
        """Whether a cell has a near forward, alone or in an overlapped pair."""
        return any(a.kind == Kind.F and a.stage == self.near for a in self.cells[n])

    def _turns(self, n: int) -> bool:
        """Whether a near forward is followed by a far backward, neither overlapped."""
        return (
            self._is_near(n)
            and self._is_alone(n + 1, BACKWARDS)
            and self.cells[n + 1][0].stage != self.near
        )
