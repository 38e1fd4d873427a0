"""Requests: what an asynchronous op posts, and which one a WAIT means.

A producer may use an id again once it has been waited for, so a WAIT means
the latest posting of the id before it on its lane. On a rank with several
lanes it may name a request of another lane, where that rank posts the id once.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from pipeproof.formats.json_values import quoted, refusal, text
from pipeproof.formats.program_forms import Op


class _Posting(NamedTuple):
    lane: int
    number: int
    op: Op


class _Wait(NamedTuple):
    entry: int  # of the pairs, to be filled in
    lane: int
    name: str
    op: Op
    argument: int


class Requests:
    """Numbers the requests of a program and pairs its waits with them.

    ``names`` is the producer's id of each request, in the order of posting;
    ``ops`` and ``numbers`` are the pairs (op, request).
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.ops = array("i")
        self.numbers = array("i")
        self._lane = -1
        self._latest: dict[str, int] = {}
        self._unwaited: dict[str, Op] = {}
        self._postings: dict[str, list[_Posting]] = {}
        self._open: list[_Wait] = []

    def start_lane(self) -> None:
        """The ops that follow stand on a new lane."""
        self._lane += 1
        self._latest = {}
        self._unwaited = {}

    def post(self, name: str, op: Op) -> int:
        """The number of the request that an op posts under this id."""
        if name in self._unwaited:
            raise refusal(
                op.attribute_path("req"),
                f"request id {quoted(name)} posted twice before its wait, "
                f"first at {self._unwaited[name].path}",
                "give each request that is in flight an id of its own, or wait for it first",
            )
        number = len(self.names)
        self.names.append(name)
        self._latest[name] = number
        self._unwaited[name] = op
        self._postings.setdefault(name, []).append(_Posting(self._lane, number, op))
        return number

    def wait(self, number: int, op: Op) -> None:
        """Op ``number`` waits for the ids that it names."""
        for argument in range(1, op.arity + 1):
            name = text(op.written, argument, op.path, "a request id, as text")
            request = self._latest.get(name, -1)
            if request < 0:
                self._open.append(_Wait(len(self.ops), self._lane, name, op, argument))
            self._unwaited.pop(name, None)
            self.ops.append(number)
            self.numbers.append(request)

    def finish_rank(self) -> None:
        """Every lane of the rank has been read: find what its lanes wait for across."""
        for wait in self._open:
            self.numbers[wait.entry] = self._across(wait)
        self._postings = {}
        self._open = []

    def _across(self, wait: _Wait) -> int:
        postings = self._postings.get(wait.name, [])
        name, path = quoted(wait.name), wait.op.argument_path(wait.argument)
        if not postings:
            message = f"this rank never posted {name}, the request waited for"
            raise refusal(path, message, self._posted())
        if len(postings) > 1:
            raise refusal(
                path,
                f"this rank posts {name} {len(postings)} times, none of them before this wait "
                "on its lane: which one is meant is open",
                "a wait on another lane needs an id that its rank posts once",
            )
        if postings[0].lane == wait.lane:
            raise refusal(
                path,
                f"{name} is posted only later, at {postings[0].op.path}",
                "a lane runs in order, so this WAIT would wait for what comes after it",
            )
        return postings[0].number

    def _posted(self) -> str:
        if not self._postings:
            return "this rank posts no request at all"
        ids = list(self._postings)
        listed = ", ".join(map(quoted, ids[:8]))
        return f"it posts {listed}{' and others' if len(ids) > 8 else ''}"
