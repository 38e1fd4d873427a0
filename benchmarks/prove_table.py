"""What is proved for all sizes, in how long: a line a known schedule.

    python benchmarks/prove_table.py [NAME ...]

Times are of the whole command, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from pipeproof.schedules.table import SCHEDULES


def main() -> None:
    names = sys.argv[1:] or list(SCHEDULES)
    print("| schedule | answer | proved | open | seconds |\n|---|---|---|---|---|")
    for name in names:
        begun = time.perf_counter()
        command = [sys.executable, "-m", "pipeproof", "prove", "--format", "json", name]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - begun
        (target,) = json.loads(answer.stdout)["targets"]
        by_status: dict[str, list[str]] = {"holds": [], "undetermined": [], "violated": []}
        for check in target["checks"]:
            by_status[check["status"]].append(check["check"])
        proved = ", ".join(by_status["holds"]) or "-"
        left = "; ".join(
            f"{c['check']}: {c['reason'].split(';')[0]}"
            for c in target["checks"]
            if c["status"] == "undetermined"
        )
        print(f"| {name} | {target['verdict']} | {proved} | {left or '-'} | {seconds:.1f} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
