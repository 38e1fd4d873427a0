"""How the cost of a check grows with the number of actions.

    python benchmarks/check_scaling.py [--sizes 1e3,1e4,1e5,1e6] [--torch]

For 1F1B and interleaved 1F1B (8 ranks, with communication) it writes a torch
action CSV of about each size and prints, per size: actions, CPU seconds of the
whole process ``pipeproof check --quiet`` and microseconds an action, its peak
memory, the same in this process (without start-up), and what each transport
and recipe adds where it has to be run by itself. ``--torch`` times torch's own
construction and simulation of the same schedule beside ours.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RANKS, CHUNKS = 8, 2


def one_f_one_b(microbatches: int) -> list[list[str]]:
    """1F1B on RANKS ranks (PipeDream-Flush, arXiv 2006.09503)."""
    rows = []
    for stage in range(RANKS):
        warm_up = min(microbatches, RANKS - stage)
        row = [f"{stage}F{i}" for i in range(warm_up)]
        for i in range(microbatches):
            row.append(f"{stage}B{i}")
            if i + warm_up < microbatches:
                row.append(f"{stage}F{i + warm_up}")
        rows.append(row)
    return rows


def interleaved(microbatches: int) -> list[list[str]]:
    """Interleaved 1F1B with CHUNKS chunks a rank (Megatron-LM, arXiv 2104.04473)."""

    def nth(index: int, rank: int, letter: str) -> str:
        group, within = divmod(index, RANKS * CHUNKS)
        chunk, offset = divmod(within, RANKS)
        if letter == "B":
            chunk = CHUNKS - 1 - chunk
        return f"{chunk * RANKS + rank}{letter}{group * RANKS + offset}"

    total = microbatches * CHUNKS
    rows = []
    for rank in range(RANKS):
        warm_up = min(total, 2 * (RANKS - 1 - rank) + (CHUNKS - 1) * RANKS + 1)
        row = [nth(i, rank, "F") for i in range(warm_up)]
        for i in range(total):
            row.append(nth(i, rank, "B"))
            if i + warm_up < total:
                row.append(nth(i + warm_up, rank, "F"))
        rows.append(row)
    return rows


# name -> (rows of a number of microbatches, actions a microbatch with communication)
SCHEDULES: dict[str, tuple[Callable[[int], list[list[str]]], int]] = {
    "1F1B": (one_f_one_b, 44),
    "interleaved": (interleaved, 92),
}


def write_plan(name: str, actions: int, folder: Path) -> tuple[Path, int]:
    """A CSV with communication of about ``actions`` actions; its path and their number."""
    from pipeproof.formats.torch_schedule import print_schedule, read_schedule
    from pipeproof.recipes.lowering import lower_as_torch

    rows, per_microbatch = SCHEDULES[name]
    microbatches = max(RANKS, round(actions / per_microbatch) // RANKS * RANKS)
    text = "\n".join(",".join(row) for row in rows(microbatches))
    plan = lower_as_torch(read_schedule(text, name))
    path = folder / f"{name}-{actions}.csv"
    path.write_text(print_schedule(plan))
    return path, len(plan.kind)


# A small process in between: a child's peak memory counts that of the parent it
# was forked from, and this one is large.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def whole_process(path: Path) -> tuple[float, float]:
    """(CPU seconds, peak memory in MB) of ``pipeproof check --quiet path``."""
    command = [sys.executable, "-m", "pipeproof", "check", "--quiet", str(path)]
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, check=True
    )
    status, seconds, memory = measured.stdout.split()
    if status != "0":
        raise SystemExit(f"the check of {path} did not hold")
    return float(seconds), int(memory) / 1024


def in_process(path: Path) -> float:
    """CPU seconds from the bytes of a file to its verdict, in this process."""
    from pipeproof.formats.sources import decode
    from pipeproof.formats.torch_schedule import read_schedule
    from pipeproof.judge.judge import judge_schedule
    from pipeproof.judge.options import Options

    data = path.read_bytes()
    start = time.process_time()
    judge_schedule(str(path), read_schedule(decode(data), path.name), Options())
    return time.process_time() - start


def single_rows(path: Path) -> list[tuple[str, float]]:
    """CPU seconds of each transport and recipe when it is run by itself."""
    from pipeproof.engines.events.build import build
    from pipeproof.engines.events.pairing import pair
    from pipeproof.engines.events.run import run
    from pipeproof.formats.torch_schedule import read_schedule
    from pipeproof.program.transports import PRESETS
    from pipeproof.recipes import issuing

    schedule = read_schedule(path.read_text(), path.name)
    rows = []
    for name, recipe, transport in [
        *((n, "torch", t) for n, t in PRESETS.items()),
        ("blocking", "naive", PRESETS["gloo"]),
        ("grouped", "grouped", PRESETS["gloo"]),
    ]:
        program = issuing.build(schedule, recipe, transport)
        pairing = pair(program.messages, transport.match)
        start = time.process_time()
        run(build(program, transport, pairing))
        rows.append((name, time.process_time() - start))
    return rows


TORCH = """
import sys, time
from torch.distributed.pipelining.schedules import (
    _Action, _add_send_recv, _simulate_comms_compute)
rows = [r.split(",") for r in open(sys.argv[1]).read().splitlines()]
start = time.process_time()
actions = {r: [_Action.from_str(c) for c in row] for r, row in enumerate(rows)}
host = {a.stage_index: r for r, row in actions.items() for a in row}
plan = _add_send_recv(actions, lambda s: host[s], len(host))
built = time.process_time()
_simulate_comms_compute(plan, lambda s: host[s], len(host))
count = sum(map(len, plan.values()))
print(count, built - start, time.process_time() - built)
"""


def torch_times(name: str, actions: int, folder: Path) -> str:
    """Torch's own construction and simulation of the compute-only schedule."""
    rows, per_microbatch = SCHEDULES[name]
    microbatches = max(RANKS, round(actions / per_microbatch) // RANKS * RANKS)
    path = folder / "compute-only.csv"
    path.write_text("\n".join(",".join(row) for row in rows(microbatches)))
    answer = subprocess.run(
        [sys.executable, "-c", TORCH, str(path)], capture_output=True, text=True, check=False
    )
    if answer.returncode:
        return f"torch did not run: {answer.stderr.strip().splitlines()[-1]}"
    count, built, simulated = (float(v) for v in answer.stdout.split())
    return (
        f"torch: construction {built / count * 1e6:.1f}, simulation "
        f"{simulated / count * 1e6:.1f} µs an action"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--sizes", default="1e3,1e4,1e5,1e6")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the median counts")
    parser.add_argument("--torch", action="store_true")
    args = parser.parse_args()
    gc.disable()
    middle = args.repeat // 2
    print("schedule     actions  process s  µs/action     MB   in process µs/action")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in SCHEDULES:
            for size in (int(float(s)) for s in args.sizes.split(",")):
                path, count = write_plan(name, size, folder)
                in_process(path)  # the first call also loads the modules
                runs = sorted(whole_process(path) for _ in range(args.repeat))
                inside = sorted(in_process(path) for _ in range(args.repeat))[middle]
                seconds, memory = runs[middle]
                print(
                    f"{name:11} {count:8} {seconds:10.2f} {seconds / count * 1e6:10.2f} "
                    f"{memory:6.0f} {inside / count * 1e6:22.2f}",
                    flush=True,
                )
                if size >= 1_000_000:
                    for row, spent in single_rows(path):
                        print(f"    {row:14} run by itself {spent / count * 1e6:6.2f} µs/action")
                if args.torch and size <= 100_000:
                    print(f"    {torch_times(name, size, folder)}")


if __name__ == "__main__":
    main()
