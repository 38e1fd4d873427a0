"""The cost model that ``--costs`` and ``--cost`` give together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeproof.cli.reading import complain
from pipeproof.errors import InputError
from pipeproof.formats.sources import decode

if TYPE_CHECKING:
    from pipeproof.program.costs import Costs

_LARGEST = 1 << 24  # bytes; a cost model of a million stages is smaller


def cost_model(given: Mapping[str, Any] | None, file: str | None) -> Costs | None:
    """The cost model: what the file says, with the fields of ``--cost`` over it. None
    where the file cannot be read, which has then been complained of."""
    from pipeproof.program.costs import Costs

    fields: dict[str, Any] = {}
    if file is not None:
        try:
            fields = _read(file)
        except InputError as error:
            complain(file, error)
            return None
    return Costs(**{**fields, **(given or {})})


def _read(file: str) -> dict[str, Any]:
    from pipeproof.formats.costs_file import read_costs

    try:
        with open(file, "rb") as opened:
            data = opened.read(_LARGEST + 1)
    except FileNotFoundError:
        raise InputError("no such file", cause="check the spelling of the path") from None
    except (OSError, ValueError) as error:  # no file can have a name with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"it cannot be read: {reason.lower()}") from None
    if len(data) > _LARGEST:
        raise InputError("larger than 16 MiB, expected a cost model of a few lines")
    return read_costs(decode(data), file)
