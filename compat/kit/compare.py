"""The same requests to two brokers, and where their answers differ.

    step = Step("an unknown topic", "DescribeConfigs", 4, {"Resources": [...]})
    differences = run([step], kafka, barnabas)

The rule: every field counts but words for people and what is random; a difference is either named with its reason in
the list of those that are known, or a failure, and so is one in that list that is no longer there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from compat.kit.sides import Side
from compat.kit.wire import ZERO_UUID, Values, WireError

TEXTS = ("ErrorMessage", "Documentation")
"""Fields with words for people: compared is whether there are any, and whether there is null or an empty text."""
WORDS = (*TEXTS, "ThrottleTimeMs", "ClusterId")
NO_ERROR = "NONE"
_ACL = ("Principal", "Host", "Operation", "PermissionType")
KEYS = (
    ("PatternType", "ResourceType", "ResourceName", *_ACL), _ACL, ("ResourceType", "ResourceName"), ("Name",),
    ("PartitionIndex",), ("TopicName",), ("Key",), ("GroupId",), ("Topic",),
    ("EntityType",), ("Entity",), ("ApiKey",),
)  # fmt: skip
"""Fields that tell the entries of a list apart, where order means nothing."""
SETS = ("SubscribedTopicNames", "SourceTopics")
"""Lists of texts whose order means nothing."""
READS = ("Describe", "List", "Metadata", "Find")
SETTLE_S = 3.0
"""How long a change may take until it is seen: Kafka's brokers learn of it from their controller."""

Seen = dict[str, Values]


@dataclass(frozen=True)
class Step:
    """One request; `values` may be made from the answers so far, by label."""

    label: str
    api: str
    version: int
    values: Values | Callable[[Seen], Values]
    user: str = ""
    """Who asks; nobody who has logged in if it is empty."""


@dataclass(frozen=True)
class Difference:
    """Where two answers differ: the step, the path in the answer, and both values."""

    label: str
    path: str
    theirs: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.label}: {self.path}: Kafka {self.theirs!r}, Barnabas {self.ours!r}"


@dataclass(frozen=True)
class KnownDifference:
    """A known difference: patterns of the label and the path, the reason, and whether it is there each time.

    With `theirs` it is one only where Kafka's value is among them.
    """

    label: str
    path: str
    reason: str
    always: bool = True
    theirs: tuple[object, ...] = ()

    def covers(self, difference: Difference) -> bool:
        """Whether this is about that difference."""
        if self.theirs and difference.theirs not in self.theirs:
            return False
        return bool(re.fullmatch(self.label, difference.label) and re.fullmatch(self.path, difference.path))


def run(
    steps: Iterable[Step], theirs: Side, ours: Side, known: Sequence[KnownDifference]
) -> list[Difference]:
    """Ask both sides everything, in order; a read is repeated for a while if it differs in a way that is not known."""
    differences: list[Difference] = []
    seen: tuple[Seen, Seen] = ({}, {})
    for step in steps:
        give_up = time.monotonic() + (SETTLE_S if step.api.startswith(READS) else 0)
        while True:
            answers = [_ask(side, step, known) for side, known in zip((theirs, ours), seen, strict=True)]
            found = list(differences_between("", _normal(answers[0]), _normal(answers[1])))
            if all(any(one.covers(Difference(step.label, *item)) for one in known) for item in found):
                break
            if time.monotonic() > give_up:
                break
            time.sleep(SETTLE_S / 30)
        differences += [Difference(step.label, *item) for item in found]
    return differences


def _ask(side: Side, step: Step, seen: Seen) -> Values:
    values = step.values(seen) if callable(step.values) else step.values
    try:
        with side.connect(user=step.user) as connection:
            answer = connection.ask(step.api, step.version, values)
    except (WireError, ConnectionError) as error:
        answer = {"connection": str(error)}
    seen[step.label] = answer
    return answer


def _normal(value: Any, name: str = "") -> Any:
    """Lists by what tells their entries apart; words, random ids and ports replaced."""
    if isinstance(value, dict):
        return {key: _normal(item, key) for key, item in value.items() if key in TEXTS or key not in WORDS}
    if name in TEXTS:
        return value if value in (None, "", NO_ERROR) else "words"
    if isinstance(value, list) and name in SETS:
        return sorted(value)
    if isinstance(value, list):
        if value and all(isinstance(item, dict) for item in value):
            for fields in KEYS:
                marks = [" ".join(str(item.get(field)) for field in fields) for item in value]
                if all(fields[0] in item for item in value) and len(set(marks)) == len(marks):
                    return {mark: _normal(item) for mark, item in zip(marks, value, strict=True)}
        return [_normal(item) for item in value]
    if isinstance(value, bytes) and len(value) == 16:
        return "no id" if value == ZERO_UUID else "an id"
    if name == "Port":
        return "a port"
    return value


def differences_between(path: str, theirs: Any, ours: Any) -> Iterable[tuple[str, Any, Any]]:
    """Where two answers differ: the path below `path`, and both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in dict.fromkeys([*theirs, *ours]):
            if key not in theirs or key not in ours:
                yield f"{path}/{key}", theirs.get(key, "nothing"), ours.get(key, "nothing")
            else:
                yield from differences_between(f"{path}/{key}", theirs[key], ours[key])
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from differences_between(f"{path}/{index}", *pair)
    elif theirs != ours:
        yield path, theirs, ours


def judge(
    differences: Sequence[Difference],
    known: Sequence[KnownDifference],
    *,
    complete: bool = True,
    together: bool = False,
) -> int:
    """Print what is to be said; returns how many differences are not known, or known and not there.

    What is not there counts only if all was asked, which is `complete`; differences of the same kind are shown `together`.
    """
    unknown = [one for one in differences if not any(other.covers(one) for other in known)]
    bad = len(unknown)
    kinds: dict[str, list[Difference]] = {}
    for difference in unknown:
        kind = f"{difference.path} {difference.theirs} {difference.ours}" if together else str(difference)
        kinds.setdefault(kind, []).append(difference)
    for alike in kinds.values():
        print(f"differs: {alike[0]}" + (f" (and {len(alike) - 1} like it)" if len(alike) > 1 else ""))
    for one in known:
        count = sum(one.covers(difference) for difference in differences)
        if count:
            print(f"known ({count}): {one.label}: {one.path}: {one.reason}")
        elif complete and one.always:
            print(f"no longer there: {one.label}: {one.path}: {one.reason}")
            bad += 1
    return bad
