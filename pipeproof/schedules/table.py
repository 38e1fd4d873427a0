"""The table of known schedules, each by the name that people use for it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pipeproof.spec.definition import Definition


class Entry(NamedTuple):
    """A definition in a module of this room, and one line on what it is."""

    module: str
    function: str
    title: str


SCHEDULES: Mapping[str, Entry] = {
    "gpipe": Entry("synchronous", "gpipe", "all forwards, then all backwards"),
    "1f1b": Entry("synchronous", "one_f_one_b", "one forward, one backward in turn"),
    "bpipe": Entry("swapping", "bpipe", "1F1B that stores activations on ranks with room"),
    "encoder-decoder": Entry(
        "graphs", "encoder_decoder", "1F1B; every decoder stage takes the encoder's output"
    ),
    "two-towers": Entry("graphs", "two_towers", "two branches that meet in the last stage"),
    "generation": Entry("graphs", "generation", "token by token, the last stage feeds the first"),
}
"""Name -> where its definition is, in the order in which they are listed."""


def find(name: str) -> Definition:
    """The definition of a name; KeyError for one that is not in the table."""
    entry = SCHEDULES[name]
    module = importlib.import_module(f"pipeproof.schedules.{entry.module}")
    found: Definition = getattr(module, entry.function)
    return found
