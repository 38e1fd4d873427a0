"""Healthy programs, as documents, that between them have a place for every rule."""

from __future__ import annotations

import json
from typing import Any

from pipeproof.formats.program_json import read_program
from pipeproof.program.programs import Program

Document = dict[str, Any]


def _w(stage: int, symbol: str) -> Document:
    return {"grad": {f"w{stage}": {symbol: "1/2"}}}


GRADIENTS: Document = {
    "n_ranks": 2,
    "stages": 2,
    "m": 2,
    "placement": {"0": 0, "1": 1},
    "complete": True,
    "want": {
        "w0": {"g0": "1/2", "g1": "1/2"},
        "w1": {"g0": "1/2", "g1": "1/2"},
        "loss": {"l0": 1, "l1": 1},
    },
    "replicas": {"tied": [0, 1]},
    "groups": {"both": [0, 1]},
    "want_effects": {"1:log": 2},
    "programs": {
        "0": [
            ["X", "old", {"grad": {"w0": {"stale": 1}}}],
            ["ZERO", "w0"],
            ["F", 0, 0, {"rng": "a"}],
            ["SEND", "act", 0, 0, 1],
            ["F", 0, 1, {"rng": "b"}],
            ["SEND", "act", 0, 1, 1],
            ["R", 0, 0, {"rng": "a"}],
            ["RECV", "grad", 1, 0, 1],
            ["BI", 0, 0],
            ["W", 0, 0, _w(0, "g0")],
            ["R", 0, 1, {"rng": "b"}],
            ["RECV", "grad", 1, 1, 1],
            ["B", 0, 1, _w(0, "g1")],
            ["STEP", "w0"],
            ["X", "tie", {"grad": {"tied": {"t": 1}}}],
            ["COLL", "allreduce", "both", "tied", {"param": "tied"}],
            ["COLL", "allreduce", "both", "norm", {"param": "norm"}],
            ["STEP", "tied", {"opt": "adam"}],
        ],
        "1": [
            ["ZERO", "w1"],
            ["RECV", "act", 0, 0, 0],
            ["F", 1, 0, {"effects": ["log"], "grad": {"loss": {"l0": 1}}}],
            ["RECV", "act", 0, 1, 0],
            ["F", 1, 1, {"effects": ["log"], "grad": {"loss": {"l1": 1}}}],
            ["REPORT", "loss"],
            ["BI", 1, 0],
            ["SEND", "grad", 1, 0, 0],
            ["BI", 1, 1],
            ["SEND", "grad", 1, 1, 0],
            ["W", 1, 0, {"grad": {"w1": {"g0": 1}}}],
            ["W", 1, 1, {"grad": {"w1": {"g1": 1}}}],
            ["SCALE", "w1", "1/2"],
            ["STEP", "w1"],
            ["X", "tie", {"grad": {"tied": {"u": 1}}}],
            ["COLL", "allreduce", "both", "tied", {"param": "tied"}],
            ["COLL", "allreduce", "both", "norm", {"param": "norm"}],
            ["STEP", "tied", {"opt": "adam"}],
        ],
    },
}
"""Accumulators, recompute, effects, a tied parameter, a reported loss."""

VERSIONS: Document = {
    "n_ranks": 2,
    "stages": 2,
    "m": 2,
    "placement": {"0": 0, "1": 1},
    "complete": True,
    "versions": "fb-equal",
    "replicas": {"w1": [1]},
    "programs": {
        "0": [
            ["F", 0, 0],
            ["SEND", "act", 0, 0, 1],
            ["F", 0, 1],
            ["SEND", "act", 0, 1, 1],
            ["RECV", "grad", 1, 0, 1],
            ["B", 0, 0],
            ["STEP", "w0"],
            ["RECV", "grad", 1, 1, 1],
            ["B", 0, 1, {"wv": 0}],
            ["STEP", "w0"],
            ["X", "read", {"uses": ["w0"], "it": 2}],
            ["ROLLBACK", "w0", 1],
            ["X", "read", {"uses": ["w0"], "it": 1}],
            ["COLL", "broadcast", "world", "fresh", {"bumps": ["w0"], "to": 7}],
            ["X", "read", {"uses": ["w0"], "it": 7}],
        ],
        "1": [
            ["RECV", "act", 0, 0, 0],
            ["F", 1, 0],
            ["RECV", "act", 0, 1, 0],
            ["B", 1, 0],
            ["SEND", "grad", 1, 0, 0],
            ["STEP", "w1"],
            ["F", 1, 1],
            ["B", 1, 1],
            ["SEND", "grad", 1, 1, 0],
            ["STEP", "w1"],
            ["COLL", "broadcast", "world", "fresh"],
        ],
    },
}
"""A stashed version, a rollback, weights set by a broadcast."""

MEMORY: Document = {
    "n_ranks": 2,
    "stages": 2,
    "m": 2,
    "placement": {"0": 0, "1": 1},
    "semantics": {"p2p": "rendezvous", "match": "fifo"},
    "budget": {"0": 2, "1": 1},
    "leak_check": True,
    "may_remain": ["output"],
    "pre_res": {"1": ["pool"]},
    "programs": {
        "0": [
            ["ALLOC", "a0", 1],
            ["F", 0, 0, {"w": [["out0", "act:0:0"]]}],
            ["ISEND", "act", 0, 0, 1, {"req": "s0", "buf": "out0", "shape": [2]}],
            ["ALLOC", "a1", 1],
            ["F", 0, 1, {"w": [["out1", "act:0:1"]]}],
            ["ISEND", "act", 0, 1, 1, {"req": "s1", "buf": "out1", "shape": [2]}],
            ["WAIT", "s0"],
            ["X", "reuse", {"w": [["out0", "scratch"]]}],
            ["X", "look", {"r": [["out0", "scratch"]]}],
            ["FREE", "a0"],
            ["WAIT", "s1"],
            ["X", "done", {"free": ["a1"]}],
        ],
        "1": [
            ["MAKE", "graph"],
            ["IRECV", "act", 0, 0, 0, {"req": "r0", "buf": "in0", "shape": [2]}],
            ["WAIT", "r0"],
            ["F", 1, 0, {"r": [["in0", "act:0:0"]], "needs": ["graph", "pool"]}],
            ["COPY", "in0", "kept"],
            ["X", "look", {"r": [["kept", "act:0:0"]]}],
            ["IRECV", "act", 0, 1, 0, {"req": "r1", "buf": "in1", "shape": [2]}],
            ["WAIT", "r1"],
            ["F", 1, 1, {"r": [["in1", "act:0:1"]], "needs": ["graph"]}],
            ["X", "large", {"alloc": {"tmp": 1}, "free": ["tmp"]}],
            ["DROP", "graph"],
            ["DROP", "pool"],
        ],
    },
}
"""Allocations with a budget, resources, slots that are written again, a copy."""

LANES: Document = {
    "n_ranks": 2,
    "stages": 2,
    "m": 2,
    "placement": {"0": 0, "1": 1},
    "complete": True,
    "semantics": {"p2p": "rendezvous", "match": "fifo"},
    "programs": {
        "0": {
            "comp": [
                ["F", 0, 0],
                ["SIGNAL", "f0"],
                ["F", 0, 1],
                ["SIGNAL", "f1"],
                ["AWAIT", "g0"],
                ["B", 0, 0],
                ["AWAIT", "g1"],
                ["B", 0, 1],
            ],
            "comm": [
                ["AWAIT", "f0"],
                ["SEND", "act", 0, 0, 1],
                ["AWAIT", "f1"],
                ["SEND", "act", 0, 1, 1],
                ["RECV", "grad", 1, 0, 1],
                ["SIGNAL", "g0"],
                ["RECV", "grad", 1, 1, 1],
                ["SIGNAL", "g1"],
            ],
        },
        "1": [
            ["RECV", "act", 0, 0, 0],
            ["F", 1, 0],
            ["RECV", "act", 0, 1, 0],
            ["F", 1, 1],
            ["B", 1, 0],
            ["SEND", "grad", 1, 0, 0],
            ["B", 1, 1],
            ["SEND", "grad", 1, 1, 0],
        ],
    },
}
"""A rank that computes on one lane and communicates on another."""

GROUPS: Document = {
    "n_ranks": 3,
    "stages": 3,
    "m": 2,
    "placement": {"0": 0, "1": 1, "2": 2},
    "semantics": {"p2p": "rendezvous", "match": "fifo"},
    "programs": {
        "0": [
            ["F", 0, 0],
            ["GROUP", [["SEND", "act", 0, 0, 1]]],
            ["F", 0, 1],
            ["GROUP", [["SEND", "act", 0, 1, 1], ["RECV", "grad", 1, 0, 1]]],
            ["BI", 0, 0],
            ["SEND", "stats", 1, {"comm": "side"}],
            ["COLL", "allreduce", "world", "n", {"param": "n", "req": "c"}],
            ["WAIT", "c"],
        ],
        "1": [
            ["GROUP", [["RECV", "act", 0, 0, 0]]],
            ["F", 1, 0],
            ["BI", 1, 0, {"nodeps": True}],
            ["GROUP", [["RECV", "act", 0, 1, 0], ["SEND", "grad", 1, 0, 0]]],
            ["GROUP", [["SEND", "act", 1, 0, 2], ["RECV", "token", 2]]],
            ["RECV", "stats", 0, {"comm": "side"}],
            ["COLL", "allreduce", "world", "n", {"param": "n", "req": "c"}],
            ["WAIT", "c"],
        ],
        "2": [
            ["GROUP", [["RECV", "act", 1, 0, 1], ["SEND", "token", 1]]],
            ["F", 2, 0],
            ["COLL", "allreduce", "world", "n", {"param": "n", "req": "c"}],
            ["WAIT", "c"],
        ],
    },
}
"""Groups, a second communicator, asynchronous collectives, three ranks."""

EXCHANGE: Document = {
    "n_ranks": 2,
    "semantics": {"p2p": "rendezvous", "match": "fifo"},
    "programs": {
        "0": [
            ["ISEND", "a", 1, {"req": "s", "comm": "side"}],
            ["SEND", "b", 1],
            ["WAIT", "s"],
            ["GROUP", [["SEND", "c", 1], ["SEND", "d", 1], ["RECV", "e", 1]]],
            ["GROUP", [["SEND", "f", 1], ["RECV", "g", 1]]],
        ],
        "1": [
            ["RECV", "b", 0],
            ["RECV", "a", 0, {"comm": "side"}],
            ["GROUP", [["SEND", "e", 0], ["RECV", "c", 0], ["RECV", "d", 0]]],
            ["SEND", "g", 0],
            ["RECV", "f", 0],
        ],
    },
}
"""Two ranks that exchange: what is posted together there must be."""

DOCUMENTS = {
    "exchange": EXCHANGE,
    "gradients": GRADIENTS,
    "versions": VERSIONS,
    "memory": MEMORY,
    "lanes": LANES,
    "groups": GROUPS,
}


def program(name: str) -> Program:
    """One of the programs."""
    return read_program(json.dumps(DOCUMENTS[name]), name)
