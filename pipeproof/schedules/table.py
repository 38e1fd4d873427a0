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
    "eager-1f1b": Entry("synchronous", "eager_one_f_one_b", "1F1B with twice the warm-up"),
    "gpipe-recompute": Entry("synchronous", "gpipe_recompute", "GPipe, forwards run again"),
    "1f1b-recompute": Entry("synchronous", "one_f_one_b_recompute", "1F1B, forwards run again"),
    "inference": Entry("synchronous", "inference", "forwards only"),
    "interleaved": Entry("interleaved", "interleaved", "1F1B over several chunks a rank"),
    "interleaved-zb": Entry(
        "interleaved", "interleaved_zero_bubble", "interleaved, backward split in two"
    ),
    "breadth-first": Entry("interleaved", "breadth_first", "GPipe over several chunks a rank"),
    "zb-h1": Entry("zero_bubble", "zb_h1", "1F1B, backward split in two"),
    "zb-h2": Entry("zero_bubble", "zb_h2", "ZB-H1 with twice the warm-up, no bubble"),
    "zb-v": Entry("v_shaped", "zb_v", "a V of two chunks a rank, no bubble"),
    "dualpipe": Entry("dualpipe", "dualpipe", "two directions, forwards and backwards overlap"),
    "dualpipe-v": Entry("dualpipe", "dualpipe_v", "DualPipe cut in half: a V"),
    "chimera": Entry("chimera", "chimera", "two directions that fill each other's gaps"),
    "chimera-doubling": Entry(
        "chimera", "chimera_doubling", "Chimera, two microbatches in each forward"
    ),
    "1f1b-v": Entry("controllable_memory", "one_f_one_b_v", "a V in 2/3 of 1F1B's memory"),
    "v-half": Entry("controllable_memory", "v_half", "a V in half of 1F1B's memory"),
    "v-min": Entry("controllable_memory", "v_min", "a V in a third of 1F1B's memory"),
    "hanayo": Entry("waves", "hanayo", "down the ranks and up again, several times"),
    "pipedream": Entry("asynchronous", "pipedream", "1F1B, an update after each backward"),
    "pipedream-2bw": Entry(
        "asynchronous", "pipedream_2bw", "1F1B, two weight versions, updates one late"
    ),
    "pipemare": Entry("asynchronous", "pipemare", "1F1B, updates at once, one weight version"),
    "seq1f1b": Entry("sequences", "seq_one_f_one_b", "1F1B over slices of sequences"),
    "terapipe": Entry("sequences", "terapipe", "GPipe over slices of sequences"),
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
