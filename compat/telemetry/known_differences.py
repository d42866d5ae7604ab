"""Differences between the telemetry of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from typing import Any

from compat.kit.known import Difference, KnownDifference
from compat.kit.predicates import both, pair
from compat.kit.wire import ZERO_UUID

NONE, INVALID_CONFIG, INVALID_RECORD, TELEMETRY_TOO_LARGE = 0, 40, 87, 118


def is_new_id(value: Any) -> bool:
    """Return whether a client was given an id: it is not null, and not one that clients here choose themselves."""
    return isinstance(value, bytes) and len(value) == 16 and value != ZERO_UUID and value[15] != value[0] + 15


def of_another_id(difference: Difference) -> bool:
    """Numbers that differ in what goes into them from the client's id, which is new on both sides, and in nothing else."""
    ids = [answer["ClientInstanceId"] for answer in difference.whole]
    return all(map(is_new_id, ids)) and _without(difference.theirs, ids[0]) == _without(
        difference.ours, ids[1]
    )


def other_order(difference: Difference) -> bool:
    """The same metrics, each once, in another order."""
    theirs, ours = (answer["RequestedMetrics"] for answer in difference.whole)
    return theirs != ours and sorted(theirs) == sorted(ours) and len(set(ours)) == len(ours)


def _without(number: int, client_instance_id: bytes) -> int:
    words = [int.from_bytes(client_instance_id[at : at + 4], "big") for at in (0, 4, 8, 12)]
    return (number & 0xFFFFFFFF) ^ words[0] ^ words[1] ^ words[2] ^ words[3]


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(".*", "/ClientInstanceId", "ids are random", accepts=both(is_new_id)),
    KnownDifference(
        ".*",
        "/SubscriptionId",
        "the number of a subscription is made of the client's id, which is random",
        accepts=of_another_id,
    ),
    KnownDifference(
        "too_large: grows too large .",
        "/ErrorCode",
        "Kafka up to 4.4 says INVALID_RECORD, which has the client stop for good; newer ones TELEMETRY_TOO_LARGE, as we do",
        accepts=pair(INVALID_RECORD, TELEMETRY_TOO_LARGE),
    ),
    KnownDifference(
        (r"wrong_settings: match 'client_id=.\?!x..*", r"wrong_settings: match 'client_id=.a..*"),
        "",
        "Kafka takes patterns that may take time without bound; RE2 cannot do them",
        accepts=pair(NONE, INVALID_CONFIG),
    ),
    KnownDifference(
        "matching: .*",
        ("/SubscriptionId", "/RequestedMetrics/.*"),
        "several metrics: Kafka has them in the order of a hash table, we sort them, and the number is made of them",
        accepts=other_order,
    ),
)
