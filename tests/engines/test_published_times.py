"""Published figures, each with its source, from the orders that their papers give."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pipeproof.checks.usage import usage
from pipeproof.engines.lifetimes import links
from pipeproof.engines.timing import Timing, timing
from pipeproof.formats.chimera import read_chimera
from pipeproof.formats.dualpipe import read_dualpipe
from pipeproof.formats.torch_schedule import read_schedule
from pipeproof.formats.zero_bubble import read_zero_bubble
from pipeproof.program.costs import Costs, Release
from pipeproof.program.lanes import rank_of_ops
from pipeproof.program.programs import Program
from pipeproof.program.transports import PRESETS
from pipeproof.published.two_ways import issued_as_produced
from pipeproof.recipes.issuing import build
from tests.engines.test_timing import gpipe, one_f_one_b
from tests.formats import trace_files
from tests.sequential import Action, Rows, write


def timed(own: Program, costs: Costs | None = None) -> Timing:
    found = timing(own, costs or Costs())
    assert found is not None
    return found


def built(rows: Rows) -> Program:
    return build(read_schedule(write(rows), "plan"), "naive", PRESETS["gloo"])


def peaks(own: Program) -> tuple[int, ...]:
    return usage(own, rank_of_ops(own)).peak


def interleaved(p: int, m: int, v: int) -> Rows:
    """Megatron-LM's interleaved 1F1B (arXiv 2104.04473): stage c p + r is chunk c of rank r."""

    def nth(k: int, rank: int, word: str) -> Action:
        group, within = divmod(k, p * v)
        chunk, place = divmod(within, p)
        chunk = chunk if word == "F" else v - 1 - chunk
        return Action(chunk * p + rank, word, group * p + place)

    rows = []
    for rank in range(p):
        warm = min(m * v, 2 * (p - 1 - rank) + (v - 1) * p)
        row = [nth(k, rank, "F") for k in range(warm)]
        for k in range(m * v - warm):
            row += [nth(warm + k, rank, "F"), nth(k, rank, "B")]
        rows.append(row + [nth(k, rank, "B") for k in range(m * v - warm, m * v)])
    return rows


# --- fill and drain --------------------------------------------------------------


@pytest.mark.parametrize(("p", "m", "idle"), [(4, 4, (3, 7)), (4, 16, (3, 19)), (8, 32, (7, 39))])
def test_idle_over_elapsed(p: int, m: int, idle: tuple[int, int]) -> None:
    """(p-1)/(m+p-1): GPipe, arXiv 1811.06965; PipeDream-Flush and DAPPLE, 2007.01045."""
    for rows in (gpipe(p, m), one_f_one_b(p, m)):
        assert timed(built(rows)).ratios["idle_over_elapsed"] == Fraction(*idle)


def test_activations_of_1f1b() -> None:
    """min(m, p-s) on rank s, and m with fill and drain (DAPPLE, arXiv 2007.01045)."""
    assert peaks(built(one_f_one_b(4, 8))) == (4, 3, 2, 1)
    assert peaks(built(gpipe(4, 8))) == (8, 8, 8, 8)


# --- interleaving ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "m", "v", "makespan", "overhead", "messages"),
    [
        (4, 8, 1, 33, Fraction(3, 8), 48),
        (4, 8, 2, 28.5, Fraction(3, 16), 112),
        (16, 64, 8, 197.625, Fraction(15, 512), 2 * 64 * 127),
    ],
)
def test_interleaved(
    p: int, m: int, v: int, makespan: float, overhead: Fraction, messages: int
) -> None:
    """Overhead (p-1)/(v m), 2 m (p v - 1) messages; F = 1 and B = 2 a rank, a v-th of it a
    stage (Megatron-LM, arXiv 2104.04473)."""
    own = built(interleaved(p, m, v))
    found = timed(own, Costs(F=1, B=2).divided(v))
    assert found.makespan == makespan
    assert found.ratios["overhead_over_ideal"] == overhead
    assert sum(link.messages for link in links(own, Costs())) == messages


@pytest.mark.parametrize(
    ("p", "m", "v", "peak"), [(4, 8, 2, 5.5), (16, 64, 8, 17.875), (8, 8, 4, 8.0)]
)
def test_activations_of_interleaved(p: int, m: int, v: int, peak: float) -> None:
    """p (1 + (p-1)/(p v)) activations of a rank on rank 0, at most m (arXiv 2205.05198)."""
    assert peaks(built(interleaved(p, m, v)))[0] / v == peak


# --- zero bubble: arXiv 2401.10241, tables 5 and 8 -------------------------------

# p, m, F, I, W, latency, chunks of interleaved; published rate of 1F1B; and the rate of
# interleaved 1F1B where the wrap from the last rank's chunk to the first rank's next one
# holds for every microbatch, as the computation needs. (The published column enforces it
# for the first microbatch of each group alone.) Table 8's inputs, given for half a stage,
# are doubled.
RATES = [
    (8, 24, 18.522, 18.086, 9.337, 0.601, 3, 0.2431, 0.109),
    (8, 32, 18.513, 18.086, 9.331, 0.626, 3, 0.1985, 0.0847),
    (8, 64, 18.546, 18.097, 9.321, 0.762, 3, 0.124, 0.0461),
    (8, 24, 29.718, 29.444, 19.927, 0.527, 4, 0.2347, 0.0827),
    (8, 32, 29.802, 29.428, 19.53, 0.577, 4, 0.1898, 0.0644),
    (8, 64, 29.935, 29.621, 19.388, 0.535, 4, 0.1091, 0.0328),
    (16, 48, 11.347, 11.248, 8.132, 0.377, 3, 0.2552, 0.1136),
    (16, 64, 11.307, 11.254, 8.101, 0.379, 3, 0.2082, 0.0878),
    (16, 128, 11.325, 11.308, 8.109, 0.378, 3, 0.1251, 0.0459),
    (32, 96, 10.419, 10.207, 7.715, 0.408, 2, 0.2646, 0.1528),
    (32, 128, 10.408, 10.204, 7.703, 0.408, 2, 0.2168, 0.1192),
    (32, 256, 10.402, 10.248, 7.698, 0.46, 2, 0.1352, 0.0641),
    (16, 48, 28814, 28760, 19352, 1610, 2, 0.2668, 0.1549),
    (16, 64, 28824, 28786, 19376, 1621, 2, 0.2206, 0.1209),
    (16, 128, 28632, 28612, 19278, 1619, 2, 0.139, 0.0644),
    (24, 72, 13526, 13938, 10502, 755, 2, 0.2699, 0.1566),
    (24, 96, 13566, 13968, 10518, 758, 2, 0.2229, 0.1223),
    (24, 192, 13570, 13980, 10520, 770, 2, 0.1403, 0.0652),
    (32, 96, 18916, 19496, 14576, 879, 2, 0.2676, 0.1549),
    (32, 128, 18938, 19488, 14612, 892, 2, 0.2204, 0.121),
    (32, 256, 18894, 19288, 14386, 887, 2, 0.1362, 0.0644),
]


@pytest.mark.parametrize("row", RATES, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
def test_rates(row: tuple[int, int, float, float, float, float, int, float, float]) -> None:
    """The bubble rate is 1 - m (F + I + W) / makespan, to four decimals."""
    p, m, f, i, w, comm, v, plain, chunked = row
    costs = Costs(F=f, I=i, W=w, comm=comm)
    assert round(timed(built(one_f_one_b(p, m)), costs).bubble["idle_over_elapsed"], 4) == plain
    found = timed(built(interleaved(p, m, v)), costs.divided(v))
    assert round(found.bubble["idle_over_elapsed"], 4) == chunked


@pytest.mark.parametrize(
    ("name", "idle", "peak"),
    [
        ("1f1b_p4_m8_f1000b1000w1000c1.json", 9, 4),
        ("zb_p4_m8_f1000b1000w1000c1_H1.json", 3, 4),
        # Recorded with room for all 8; the 7 published are of the order drawn in the paper.
        ("zb_p4_m8_f1000b1000w1000c1_H2.json", 0, 8),
    ],
)
def test_idle_units_and_activations(name: str, idle: int, peak: int) -> None:
    """F = I = W = 1, p = 4, m = 8: what the longest span of a stage has beyond its work,
    and the most activations (arXiv 2401.10241, table 2)."""
    own = read_zero_bubble(trace_files.text("zero_bubble", name), name)
    found = timed(own)
    assert max(found.span) - max(found.busy) == idle
    assert max(peaks(own)) == peak


# --- DualPipe --------------------------------------------------------------------


@pytest.mark.parametrize(("p", "m", "idle"), [(4, 10, 2), (6, 14, 4), (8, 20, 6), (8, 40, 6)])
def test_dualpipe_idles(p: int, m: int, idle: int) -> None:
    """(p/2-1)(pair + B - 3 W) idle units on every rank, whatever m (README of the DualPipe
    repository): F = I = W = 1 and a pair takes 3."""
    own = issued_as_produced("dualpipe", p, m)
    found = timed(own, Costs(pair=3, release=Release.COMMIT))
    assert found.idle == (idle,) * p and found.makespan == 3 * m + idle
    assert set(peaks(own)) <= {p, p + 1} and max(peaks(own)) == p + 1


def test_the_published_figure_needs_its_release() -> None:
    """p = 8, m = 20: 66 long with 6 idle and 280 messages; 63 and 3 if every message left
    when its own op ends (DualPipe repository; DeepSeek-V3, arXiv 2412.19437, figure 5)."""
    own = issued_as_produced("dualpipe", 8, 20)
    for release, length, idle in (
        (Release.COMMIT, 66, 6),
        (Release.BLOCK, 66, 6),
        (Release.OP, 63, 3),
    ):
        found = timed(own, Costs(pair=3, release=release))
        assert (found.makespan, set(found.idle)) == (length, {idle}), release
    assert sum(link.messages for link in links(own, Costs())) == 280


def test_dualpipev_idles() -> None:
    """4 ranks, times of half a stage: 6 idle units, 9 activations and 12 messages a
    microbatch, whatever m (DualPipe repository, figure of DualPipeV)."""
    name = "dualpipev_p4_m8.json"
    own = read_dualpipe(trace_files.text("dualpipe", name), name)
    found = timed(own, Costs(pair=3, release=Release.COMMIT))
    assert (found.makespan, set(found.idle)) == (6 * 8 + 6, {6})
    assert max(peaks(own)) == 9
    assert sum(link.messages for link in links(own, Costs())) == 12 * 8


# --- Chimera ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backward", "makespan", "idle"), [(1, 10, Fraction(1, 5)), (2, 16, Fraction(1, 4))]
)
def test_chimera(backward: int, makespan: int, idle: Fraction) -> None:
    """D = N = 4, both directions on every rank: idle (D-2)/(2N+D-2) with B = F, and a
    quarter with B = 2 F (Chimera, arXiv 2107.06925, table 2); D/2 + 1 to D activations."""
    name = "chimera_p4_m4.json"
    own = read_chimera(trace_files.text("chimera", name), name)
    found = timed(own, Costs(F=1, B=backward))
    assert found.makespan == makespan and found.ratios["idle_over_elapsed"] == idle
    assert peaks(own) == (3, 4, 4, 3)
