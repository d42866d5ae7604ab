"""The same requests to two brokers, and the differences of their responses.

    step = Step("an unknown topic", "DescribeConfigs", 4, {"Resources": [...]})
    differences = run([step], kafka, barnabas)

The rule: every field is compared; values that always differ between brokers are compared by their form. A difference is
either covered by a known difference, which has a reason, or a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from compat.kit.forms import Forms
from compat.kit.known import Difference, KnownDifference, differences_of
from compat.kit.sides import Side
from compat.kit.wire import Values, WireError

_ACL = ("Principal", "Host", "Operation", "PermissionType")
KEYS = (
    ("PatternType", "ResourceType", "ResourceName", *_ACL), _ACL, ("ResourceType", "ResourceName"), ("Name",),
    ("PartitionIndex",), ("PartitionId",), ("TopicName",), ("Key",), ("GroupId",), ("Topic",),
    ("EntityType",), ("Entity",), ("ApiKey",),
)  # fmt: skip
"""Fields that identify the entries of a list without a significant order."""
SETS = ("SubscribedTopicNames", "SourceTopics", "TopicPartitions")
"""Lists in any order; that of topics is that of their random ids."""
IN_ORDER = ("Values",)
"""Lists with identifiable entries in a significant order: clients' own tests depend on that of quotas."""
READS = ("Describe", "List", "Metadata", "Find")
SETTLE_S = 10.0
"""Time until a change is visible: Kafka's brokers get it from their controller."""

Seen = dict[str, Values]


@dataclass(frozen=True)
class Step:
    """One request; `values` may be made from the answers so far, by label."""

    label: str
    api: str
    version: int
    values: Values | Callable[[Seen], Values]
    user: str = ""
    """User of the connection; empty for a connection without a login."""
    settles: bool = False
    """True if the request is repeated until both responses are equal, as for read-only requests."""


def run(
    steps: Iterable[Step],
    theirs: Side,
    ours: Side,
    known_differences: Sequence[KnownDifference],
    settle_s: float = SETTLE_S,
) -> list[Difference]:
    """Ask both sides everything, in order; a read is repeated for a while if it differs in a way that is not known."""
    differences: list[Difference] = []
    seen: tuple[Seen, Seen] = ({}, {})
    forms = Forms(theirs.ports), Forms(ours.ports)
    for step in steps:
        give_up = time.monotonic() + (settle_s if step.settles or step.api.startswith(READS) else 0)
        while True:
            answers = [_ask(side, step, so_far) for side, so_far in zip((theirs, ours), seen, strict=True)]
            differing = compared(step.label, answers, forms)
            if all(any(entry.covers(item) for entry in known_differences) for item in differing):
                break
            if time.monotonic() > give_up:
                break
            time.sleep(settle_s / 30)
        differences += differing
    return differences


def compared(label: str, answers: Sequence[Values], forms: tuple[Forms, Forms]) -> list[Difference]:
    """Return the differences of both responses to a step, after normalization by `forms`."""
    for of_side, answer in zip(forms, answers, strict=True):
        of_side.learn(answer)
    return differences_of(
        label, *(_normal(answer, of_side) for of_side, answer in zip(forms, answers, strict=True))
    )


def _ask(side: Side, step: Step, seen: Seen) -> Values:
    values = step.values(seen) if callable(step.values) else step.values
    try:
        with side.connect(user=step.user) as connection:
            answer = connection.ask(step.api, step.version, values)
    except (WireError, ConnectionError) as error:
        answer = {"connection": str(error)}
    seen[step.label] = answer
    return answer


def _normal(value: Any, forms: Forms, name: str = "") -> Any:
    """Return a value with lists keyed by their identifying fields, and with forms in place of incomparable values."""
    if isinstance(value, dict):
        return {key: _normal(item, forms, key) for key, item in value.items()}
    if isinstance(value, list) and name in SETS:
        return sorted((_normal(item, forms) for item in value), key=repr)
    if isinstance(value, list):
        are_structs = bool(value) and all(isinstance(item, dict) for item in value)
        for fields in KEYS if are_structs and name not in IN_ORDER else ():
            marks = [" ".join(str(item.get(field)) for field in fields) for item in value]
            if all(fields[0] in item for item in value) and len(set(marks)) == len(marks):
                return {mark: _normal(item, forms) for mark, item in zip(marks, value, strict=True)}
        return [_normal(item, forms, name) for item in value]
    return forms.of(name, value)
