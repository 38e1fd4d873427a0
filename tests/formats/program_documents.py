"""Random documents of the program format, as Hypothesis strategies.

``documents`` draws valid programs that use every key, op and attribute, in
scope of a check or not; ``json_values`` draws anything that JSON can write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from pipeproof.formats.program_ops import COLLECTIVES

Draw = Callable[[st.SearchStrategy[Any]], Any]

NAMES = st.sampled_from(["a", "w0", "x y", "ä", "act", "", "n.1"])
PAYLOAD_NAMES = st.sampled_from(["x0", "x y", "grad:0", "act:1:0", "act:0:-1"])
UNITS = st.integers(0, 9)
COEFFICIENTS = st.sampled_from([1, 0, -2, "1/2", "-3/4", "2/2", "7"])
FORM = st.dictionaries(NAMES, COEFFICIENTS, max_size=2)
FORMS = st.dictionaries(NAMES, FORM, max_size=2)
LISTED = st.lists(NAMES, max_size=2)
PAIRS = st.lists(st.tuples(NAMES, NAMES).map(list), max_size=2)
NAMED = ["X", "FREE", "MAKE", "DROP", "ZERO", "REPORT", "SIGNAL", "AWAIT"]

SEMANTICS = st.fixed_dictionaries(
    {},
    optional={
        "p2p": st.just("rendezvous") | st.fixed_dictionaries({"buffered": UNITS}),
        "group": st.sampled_from(["independent", "atomic"]),
        "match": st.sampled_from(["tag", "fifo"]),
        "isend_progress": st.sampled_from(["async", "at-wait"]),
        "streams": st.sampled_from(["free", "directed", "pair", "rank"]),
    },
)

ANY_OP = {
    "alloc": st.dictionaries(NAMES, UNITS, max_size=2),
    "free": LISTED,
    "needs": LISTED,
    "w": PAIRS,
    "r": PAIRS,
    "effects": LISTED,
}
END = {
    "shape": st.lists(UNITS, max_size=3),
    "dtype": NAMES,
    "count": UNITS,
    "comm": NAMES,
    "buf": NAMES,
}
COMPUTE = {"redo": st.booleans(), "anywhere": st.booleans(), "nodeps": st.booleans(), "wv": UNITS}


@st.composite
def documents(draw: Draw) -> dict[str, Any]:
    """A valid program."""
    return _Document(draw).document()


class _Document:
    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.ranks: int = draw(st.integers(1, 3))
        self.stages: int = draw(st.integers(1, 3))
        self.groups = draw(st.dictionaries(NAMES, self.some_ranks(), max_size=2))
        self.posted: list[str] = []  # ids of this rank, each once
        self.finished: list[str] = []  # ids that this lane may post again

    def some_ranks(self) -> st.SearchStrategy[list[int]]:
        return st.lists(self.rank(), min_size=1, max_size=3, unique=True)

    def rank(self) -> st.SearchStrategy[int]:
        return st.integers(0, self.ranks - 1)

    def maybe(self) -> bool:
        return bool(self.draw(st.booleans()))

    def some(self, optional: dict[str, Any]) -> dict[str, Any]:
        """A few of these attributes, often none."""
        if not self.maybe():
            return {}
        keys = self.draw(st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True))
        return {key: self.draw(optional[key]) for key in keys}

    # --- the document

    def document(self) -> dict[str, Any]:
        ranks = {str(rank) for rank in range(self.ranks) if rank == self.ranks - 1 or self.maybe()}
        # Not in the order of ranks: the reader puts them in order.
        programs = {rank: self.programs(int(rank)) for rank in sorted(ranks, reverse=True)}
        document: dict[str, Any] = {"programs": programs, "groups": self.groups}
        if self.maybe():
            document["n_ranks"] = self.ranks
        if self.maybe():
            document["stages"] = self.stages
        by_rank = st.sampled_from([str(rank) for rank in range(self.ranks)])
        by_stage = st.sampled_from([str(stage) for stage in range(self.stages)])
        held = st.sampled_from(["act:0:0", "grad:2:1", "act:7:0"])
        optional = {
            "m": UNITS,
            "placement": st.dictionaries(by_stage, self.rank() | self.some_ranks()),
            "semantics": SEMANTICS,
            "pre": st.dictionaries(by_rank, st.lists(held, max_size=2)),
            "pre_res": st.dictionaries(by_rank, LISTED),
            "budget": st.dictionaries(by_rank, UNITS),
            "leak_check": st.booleans(),
            "may_remain": LISTED,
            "want": FORMS,
            "replicas": st.dictionaries(NAMES, self.some_ranks(), max_size=2),
            "want_effects": st.dictionaries(by_rank.map(lambda rank: f"{rank}:e"), UNITS),
            "versions": st.just("fb-equal"),
            "alias": st.dictionaries(NAMES, NAMES, max_size=2),
            "layers": st.dictionaries(by_stage, st.lists(UNITS, max_size=2)),
            "n_layers": UNITS,
            "complete": st.booleans(),
        }
        return {**document, **self.some(optional)}

    def programs(self, rank: int) -> Any:
        self.posted = []
        if self.maybe():
            return self.lane(rank, again=True)
        names = self.draw(st.lists(NAMES | st.just("main"), max_size=2, unique=True))
        return {name: self.lane(rank, again=False) for name in names}

    def lane(self, rank: int, again: bool) -> list[Any]:
        self.finished = []
        ops = []
        for _ in range(self.draw(st.integers(0, 6))):
            ops += self.op(rank, again)
        return ops

    # --- ops

    def op(self, rank: int, again: bool) -> list[Any]:
        """An op, perhaps with the wait for it."""
        write = self.draw(st.sampled_from(_OPS))
        words, optional = write(self, rank)
        given = {**self.some({**ANY_OP, **optional}), **self.paired()}
        must = words[0] in ("ISEND", "IRECV", "ICOPY")
        if not must and not (words[0] in ("GROUP", "COLL") and self.maybe()):
            return [[*words, given]] if given or self.maybe() else [words]
        name = self.fresh_id()
        ops = [[*words, {**given, "req": name}]]
        if again and self.maybe():
            ops.append(["WAIT", name])
            self.finished.append(name)
        return ops

    def paired(self) -> dict[str, Any]:
        """Attributes of any op that come in pairs."""
        given: dict[str, Any] = {}
        if self.maybe() and self.maybe():
            given.update(uses=self.draw(LISTED), it=self.draw(UNITS))
        if self.maybe() and self.maybe():
            given.update(
                grad=self.draw(FORMS), grad_mode=self.draw(st.sampled_from(["add", "set"]))
            )
        return given

    def fresh_id(self) -> str:
        if self.finished and self.maybe():
            return self.finished.pop()
        self.posted.append(f"q{len(self.posted)}")
        return self.posted[-1]

    def end(self, words: list[Any], peer: Any) -> list[Any]:
        kind, stage, microbatch = self.draw(
            st.tuples(st.sampled_from(["act", "grad", "s"]), UNITS, st.integers(-1, 3))
        )
        if self.maybe():
            return [*words, kind, stage, microbatch, peer]
        return [*words, self.draw(PAYLOAD_NAMES), peer]

    def message(self, prefix: str) -> tuple[list[Any], dict[str, Any]]:
        if self.maybe():
            return self.end([f"{prefix}SEND"], self.draw(self.rank())), dict(END)
        if self.maybe():
            return self.end([f"{prefix}RECV"], self.draw(self.rank())), dict(END)
        return self.end([f"{prefix}RECV"], "any"), {**END, "commutes": st.booleans()}

    def compute(self, rank: int) -> tuple[list[Any], dict[str, Any]]:
        name = self.draw(st.sampled_from(["F", "B", "BI", "W", "R"]))
        optional = {**COMPUTE, "rng": NAMES | UNITS} if name in "FR" else COMPUTE
        stage = self.draw(st.integers(-1, self.stages - 1))
        return [name, stage, self.draw(st.integers(-1, 4))], optional

    def point_to_point(self, rank: int) -> tuple[list[Any], dict[str, Any]]:
        return self.message(self.draw(st.sampled_from(["", "I"])))

    def group(self, rank: int) -> tuple[list[Any], dict[str, Any]]:
        members = []
        for _ in range(self.draw(st.integers(0, 3))):
            words, optional = self.message("")
            given = self.some(optional)
            members.append([*words, given] if given else words)
        return ["GROUP", members], {}

    def wait(self, rank: int) -> tuple[list[Any], dict[str, Any]]:
        if not self.posted:
            return ["X", "nothing to wait for"], {}
        known = st.sampled_from(self.posted)
        name = self.draw(st.sampled_from(["WAIT", "WAITANY"]))
        return [name, *self.draw(st.lists(known, min_size=1, max_size=2))], {}

    def collective(self, rank: int) -> tuple[list[Any], dict[str, Any]]:
        mine = ["world", *(name for name, ranks in self.groups.items() if rank in ranks)]
        kind = self.draw(st.sampled_from(COLLECTIVES))
        optional = {
            "param": NAMES,
            "op": st.sampled_from(["sum", "avg"]),
            "owner": st.just(rank),
            "bumps": NAMES | LISTED,
        }
        return ["COLL", kind, self.draw(st.sampled_from(mine)), self.draw(NAMES)], optional

    def plain(self, rank: int) -> tuple[list[Any], dict[str, Any]]:
        name = self.draw(st.sampled_from(NAMED))
        return [name, self.draw(NAMES)], {}

    def other(self, rank: int) -> tuple[list[Any], dict[str, Any]]:
        words: list[Any] = self.draw(
            st.one_of(
                st.tuples(st.just("ALLOC"), NAMES, UNITS),
                st.tuples(st.just("SCALE"), NAMES, COEFFICIENTS),
                st.tuples(st.just("ROLLBACK"), NAMES, UNITS),
                st.tuples(st.sampled_from(["COPY", "ICOPY"]), NAMES, NAMES),
                st.tuples(st.just("STEP"), NAMES),
            ).map(list)
        )
        return words, {"opt": NAMES} if words[0] == "STEP" else {}


_OPS = [
    _Document.compute,
    _Document.point_to_point,
    _Document.group,
    _Document.wait,
    _Document.collective,
    _Document.plain,
    _Document.other,
]


_WORDS = st.sampled_from(
    ["programs", "model", "F", "SEND", "WAIT", "act", "req", "alloc", "0", "world", "any", "1/2"]
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.just(10**30)
    | st.floats()
    | st.text(max_size=3)
    | _WORDS
)


def json_values() -> st.SearchStrategy[Any]:
    """Anything that ``json.dumps`` writes, NaN and half a surrogate pair included."""
    return st.recursive(
        _LEAVES,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(_WORDS | st.text(max_size=3), inner, max_size=4)
        ),
        max_leaves=12,
    )
