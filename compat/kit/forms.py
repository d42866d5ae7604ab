"""Values that no two brokers can have alike, compared by their form: ids, ports, times, words for people.

The rule: a value is replaced only where it has the form that it must have; any other value is compared as it is.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from compat.kit.wire import ZERO_UUID

TEXTS = ("ErrorMessage", "Documentation", "StatusDetail", "BatchIndexErrorMessage")
"""Fields with words for people: compared is whether there are any, and whether there is null or an empty text."""
NO_ERROR = "NONE"
TIMES = re.compile(
    r"TransactionStartTimeMs|LastTimestamp|LogAppendTimeMs|IssueTimestampMs|MaxTimestamp|LastFetchTimestamp"
    r"|LastCaughtUpTimestamp"
)
"""Fields with the time of the request."""
NEAR_MS = 3_000_000
"""Distance from now, before or after, that still counts as the time of a run."""
CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_NAMES = ("Name", "TopicName", "Topic")


class Forms:
    """Replaces values of one side; the names of topics are learnt from its responses."""

    def __init__(self, ports: Mapping[int, str]) -> None:
        """`ports` maps this side's listening ports to their replacements."""
        self._ports = dict(ports)
        self._topics: dict[bytes, str] = {}

    def learn(self, answer: Any) -> None:
        """Remember which topic has which id."""
        for item in (
            answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ()
        ):
            self.learn(item)
        if isinstance(answer, dict) and isinstance(answer.get("TopicId"), bytes):
            name = next((answer[field] for field in _NAMES if answer.get(field)), None)
            if name and answer["TopicId"] != ZERO_UUID and not answer.get("ErrorCode"):
                self._topics[answer["TopicId"]] = name

    def of(self, name: str, value: Any) -> Any:
        """Return the form of a field's value that is neither a struct nor a list."""
        if name in TEXTS:
            return value if value in (None, "", NO_ERROR) else "words"
        if isinstance(value, bytes) and len(value) == len(ZERO_UUID) and name.endswith(("Id", "Ids")):
            return self._id(value)
        if name == "ClusterId" and isinstance(value, str) and CLUSTER_ID.fullmatch(value):
            return "a cluster's id"
        if name == "Port":
            return self._ports.get(value, value)
        if TIMES.fullmatch(name) and isinstance(value, int) and is_near(value):
            return "a time"
        return value

    def _id(self, value: bytes) -> str:
        if value == ZERO_UUID:
            return "no id"
        if value == bytes(range(16)):
            return "an id that nothing has"
        return f"id of {self._topics.get(value, 'another')}"


def is_near(time_ms: int) -> bool:
    """Return whether a time is that of this run."""
    return abs(time_ms - time.time_ns() // 1_000_000) < NEAR_MS
