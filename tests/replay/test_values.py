"""Values: what accumulators and weights hold, each asked on its own."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from pipeproof.replay.confirm import confirm
from pipeproof.replay.values import Values
from pipeproof.verdict import (
    Claim,
    Counterexample,
    Diverged,
    EffectCount,
    NoVersion,
    RandomState,
    ReadsVersion,
    WrongForm,
)
from tests.value_programs import Sum, sums, value_program


def form(*ranks: Any, op: int = -1, name: str = "w", **document: Any) -> dict[str, str] | None:
    """What ``name`` is at op (of all ops, or the last one) of the program."""
    program = value_program(*ranks, **document)
    value = Values(program, program.transport).form(op % program.ops, name)
    return None if value is None else {s: str(c) for s, c in value.items()}


def grad(mode: str = "add", /, **forms: Any) -> dict[str, Any]:
    return {"grad": forms, "grad_mode": mode}


def test_one_rank() -> None:
    step = ["STEP", "w"]
    one, two = ["X", "x", grad(w={"a": 1})], ["X", "x", grad(w={"a": 2, "b": "1/2"})]
    assert form([step]) == {}
    assert form([one, two, step]) == {"a": "3", "b": "1/2"}
    assert form([one, ["SCALE", "w", "1/2"], two, step]) == {"a": "5/2", "b": "1/2"}
    assert form([one, ["ZERO", "w"], two, step]) == {"a": "2", "b": "1/2"}
    assert form([one, ["X", "x", grad("set", w={"b": 1})], one, step]) == {"a": "1", "b": "1"}
    assert form([one, step, two, step]) == {"a": "2", "b": "1/2"}
    assert form([one, ["REPORT", "w"], step]) == {"a": "1"}
    assert form([one, ["X", "x", grad(w={"a": -1})], step]) == {}
    # What an op carries comes before what it does.
    assert form([one, ["SCALE", "w", 2, grad(w={"b": 1})], step]) == {"a": "2", "b": "2"}
    assert form([["STEP", "w", grad(w={"b": 1})]]) == {"b": "1"}


def test_names_of_one_storage() -> None:
    ops = [["X", "x", grad(u={"a": 1})], ["SCALE", "w", 3], ["REPORT", "v"]]
    chain = {"u": "v", "v": "w"}
    assert form(ops, name="v", alias=chain) == {"a": "3"}
    assert form(ops, name="v", alias={"u": "v"}) == {"a": "1"}
    assert form(ops, name="v", alias={"u": "v", "v": "u"}) == {"a": "1"}
    assert form(ops, name="v") == {}


def call(kind: str = "allreduce", group: str = "world", **given: Any) -> list[Any]:
    return ["COLL", kind, group, "c", {"param": "w", **given}]


def both(own: list[Any], **document: Any) -> list[dict[str, str] | None]:
    """The forms at the last op of two ranks that run the same on gradients a and b."""
    ranks = [[["X", "x", grad(w={symbol: 1})], *own] for symbol in "ab"]
    size = len(ranks[0])
    return [form(*ranks, op=size - 1, **document), form(*ranks, op=2 * size - 1, **document)]


def test_collectives() -> None:
    step = ["STEP", "w"]
    whole, mean = {"a": "1", "b": "1"}, {"a": "1/2", "b": "1/2"}
    assert both([call(), step]) == [whole] * 2
    assert both([call(op="avg"), step]) == [mean] * 2
    assert both([call(), call(op="avg"), step]) == [whole] * 2
    assert both([call(), call(), step]) == [{"a": "2", "b": "2"}] * 2
    assert both([call("reducescatter", owner=1), step]) == [{"a": "1"}, whole]
    assert both([call("reducescatter", op="avg", owner=0), step]) == [mean, {"b": "1"}]
    for kind in ("allgather", "broadcast", "alltoall", "barrier", "init"):
        assert both([call(kind), step]) == [{"a": "1"}, {"b": "1"}]
    # Asynchronous: there when it was waited for, as it was when it was posted.
    posted = call(req="q")
    assert both([posted, ["REPORT", "w"]]) == [{"a": "1"}, {"b": "1"}]
    assert both([posted, ["WAIT", "q"], step]) == [whole] * 2
    assert (
        both([posted, ["WAIT", "q"], ["SCALE", "w", 2], ["WAIT", "q"], step])
        == [{"a": "2", "b": "2"}] * 2
    )


def test_calls_that_do_not_agree() -> None:
    one = [["X", "x", grad(w={"a": 1}, v={"p": 1})], call(), ["STEP", "w"]]
    other = [["X", "x", grad(w={"b": 1}, v={"q": 1})], call(param="v"), ["STEP", "w"]]
    assert form(one, other, op=2) == {"a": "1", "q": "1"}
    assert form(one, other, op=5) == {"b": "1"}


def test_what_never_happens_is_nothing() -> None:
    groups = {"g": [0, 1], "h": [0, 1]}
    crossed = [[call(group="g"), call(group="h"), ["STEP", "w"]]]
    crossed += [[call(group="h"), call(group="g"), ["STEP", "w"]]]
    assert form(*crossed, groups=groups) is None
    assert form([call(), ["STEP", "w"]], [], op=1) is None


@given(sums())
def test_forms_are_those_of_doing_it(drawn: Sum) -> None:
    program = drawn.program()
    values = Values(program, program.transport)
    first = {lane.rank: lane.first for lane in program.lanes}
    for (rank, place), expected in drawn.values().items():
        op = first[rank] + place
        name = program.details.attributes[op].label
        assert name is not None
        assert values.form(op, name) == expected


def test_long_chains_of_reductions() -> None:
    step = [["STEP", "w"]]
    assert both([call(op="avg") for _ in range(2000)] + step) == [{"a": "1/2", "b": "1/2"}] * 2


# --- versions -------------------------------------------------------------------


def test_versions() -> None:
    rank = [
        ["F", 0, 0],
        ["STEP", "w0"],
        ["STEP", "w1"],
        ["F", 0, 1, {"wv": 0}],
        ["ROLLBACK", "w0", 0],
        ["B", 0, 0],
        ["STEP", "w0"],
        ["COLL", "allgather", "world", "c", {"bumps": "w0"}],
        ["COLL", "allgather", "world", "c", {"bumps": ["w0", "w1"], "to": 9, "req": "q"}],
        ["B", 0, 1],
        ["WAIT", "q"],
        ["STEP", "w0"],
        ["B", 1, 0],
        ["B", 0, 0],
    ]
    program = value_program(rank)
    values = Values(program, program.transport)
    assert values.versions(13, "w0") == [0, 1, 0, 2, 3, 9, 10]
    assert values.versions(13, "w1") == [0, 1, 9]
    assert values.versions(9, "w0") == [0, 1, 0, 2, 3]
    assert values.versions(10, "w0") == [0, 1, 0, 2, 3, 9]
    used = [values.version_used(op) for op in (0, 3, 5, 9, 12, 13)]
    assert used == [0, 0, 0, 3, 9, 10]
    assert [values.forward_of(op) for op in (0, 3, 5, 9, 12, 13)] == [None, None, 0, 3, None, 0]


# --- claims ---------------------------------------------------------------------


def refuted(claim: Claim, *ranks: Any, **document: Any) -> str | None:
    """What is said against the claim."""
    program = value_program(*ranks, **document)
    answer = confirm(program, program.transport, Counterexample(claim, (), ()))
    assert answer is None or answer.endswith(".")
    return answer


def test_wrong_form() -> None:
    rank = [["X", "x", grad(w={"a": 1})], ["STEP", "w"], ["REPORT", "v"], ["ZERO", "w"]]
    want = {"w": {"a": "1/2"}, "v": {"p": 0}}

    def against(op: int, name: str, **found: str) -> str | None:
        return refuted(WrongForm(op, name, tuple(found.items())), rank, want=want)

    assert against(1, "w", a="1") is None
    assert against(1, "w", a="2") == "At STEP w, w is 1 a."
    assert against(2, "v") == "At REPORT v, v is what is wanted."
    assert against(2, "v", p="1") == "At REPORT v, v is nothing."
    assert against(3, "w", a="1") == "ZERO w compares nothing with what is wanted of w."
    assert against(1, "v") == "STEP w compares nothing with what is wanted of v."
    assert refuted(WrongForm(1, "w", (("a", "1"),)), rank) == "Nothing is wanted of w."
    assert refuted(WrongForm(1, "w", ()), [call(), ["STEP", "w"]], [], want=want) == (
        "STEP w is never reached: collectives before it wait for each other."
    )


def test_diverged() -> None:
    one, other = [["STEP", "w", {"opt": "adam"}]], [["STEP", "w", {"opt": "muon"}]]
    claim = Diverged("w", (0, 1))
    assert refuted(claim, one, other, replicas={"w": [0, 1]}) is None
    assert refuted(claim, one, [*one, ["ROLLBACK", "w", 0]], replicas={"w": [0, 1]}) is None
    assert refuted(claim, one, one, replicas={"w": [0, 1]}) == (
        "The 1 updates of w are equal on these ranks."
    )
    assert refuted(claim, one, other) == "w has no replicas on these ranks."


def test_effect_count() -> None:
    rank = [["F", 0, 0, {"effects": ["bn"]}], ["R", 0, 0, {"effects": ["bn", "log"]}]]
    assert refuted(EffectCount(0, "bn", 2, 1), rank, want_effects={"0:bn": 1}) is None
    assert refuted(EffectCount(0, "bn", 1, 2), rank, want_effects={"0:bn": 2}) == (
        "bn runs 2 times on rank 0, not 1."
    )
    assert refuted(EffectCount(0, "bn", 2, 1), rank, want_effects={"0:bn": 2}) == (
        "bn is wanted 2 times on rank 0."
    )


def test_random_state() -> None:
    rank = [["F", 0, 0, {"rng": 1}], ["F", 0, 0, {"rng": 2}], ["R", 0, 0, {"rng": 1}]]
    assert refuted(RandomState(2, 1), rank) is None
    assert refuted(RandomState(2, 0), rank) == "0R0 does not recompute 0F0."
    assert refuted(RandomState(1, 0), [["F", 0, 0], ["R", 0, 0, {"rng": 1}]]) == (
        "0R0 and its forward do not state different random states."
    )


def test_reads_version() -> None:
    rank = [
        ["F", 0, 0],
        ["STEP", "w0"],
        ["B", 0, 0],
        ["X", "x", {"uses": ["w0"], "it": 0}],
        ["B", 0, 1],
    ]
    equal = {"versions": "fb-equal", "m": 2}
    assert refuted(ReadsVersion(2, "w0", 1, 0), rank, **equal) is None
    assert refuted(ReadsVersion(3, "w0", 1, 0), rank) is None
    assert refuted(ReadsVersion(3, "w0", 2, 0), rank) == "X x finds version 1 of w0."
    assert refuted(ReadsVersion(3, "w0", 0, 0), rank) == "X x reads version 0, as it should."
    assert refuted(ReadsVersion(3, "w0", 1, 2), rank) == "X x does not use w0."
    assert refuted(ReadsVersion(2, "w0", 1, 0), rank) == (
        "Nothing demands that 0B0 uses the version of its forward."
    )
    assert refuted(ReadsVersion(2, "w0", 0, 1), rank, **equal) == (
        "0B0 uses version 1, its forward version 0."
    )
    assert refuted(ReadsVersion(4, "w0", 1, 0), rank, **equal) == "0B1 builds on no forward."


def test_no_version() -> None:
    rank = [["F", 0, 0, {"wv": 1}], ["ROLLBACK", "w1", 1], ["STEP", "w0"], ["F", 0, 1, {"wv": 1}]]
    assert refuted(NoVersion(0, "w0", 1), rank) is None
    assert refuted(NoVersion(1, "w1", 1), rank) is None
    assert refuted(NoVersion(3, "w0", 1), rank) == (
        "When 0F1 is reached, there has been such a version."
    )
    assert refuted(NoVersion(2, "w0", 1), rank) == "STEP w0 does not name version 1 of w0."
