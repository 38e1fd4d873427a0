"""Reading the two data files."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

CLAIMS, RATES = "claims.json", "zero_bubble.json"


def document(name: str) -> dict[str, Any]:
    """A data file: ``claims.json`` lists claims with source and cases, ``zero_bubble.json``
    the rows of two tables with their costs."""
    found: dict[str, Any] = json.loads((files(__package__) / name).read_text("utf-8"))
    return found
