"""The program format: what it means, what it refuses, and that it round-trips."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeproof.errors import InputError
from pipeproof.formats.program_features import FEATURES
from pipeproof.formats.program_json import PROGRAM_KEYS, read_program
from pipeproof.formats.program_ops import FORMS
from pipeproof.formats.program_print import print_program
from pipeproof.program.notation import op_text, payload_name
from pipeproof.program.ops import MAX_ID, Kind, activation, gradient, named
from pipeproof.program.programs import Program, Traits, Waits
from pipeproof.program.transports import PRESETS, Grouping, Match, Progress, Streams
from tests.formats.program_documents import documents, json_values

CASES = sorted((Path(__file__).parent.parent / "data" / "cases").glob("*.json"))


def read(document: Any, **options: Any) -> Program:
    return read_program(json.dumps(document), "test", **options)


def one(*ops: Any, **keys: Any) -> dict[str, Any]:
    """A program of two ranks whose first runs these ops."""
    return {"n_ranks": 2, "programs": {"0": list(ops)}, **keys}


def refused(document: Any, **options: Any) -> InputError:
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(InputError) as caught:
        read_program(text, "test", **options)
    return caught.value


def meaning(program: Program) -> dict[str, Any]:
    """Everything that two readings of one program share, as plain values."""
    arrays = ("kind", "stage", "microbatch", "request")
    details = {f.name: getattr(program.details, f.name) for f in fields(program.details)}
    details["features"] = [(f.name, f.checks) for f in program.details.features]
    return {
        "sizes": (program.ranks, program.stages, program.microbatches, program.hosts),
        "lanes": program.lanes,
        "arrays": {name: getattr(program, name).tolist() for name in arrays},
        "messages": [getattr(program.messages, f.name).tolist() for f in fields(program.messages)],
        "waits": (program.waits.op.tolist(), program.waits.request.tolist()),
        "transport": program.transport,
        "complete": program.complete,
        "details": details,
    }


# --- what it means ---------------------------------------------------------------


def test_compute() -> None:
    ops = [["F", 0, 0], ["B", 0, -1], ["BI", 1, 2], ["W", 1, 2], ["R", 0, 0]]
    program = read(one(*ops))
    assert program.kind.tolist() == [Kind.F, Kind.B, Kind.I, Kind.W, Kind.R]
    assert program.stage.tolist() == [0, 0, 1, 1, 0]
    assert program.microbatch.tolist() == [0, -1, 2, 2, 0]
    assert program.request.tolist() == [-1] * 5
    assert [op_text(program, op) for op in range(3)] == ["0F0", "0B-1", "1I2"]
    assert (program.ranks, program.stages, program.microbatches) == (2, 2, 3)
    assert program.hosts == ((), ())
    assert not program.details.attributes and not program.details.features


def test_array_types() -> None:
    for program in (read(one()), read(one(["SEND", "x", 1], ["F", 0, 0]))):
        m = program.messages
        assert program.kind.dtype == np.uint8
        assert m.send.dtype == np.bool_
        assert m.payload.dtype == np.int64
        ints = (program.stage, program.microbatch, program.request, m.op, m.rank, m.peer, m.comm)
        assert {a.dtype for a in ints} == {np.dtype(np.int32)}
        assert {program.waits.op.dtype, program.origin.line.dtype} == {np.dtype(np.int32)}


def test_lanes_stand_in_the_order_of_ranks() -> None:
    program = read({"n_ranks": 4, "programs": {"2": [["X", "c"]], "0": {"one": [["X", "a"]]}}})
    assert [(lane.rank, lane.name, lane.first, lane.stop) for lane in program.lanes] == [
        (0, "one", 0, 1),
        (1, "main", 1, 1),
        (2, "main", 1, 2),
        (3, "main", 2, 2),
    ]
    assert program.origin.path == ("programs.0.one[0]", "programs.2[0]")
    assert program.origin.line.tolist() == [0, 0]
    assert not program.details.features  # one lane with a name is still one lane


def test_a_rank_without_lanes_has_an_empty_one() -> None:
    (lane,) = read({"programs": {"0": {}}}).lanes
    assert (lane.name, lane.first, lane.stop) == ("main", 0, 0)


def test_sizes_are_derived() -> None:
    program = read(
        {
            "programs": {"0": [["F", 2, 5], ["B", -1, -1]]},
            "placement": {"1": 3, "0": [1, 0]},
            "groups": {"g": [4]},
        }
    )
    assert (program.ranks, program.stages, program.microbatches) == (5, 3, 6)
    assert program.hosts == ((1, 0), (3,), ())
    program = read({"programs": {}, "layers": {"3": [0]}})
    assert (program.ranks, program.stages, program.microbatches) == (0, 4, 0)
    assert program.details.layers == ((), (), (), (0,))


def test_stated_sizes_stand() -> None:
    program = read(one(["F", 7, 9], stages=1, m=2))  # out of range is for a check to say
    assert (program.stages, program.microbatches) == (1, 2)


def test_messages() -> None:
    program = read(
        one(
            ["SEND", "act", 0, 2, 1],
            ["RECV", "grad", 1, 2, 1, {"comm": "b", "shape": [2, 3], "dtype": "f16", "count": 6}],
            ["SEND", "shape.act", 0, 2, 1],
            ["SEND", "x0", 1, {"buf": "h"}],
            ["SEND", "act", 0, -1, 1],
            ["SEND", "act:3:4", 1],
            ["SEND", "x0", 1, {"comm": "b"}],
        )
    )
    m = program.messages
    assert m.op.tolist() == list(range(7))
    assert m.send.tolist() == [True, False, True, True, True, True, True]
    assert m.rank.tolist() == [0] * 7 and m.peer.tolist() == [1] * 7
    assert m.payload.tolist() == [
        activation(0, 2),
        gradient(1, 2),
        named(0),
        named(1),
        named(2),
        activation(3, 4),
        named(1),
    ]
    assert program.details.names == ("shape.act:0:2", "x0", "act:0:-1")
    assert program.details.comms == ("", "b")
    assert m.comm.tolist() == [0, 1, 0, 0, 0, 0, 1]
    assert program.details.traits == {
        1: Traits(shape=(2, 3), dtype="f16", count=6),
        3: Traits(buf="h"),
    }
    assert program.stage.tolist() == [0, 1, -1, -1, -1, 3, -1]
    assert program.microbatch.tolist() == [2, 2, -1, -1, -1, 4, -1]
    assert not program.details.attributes


def test_groups_post_their_members_together() -> None:
    members = [["SEND", "act", 0, 0, 1, {"buf": "s"}], ["RECV", "x", 1, {"comm": "c"}]]
    program = read(one(["X", "a"], ["GROUP", members, {"req": "g"}], ["WAIT", "g"]))
    assert program.kind.tolist() == [Kind.X, Kind.GROUP, Kind.WAIT]
    assert program.messages.op.tolist() == [1, 1]
    assert program.messages.comm.tolist() == [0, 1]
    assert program.details.traits == {0: Traits(buf="s")}
    assert program.request.tolist() == [-1, 0, -1]
    assert program.stage[1] == -1
    assert program.requests_of(2) == [0]


def test_requests_are_numbered_as_they_are_posted() -> None:
    program = read(
        {
            "programs": {
                "1": [["IRECV", "x", 0, {"req": "a"}], ["WAIT", "a"]],
                "0": [
                    ["ISEND", "x", 1, {"req": "a"}],
                    ["ISEND", "y", 1, {"req": "b"}],
                    ["WAIT", "b", "a"],
                    ["WAIT", "a"],
                    ["ISEND", "z", 1, {"req": "a"}],
                    ["WAIT", "a"],
                ],
            }
        }
    )
    assert program.details.requests == ("a", "b", "a", "a")
    assert program.kind.tolist()[:2] == [Kind.SEND, Kind.SEND]
    assert program.request.tolist() == [0, 1, -1, -1, 2, -1, 3, -1]
    assert program.waits.op.tolist() == [2, 2, 3, 5, 7]
    assert program.waits.request.tolist() == [1, 0, 0, 2, 3]


def test_a_wait_may_name_a_request_of_another_lane() -> None:
    lanes = {
        "waits": [["WAIT", "a"]],
        "posts": [["ISEND", "x", 0, {"req": "a"}], ["X", "then"]],
    }
    program = read({"programs": {"0": lanes}})
    assert program.waits.op.tolist() == [0] and program.waits.request.tolist() == [0]


def test_a_wait_prefers_the_request_of_its_own_lane() -> None:
    post = ["ISEND", "x", 0, {"req": "a"}]
    program = read({"programs": {"0": {"k": [post, ["WAIT", "a"]], "l": [post, ["WAIT", "a"]]}}})
    assert program.waits.request.tolist() == [0, 1]


def test_a_receive_from_any() -> None:
    program = read(
        one(
            ["RECV", "x", "any", {"commutes": True}],
            ["GROUP", [["SEND", "y", 1], ["RECV", "x", "any", {"commutes": True}]]],
            ["IRECV", "act", 0, 0, "any", {"req": "r"}],
            ["WAITANY", "r"],
        )
    )
    assert program.messages.peer.tolist() == [-1, 1, -1, -1]
    attributes = program.details.attributes
    assert attributes[0].more == {"commutes": (0,)} and attributes[1].more == {"commutes": (1,)}
    assert attributes[3].label == "r" and program.requests_of(3) == [0]


def test_attributes() -> None:
    program = read(
        one(
            ["F", 0, 0, {"redo": True, "alloc": {"o": 2, "p": 0}, "rng": "s", "wv": 1}],
            ["X", "label", {"free": ["o"], "needs": ["r"], "w": [["h", "c"]], "r": [["k", "d"]]}],
            ["B", 0, 0, {"grad": {"w": {"g": "1/2", "h": -1}}, "grad_mode": "set"}],
            ["B", 0, 0, {"uses": ["w0"], "it": 3, "effects": ["bn"], "anywhere": True}],
            ["W", 0, 0, {"nodeps": True, "redo": False}],
            ["W", 0, 0, {"redo": False}],
            ["W", 0, 0, {}],
        )
    )
    a = program.details.attributes
    assert sorted(a) == [0, 1, 2, 3, 4]
    assert a[0].redo and a[0].alloc == (("o", 2), ("p", 0))
    assert a[0].more == {"rng": "s", "wv": 1}
    assert (a[1].label, a[1].free, a[1].needs) == ("label", ("o",), ("r",))
    assert (a[1].writes, a[1].reads) == ((("h", "c"),), (("k", "d"),))
    assert a[2].more["grad"] == {"w": {"g": Fraction(1, 2), "h": Fraction(-1)}}
    assert a[2].more["grad_mode"] == "set"
    assert a[3].more == {"uses": ("w0",), "it": 3, "effects": ("bn",)} and a[3].anywhere
    assert a[4].nodeps and not a[4].redo


def test_other_ops() -> None:
    program = read(
        one(
            ["ALLOC", "a", 3, {"alloc": {"b": 1}}],
            ["FREE", "a", {"free": ["b"]}],
            ["MAKE", "r"],
            ["DROP", "r", {"needs": ["s"]}],
            ["COPY", "a", "b"],
            ["ICOPY", "b", "c", {"req": "q"}],
            ["COLL", "allreduce", "g", "l", {"param": "w", "op": "avg", "owner": 0, "req": "k"}],
            ["COLL", "barrier", "world", "b", {"bumps": "w0", "to": 4}],
            ["ZERO", "w"],
            ["SCALE", "w", "1/4"],
            ["STEP", "w", {"opt": "adam"}],
            ["ROLLBACK", "w", 2],
            ["REPORT", "loss"],
            ["SIGNAL", "e"],
            groups={"g": [0]},
        )
    )
    a = program.details.attributes
    assert a[0].alloc == (("a", 3), ("b", 1)) and a[1].free == ("a", "b")
    assert a[2].needs == ("r",) and a[3].needs == ("r", "s")
    assert a[4].more == {"copy": ("a", "b")} and op_text(program, 4) == "COPY a to b"
    assert program.request[5] == 0 and program.request[6] == 1
    assert a[6].label == "l"
    assert a[6].more == {
        "kind": "allreduce",
        "group": "g",
        "param": "w",
        "op": "avg",
        "owner": 0,
    }
    assert a[7].more["bumps"] == ("w0",) and a[7].more["to"] == 4
    assert a[9].more == {"factor": Fraction(1, 4)} and a[10].more == {"opt": "adam"}
    assert a[11].more == {"version": 2}
    assert [a[op].label for op in (0, 1, 2, 3, 8, 9, 10, 11, 12, 13)] == [*"aarrwwww", "loss", "e"]


def test_every_kind_of_the_format_has_an_op() -> None:
    kinds = {form.kind for form in FORMS.values()}
    assert kinds == set(Kind) - {Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD}


def test_beginnings_and_demands() -> None:
    program = read(
        one(
            pre={"1": ["act:0:3", "grad:2:0"]},
            pre_res={"0": ["graph"]},
            budget={"0": 4},
            leak_check=True,
            may_remain=["o"],
            complete=True,
            n_layers=3,
            groups={"g": [1]},
            want={"w": {"g": "1/2"}},
            replicas={"w": [0, 1]},
            want_effects={"1:a:b": 2},
            versions="fb-equal",
            alias={"a": "b"},
        )
    )
    d = program.details
    assert d.held == {(1, activation(0, 3)), (1, gradient(2, 0))}
    assert d.resources == {(0, "graph")}
    assert d.budget == {0: 4} and d.leak_check and d.may_remain == {"o"}
    assert program.complete and d.n_layers == 3 and d.layers is None
    assert d.groups == {"g": (1,)}
    assert d.want == {"w": {"g": Fraction(1, 2)}}
    assert d.replicas == {"w": (0, 1)}
    assert d.want_effects == {(1, "a:b"): 2}
    assert d.versions == "fb-equal"
    assert d.alias == {"a": "b"}


@pytest.mark.parametrize(
    ("semantics", "name", "expected"),
    [
        ({}, "rendezvous", {}),
        ({"p2p": "rendezvous", "streams": "free"}, "rendezvous", {}),
        ({"p2p": {"buffered": 2}}, "buffered:2", {"capacity": 2}),
        ({"p2p": {"buffered": 0}}, "rendezvous", {}),
        ({"streams": "pair"}, "rendezvous, pair streams", {"streams": Streams.PAIR}),
        ({"match": "fifo"}, "rendezvous, fifo", {"match": Match.FIFO}),
        (
            {"p2p": {"buffered": 1}, "group": "atomic", "isend_progress": "at-wait"},
            "buffered:1, atomic groups, sends move at wait",
            {"capacity": 1, "group": Grouping.ATOMIC, "isend_progress": Progress.AT_WAIT},
        ),
    ],
)
def test_transports(semantics: Any, name: str, expected: dict[str, Any]) -> None:
    transport = read(one(semantics=semantics)).transport
    default = read(one()).transport
    assert transport == replace(default, name=name, **expected)


# --- features --------------------------------------------------------------------

VALUES = {"gradients", "versions"}
POST = ["ISEND", "x", 1, {"req": "q"}]

USES: list[tuple[Any, dict[str, tuple[str, set[str]]]]] = [
    (one(["F", 0, 0, {"redo": True, "alloc": {"a": 1}, "needs": ["r"]}]), {}),
    (one(POST, ["WAIT", "q"], ["GROUP", [["RECV", "x", 1, {"buf": "b", "count": 1}]]]), {}),
    (one(["ALLOC", "a", 1], ["FREE", "a"], ["MAKE", "r"], ["DROP", "r"], ["X", "x"]), {}),
    (one(layers={"0": [0]}, n_layers=1, budget={"0": 1}, pre={}, complete=True), {}),
    (one(semantics={"streams": "rank", "group": "atomic"}, groups={"g": [0]}), {}),
    ({"programs": {"0": {"a": [], "b": [["SIGNAL", "e"], ["AWAIT", "e"]]}}}, {}),
    (one(["SIGNAL", "e"], ["AWAIT", "e"]), {}),
    (one(["RECV", "x", "any"]), {"any": ("programs.0[0][2]", VALUES)}),
    (one(["GROUP", [["RECV", "act", 0, 0, "any"]]]), {"any": ("programs.0[0][1][0][4]", VALUES)}),
    (one(POST, ["WAITANY", "q"]), {"WAITANY": ("programs.0[1]", VALUES)}),
    (one(["COLL", "allreduce", "world", "i", {"bumps": "w0", "param": "w0"}]), {}),
    (one(["B", 0, 0, {"grad": {"w": {"g": 1}}, "grad_mode": "set"}], want={"w": {"g": 1}}), {}),
    (one(["ZERO", "w"], ["SCALE", "w", 2], ["STEP", "w"], ["REPORT", "w"]), {}),
    (one(replicas={"w": [0, 1]}, alias={"a": "b"}, want_effects={"0:e": 1}), {}),
    (one(["F", 0, 0, {"rng": "s", "effects": ["e"], "wv": 0}], versions="fb-equal"), {}),
    (one(["ROLLBACK", "w", 0], ["X", "x", {"uses": ["w"], "it": 0}]), {}),
    (one(["X", "x", {"w": [["s", "c"]], "r": [["s", "c"]]}], ["COPY", "a", "b"]), {}),
]


@pytest.mark.parametrize(("document", "expected"), USES)
def test_features(document: Any, expected: dict[str, tuple[str, set[str]]]) -> None:
    found = {f.name: (f.where, set(f.checks)) for f in read(document).details.features}
    assert found == expected


def test_every_feature_is_tested() -> None:
    assert {name for _, expected in USES for name in expected} == set(FEATURES)


# --- cases -----------------------------------------------------------------------


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_cases_are_read_and_printed(path: Path) -> None:
    for fixed in (False, True):
        program = read_program(path.read_text(), path.stem, fixed=fixed)
        start = "fixed_model.programs." if fixed else "model.programs."
        assert all(where.startswith(start) for where in program.origin.path)
        assert meaning(read(print_program(program))) == meaning(program)


def test_all_cases_are_here() -> None:
    assert len(CASES) == 32


def test_a_case_has_two_programs() -> None:
    case = {"model": one(["X", "bad"]), "fixed_model": one(["X", "good"]), "note": [1.5, None]}
    assert op_text(read(case), 0) == "X bad"
    assert op_text(read(case, fixed=True), 0) == "X good"
    assert read(case, fixed=True).origin.path == ("fixed_model.programs.0[0]",)


# --- what it refuses -------------------------------------------------------------

ISEND = ["ISEND", "x", 1, {"req": "q"}]
CASE: dict[str, Any] = {"model": one()}
P0 = "programs.0[0]"

BAD: list[tuple[Any, str, str]] = [
    # The document.
    ([], "$", "found an empty list, expected a program or a case, an object"),
    (3, "$", "found the number 3"),
    ({}, "$", 'no "programs" here | under "model"'),
    ({"expected": {"verdict": "ok"}}, "$", 'a case without "model"'),
    ({"fixed_model": one()}, "$", 'a case without "model"'),
    ({"programs": []}, "programs", "found an empty list, expected an object by rank"),
    ({"program": {}}, "program", 'unknown key "program" | did you mean "programs"?'),
    (one(stage=2), "stage", 'unknown key "stage" | did you mean "stages"?'),
    (one(Complete=True), "Complete", 'unknown key "Complete" | did you mean "complete"?'),
    (one(zzzzzz=1), "zzzzzz", "unknown key | known: programs, n_ranks"),
    (one(**{"a b.c": 1}), '["a b.c"]', "unknown key"),
    (one(**{"k" * 500: 1}), "k" * 48 + "...", "unknown key"),
    (one(note="x"), "note", "unknown key"),
    # Sizes.
    (one(n_ranks=True), "n_ranks", "found true, expected a whole number | are no numbers"),
    (one(n_ranks=2.0), "n_ranks", "found the number 2.0 | write it as 2"),
    (one(n_ranks="2"), "n_ranks", 'found the text "2" | without quotes'),
    (one(n_ranks=None), "n_ranks", "found null | leave the entry out"),
    (one(n_ranks=-1), "n_ranks", "found the number -1, expected a whole number, 0 to 1048576"),
    (one(n_ranks=1 << 21), "n_ranks", "0 to 1048576"),
    (one(stages=1 << 40), "stages", "0 to 1048576"),
    (one(m=-1), "m", "a whole number of microbatches"),
    (one(m=[1]), "m", "found a list of 1"),
    (one(n_layers=10**3000), "n_layers", "found a number of 3001 digits"),
    (one(["F", 1 << 21, 0]), f"{P0}[1]", "found stage 2097152, expected a stage, 0 to 1048575"),
    # Ranks.
    (one(n_ranks=0), "programs.0", 'found "0", expected no rank'),
    ({"n_ranks": 1, "programs": {"1": []}}, "programs.1", 'found "1", expected a rank, 0 to 0'),
    ({"programs": {"01": []}}, "programs.01", 'found "01", expected a rank'),
    ({"programs": {"-1": []}}, "programs.-1", "expected a rank"),
    ({"programs": {"a": []}}, "programs.a", "expected a rank"),
    ({"programs": {"٣": []}}, 'programs["٣"]', "expected a rank"),
    ({"programs": {"9" * 5000: []}}, "programs." + "9" * 48 + "...", "expected a rank"),
    ({"programs": {"0": None}}, "programs.0", "found null, expected a list of ops"),
    ({"programs": {"0": "F"}}, "programs.0", 'found the text "F", expected a list of ops'),
    ({"programs": {"0": {"l": {}}}}, "programs.0.l", "found an empty object, expected a list"),
    (one(placement=[0]), "placement", "found a list of 1, expected an object by stage"),
    (one(placement={"0": 2}), "placement.0", "found the number 2, expected a rank, 0 to 1"),
    (one(placement={"0": True}), "placement.0", "found true, expected a rank"),
    (one(placement={"0": []}), "placement.0", "a list of one rank or more"),
    (one(placement={"0": [0, 0]}), "placement.0[1]", "rank 0 stands twice"),
    (one(placement={"0": [0, 5]}), "placement.0[1]", "found the number 5, expected a rank"),
    (one(placement={"1": 0}, stages=1), "placement.1", 'found "1", expected a stage, 0 to 0'),
    (one(groups={"g": 1}), "groups.g", "expected a list of ranks"),
    (one(groups={"g": [2]}), "groups.g[0]", "expected a rank, 0 to 1"),
    (one(groups={"world": [1]}), "groups.world", '"world" is all ranks'),
    (one(replicas={"w": ["0"]}), "replicas.w[0]", 'found the text "0" | without quotes'),
    (one(budget={"2": 1}), "budget.2", "expected a rank"),
    # Keys of the document.
    (one(budget={"0": 1.5}), "budget.0", "found the number 1.5"),
    (one(budget={"0": -1}), "budget.0", "a whole number, 0 or more"),
    (one(budget={"0": 1 << 60}), "budget.0", "a whole number"),
    (one(leak_check=1), "leak_check", "found the number 1, expected true or false"),
    (one(complete="yes"), "complete", 'found the text "yes", expected true or false'),
    (one(may_remain="a"), "may_remain", "expected a list of names"),
    (one(may_remain=["a", 1]), "may_remain[1]", "found the number 1, expected a name"),
    (one(pre={"0": ["act:0"]}), "pre.0[0]", "expected a payload id"),
    (one(pre={"0": ["act:0:-1"]}), "pre.0[0]", "expected a payload id"),
    (one(pre={"0": [f"act:0:{MAX_ID + 1}"]}), "pre.0[0]", "expected a payload id"),
    (one(pre={"0": "act:0:0"}), "pre.0", "expected a list of payload ids"),
    (one(pre_res={"5": []}), "pre_res.5", "expected a rank"),
    (one(want={"w": {"g": 0.5}}), "want.w.g", 'found the number 0.5 | write 0.5 as "1/2"'),
    (one(want={"w": {"g": "0.5"}}), "want.w.g", 'a fraction such as "1/2" | coefficients are'),
    (one(want={"w": {"g": "1/0"}}), "want.w.g", "denominator is not 0"),
    (one(want={"w": {"g": "1 / 2"}}), "want.w.g", "a fraction"),
    (one(want={"w": {"g": "9" * 101}}), "want.w.g", "a fraction"),
    (one(want={"w": {"g": 10**101}}), "want.w.g", "a number of 102 digits"),
    (one(want={"w": {"g": True}}), "want.w.g", "found true"),
    (one(want={"w": 1}), "want.w", "an object from symbols to coefficients"),
    (one(want_effects={"0": 1}), "want_effects.0", 'expected "RANK:EFFECT"'),
    (
        one(want_effects={"2:bn": 1}),
        'want_effects["2:bn"]',
        "RANK:EFFECT | RANK is a rank, 0 to 1",
    ),
    (one(want_effects={"00:bn": 1}), 'want_effects["00:bn"]', "RANK:EFFECT"),
    (one(want_effects={"0:bn": "1"}), 'want_effects["0:bn"]', "a number of times"),
    (one(versions="equal"), "versions", 'expected "fb-equal" | did you mean "fb-equal"?'),
    (one(alias={"a": 1}), "alias.a", "expected a name"),
    (one(layers={"0": 1}), "layers.0", "expected a list of layers"),
    (one(layers={"0": [-1]}), "layers.0[0]", "expected a layer"),
    (one(layers={"2": []}, stages=2), "layers.2", "expected a stage, 0 to 1"),
    # The transport.
    (one(semantics="nccl"), "semantics", "expected the semantics, an object"),
    (one(semantics={"p2": 1}), "semantics.p2", 'unknown key "p2" | did you mean "p2p"?'),
    (one(semantics={"p2p": "eager"}), "semantics.p2p", '"rendezvous" or {"buffered": slots}'),
    (one(semantics={"p2p": {}}), "semantics.p2p", '"rendezvous" or {"buffered": slots}'),
    (one(semantics={"p2p": {"buffered": -1}}), "semantics.p2p.buffered", "number of slots"),
    (one(semantics={"p2p": {"buffered": "inf"}}), "semantics.p2p.buffered", "number of slots"),
    (one(semantics={"p2p": {"slots": 1}}), "semantics.p2p.slots", "unknown key"),
    (one(semantics={"match": "tags"}), "semantics.match", '"tag" or "fifo" | did you mean "tag"?'),
    (one(semantics={"streams": None}), "semantics.streams", "found null"),
    # Ops.
    (one("F"), P0, 'found the text "F", expected an op'),
    (one([]), P0, "found an empty list, expected an op"),
    (one([3]), f"{P0}[0]", "expected the name of an op"),
    (one([["F", 0, 0]]), f"{P0}[0]", "found a list of 3, expected the name of an op"),
    (one(["SEDN", "x", 1]), f"{P0}[0]", 'unknown op "SEDN" | did you mean "SEND"?'),
    (one(["send", "x", 1]), f"{P0}[0]", 'unknown op "send" | did you mean "SEND"?'),
    (one(["I", 0, 0]), f"{P0}[0]", 'unknown op "I" | the input gradient is written BI'),
    (one(["UNSHARD", 0]), f"{P0}[0]", 'unknown op "UNSHARD"'),
    (one(["F", 0]), P0, 'found 1 argument, expected ["F", STAGE, MICROBATCH]'),
    (one(["F", 0, 0, 0]), P0, "found 3 arguments"),
    (one(["F", 0, {"redo": True}, 0]), P0, "found 3 arguments | one object, and stand last"),
    (one(["F", 0, 0, {}, {}]), P0, "found 3 arguments | one object"),
    (one(["F", 0, True]), f"{P0}[2]", "found true, expected a whole number"),
    (one(["F", 0, "0"]), f"{P0}[2]", 'found the text "0" | without quotes'),
    (one(["F", 0, 0.0]), f"{P0}[2]", "found the number 0.0 | write it as 0"),
    (one(["F", 0, MAX_ID + 1]), f"{P0}[2]", f"at most {MAX_ID}"),
    (one(["B", -MAX_ID - 1, 0]), f"{P0}[1]", f"at most {MAX_ID}"),
    (one(["X"]), P0, 'found 0 arguments, expected ["X", LABEL]'),
    (one(["X", 1]), f"{P0}[1]", "found the number 1, expected a name"),
    (one(["ALLOC", "a"]), P0, '["ALLOC", NAME, UNITS]'),
    (one(["ALLOC", "a", -1]), f"{P0}[2]", "a whole number, 0 or more"),
    (one(["SCALE", "a", 0.25]), f"{P0}[2]", "a fraction"),
    (one(["ROLLBACK", "a", -1]), f"{P0}[2]", "expected a version"),
    (one(["COLL", "reduce", "world", "l"]), f"{P0}[1]", '| did you mean "allreduce"?'),
    (
        one(["COLL", "init", "wrld", "l"]),
        f"{P0}[2]",
        'unknown group "wrld" | did you mean "world"?',
    ),
    (
        one(["COLL", "init", "g", "l"], groups={"g": [1]}),
        f"{P0}[2]",
        'rank 0 is no member of the group "g" | its members: 1',
    ),
    (
        one(["COLL", "init", "g", "l", {"owner": 1}], groups={"g": [0]}),
        f"{P0}[4].owner",
        'found rank 1, expected a member of the group "g"',
    ),
    (one(["COLL", "init", "world"]), P0, '["COLL", KIND, GROUP, LABEL]'),
    # Messages.
    (one(["SEND", "x"]), P0, "found 1 argument"),
    (one(["SEND", "act", 0, 0]), P0, "found 3 arguments, expected"),
    (one(["SEND", "act", 1]), P0, "found 2 arguments | act is of a stage and a microbatch"),
    (one(["SEND", 0, 1]), f"{P0}[1]", "the kind or name of a payload"),
    (
        one(["SEND", "x", 2]),
        f"{P0}[2]",
        "found the number 2, expected a peer rank, 0 to 1 | n_ranks",
    ),
    (one(["SEND", "x", -1]), f"{P0}[2]", "expected a peer rank"),
    (one(["SEND", "x", True]), f"{P0}[2]", "found true, expected a peer rank"),
    (one(["SEND", "x", "1"]), f"{P0}[2]", "expected a peer rank | without quotes"),
    (one(["SEND", "x", "any"]), f"{P0}[2]", "| only a receive takes a message of any sender"),
    (one(["RECV", "act", 0, 0, "all"]), f"{P0}[4]", "expected a peer rank"),
    (one(["RECV", "act", 0.5, 0, 1]), f"{P0}[2]", "found the number 0.5"),
    (one(["SEND", "k", 0, MAX_ID + 1, 1]), f"{P0}[3]", "at most"),
    (one(["RECV", "x", 1, {"commutes": True}]), f"{P0}[3].commutes", "names its sender"),
    (
        one(["SEND", "x", 1, {"commutes": True}]),
        f"{P0}[3].commutes",
        "| it may stand on RECV, IRECV",
    ),
    (one(["GROUP"]), P0, '["GROUP", [SEND or RECV, ...]]'),
    (one(["GROUP", {}]), P0, "found 0 arguments"),
    (one(["GROUP", "x"]), f"{P0}[1]", "a list of SEND and RECV"),
    (one(["GROUP", [["F", 0, 0]]]), f"{P0}[1][0][0]", "a GROUP holds SEND and RECV alone"),
    (one(["GROUP", [ISEND]]), f"{P0}[1][0][0]", 'found "ISEND" | write SEND: the GROUP carries'),
    (one(["GROUP", [["SEND", "x", 9]]]), f"{P0}[1][0][2]", "expected a peer rank"),
    (one(["GROUP", [3]]), f"{P0}[1][0]", "expected an op"),
    (
        one(["GROUP", [["SEND", "x", 1, {"req": "q"}]]]),
        f"{P0}[1][0][3].req",
        '"req" on a member SEND | the GROUP carries the request',
    ),
    (
        one(["GROUP", [["SEND", "x", 1, {"alloc": {}}]]]),
        f"{P0}[1][0][3].alloc",
        '"alloc" has no meaning on a member SEND',
    ),
    # Attributes.
    (one(["F", 0, 0, {"alocc": {}}]), f"{P0}[3].alocc", '"alocc" on F | did you mean "alloc"?'),
    (one(["F", 0, 0, {"shape": [1]}]), f"{P0}[3].shape", "| it may stand on SEND, RECV"),
    (one(["X", "x", {"redo": True}]), f"{P0}[2].redo", "| it may stand on F, B, BI, W, R"),
    (one(["B", 0, 0, {"rng": "s"}]), f"{P0}[3].rng", "| it may stand on F, R"),
    (one(["F", 0, 0, {"opt": "s"}]), f"{P0}[3].opt", "| it may stand on STEP"),
    (one(["F", 0, 0, {"owner": 0}]), f"{P0}[3].owner", "| it may stand on COLL"),
    (one(["GROUP", [], {"comm": "c"}]), f"{P0}[2].comm", "| it may stand on SEND"),
    (one(["F", 0, 0, {"redo": 1}]), f"{P0}[3].redo", "true or false"),
    (one(["F", 0, 0, {"redo": None}]), f"{P0}[3].redo", "found null"),
    (one(["F", 0, 0, {"alloc": ["a"]}]), f"{P0}[3].alloc", "from names to units"),
    (one(["F", 0, 0, {"alloc": {"a": True}}]), f"{P0}[3].alloc.a", "found true"),
    (one(["F", 0, 0, {"free": "a"}]), f"{P0}[3].free", "a list of names"),
    (one(["F", 0, 0, {"needs": [[]]}]), f"{P0}[3].needs[0]", "found an empty list"),
    (one(["F", 0, 0, {"wv": -1}]), f"{P0}[3].wv", "expected a version"),
    (one(["F", 0, 0, {"rng": True}]), f"{P0}[3].rng", "random state"),
    (one(["F", 0, 0, {"uses": ["w"]}]), f"{P0}[3].uses", '"uses" stands without "it"'),
    (one(["F", 0, 0, {"it": 1}]), f"{P0}[3].it", '"it" stands without "uses"'),
    (one(["F", 0, 0, {"grad_mode": "set"}]), f"{P0}[3].grad_mode", 'without "grad"'),
    (one(["F", 0, 0, {"grad": {"w": []}}]), f"{P0}[3].grad.w", "an object from symbols"),
    (
        one(["F", 0, 0, {"grad": {}, "grad_mode": "sets"}]),
        f"{P0}[3].grad_mode",
        '"add" or "set" | did you mean "set"?',
    ),
    (one(["X", "x", {"w": [["h"]]}]), f"{P0}[2].w[0]", "a pair [slot, content]"),
    (one(["X", "x", {"r": [["h", 1]]}]), f"{P0}[2].r[0][1]", "found the number 1"),
    (one(["SEND", "x", 1, {"shape": [1.0]}]), f"{P0}[3].shape[0]", "| write it as 1"),
    (one(["SEND", "x", 1, {"shape": 4}]), f"{P0}[3].shape", "a list of whole numbers"),
    (one(["SEND", "x", 1, {"count": "3"}]), f"{P0}[3].count", "| numbers stand without quotes"),
    (one(["SEND", "x", 1, {"comm": 1}]), f"{P0}[3].comm", "found the number 1"),
    (one(["COLL", "init", "world", "l", {"op": "max"}]), f"{P0}[4].op", '"sum" or "avg"'),
    (one(["COLL", "init", "world", "l", {"to": 1}]), f"{P0}[4].to", 'without "bumps"'),
    (one(["COLL", "init", "world", "l", {"bumps": 1}]), f"{P0}[4].bumps", "found the number 1"),
    (one(["COLL", "init", "world", "l", {"owner": 7}]), f"{P0}[4].owner", "found rank 7"),
    # Requests.
    (one(["SEND", "x", 1, {"req": "q"}]), f"{P0}[3].req", '"req" on SEND | ISEND posts'),
    (one(["F", 0, 0, {"req": "q"}]), f"{P0}[3].req", '"req" on F | only ISEND, IRECV'),
    (one(["COPY", "a", "b", {"req": "q"}]), f"{P0}[3].req", "| COPY blocks until it is done"),
    (one(["ISEND", "x", 1]), P0, "ISEND without a request id"),
    (one(["IRECV", "x", 1, {"buf": "b"}]), P0, "| add | or use RECV, which blocks"),
    (one(["ISEND", "x", 1, {"req": 7}]), f"{P0}[3].req", "found the number 7"),
    (one(["WAIT"]), P0, "found 0 arguments"),
    (one(["WAIT", 7]), f"{P0}[1]", "a request id, as text"),
    (one(["WAIT", "q"]), f"{P0}[1]", 'never posted "q" | this rank posts no request at all'),
    (one(ISEND, ["WAIT", "q", "r"]), "programs.0[1][2]", 'never posted "r" | it posts "q"'),
    (one(["WAIT", "q"], ISEND), f"{P0}[1]", "posted only later, at programs.0[1]"),
    (
        one(ISEND, ISEND),
        "programs.0[1][3].req",
        "posted twice before its wait, first at programs.0[0]",
    ),
    (one(ISEND, ["WAIT", "q"], ISEND, ISEND), "programs.0[3][3].req", "first at programs.0[2]"),
    (
        {"programs": {"0": [ISEND], "1": [["WAIT", "q"]]}},
        "programs.1[0][1]",
        "never posted",
    ),
    (
        {"n_ranks": 2, "programs": {"0": {"a": [["WAIT", "q"]], "b": [ISEND], "c": [ISEND]}}},
        "programs.0.a[0][1]",
        'posts "q" 2 times',
    ),
    (
        {"n_ranks": 2, "programs": {"0": {"a": [["WAIT", "q"], ISEND], "b": []}}},
        "programs.0.a[0][1]",
        "posted only later",
    ),
    # Cases.
    ({"model": []}, "model", "found an empty list, expected a program"),
    ({"model": {}}, "model", 'no "programs" here'),
    ({"model": one(["SEDN"])}, "model.programs.0[0][0]", "unknown op"),
    ({"model": one(oops=1)}, "model.oops", "unknown key"),
    ({**CASE, "fixed_model": one(["F"])}, "fixed_model.programs.0[0]", "found 0 arguments"),
    (
        {"model": {"programs": {"1": {"comm": [["X", "a"], ["X", "b"], ["ALLOC", "a", "b"]]}}}},
        "model.programs.1.comm[2][2]",
        'found the text "b"',
    ),
    ({**CASE, "programs": {}}, "programs", 'unknown key "programs" in a case'),
    ({**CASE, "titel": ""}, "titel", "unknown key"),
    ({**CASE, "expected": "ok"}, "expected", "expected an expectation, an object"),
    ({**CASE, "expected": {}}, "expected", '"verdict" is missing'),
    (
        {**CASE, "expected": {"verdict": "deadlocks"}},
        "expected.verdict",
        '| did you mean "deadlock"?',
    ),
    ({**CASE, "expected": {"verdict": "ok", "were": ""}}, "expected.were", '| "where"?'),
    ({**CASE, "expected": {"verdict": "ok", "why": 1}}, "expected.why", "a sentence"),
    (
        {**CASE, "expected": {"verdict": "ok", "also_reported": ["oks"]}},
        "expected.also_reported[0]",
        "did you mean",
    ),
    ({**CASE, "fixed_expected": True}, "fixed_expected", "found true"),
    ({**CASE, "also": {}}, "also", "a list of variants"),
    ({**CASE, "also": [1]}, "also[0]", "a variant, an object"),
    ({**CASE, "also": [{"verdict": "ok"}]}, "also[0]", '"semantics" is missing'),
    ({**CASE, "also": [{"semantics": {}}]}, "also[0]", '"verdict" is missing'),
    (
        {**CASE, "also": [{"semantics": {"p2p": 1}, "verdict": "ok"}]},
        "also[0].semantics.p2p",
        "found the number 1",
    ),
    (
        {**CASE, "also": [{"semantics": {}, "verdict": "ok", "of": "fixed_model"}]},
        "also[0].of",
        '| it has no "fixed_model"',
    ),
    (
        {**CASE, "also": [{"semantics": {}, "verdict": "ok", "of": "fixed"}]},
        "also[0].of",
        '| did you mean "fixed_model"?',
    ),
]


@pytest.mark.parametrize(("document", "path", "words"), BAD)
def test_bad_documents(document: Any, path: str, words: str) -> None:
    error = refused(document)
    assert error.path == path, error.located("test")
    text = f"{error.message} | {error.cause}"
    for part in words.split("|"):
        assert part.strip() in text, text
    assert (error.line, error.column) == (None, None)


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ('{"programs": {"0": []}, "programs": {}}', "programs", '"programs" stands twice'),
        ('{"programs": {"0": [], "0": []}}', "programs.0", "stands twice"),
        (
            '{"programs": {"0": [["X", "a"], ["F", 0, 0, {"redo": true, "redo": true}]]}}',
            "programs.0[1][3].redo",
            "stands twice in one object | keep the one that is meant",
        ),
        ('{"a": {"b": 1, "b": 2}, "a": {}}', "a", "stands twice"),
        ('{"model": {"programs": {}}, "note": {"x": 1, "x": 1}}', "note.x", "stands twice"),
        ('{"programs": {"0": [["F", 0, NaN]]}}', "programs.0[0][2]", "found NaN"),
        ('{"programs": {"0": [["F", 0, -Infinity]]}}', "programs.0[0][2]", "found -Infinity"),
        ('{"model": {"programs": {}}, "note": NaN}', "note", "found NaN"),
        ('{"programs": {}, "m": 1e999}', "m", "found a number too large"),
        ('{"programs": {}, "m": 1e2}', "m", "found the number 100.0 | write it as 100"),
        (f'{{"programs": {{}}, "m": {"7" * 5000}}}', "m", "found a number of 5000 digits"),
        (f'{{"programs": {{}}, "m": -{"7" * 5000}}}', "m", "found a number of 5000 digits"),
        (
            '{"programs": {"0": [["X", "\\ud800"]]}}',
            "programs.0[0][1]",
            "\\ud800, half of a surrogate pair",
        ),
        ('{"programs": {}, "\\udfff": 1}', '["\\\\udfff"]', "half of a surrogate pair"),
        ('{"\\ud800": 1, "\\ud800": 2}', '["\\\\ud800"]', "stands twice"),
        ("NaN", "$", "found NaN"),
    ],
)
def test_bad_values(text: str, path: str, words: str) -> None:
    test_bad_documents(text, path, words)


def test_surrogate_pairs_are_characters() -> None:
    program = read_program('{"programs": {"0": [["X", "\\ud83d\\ude00"]]}}', "test")
    assert program.details.attributes[0].label == "\U0001f600"


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "the file is empty"),
        (" \n\t ", 2, 3, "the file is empty"),
        ('{"programs": {}\n', 2, 1, "not JSON | cut off"),
        ('{"programs": {}, \n "m": "2}', 2, 7, "not JSON | cut off"),
        ('{"programs":\n {"0": [["F", 0, 0],]}}', 2, 20, "not JSON | a comma too many"),
        ('{"programs": {},}', 1, 16, "not JSON | a comma too many"),
        ("{'programs': {}}", 1, 2, "not JSON | double quotes"),
        ('{"programs": {}} {"m": 1}', 1, 18, "Extra data | one program"),
        ('{"leak_check": True}', 1, 16, "looks like Python"),
        ('{"m": 1, // two\n}', 1, 10, "no comments"),
        ("\ufeff{}", 1, 1, "not JSON"),
        ('{"programs": "\t"}', 1, 15, "not JSON"),
        ("hello", 1, 1, "not JSON | as json.dumps"),
        ('{"a":\n "\ud800"}', 2, 3, "half of a surrogate pair, U+D800 | save it as UTF-8"),
        ("[" * 100_000, 1, 201, "nested more than 200 deep"),
        ('{"a":\n' + '["]"' + ',{"a":["x"' * 60_000, 2, 996, "nested more than 200 deep"),
    ],
)
def test_bad_json(text: str, line: int, column: int, words: str) -> None:
    error = refused(text)
    assert (error.line, error.column, error.path) == (line, column, None), error.message
    for part in words.split("|"):
        assert part.strip() in f"{error.message} {error.cause}"


def test_fixed_needs_a_case_with_a_repaired_program() -> None:
    assert "found a program, expected a case" in refused(one(), fixed=True).message
    assert 'no "fixed_model"' in refused(CASE, fixed=True).message


def test_many_ops_do_not_take_long_to_misspell() -> None:
    refused(one(["S" * 1_000_000]))  # the search for what was meant is quadratic


# --- printing --------------------------------------------------------------------


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(documents())
def test_printed_programs_read_the_same(document: dict[str, Any]) -> None:
    program = read(document)
    printed = print_program(program)
    again = read(printed)
    assert meaning(again) == meaning(program)
    assert print_program(again) == printed
    assert set(printed) <= set(PROGRAM_KEYS)


def test_attached_waits_become_ops() -> None:
    program = read(one(["IRECV", "act", 0, 0, 1, {"req": "a"}], ["F", 1, 0]))
    waits = Waits(op=np.array([1], np.int32), request=np.array([0], np.int32))
    printed = print_program(replace(program, waits=waits))
    assert printed["programs"]["0"] == [
        ["IRECV", "act", 0, 0, 1, {"req": "a"}],
        ["WAIT", "a"],
        ["F", 1, 0],
    ]


@pytest.mark.parametrize("ids", [(), ("a", "a")])
def test_ids_that_would_not_be_found_again_are_replaced(ids: tuple[str, ...]) -> None:
    posts = [["ISEND", x, 1, {"req": x}] for x in "ab"]
    program = read(one(*posts, ["WAIT", "b", "a"]))
    printed = print_program(replace(program, details=replace(program.details, requests=ids)))
    assert printed["programs"]["0"][2] == ["WAIT", "r1", "r0"]


def test_what_the_format_cannot_say() -> None:
    program = read(one(["F", 0, 0], ["F", 0, 1], complete=True))
    kinds = np.array([Kind.UNSHARD, Kind.F], np.uint8)
    printed = print_program(replace(program, kind=kinds, forward_only=True))
    assert "complete" not in printed
    assert printed["programs"]["0"] == [["X", "0UNSHARD"], ["F", 0, 1]]


def test_presets_are_printed_as_semantics() -> None:
    program = read(one())
    for preset in PRESETS.values():
        for capacity in (0, 1, None):
            transport = preset.with_capacity(capacity)
            printed = print_program(replace(program, transport=transport))
            found = read(printed).transport
            expected = MAX_ID if capacity is None else capacity
            assert replace(found, name=transport.name) == replace(transport, capacity=expected)


def test_payload_names_survive() -> None:
    program = read(one(["SEND", "act", 0, -1, 1], ["SEND", "k", 1, 2, 1]))
    again = read(print_program(program))
    names = [payload_name(again, p) for p in again.messages.payload.tolist()]
    assert names == ["act:0:-1", "k:1:2"]


# --- anything at all -------------------------------------------------------------


def attempt(text: str) -> None:
    for fixed in (False, True):
        try:
            program = read_program(text, "test", fixed=fixed)
        except InputError as error:
            assert error.message and (error.path is not None or error.line is not None)
            error.located("file").encode()  # whatever stands in the file can be written
        else:
            assert isinstance(program, Program)


@settings(max_examples=300, deadline=None)
@given(json_values())
def test_any_value_is_read_or_refused(value: Any) -> None:
    attempt(json.dumps(value))
    attempt(json.dumps({"programs": value}))
    attempt(json.dumps({"programs": {"0": [value]}, "n_ranks": 2}))


TEXTS = [path.read_text() for path in CASES]


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(TEXTS).map(json.loads) | documents(), json_values(), st.data())
def test_any_mutant_is_read_or_refused(document: Any, value: Any, data: st.DataObject) -> None:
    places = list(_places(document))
    holder, key = data.draw(st.sampled_from(places))
    if isinstance(holder, dict) and data.draw(st.booleans()):
        holder[data.draw(st.sampled_from(["m", "req", "F", "act", "\ud800", "x" * 99]))] = value
    elif data.draw(st.booleans()):
        holder[key] = value
    else:
        del holder[key]
    attempt(json.dumps(document))


def _places(value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(TEXTS), st.integers(0, 10**6), st.integers(0, 9), st.text(max_size=3))
def test_any_damaged_text_is_read_or_refused(text: str, at: int, cut: int, new: str) -> None:
    at %= len(text)
    attempt(text[:at] + new + text[at + cut :])
