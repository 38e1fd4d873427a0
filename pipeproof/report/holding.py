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


def _counted(hops: Sequence[Mapping[str, Any]], word: str) -> str:
    time = amount(sum(map(_length, hops)))
    if len(hops) == 1:
        return f"1 {word} that takes {time}"
    return f"{len(hops)} {word}s that take {time}"


def _summary(path: Sequence[Mapping[str, Any]], style: Style) -> list[str]:
    ops = [hop for hop in path if "op" in hop]
    messages = [hop for hop in path if "message" in hop]
    total = path[-1]["end"]
    text = f"held back by {_counted(ops, 'op')} of {amount(total)}"
    if messages:
        text += f", and {_counted(messages, 'message')}"
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
    shown = parts if len(parts) <= STRETCHES else [*parts[: STRETCHES - 4], *parts[-3:]]
    times = [f"{amount(part[0]['start'])} to {amount(part[-1]['end'])}" for part in shown]
    wide = max(map(len, times))
    lines = []
    for place, (part, time) in enumerate(zip(shown, times, strict=True)):
        if len(parts) > STRETCHES and place == STRETCHES - 4:
            lines.append(f"  ... {len(parts) - len(shown)} more ...")
        lines += style.wrap(_stretch(part), f"  {time:<{wide}}  ")
    return lines


def _stretch(part: Sequence[Mapping[str, Any]]) -> str:
    first, last = part[0], part[-1]
    if "message" in first:
        return f"{first['message']} from rank {first['from']} to rank {first['to']}"
    if first is last:
        return f"rank {first['rank']}: {first['op']}"
    return f"rank {first['rank']}: {first['op']} to {last['op']}, {len(part)} ops"


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
    lifetimes = metrics["lifetimes"]
    heads = ["stage", "least slack"]
    heads += ["activation lives: min", "mean", "max"] if lifetimes else []
    rows = []
    for stage, least in metrics["slack"]["stages"].items():
        lives = lifetimes.get(stage)
        times = [amount(lives[k]) if lives else "-" for k in ("min", "mean", "max")]
        rows.append([stage, amount(least), *times][: len(heads)])
    return table(heads, rows)


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
