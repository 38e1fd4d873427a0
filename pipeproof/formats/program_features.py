"""What a program may state that some check gives no meaning to yet.

One literal table. A program that uses a row is read in full, and the checks
named there answer *undetermined* for it: the reader never drops what it does
not understand, and no check guesses.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeproof.program.programs import Feature

_ORDERING = frozenset({"order", "matching", "deadlock", "race", "memory"})
_GRADIENTS = frozenset({"gradients"})
_VERSIONS = frozenset({"versions"})
_SLOTS = frozenset({"race", "matching"})

FEATURES: Mapping[str, frozenset[str]] = {
    # More than one order of events on a rank, or more than one execution.
    "lanes": _ORDERING,
    "SIGNAL": _ORDERING,
    "AWAIT": _ORDERING,
    "any": _ORDERING,
    "WAITANY": _ORDERING,
    # Collectives.
    "COLL": frozenset({"matching", "deadlock", "race", "gradients"}),
    "bumps": _VERSIONS,
    # Gradients and metrics.
    "grad": _GRADIENTS,
    "grad_mode": _GRADIENTS,
    "ZERO": _GRADIENTS,
    "SCALE": _GRADIENTS,
    "STEP": _GRADIENTS,
    "REPORT": _GRADIENTS,
    "want": _GRADIENTS,
    "replicas": _GRADIENTS,
    "alias": _GRADIENTS,
    "effects": _GRADIENTS,
    "want_effects": _GRADIENTS,
    "rng": _GRADIENTS,
    # Weight versions.
    "ROLLBACK": _VERSIONS,
    "uses": _VERSIONS,
    "wv": _VERSIONS,
    "versions": _VERSIONS,
    # Slots.
    "w": _SLOTS,
    "r": _SLOTS,
    "COPY": _SLOTS,
    "ICOPY": _SLOTS,
}
"""Name (of an op, an attribute or a key of the document) -> checks it may change."""


def used_features(first: Mapping[str, str]) -> tuple[Feature, ...]:
    """The features that are used, in the order of the table; first: name -> path."""
    return tuple(
        Feature(name, first[name], _checks(name, first)) for name in FEATURES if name in first
    )


def _checks(name: str, first: Mapping[str, str]) -> frozenset[str]:
    # A step makes a new weight version, which matters once versions are compared.
    extra = _VERSIONS if name == "STEP" and "versions" in first else frozenset()
    return FEATURES[name] | extra
