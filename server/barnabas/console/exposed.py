"""Metrics as they are plotted, out of the text that Prometheus reads. Pure.

The rule: a broker with 10,000 topics has as many samples in a family. What nobody plots is counted and not read.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

SAMPLES_MAX = 200
"""Samples of a family that are given one by one."""
LINES_MAX = 50_000
"""Lines of a family that are read, and summed up; some 0.2 s of a thread."""
_BEGINNING = re.compile(r"^# HELP ", re.M)
_KIND = re.compile(r"^# TYPE \S+ (\w+)$", re.M)


def families_of(text: str, wanted: Collection[str]) -> list[dict[str, Any]]:
    """Return all families without samples, or those that are wanted with their samples and the sum of these."""
    found = []
    for block in _BEGINNING.split(text)[1:]:
        name, _, documentation = block.partition("\n")[0].partition(" ")
        kind = _KIND.search(block)
        family: dict[str, Any] = {
            "name": name,
            "kind": kind[1] if kind is not None else "untyped",
            "text": documentation,
        }
        family["count"] = sum(not line.startswith("#") for line in block.splitlines()[1:])
        if wanted:
            if name not in wanted:
                continue
            family |= _read(f"# HELP {block}")
        found.append(family)
    return found


def _read(block: str) -> dict[str, Any]:
    lines = block.splitlines()[:LINES_MAX]
    samples = [
        {"name": one.name, "labels": one.labels, "value": one.value}
        for family in text_string_to_metric_families("\n".join([*lines, ""]))
        for one in family.samples
        if not one.name.endswith(("_bucket", "_created"))
    ]
    return {"samples": samples[:SAMPLES_MAX], "sum": sum(one["value"] for one in samples)}
