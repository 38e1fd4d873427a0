"""What holds a step back: its critical path, slack, lifetimes and links, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeproof.report.style import Style, amount
from pipeproof.report.table import table
from pipeproof.verdict import Report

STRETCHES, LINKS = 12, 16
"""Most stretches of the critical path and most links that are listed."""


def holding(report: Report, style: Style) -> list[str]:
    """Lines of at most 80 columns; none where the step was not explained."""
    metrics = report.metrics
    path = metrics.get("critical_path")
    if not path:
        return []
    lines = [*_summary(path, style), *_stretches(path, style), ""]
    lines += _ranks(path, metrics["slack"]["ranks"], metrics["idle"])
    lines += ["", *_stages(metrics)]
    if metrics["links"]:
        lines += ["", *_links(metrics["links"])]
    return lines


def _length(hop: Mapping[str, Any]) -> Any:
    return hop["end"] - hop["start"]


def _summary(path: Sequence[Mapping[str, Any]], style: Style) -> list[str]:
    ops = [hop for hop in path if "op" in hop]
    messages = [hop for hop in path if "message" in hop]
    total = path[-1]["end"]
    text = (
        f"held back by {len(ops)} ops that take {amount(sum(map(_length, ops)))} of "
        f"{amount(total)}"
    )
    if messages:
        text += f", and {len(messages)} messages that take {amount(sum(map(_length, messages)))}"
        longest = max(messages, key=_length)
        if _length(longest):
            text += (
                f"; the longest is {longest['message']} from rank {longest['from']} to rank "
                f"{longest['to']}, {amount(_length(longest))}"
            )
    stages: dict[int, Any] = {}
    for hop in ops:
        stages[hop["stage"]] = stages.get(hop["stage"], 0) + _length(hop)
    stage = max(stages, key=lambda s: stages[s])
    text += f"; stage {stage} has the largest part, {amount(stages[stage])}"
    return style.wrap(text)


def _stretches(path: Sequence[Mapping[str, Any]], style: Style) -> list[str]:
    """The path as stretches of ops on one rank, with the messages between them."""
    parts: list[list[Mapping[str, Any]]] = []
    for hop in path:
        alone = "message" in hop
        if parts and not alone and "op" in parts[-1][-1] and parts[-1][-1]["rank"] == hop["rank"]:
            parts[-1].append(hop)
        else:
            parts.append([hop])
    lines = []
    shown = parts if len(parts) <= STRETCHES else [*parts[: STRETCHES - 4], *parts[-3:]]
    for number_of, part in enumerate(shown):
        if len(parts) > STRETCHES and number_of == STRETCHES - 4:
            lines.append(f"  ... {len(parts) - len(shown)} more ...")
        first, last = part[0], part[-1]
        times = f"{amount(first['start'])} to {amount(last['end'])}"
        if "message" in first:
            text = f"{first['message']} from rank {first['from']} to rank {first['to']}"
        elif first is last:
            text = f"rank {first['rank']}: {first['op']}"
        else:
            text = f"rank {first['rank']}: {first['op']} to {last['op']}, {len(part)} ops"
        lines += style.wrap(text, f"  {times:<16} ")
    return lines


def _ranks(
    path: Sequence[Mapping[str, Any]], slack: Mapping[str, Any], idle: Mapping[str, Any]
) -> list[str]:
    on_path: dict[str, Any] = {}
    for hop in path:
        if "op" in hop:
            key = str(hop["rank"])
            on_path[key] = on_path.get(key, 0) + _length(hop)
    rows = [
        [rank, amount(on_path.get(rank, 0)), amount(least), amount(idle[rank])]
        for rank, least in slack.items()
    ]
    return table(["rank", "on the path", "least slack", "idle"], rows)


def _stages(metrics: Mapping[str, Any]) -> list[str]:
    rows = []
    for stage, least in metrics["slack"]["stages"].items():
        lives = metrics["lifetimes"].get(stage)
        times = [amount(lives[k]) for k in ("min", "mean", "max")] if lives else ["-"] * 3
        rows.append([stage, amount(least), *times])
    return table(["stage", "least slack", "activation lives: min", "mean", "max"], rows)


def _links(links: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        [
            f"{link['from']} to {link['to']}",
            str(link["messages"]),
            "-" if link["bytes"] is None else amount(link["bytes"]),
        ]
        for link in links[:LINKS]
    ]
    lines = table(["link", "messages", "bytes"], rows)
    if len(links) > LINKS:
        lines.append(f"  and {len(links) - LINKS} more links")
    return lines
