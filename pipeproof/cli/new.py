"""``pipeproof new``: a commented spec to start from."""

from __future__ import annotations

import keyword
import os
import re

import click

_TEXT = '''\
"""@NAME@: what is new about it, in a line or two.

Check it:  pipeproof check @FILE@
At a size: pipeproof check @FILE@ --stages 4 --microbatches 8
"""

from fractions import Fraction

from pipeproof.spec import (
    B,
    F,
    bubble,
    deadlock_free,
    least,
    loop,
    makespan,
    peak_activations,
    same_gradients,
    schedule,
)


@schedule(
    # How sends and receives are issued: torch (posted, each receive waited for
    # where it is needed), grouped (neighbours together), naive (blocking).
    recipe="grouped",
    # The sizes at which it is judged where none are given.
    grid={"p": range(1, 7), "m": range(1, 9)},
    # What it claims. A bound is a number or a function of the sizes, of rank and
    # of the times F, B, I, W and comm; least and most stand for min and max.
    claims=[
        deadlock_free("nccl"),
        same_gradients(),
        peak_activations(lambda p, m, rank: least(m, p - rank)),
        makespan(equals=lambda p, m, F, B: (m + p - 1) * (F + B)),
        bubble("idle_over_elapsed", equals=lambda p, m: Fraction(p - 1, m + p - 1)),
    ],
)
def @FUNCTION@(p, m, rank):
    """One forward and one backward in turn (replace me)."""
    # p ranks with a stage each, m microbatches. Yield the ops of one rank in
    # order: F(i), B(i), or I(i) and W(i) for a backward in two parts. With more
    # chunks a rank (a parameter v): F(i, chunk=c), and placement="looped" or
    # "wave" above. together(F(i), B(j)) overlaps two ops.
    warm_up = least(p - 1 - rank, m)
    for i in loop(warm_up):
        yield F(i)
    for i in loop(m - warm_up):
        yield F(warm_up + i)
        yield B(i)
    for i in loop(m - warm_up, m):
        yield B(i)
'''


@click.command("new", context_settings={"max_content_width": 80})
@click.argument("name")
@click.option("-o", "--output", metavar="OUT", help="File to write; NAME.py unless given.")
def command(name: str, output: str | None) -> int:
    """Write a spec that is judged as it stands, with comments on what to change."""
    function = re.sub(r"\W+", "_", name).strip("_").lower()
    if not function.isidentifier() or keyword.iskeyword(function):
        function = f"schedule_{function}".rstrip("_")
    path = output or f"{os.path.basename(name).removesuffix('.py')}.py"
    text = _TEXT.replace("@NAME@", name).replace("@FILE@", path).replace("@FUNCTION@", function)
    try:
        with open(path, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} is there already; name another with -o") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise click.UsageError(f"{path} cannot be written: {reason.lower()}") from None
    click.echo(f"Wrote {path}. Check it: pipeproof check {path}")
    return 0
