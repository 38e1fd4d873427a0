"""Small integer keys for tuples of ids, so that a table look-up is an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeproof.program.programs import Longs


def dense(*columns: NDArray[np.integer] | NDArray[np.bool_]) -> tuple[Longs, int]:
    """Keys below ``size`` that are equal exactly where the tuples are equal.

    ``columns`` are equally long arrays of non-negative integers. The keys are
    the plain mixed-radix numbers while a table of them stays within a few
    times the number of rows, as it does for every complete schedule; ids with
    large gaps are ranked first, which costs a sort.
    """
    limit = 8 * len(columns[0]) + 4096
    key, size = _small(columns[0].astype(np.int64), limit)
    for column in columns[1:]:
        ids, radix = _small(column.astype(np.int64), limit)
        # Both factors are at most the limit, so the product stays in 64 bits.
        key, size = _small(key * radix + ids, limit, size * radix)
    return key, size


def _small(key: Longs, limit: int, size: int | None = None) -> tuple[Longs, int]:
    """The key as it is if its values stay below the limit, else its ranks."""
    if size is None:
        size = int(key.max(initial=-1)) + 1
    return (key, size) if size <= limit else _ranked(key)


def _ranked(key: Longs) -> tuple[Longs, int]:
    values, inverse = np.unique(key, return_inverse=True)
    return inverse.astype(np.int64), len(values)
