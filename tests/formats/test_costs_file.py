"""Cost models in files and on the command line: what is read, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from pipeproof.errors import InputError
from pipeproof.formats.costs_file import read_costs
from pipeproof.program.costs import Costs, Release, parse_costs
from pipeproof.program.ops import Kind

TOML = """
F = [1, 1, 2.5, 1]   # one a stage
I = 1
W = "1/3"
comm = [0.1, 0.1, 0.5]
pair = 3
release = "commit"
bandwidth = 100e9
message_bytes = 4_194_304
activation_bytes = 1000
"""
FIELDS: dict[str, Any] = {
    "F": (1, 1, Fraction(5, 2), 1),
    "I": 1,
    "W": Fraction(1, 3),
    "comm": (Fraction(1, 10), Fraction(1, 10), Fraction(1, 2)),
    "pair": 3,
    "release": Release.COMMIT,
    "bandwidth": 10**11,
    "message_bytes": 4194304,
    "activation_bytes": 1000,
}


def test_toml() -> None:
    assert read_costs(TOML, "costs.toml") == FIELDS
    assert read_costs("", "costs") == {}


def test_json() -> None:
    text = """{"F": [1, 1, 2.5, 1], "I": 1, "W": "1/3", "comm": [0.1, 0.1, 0.5], "pair": 3,
        "release": "commit", "bandwidth": 100e9, "message_bytes": 4194304,
        "activation_bytes": 1000}"""
    assert read_costs(text, "costs.JSON") == FIELDS


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("f = 1", "f", 'found the key "f", expected a cost'),
        ("F = -1", "F", "found the number -1, expected a number of 0 or more"),
        ("F = nan", "F", "expected a number of 0 or more"),
        ("F = true", "F", "found true, expected a number of 0 or more"),
        ("F = []", "F", "found an empty list, expected a number or a list of them"),
        ('F = [1, "x"]', "F[1]", 'found the text "x", expected a number of 0 or more'),
        ("F = [1, [2]]", "F[1]", "found a list of 1, expected a number"),
        ("F = 1e16", "F", "expected at most 1e+15"),
        ('F = "1/0"', "F", "expected a number of 0 or more"),
        ("[F]\nx = 1", "F", "found an object of 1, expected a number"),
        ("F = 1979-05-27", "F", "expected a number"),
        ("pair = [1, 2]", "pair", "expected one number: it is the same for all stages"),
        ("bandwidth = 0", "bandwidth", "expected a number above 0"),
        ("weight_bytes = 1.5", "weight_bytes", "expected whole bytes"),
        ('release = "batch"', "release", "expected op, block or commit"),
        ("release = 1", "release", "expected op, block or commit"),
        ("comm.x = 1", "comm", "found an object of 1"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(text: str, path: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_costs(text, "costs.toml")
    assert caught.value.path == path and words in caught.value.message


def test_a_near_key_is_suggested() -> None:
    with pytest.raises(InputError) as caught:
        read_costs('{"bandwith": 1}', "costs.json")
    assert caught.value.cause == "did you mean bandwidth?"


def test_what_is_no_toml() -> None:
    with pytest.raises(InputError) as caught:
        read_costs("F = 1\nI = x", "costs.toml")
    assert caught.value.message == "found no TOML: invalid value" and caught.value.line == 2
    with pytest.raises(InputError, match="found no TOML: invalid value"):
        read_costs("F = ", "costs.toml")
    with pytest.raises(InputError):
        read_costs("[1]", "costs.json")
    with pytest.raises(InputError):
        read_costs('{"F": 1, "F": 2}', "costs.json")


# --- the values ------------------------------------------------------------------


def test_a_letter_is_made_of_others() -> None:
    costs = Costs(F=(1, 2), I=(3, 4), W=Fraction(1, 2))
    assert [costs.of(Kind.B, s) for s in (0, 1)] == [Fraction(7, 2), Fraction(9, 2)]
    assert [costs.of(Kind.R, s) for s in (0, 1)] == [1, 2]
    assert Costs(B=5, R=7).of(Kind.B) == 5 and Costs(R=7).of(Kind.R) == 7
    assert costs.of(Kind.SEND) == 0


def test_numbers_are_what_is_written() -> None:
    assert Costs(F=0.1).of(Kind.F) == Fraction(1, 10)
    assert Fraction(1, 1000) == parse_costs("F=.1,I=1e-3,W=1/3").I
    assert parse_costs("F=1:2:1.5") == Costs(F=(1, 2, Fraction(3, 2)))
    assert parse_costs("pair=3,release=block") == Costs(pair=3, release=Release.BLOCK)
    assert parse_costs("F=2", FIELDS) == Costs(**{**FIELDS, "F": 2})


def test_a_message_takes_latency_and_its_bytes() -> None:
    costs = Costs(comm=(1, 2), bandwidth=4, message_bytes=6)
    assert [costs.delay(b) for b in (0, 1)] == [Fraction(5, 2), Fraction(7, 2)]
    assert Costs(comm=1, bandwidth=4).delay(0) == Costs(comm=1, message_bytes=4).delay(0) == 1


def test_costs_of_a_part() -> None:
    whole = Costs(F=(1, 4), I=2, W=Fraction(1, 2), pair=3, comm=5, activation_bytes=9)
    part = whole.divided(2)
    assert (Fraction(1, 2), 2) == part.F and part.I == 1 and Fraction(1, 4) == part.W
    assert part.B is None and part.pair == Fraction(3, 2)
    assert part.comm == 5 and part.activation_bytes == 4


def test_what_does_not_fit() -> None:
    assert Costs(F=(1, 2), comm=(1,)).misfit(2) is None
    assert Costs(F=(1, 2)).misfit(3) == "the costs list F for 2 stages, this has 3"
    assert Costs(comm=(1, 2)).misfit(2) == (
        "the costs list comm for 2 boundaries between stages, this has 1"
    )
