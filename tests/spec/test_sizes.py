"""Sizes as unknowns: forms, and what has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeproof.spec.sizes import Form, NotLoops, Size, least, loop, most


class Nobody:
    def loop(self, start: Form, stop: Form) -> Iterator[Size]:
        raise AssertionError("no loop here")


def unknown(name: str) -> Size:
    return Size(Form(((name, 1),)), Nobody())


NAMES = ("p", "m", "rank")

# The same expression over numbers and over unknowns.
LEAVES = st.one_of(
    st.sampled_from([lambda e, n=n: e[n] for n in NAMES]),
    st.integers(-5, 5).map(lambda k: lambda e: k),
)
EXPRESSIONS: Any = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda ab: lambda e: ab[0](e) + ab[1](e)),
        st.tuples(inner, inner).map(lambda ab: lambda e: ab[0](e) - ab[1](e)),
        st.tuples(inner, st.integers(-3, 3)).map(lambda ak: lambda e: ak[0](e) * ak[1]),
        inner.map(lambda a: lambda e: -a(e)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda parts: lambda e: least(*(part(e) for part in parts))
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda parts: lambda e: most(*(part(e) for part in parts))
        ),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, st.fixed_dictionaries({n: st.integers(-9, 9) for n in NAMES}))
def test_a_form_has_the_value_of_its_expression(
    expression: Callable[[Any], Any], values: dict[str, int]
) -> None:
    found = expression({n: unknown(n) for n in NAMES})
    form = found.form if isinstance(found, Size) else Form(constant=found)
    assert form.value(values) == expression(values)
    assert form.unknowns() <= set(NAMES)


def test_equal_forms_are_equal_values() -> None:
    p, m = unknown("p"), unknown("m")
    assert (p + m - p).form == m.form
    assert least(p, m).form == least(m, p).form
    assert least(p, p).form == p.form
    assert str((2 * p - m + 3).form) == "- m + 2 p + 3".replace("- m", "-m")


@pytest.mark.parametrize(
    "asked",
    [
        lambda p: p == 1,
        lambda p: p != 1,
        lambda p: p < 1,
        lambda p: p >= 1,
        bool,
        lambda p: p // 2,
        lambda p: p % 2,
        lambda p: p / 2,
        lambda p: p * p,
        lambda p: p**2,
        lambda p: range(p),
        lambda p: {p: 1},
        lambda p: p + 0.5,
        lambda p: [*p],
        lambda p: min(p, 1),
    ],
)
def test_what_has_no_linear_form_says_so(asked: Callable[[Size], Any]) -> None:
    with pytest.raises(NotLoops):
        asked(unknown("p"))


def test_over_numbers_they_are_what_python_has() -> None:
    assert list(loop(3)) == [0, 1, 2]
    assert list(loop(2, 4)) == [2, 3]
    assert list(loop(4, 2)) == []
    assert (least(3, 1, 2), most(3, 1, 2)) == (1, 3)
