"""The program format, version 1 (JSON): a document to a Program.

A document is a *program*, or a *case*: an object with ``model`` (a program)
and perhaps ``fixed_model``, the repaired one. Everything is validated: an
unknown key, op, attribute, rank or request is an InputError with its JSON
path, never ignored. What no check gives meaning to is kept and named among
the program's features.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pipeproof.formats.json_text import parse_json
from pipeproof.formats.json_values import (
    below,
    child,
    fields,
    integer,
    items,
    quoted,
    refusal,
    text,
    word,
    wrong,
)
from pipeproof.formats.program_document import (
    MAIN,
    MAX_COUNT,
    Lists,
    read_details,
    read_flag,
    read_lists,
    written_lanes,
)
from pipeproof.formats.program_features import used_features
from pipeproof.formats.program_ops import OpReader
from pipeproof.formats.program_transport import read_transport
from pipeproof.program.ops import MAX_ID, Kind
from pipeproof.program.programs import Details, Lane, Messages, Origin, Program, Waits
from pipeproof.program.transports import Transport
from pipeproof.verdict import Verdict

PROGRAM_KEYS = (
    "programs",
    "n_ranks",
    "stages",
    "m",
    "placement",
    "semantics",
    "groups",
    "pre",
    "pre_res",
    "budget",
    "leak_check",
    "may_remain",
    "want",
    "replicas",
    "want_effects",
    "versions",
    "alias",
    "layers",
    "n_layers",
    "complete",
)

CASE_KEYS = (
    "model",
    "fixed_model",
    "expected",
    "fixed_expected",
    "also",
    # Read past: they describe the case to people.
    "id",
    "source",
    "url",
    "title_gist",
    "kind",
    "mechanism",
    "confidence",
    "confidence_note",
    "related",
    "note",
)

VERDICTS = ("ok", *(verdict.value for verdict in Verdict))
"""The words that a case may expect."""


def read_program(text: str, name: str, *, fixed: bool = False) -> Program:
    """The program of a document; of a case its model, or the repaired one.

    InputError, with a JSON path or a line and column, where the text is no
    valid program or case, or where ``fixed`` asks for what it does not have.
    """
    document = parse_json(text)
    if not isinstance(document, dict):
        fields(document, "", (), "a program or a case")
    if "model" in document:
        return _case(document, name, fixed)
    if "programs" not in document and ("fixed_model" in document or "expected" in document):
        raise refusal("", 'a case without "model", the program it is about')
    if fixed:
        raise refusal(
            "",
            'found a program, expected a case with "fixed_model"',
            "only a case has a repaired program beside the one it shows",
        )
    return _program(document, "", name)


# --- cases ---------------------------------------------------------------------


def _case(document: dict[str, Any], name: str, fixed: bool) -> Program:
    fields(document, "", CASE_KEYS, "a case")
    if fixed and "fixed_model" not in document:
        raise refusal(
            "",
            'this case has no "fixed_model"',
            "it shows a defect without a repair: leave out the wish for the repaired program",
        )
    model = _program(document["model"], "model", name)
    chosen = model
    if "fixed_model" in document:
        repaired = _program(document["fixed_model"], "fixed_model", name)
        chosen = repaired if fixed else model
    if "expected" in document:
        _expected(document["expected"], "expected")
    if "fixed_expected" in document:
        word(document, "fixed_expected", "", VERDICTS)
    if "also" in document:
        variants = items(document, "also", "", "a list of variants")
        for i, variant in enumerate(variants):
            _variant(variant, child("also", i), document)
    return chosen


def _expected(value: Any, path: str) -> None:
    stated = fields(value, path, ("verdict", "where", "why", "also_reported"), "an expectation")
    _require(stated, "verdict", path)
    word(stated, "verdict", path, VERDICTS)
    for key in ("where", "why"):
        if key in stated:
            text(stated, key, path, "a sentence, as text")
    if "also_reported" in stated:
        words = items(stated, "also_reported", path, "a list of verdict words")
        for i in range(len(words)):
            word(words, i, child(path, "also_reported"), VERDICTS)


def _variant(value: Any, path: str, document: dict[str, Any]) -> None:
    stated = fields(value, path, ("of", "semantics", "verdict", "note"), "a variant")
    for key in ("semantics", "verdict"):
        _require(stated, key, path)
    read_transport(stated, path)
    word(stated, "verdict", path, VERDICTS)
    if "of" in stated and word(stated, "of", path, ("model", "fixed_model")) not in document:
        raise wrong(stated, "of", path, "a program of this case", 'it has no "fixed_model"')
    if "note" in stated:
        text(stated, "note", path, "a sentence, as text")


def _require(stated: dict[str, Any], key: str, path: str) -> None:
    if key not in stated:
        raise refusal(path, f"{quoted(key)} is missing, expected {', '.join([*stated, key])}")


# --- programs ------------------------------------------------------------------


def _program(value: Any, path: str, name: str) -> Program:
    stated = fields(value, path, PROGRAM_KEYS, "a program")
    if "programs" not in stated:
        raise refusal(
            path,
            'no "programs" here, expected a program: {"programs": {"0": [op, ...]}}',
            'a case has its program under "model"',
        )
    lists = read_lists(stated, path)
    reader = OpReader(lists.ranks, {"world": tuple(range(lists.ranks)), **lists.groups})
    lanes = _lanes(stated, path, lists.ranks, reader)
    stages, microbatches = _sizes(stated, path, lists, reader)
    return _assembled(
        reader,
        read_details(stated, path, lists, stages),
        name=name,
        ranks=lists.ranks,
        stages=stages,
        microbatches=microbatches,
        hosts=tuple(lists.placement.get(stage, ()) for stage in range(stages)),
        lanes=lanes,
        transport=read_transport(stated, path) if "semantics" in stated else Transport(),
        complete=read_flag(stated, "complete", path),
    )


def _lanes(stated: dict[str, Any], path: str, ranks: int, reader: OpReader) -> tuple[Lane, ...]:
    """Read every rank's ops, in the order of ranks whatever the document's."""
    written = written_lanes(stated, path, ranks)
    lanes: list[Lane] = []
    for rank in range(ranks):
        for name, ops, where in written.get(rank) or [(MAIN, [], "")]:
            first = len(reader.kind)
            reader.read_lane(rank, ops, where)
            lanes.append(Lane(rank, name, first, len(reader.kind)))
        reader.requests.finish_rank()
    return tuple(lanes)


def _sizes(stated: dict[str, Any], path: str, lists: Lists, reader: OpReader) -> tuple[int, int]:
    """The numbers of stages and microbatches: stated, or the largest in use."""
    kind, stage = _column(reader.kind, np.uint8), _column(reader.stage, np.int32)
    microbatch = _column(reader.microbatch, np.int32)
    compute = kind <= Kind.R
    if "m" in stated:
        expected = f"a whole number of microbatches, 0 to {MAX_ID + 1}"
        microbatches = integer(stated, "m", path, expected, 0, MAX_ID + 1)
    else:
        microbatches = 1 + int(microbatch[compute].max(initial=-1))
    if "stages" in stated:
        return int(stated["stages"]), microbatches
    used = np.where(compute, stage, -1)
    if used.max(initial=-1) >= MAX_COUNT:
        op = int(used.argmax())
        message = f"found stage {used[op]}, expected {below('stage', MAX_COUNT)}"
        raise refusal(child(reader.paths[op], 1), message)
    largest = max((*lists.placement, *lists.layers), default=-1)
    return 1 + max(largest, int(used.max(initial=-1))), microbatches


def _assembled(reader: OpReader, details: Details, **values: Any) -> Program:
    rows, requests = reader.messages, reader.requests
    nowhere = np.zeros(len(reader.kind), np.int32)  # lines and columns are a CSV's
    return Program(
        kind=_column(reader.kind, np.uint8),
        stage=_column(reader.stage, np.int32),
        microbatch=_column(reader.microbatch, np.int32),
        request=_column(reader.request, np.int32),
        messages=Messages(
            op=_column(rows.op, np.int32),
            send=_column(rows.send, np.bool_),
            rank=_column(rows.rank, np.int32),
            peer=_column(rows.peer, np.int32),
            payload=_column(rows.payload, np.int64),
            comm=_column(rows.comm, np.int32),
        ),
        waits=Waits(
            op=_column(requests.ops, np.int32), request=_column(requests.numbers, np.int32)
        ),
        origin=Origin(line=nowhere, column=nowhere, path=tuple(reader.paths)),
        details=replace(
            details,
            names=tuple(rows.names),
            comms=tuple(rows.comms),
            requests=tuple(requests.names),
            attributes=MappingProxyType(reader.attributes),
            traits=MappingProxyType(rows.traits),
            features=used_features(reader.features),
        ),
        **values,
    )


def _column(values: bytearray | array[int], kind: DTypeLike) -> NDArray[Any]:
    return np.array(values, dtype=kind)
