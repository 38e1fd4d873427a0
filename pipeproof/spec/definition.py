"""A schedule's definition: a function of its sizes, and what it claims."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypedDict, Unpack, overload

from pipeproof.errors import InputError
from pipeproof.program.ops import MAX_ID
from pipeproof.spec.claims import Claim
from pipeproof.spec.placements import LOOPED, PLACEMENTS, Placement

RANK = "rank"
DEFAULTS: Mapping[str, int | None] = {"p": None, "m": None, "v": 1}
"""The sizes that every schedule has: ranks, microbatches, chunks a rank. Those
without a default must be given."""

Sizes = dict[str, int]

GRID: Mapping[str, Sequence[int]] = {"p": (1, 2, 3, 4), "m": (1, 2, 3, 4, 6, 8)}
"""Sizes at which a definition is checked that names no grid of its own."""


class InvalidSizes(InputError):
    """Sizes that a schedule is not meant for."""


@dataclass(frozen=True, slots=True)
class Definition:
    """``function`` yields the ops of one rank if it takes ``rank``, and otherwise
    returns those of all ranks (see `pipeproof.spec.running`).

    ``valid`` is None for sizes that the schedule is meant for and otherwise says
    what they must be. ``stash`` says that a backward uses the weights of its
    forward, whatever was stepped in between. ``slices`` names the size that says
    into how many slices every sequence is cut: a forward needs the slice before it
    on its stage, a backward the slice after; with ``feedback`` the first stage takes
    what the last one made of the slice before (generation). ``graph``, a function
    of the sizes, gives the inputs of each stage where stages are no chain.
    ``forward_only`` is for inference: no backward is owed.
    """

    name: str
    function: Callable[..., Any]
    title: str
    placement: Placement = LOOPED
    claims: tuple[Claim, ...] = ()
    grid: Mapping[str, Sequence[int]] = field(default_factory=dict)
    recipe: str = "torch"
    transport: str = "nccl"
    paper: str = ""
    valid: Callable[..., str | None] | None = None
    stash: bool = False
    slices: str | None = None
    feedback: bool = False
    graph: Callable[..., Mapping[int, Sequence[int]]] | None = None
    forward_only: bool = False
    file: str = ""
    line: int = 0

    @property
    def parameters(self) -> tuple[str, ...]:
        """The sizes and, for a function of one rank, ``rank``."""
        return tuple(inspect.signature(self.function).parameters)

    @property
    def defaults(self) -> dict[str, int | Callable[..., int] | None]:
        """Every size with its default, None where it must be given; a function makes
        it of the sizes before it."""
        found: dict[str, int | Callable[..., int] | None] = dict(DEFAULTS)
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name != RANK:
                given = parameter.default
                known = found.get(name)
                found[name] = known if given is inspect.Parameter.empty else given
        return found

    def sizes(self, given: Mapping[str, int]) -> Sizes:
        """All sizes; InputError for one that is unknown, missing, or not valid."""
        defaults = self.defaults
        for name in given:
            if name not in defaults:
                raise self._no_such_size(name)
        found: Sizes = {}
        for name, default in defaults.items():
            value = given.get(name)
            if value is None:
                value = evaluated(default, found) if callable(default) else default
            if value is None:
                raise InputError(
                    f"{self.name} needs a value for {name}, {_MEANING.get(name, 'a size')}",
                    cause=f"Say it with {_OPTION.get(name, f'--size {name}=NUMBER')}.",
                )
            if not 1 <= value <= MAX_ID:
                raise InputError(f"found {name} = {value}; expected a number of 1 or more")
            found[name] = value
        objection = self.objection(found)
        if objection is not None:
            raise InvalidSizes(f"{self.name} is not defined for {spelled(found)}: {objection}")
        return found

    def _no_such_size(self, name: str) -> InputError:
        return InputError(
            f"{self.name} has no size {name}; expected {', '.join(self.defaults)}",
            cause="A size is a parameter of the schedule's function.",
        )

    def objection(self, sizes: Sizes) -> str | None:
        """Why these sizes are none of this schedule's, None where they are."""
        names = set(self.parameters)
        if sizes["v"] != 1 and "v" not in names:
            return "it has one chunk a rank"
        return None if self.valid is None else evaluated(self.valid, sizes)

    def on_grid(self, given: Mapping[str, int] | None = None) -> Iterator[Sizes]:
        """The valid sizes of its grid, smallest first; ``given`` ones have one value.

        InputError for a given size that it does not have.
        """
        given = given or {}
        unknown = next((name for name in given if name not in self.defaults), None)
        if unknown is not None:
            raise self._no_such_size(unknown)
        grid = {**GRID, **self.grid, **{name: (value,) for name, value in given.items()}}
        names = [name for name in self.defaults if name in grid]
        for values in sorted(product(*(set(grid[name]) for name in names))):
            try:
                yield self.sizes(dict(zip(names, values, strict=True)))
            except InvalidSizes:
                continue


_MEANING = {"p": "the number of ranks", "m": "the number of microbatches"}
_OPTION = {"p": "--stages", "m": "--microbatches", "v": "--chunks"}


def spelled(sizes: Mapping[str, Any]) -> str:
    """``p=4, m=8``: sizes in words; one chunk a rank goes without saying."""
    return ", ".join(f"{n}={value}" for n, value in sizes.items() if (n, value) != ("v", 1))


def evaluated(function: Callable[..., Any], known: Mapping[str, Any]) -> Any:
    """What a function of sizes says; it is given those that it has parameters for.

    InputError names a parameter that stands for nothing known, or what it raises.
    """
    wanted = inspect.signature(function).parameters
    for name, parameter in wanted.items():
        if name not in known and parameter.default is inspect.Parameter.empty:
            raise InputError(
                f"a formula takes {name}, which is no size here; expected {', '.join(known)}"
            )
    try:
        return function(**{name: known[name] for name in wanted if name in known})
    except Exception as error:
        at = spelled({name: value for name, value in known.items() if name in wanted})
        code = getattr(function, "__code__", None)
        raise InputError(
            f"a formula raises {type(error).__name__} at {at or 'no sizes'}: {error}",
            cause="A formula must have a value at every valid size.",
            line=None if code is None else code.co_firstlineno,
        ) from error


class _Fields(TypedDict, total=False):
    """What ``@schedule`` takes: fields of `Definition`."""

    name: str
    placement: str | Placement
    claims: Iterable[Claim]
    grid: Mapping[str, Iterable[int]]
    recipe: str
    transport: str
    paper: str
    valid: Callable[..., str | None]
    stash: bool
    slices: str
    feedback: bool
    graph: Callable[..., Mapping[int, Sequence[int]]]
    forward_only: bool


@overload
def schedule(function: Callable[..., Any], /) -> Definition: ...


@overload
def schedule(**fields: Unpack[_Fields]) -> Callable[[Callable[..., Any]], Definition]: ...


def schedule(
    function: Callable[..., Any] | None = None, /, **fields: Any
) -> Definition | Callable[[Callable[..., Any]], Definition]:
    """Make a definition of a function: ``@schedule`` or ``@schedule(name=..., ...)``.

    The keywords are the fields of `Definition`; ``placement`` may be a name, and
    ``grid`` gives, for each size, the values to check. The first line of the
    function's docstring is its title.
    """
    unknown = next((name for name in fields if name not in _Fields.__annotations__), None)
    if unknown is not None:
        known = ", ".join(_Fields.__annotations__)
        raise TypeError(f"@schedule has no {unknown}; expected {known}")
    placement = fields.get("placement", LOOPED)
    if isinstance(placement, str):
        if placement not in PLACEMENTS:
            known = ", ".join(PLACEMENTS)
            raise ValueError(f"found the placement {placement!r}; expected {known}")
        placement = PLACEMENTS[placement]

    def define(function: Callable[..., Any]) -> Definition:
        code = function.__code__
        own = {
            "name": function.__name__.replace("_", "-"),
            **fields,
            "placement": placement,
            "claims": tuple(fields.get("claims", ())),
            "grid": {size: tuple(v) for size, v in fields.get("grid", {}).items()},
        }
        return Definition(
            function=function,
            title=(inspect.getdoc(function) or "").partition("\n")[0],
            file=code.co_filename,
            line=code.co_firstlineno,
            **own,
        )

    return define if function is None else define(function)
