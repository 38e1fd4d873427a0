"""What a user may ask of a check, beside the target itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeproof.engines.explore import LIMIT
from pipeproof.program.costs import Costs
from pipeproof.program.transports import Transport


@dataclass(frozen=True, slots=True)
class Options:
    """``transport`` None leaves programs and schedules their own, ``recipe`` None
    leaves a schedule its own; ``only`` names the checks to run (all where empty);
    ``budget`` is units a rank, under None for every rank. ``timing`` is ``compute``,
    on the compute order with messages as pure delays, or ``recipe``, where the
    program's communication counts; targets of up to ``explained`` ops get a critical
    path. With ``per_rank`` the costs are those of all that a rank hosts, split
    evenly over its stages. ``states`` is how many a search may visit."""

    transport: Transport | None = None
    recipe: str | None = None
    only: tuple[str, ...] = ()
    budget: Mapping[int | None, int] = field(default_factory=dict)
    activation_bytes: int | None = None
    costs: Costs = field(default_factory=Costs)
    timing: str = "compute"
    explained: int = 0
    per_rank: bool = False
    states: int = LIMIT

    def wants(self, check: str) -> bool:
        """Whether a check is asked for."""
        return not self.only or check in self.only
