"""What the claims measure of schedules of the zoo."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from pipeproof.checks.usage import usage
from pipeproof.engines.lifetimes import links
from pipeproof.engines.timing import Timing, timing
from pipeproof.judge.judge import judged
from pipeproof.program.costs import Costs
from pipeproof.program.lanes import rank_of_ops
from pipeproof.program.programs import Program
from pipeproof.program.schedules import Schedule
from pipeproof.program.transports import parse_transport
from pipeproof.recipes.issuing import issued
from pipeproof.schedules.table import find
from pipeproof.spec.running import run
from pipeproof.verdict import CheckResult, Status


@lru_cache(maxsize=32)
def _made(name: str, sizes: tuple[tuple[str, int], ...]) -> Schedule:
    definition = find(name)
    schedule = run(definition, definition.sizes(dict(sizes)))
    assert isinstance(schedule, Schedule), "the zoo lists compute ops"
    return schedule


def made(name: str, **sizes: int) -> Schedule:
    """A schedule of the zoo at these sizes."""
    return _made(name, tuple(sorted(sizes.items())))


def compute_only(schedule: Schedule) -> Program:
    """The program of the compute ops alone: all that timing on the compute order and
    live activations ask for. Adding the messages would take most of the time."""
    return issued(replace(schedule, lists_communication=True), "naive")


def timed(program: Program, costs: Costs) -> Timing:
    """The time of a program's compute order."""
    found = timing(program, costs)
    assert found is not None, "a published schedule has an order"
    return found


def clocked(name: str, costs: Costs, **sizes: int) -> Timing:
    """The time of a schedule of the zoo."""
    return timed(compute_only(made(name, **sizes)), costs)


def peaks(program: Program) -> tuple[int, ...]:
    """The most live activations of every rank; one is a stage's, of one microbatch."""
    return usage(program, rank_of_ops(program)).peak


def activations(name: str, **sizes: int) -> tuple[int, ...]:
    """`peaks` of a schedule of the zoo."""
    return peaks(compute_only(made(name, **sizes)))


def messages(program: Program) -> int:
    """Messages between ranks in one step."""
    return sum(link.messages for link in links(program, Costs()))


def check(program: Program, name: str, transport: str | None = None) -> CheckResult:
    """What one check says of a program, on its own transport unless another is named."""
    over = None if transport is None else parse_transport(transport)
    (found,) = judged(issued(program, transport=over), (name,))
    return found


def runs_to_end(program: Program, transport: str) -> bool:
    """Whether every execution ends, over a transport."""
    return check(program, "deadlock", transport).status is Status.HOLDS
