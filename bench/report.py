"""Measurements as a Markdown table that a README can hold, and as JSON with every single value."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from bench.rounds import Outcome
from bench.scenarios import Metric, Target


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _ratio(ratios: list[float]) -> str:
    if not ratios:
        return "-"
    text = f"{median(ratios):.2f}"
    return f"{text} ({min(ratios):.2f}-{max(ratios):.2f})" if len(ratios) > 1 else text


def _judge(outcome: Outcome, metric: Metric, first: str, target: Target) -> str:
    """Return a target and its outcome; empty if its peer was not measured."""
    if target.peer:
        ratios = outcome.ratios(first, target.peer, metric.key)
        value = median(ratios) if ratios else None
    else:
        value = outcome.median(first, metric.key)
    if value is None:
        return ""

    def met(bound: float) -> bool:
        return value >= bound if metric.more_is_better else value <= bound

    sign = ">=" if metric.more_is_better else "<="
    text = f"{sign} {target.bound:g}{'x ' + target.peer if target.peer else ' ' + metric.unit}: "
    if target.moonshot is not None and met(target.moonshot):
        return text + f"yes (and {target.moonshot:g})"
    return text + ("yes" if met(target.bound) else "NO")


def table(outcomes: list[Outcome], labels: list[str], *, with_targets: bool) -> str:
    """Medians of each arm, medians (and spans) of the first arm's ratios to the others, and the targets."""
    first, others = labels[0], labels[1:]
    head = ["scenario", "metric", *labels, *(f"{first} / {other}" for other in others)]
    head += ["target"] if with_targets else []
    rows = [head, ["---"] * len(head)]
    for outcome in outcomes:
        for index, metric in enumerate(outcome.scenario.metrics):
            judged = [_judge(outcome, metric, first, target) for target in metric.targets]
            rows.append(
                [
                    outcome.scenario.title if index == 0 else "",
                    f"{metric.title}, {metric.unit}",
                    *(_number(outcome.median(label, metric.key)) for label in labels),
                    *(_ratio(outcome.ratios(first, other, metric.key)) for other in others),
                    *(["; ".join(filter(None, judged))] if with_targets else []),
                ]
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )


def write_json(path: Path, outcomes: list[Outcome], peers: dict[str, str], machine: dict[str, str]) -> None:
    """Every value of every round."""
    path.write_text(
        json.dumps(
            {
                "machine": machine,
                "peers": peers,
                "scenarios": {outcome.scenario.name: outcome.values for outcome in outcomes},
            },
            indent=1,
        )
        + "\n"
    )
