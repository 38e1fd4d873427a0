"""Coefficients for a ranking function, by linear programming.

For each pair: wherever its conditions g_j hold (each 0 or more), the later number
less the earlier one is 1 or more. By Farkas' lemma it is enough that

    later - earlier - 1 = c + sum_j l_j g_j,   c and all l_j 0 or more,

as forms: coefficient by coefficient, a linear equation in the unknown l_j, c and
the coefficients of the two numbers. HiGHS solves all pairs' equations at once for
coefficients of least absolute sum. Its numbers are floating-point, so they are
rounded to near fractions; the caller checks what results.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pipeproof.proofs.sizes.ranking import Coefficients, Key, Pair
from pipeproof.spec.sizes import Form

DENOMINATORS = (1, 2, 4, 12, 60)
"""Fractions that solutions are rounded to, coarsest first."""

SECONDS = 60.0
"""How long the solver may take."""


def candidates(pairs: list[Pair], width: int) -> Iterator[Coefficients]:
    """Coefficients that are likely to grow along all pairs; none where there are none.

    ``width`` is how many forms a number is linear in.
    """
    keys = sorted({key for pair in pairs for key in (pair.later, pair.earlier)})
    place = {key: number * width for number, key in enumerate(keys)}
    values = _solved(pairs, place, width * len(keys))
    if values is None:
        return
    for denominator in DENOMINATORS:
        rounded: dict[Key, tuple[Fraction, ...]] = {}
        for key in keys:
            own = values[place[key] : place[key] + width]
            rounded[key] = tuple(Fraction(round(v * denominator), denominator) for v in own)
        yield rounded


def _solved(pairs: list[Pair], place: dict[Key, int], unknowns: int) -> list[float] | None:
    """The coefficients of least absolute sum: columns are their positive and negative
    parts, and then the multipliers of each pair."""
    rows: list[dict[int, float]] = []
    right: list[float] = []
    columns = 2 * unknowns
    for pair in pairs:
        first = columns
        columns += len(pair.conditions) + 1
        names = sorted(
            {
                str(atom)
                for form in (*pair.conditions, *pair.later_forms, *pair.earlier_forms)
                for atom, _ in form.terms
            }
        )
        for name in (*names, None):
            row: dict[int, float] = {}
            for forms, key, sign in (
                (pair.later_forms, pair.later, 1),
                (pair.earlier_forms, pair.earlier, -1),
            ):
                for offset, form in enumerate(forms):
                    value = sign * _coefficient(form, name)
                    if value:
                        column = place[key] + offset
                        row[column] = row.get(column, 0) + value
                        row[column + unknowns] = row.get(column + unknowns, 0) - value
            for offset, form in enumerate(pair.conditions):
                value = _coefficient(form, name)
                if value:
                    row[first + offset] = -value
            if name is None:
                row[first + len(pair.conditions)] = -1.0
            rows.append(row)
            right.append(1.0 if name is None else 0.0)
    return _minimized(rows, right, columns, 2 * unknowns, unknowns)


def _coefficient(form: Form, name: str | None) -> int:
    return form.constant if name is None else dict(form.terms).get(name, 0)


def _minimized(
    rows: list[dict[int, float]], right: list[float], columns: int, counted: int, unknowns: int
) -> list[float] | None:
    import highspy

    highs: Any = highspy  # its types are not stated
    solver = highs._Highs()  # its public child prints before it can be silenced
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", SECONDS)
    infinity = highs.kHighsInf
    program: Any = highs.HighsLp()
    program.num_col_, program.num_row_ = columns, len(rows)
    program.col_cost_ = [1.0] * counted + [0.0] * (columns - counted)
    program.col_lower_, program.col_upper_ = [0.0] * columns, [infinity] * columns
    program.row_lower_ = program.row_upper_ = right
    starts, index, value = [0], [], []
    for row in rows:
        kept = [(c, v) for c, v in sorted(row.items()) if v]
        index += [c for c, _ in kept]
        value += [v for _, v in kept]
        starts.append(len(index))
    program.a_matrix_.format_ = highs.MatrixFormat.kRowwise
    program.a_matrix_.start_ = starts
    program.a_matrix_.index_ = index
    program.a_matrix_.value_ = value
    solver.passModel(program)
    solver.run()
    if solver.getModelStatus() != highs.HighsModelStatus.kOptimal:
        return None
    found = solver.getSolution().col_value
    return [found[i] - found[i + unknowns] for i in range(unknowns)]
