"""What a program may state that some check gives no meaning to.

One literal table. A program that uses a row is read in full, and the checks
named there answer *undetermined* for it: the reader never drops what it does
not understand, and no check guesses.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeproof.program.programs import Feature

_VALUES = frozenset({"gradients", "versions"})

FEATURES: Mapping[str, frozenset[str]] = {
    # What an op reads then depends on the execution.
    "any": _VALUES,
    "WAITANY": _VALUES,
}
"""Name (of an op, or of what the reader notes) -> checks whose answer it may change."""


def used_features(first: Mapping[str, str]) -> tuple[Feature, ...]:
    """The features that are used, in the order of the table; first: name -> path."""
    return tuple(Feature(name, first[name], FEATURES[name]) for name in FEATURES if name in first)
