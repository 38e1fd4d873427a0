"""Which format a JSON text is in, by its names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.formats.json_formats import JSON_FORMATS, PROGRAM, detect_json, top_level_keys
from pipeproof.formats.program_json import CASE_KEYS, PROGRAM_KEYS
from tests.formats import trace_files

CASES = trace_files.FOLDER.parent / "cases"


def detected(text: str) -> str:
    return detect_json(top_level_keys(text))


@pytest.mark.parametrize("producer", ["chimera", "deepspeed", "dualpipe", "pipedream"])
def test_recordings(producer: str) -> None:
    for name in trace_files.names(producer):
        assert detected(trace_files.text(producer, name)) == producer


def test_recordings_with_names_of_their_own() -> None:
    for name in trace_files.names("zero_bubble"):
        assert detected(trace_files.text("zero_bubble", name)) == "zero-bubble"
    for name in trace_files.names("megatron"):
        assert detected(trace_files.text("megatron", name)) == "megatron"


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.stem)
def test_cases_and_programs(path: Path) -> None:
    text = path.read_text()
    assert detected(text) == PROGRAM
    assert detected(json.dumps(json.loads(text)["model"])) == PROGRAM


def test_no_name_of_a_program_is_taken_for_another_format() -> None:
    for key in (*PROGRAM_KEYS, *CASE_KEYS):
        assert detect_json([key]) == PROGRAM
    names = [name for known in JSON_FORMATS.values() for name in known]
    assert len(names) == len(set(names))
    assert set(JSON_FORMATS[PROGRAM]) <= {*PROGRAM_KEYS, *CASE_KEYS}


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "{", '{"a"', '{"a":}', '{"a": 1', '{1: 2, "cls": 1}', "[" * 10**5, '"cls"'],
)
def test_anything_else_is_read_as_a_program(text: str) -> None:
    assert detected(text) == PROGRAM


def test_the_first_telling_name_decides() -> None:
    assert detected('{"note": "programs", "cls": 1, "class": 2}') == "dualpipe"
    # And what stands behind it is not looked at.
    assert detected('{"programs": ???') == PROGRAM
    assert detected('{"class": ???') == "deepspeed"


def test_names_are_those_of_the_object_itself() -> None:
    assert detected('{"a": {"class": 1}, "b": [{"cls": 1}], "sched": 1}') == "zero-bubble"


@given(st.dictionaries(st.text(max_size=4), st.recursive(st.none(), st.lists, max_leaves=4)))
def test_keys_of_any_object(document: dict[str, object]) -> None:
    for indent in (None, 2):
        assert list(top_level_keys(json.dumps(document, indent=indent))) == list(document)


@given(st.text(alphabet='{}[]":,a1 \n', max_size=24))
def test_any_text_has_a_format(text: str) -> None:
    assert detected(text) in (*JSON_FORMATS, "megatron")
