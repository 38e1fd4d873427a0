"""What a user may ask of a check, beside the target itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeproof.engines.explore.search import LIMIT
from pipeproof.program.costs import Costs
from pipeproof.program.transports import PRESETS, Transport


@dataclass(frozen=True, slots=True)
class Options:
    """``transport`` None leaves a program its own and gives a schedule ``nccl``;
    ``only`` names the checks to run (all where empty); ``budget`` is units a
    rank, under None for every rank; ``states`` is how many a search may visit."""

    transport: Transport | None = None
    recipe: str = "torch"
    only: tuple[str, ...] = ()
    budget: Mapping[int | None, int] = field(default_factory=dict)
    activation_bytes: int | None = None
    costs: Costs = field(default_factory=Costs)
    states: int = LIMIT

    @property
    def schedule_transport(self) -> Transport:
        """The transport a schedule is judged under."""
        return self.transport or PRESETS["nccl"]
