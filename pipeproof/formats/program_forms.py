"""How an op is written: ``[name, argument, ..., {attributes}?]``.

A `Form` says it for one op name; `recognised` finds the form of a written op,
counts its arguments and validates its attributes. Which op has which form is
the table of ``program_ops``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeproof.errors import InputError
from pipeproof.formats.json_values import (
    Reader,
    child,
    did_you_mean,
    quoted,
    refusal,
    shown,
    wrong,
)
from pipeproof.formats.program_attributes import misplaced, read_attributes
from pipeproof.program.ops import MAX_ID, Kind


def identity(holder: Any, key: Any, path: str) -> int:
    """A stage or a microbatch.

    Negative ones are readable: that they are out of range is for a check to say.
    """
    value: int = holder[key]
    if type(value) is not int or not -MAX_ID <= value <= MAX_ID:
        raise wrong(holder, key, path, f"a whole number, at most {MAX_ID}")
    return value


class Argument(NamedTuple):
    """One argument of an op, as messages name it."""

    name: str
    read: Reader


@dataclass(frozen=True, slots=True)
class Form:
    """How an op is written and what becomes of it.

    ``layout`` shows the arguments where a message must, ``counts`` is how many
    there may be, ``legal`` the attributes it may carry; ``take`` puts the op
    into the reader's columns. ``fixed`` turns the arguments of a plain op into
    fields of its `Attributes`. An op that ``posts`` must carry a request id.
    """

    kind: Kind
    layout: str
    counts: Collection[int]
    legal: frozenset[str]
    take: Callable[[Any, Op], None]
    arguments: tuple[Argument, ...] = ()
    fixed: Callable[..., dict[str, Any]] = dict
    posts: bool = False


class Op(NamedTuple):
    """One op as it stands in the document, and where."""

    form: Form
    written: list[Any]
    arity: int  # number of arguments
    values: dict[str, Any]  # attributes, validated
    path: str

    def argument_path(self, index: int) -> str:
        """The path of an argument, counted from 1."""
        return child(self.path, index)

    def attribute_path(self, name: str) -> str:
        """The path of an attribute."""
        return child(child(self.path, len(self.written) - 1), name)

    def arguments(self) -> list[Any]:
        """The arguments, validated one by one."""
        written, path = self.written, self.path
        return [a.read(written, i, path) for i, a in enumerate(self.form.arguments, 1)]


def recognised(written: Any, forms: Mapping[str, Form], path: str, group: bool = False) -> Op:
    """The op with its form and attributes; in a ``group``, of a member."""
    form = None
    if type(written) is list and written and type(written[0]) is str:
        form = forms.get(written[0])
    if form is None:
        raise _unknown_op(written, forms, path, group)
    given = written[-1] if type(written[-1]) is dict else None
    count = len(written) - (1 if given is None else 2)
    if count not in form.counts:
        raise miscounted(written, form, count, path)
    values: dict[str, Any] = {}
    if given:
        where = child(path, len(written) - 1)
        if not form.legal.issuperset(given):
            name = f"a member {written[0]}" if group else written[0]
            key = next(key for key in given if key not in form.legal)
            homes = [other for other in forms if key in forms[other].legal]
            raise misplaced(key, form.legal, where, name, homes)
        values = read_attributes(given, where)
    if form.posts and "req" not in values:
        raise _without_request(written[0], path)
    return Op(form, written, count, values, path)


def _unknown_op(written: Any, forms: Mapping[str, Form], path: str, group: bool) -> InputError:
    if not isinstance(written, list) or not written:
        return refusal(path, f"found {shown(written)}, expected an op, [name, argument, ...]")
    name = written[0]
    if not isinstance(name, str):
        return wrong(written, 0, path, "the name of an op, as text")
    cause = did_you_mean(name, forms)
    if name == "I":
        cause = "the input gradient is written BI"
    elif group and name in ("ISEND", "IRECV"):
        cause = f"write {name[1:]}: the GROUP carries the request for all its members"
    what = "unknown op" if not group else "a GROUP holds SEND and RECV alone, found"
    return refusal(child(path, 0), f"{what} {quoted(name)}", cause)


def miscounted(written: list[Any], form: Form, count: int, path: str) -> InputError:
    """The error of an op with too few or too many arguments."""
    name = written[0]
    found = "1 argument" if count == 1 else f"{count} arguments"
    cause = None
    if any(isinstance(value, dict) for value in written[1:-1]):
        cause = "attributes are one object, and stand last"
    elif count == 2 and written[1] in ("act", "grad"):
        cause = f"{written[1]} is of a stage and a microbatch"
    return refusal(path, f"found {found}, expected [{quoted(name)}, {form.layout}]", cause)


def _without_request(name: str, path: str) -> InputError:
    cause = f'add {{"req": ID}} and WAIT for that ID, or use {name[1:]}, which blocks'
    return refusal(path, f'{name} without a request id, expected the attribute "req"', cause)
