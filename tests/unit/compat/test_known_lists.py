"""Every known difference accepts what was seen beside Apache Kafka, and refuses what is planted in its place."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from compat.admin.known_differences import KNOWN as ADMIN
from compat.configs.known_differences import KNOWN as CONFIGS
from compat.controller.known_differences import KNOWN as CONTROLLER
from compat.groups.handover import KNOWN as HANDOVER
from compat.groups.known_differences import KNOWN as GROUPS
from compat.kit.examples import kept
from compat.kit.known import Difference, KnownDifference, alternatives
from compat.quotas.known_differences import KNOWN as QUOTAS
from compat.security import kerberos_known
from compat.security import known_differences as security
from compat.security.mechanisms.known_differences import KNOWN as MECHANISMS
from compat.telemetry.known_differences import KNOWN as TELEMETRY

LISTS = {
    "admin": ADMIN,
    "configs": CONFIGS,
    "controller": CONTROLLER,
    "groups": GROUPS,
    "groups-handover": HANDOVER,
    "kerberos": kerberos_known.of(of_kafka_3=False),
    "mechanisms": MECHANISMS,
    "quotas": QUOTAS,
    "security": security.of(of_kafka_3=False, mode="kraft"),
    "security-3-kraft": security.of(of_kafka_3=True, mode="kraft"),
    "security-3-zookeeper": security.of(of_kafka_3=True, mode="zookeeper"),
    "telemetry": TELEMETRY,
}
PLANTED: tuple[Any, ...] = (-77, "nothing", None, "planted", {"ErrorCode": 12345}, [])
ROWS = [(name, row, reason, example) for name in LISTS for reason, example in kept(name) for row in LISTS[name]
        if row.reason == reason and row.covers(example)]  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_each_known_difference_has_an_example_that_it_accepts(name: str) -> None:
    examples = [example for _, example in kept(name)]
    without = [entry.reason for entry in LISTS[name] if not any(map(entry.covers, examples))]
    assert not without


@pytest.mark.parametrize("name", LISTS)
def test_each_alternative_of_a_pattern_is_looked_for_by_itself(name: str) -> None:
    patterns = [
        pattern
        for entry in LISTS[name]
        for several in (entry.label, entry.path)
        for pattern in alternatives(several)
    ]
    assert not [pattern for pattern in patterns if "|" in pattern]


@pytest.mark.parametrize(
    ("name", "row", "reason", "example"), ROWS, ids=[f"{row[0]}: {row[2]}"[:90] for row in ROWS]
)
def test_what_is_planted_in_its_place_is_refused(
    name: str, row: KnownDifference, reason: str, example: Difference
) -> None:
    for planted in _planted(example):
        assert not row.covers(planted), planted


def _planted(example: Difference) -> Iterator[Difference]:
    """Yield the example with another value on one of its sides; where we lack an entry, what it holds is Kafka's affair."""
    for value in (*PLANTED, *((12345,) if example.path.endswith("ErrorCode") else ())):
        if value == "nothing" and example.path.endswith("/when"):
            continue  # an answer that never comes has no time
        if value != example.ours:
            yield replace(example, ours=value, **_around(example, 1, value))
        is_text = example.path.endswith("ErrorMessage") and not value and not example.theirs
        if value != example.theirs and example.ours != "nothing" and not is_text:
            yield replace(example, theirs=value, **_around(example, 0, value))


def _around(example: Difference, side: int, value: Any) -> dict[str, Any]:
    """Return the whole answers, and those of a scenario, with a value where they differ."""
    whole = list(example.whole)
    whole[side] = _put(whole[side], example.path, value)
    answers = [dict(answer) for answer in example.answers]
    if example.step:
        answers[side][example.step] = whole[side]
    return {"whole": tuple(whole), "answers": tuple(answers)}


def _put(whole: Any, path: str, value: Any) -> Any:
    """Return a whole answer, if it was kept, with a value at a path."""
    if whole is None:
        return None
    if not path:
        return value
    copied = holder = copy.deepcopy(whole)
    *parts, last = path.strip("/").split("/")
    for part in parts:
        holder = holder[int(part) if isinstance(holder, list) else part]
    holder[int(last) if isinstance(holder, list) else last] = value
    return copied
