"""Metrics as they are plotted. Pure.

The rule: a broker with 10,000 topics is one sum in each family of topics; samples of a family are
read only if it is plotted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from barnabas.metrics.families import COUNTER, INFO, TOTAL

if TYPE_CHECKING:
    from barnabas.metrics.families import Family

SAMPLES_MAX = 200
"""Samples of a family that are given one by one."""
_ENDINGS = {COUNTER: TOTAL, INFO: "_info"}


def families_of(families: Iterable[Family], names: Collection[str]) -> list[dict[str, Any]]:
    """Return all families without samples, or those with these names, with their samples and the sum of these."""
    rows = []
    for family in families:
        name = family.name + _ENDINGS.get(family.kind, "")
        if not names:
            rows.append(_described(family, name))
        elif name in names:
            samples = [sample for sample in family.samples() if not sample[0].endswith("_bucket")]
            shown = [
                {"name": full_name, "labels": dict(labels), "value": value}
                for full_name, labels, value in islice(samples, SAMPLES_MAX)
            ]
            total = sum(value for _, _, value in samples)
            rows.append({**_described(family, name), "samples": shown, "sum": total})
    return rows


def _described(family: Family, name: str) -> dict[str, Any]:
    return {"name": name, "kind": family.kind, "text": family.text, "count": len(family.values)}
