"""How far a long command has come: on standard error, on a terminal, after a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds after which progress is shown."""

_BAR = 30


def progress_bar(name: str, items: Iterable[T], count: int) -> Iterator[T]:
    """The items, with a line on standard error that says how many are done."""
    shown = sys.stderr is not None and sys.stderr.isatty()
    begun = time.monotonic()
    drawn = False
    try:
        for number, item in enumerate(items):
            if shown and time.monotonic() - begun > PATIENCE:
                done = _BAR * number // max(1, count)
                bar = "#" * done + "-" * (_BAR - done)
                sys.stderr.write(f"\r{name[:24]}  [{bar}] {number} of {count}")
                sys.stderr.flush()
                drawn = True
            yield item
    finally:
        if drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
