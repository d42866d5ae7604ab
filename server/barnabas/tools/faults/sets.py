"""Named sets of rules for frequent problems of clients and operators, as one word with parameters.

The rule: a set consists of ordinary rules; their names begin with that of the set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.tools.faults.errors import FaultError

Rules = list[dict[str, Any]]

GROUP_APIS = ["JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch"]
PARTITION_APIS = ["Produce", "Fetch", "ListOffsets"]


@dataclass(frozen=True, slots=True)
class FaultSet:
    """A set: its parameters with their defaults (None: required, or matches every value), and its rules."""

    doc: str
    rules: Callable[..., Rules]
    parameters: Mapping[str, Any] = field(default_factory=dict)


def _on(api: Any, **conditions: Any) -> dict[str, Any]:
    return {"api": api, **{name: value for name, value in conditions.items() if value is not None}}


def _moved_leader(topic: Any, partition: Any, times: Any) -> Rules:
    return [
        {
            "name": api,
            "on": _on(api, topic=topic, partition=partition),
            "when": {"times": times},
            "do": {"error": "NOT_LEADER_OR_FOLLOWER"},
        }
        for api in PARTITION_APIS
    ]


def _moved_coordinator(group: Any, times: Any) -> Rules:
    return [
        {
            "name": "moved",
            "on": _on(GROUP_APIS, group=group),
            "when": {"times": times},
            "do": {"error": "NOT_COORDINATOR"},
        },
        {
            "name": "elected",
            "on": _on("FindCoordinator", group=group),
            "when": {"times": times},
            "do": {"error": "COORDINATOR_NOT_AVAILABLE"},
        },
    ]


def _expired_session(group: Any, times: Any) -> Rules:
    apis = [
        "Heartbeat",
        "ConsumerGroupHeartbeat",
        "ShareGroupHeartbeat",
        "StreamsGroupHeartbeat",
        "OffsetCommit",
    ]
    return [
        {"name": "expired", "on": _on(apis, group=group), "when": {"times": times}, "do": {"expire": True}}
    ]


def _fenced_producer(topic: Any) -> Rules:
    return [
        {"name": "produce", "on": _on("Produce", topic=topic), "do": {"error": "INVALID_PRODUCER_EPOCH"}},
        {
            "name": "transaction",
            "on": _on(["AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"]),
            "do": {"error": "PRODUCER_FENCED"},
        },
    ]


def _lost_acknowledgements(topic: Any, every: Any) -> Rules:
    return [
        {
            "name": "produce",
            "on": _on("Produce", topic=topic),
            "when": {"every": every},
            "do": {"reset": "after"},
        },
    ]


def _full_disk(topic: Any) -> Rules:
    on = {"event": "disk.write", **({"topic": topic} if topic is not None else {})}
    return [{"name": "write", "on": on, "do": {"errno": "ENOSPC"}}]


def _slow_disk(topic: Any, delay_ms: Any) -> Rules:
    topics = {"topic": topic} if topic is not None else {}
    return [
        {"name": event.partition(".")[2], "on": {"event": event, **topics}, "do": {"delay_ms": delay_ms}}
        for event in ("disk.write", "disk.sync")
    ]


def _corrupt_batches(topic: Any, how: Any, every: Any) -> Rules:
    return [
        {"name": "fetch", "on": _on("Fetch", topic=topic), "when": {"every": every}, "do": {"corrupt": how}}
    ]


def _flaky_network(probability: Any) -> Rules:
    when = {"probability": probability}
    return [
        {"name": "cut", "on": {}, "when": when, "do": {"cut": "reset"}},
        {"name": "lost", "on": {}, "when": when, "do": {"reset": "before"}},
        {"name": "slow", "on": {}, "when": when, "do": {"delay_ms": "10..200"}},
    ]


def _rebalance_storm(group: Any, every: Any) -> Rules:
    return [
        {
            "name": "heartbeat",
            "on": _on(["Heartbeat", "OffsetCommit"], group=group),
            "when": {"every": every},
            "do": {"error": "REBALANCE_IN_PROGRESS"},
        }
    ]


def _protocol_errors(every: Any) -> Rules:
    when = {"every": every}
    return [
        {"name": "correlation-id", "on": {}, "when": when, "do": {"correlation_id": "wrong"}},
        {"name": "twice", "on": {}, "when": {**when, "after": 3}, "do": {"twice": True}},
        {"name": "garbage", "on": {}, "when": {**when, "after": 5}, "do": {"garbage": "body"}},
    ]


def _stale_metadata(times: Any) -> Rules:
    return [{"name": "metadata", "on": _on("Metadata"), "when": {"times": times}, "do": {"stale": True}}]


def _no_api_versions() -> Rules:
    return [{"name": "closed", "on": _on("ApiVersions"), "do": {"close": "before"}}]


SETS: Mapping[str, FaultSet] = {
    "moved-leader": FaultSet(
        "The leader of partitions has moved: NOT_LEADER_OR_FOLLOWER until the client has asked again so many times. A "
        "client must ask for metadata, back off, and neither lose nor reorder what it was to send.",
        _moved_leader, {"topic": None, "partition": None, "times": 3},
    ),
    "moved-coordinator": FaultSet(
        "The coordinator of groups has moved, and the new one is not found at once. A client must look for it again "
        "and commit there.",
        _moved_coordinator, {"group": None, "times": 3},
    ),
    "expired-session": FaultSet(
        "The session of a member ends just before it is heard of (UNKNOWN_MEMBER_ID). A client must join again as a "
        "new member, and not commit for partitions that it has lost.",
        _expired_session, {"group": None, "times": 1},
    ),
    "rebalance-storm": FaultSet(
        "Every so many heartbeats and commits the group rebalances. A client must join again without delivering a record "
        "to two members that commit it.",
        _rebalance_storm, {"group": None, "every": 5},
    ),
    "fenced-producer": FaultSet(
        "Another producer with the same transactional id has begun. A client must not retry, and must say so to its user.",
        _fenced_producer, {"topic": None},
    ),
    "lost-acknowledgements": FaultSet(
        "Records are appended and the connection breaks before the answer. A producer that retries without idempotence "
        "duplicates them; an idempotent one must not.",
        _lost_acknowledgements, {"topic": None, "every": 3},
    ),
    "corrupt-batches": FaultSet(
        "What is fetched is damaged (`how`: crc, count, compression, payload, ...). A client must "
        "neither deliver it, nor skip it silently, nor crash.",
        _corrupt_batches, {"topic": None, "how": "crc", "every": 1},
    ),
    "stale-metadata": FaultSet(
        "Metadata is that of the moment when the set was added: newer topics are unknown, leader epochs older. A client "
        "must not go back to older leader epochs, and must ask again for topics.",
        _stale_metadata, {"times": 3},
    ),
    "full-disk": FaultSet("The log dir is full: what is appended fails as on a full disk.", _full_disk, {"topic": None}),
    "slow-disk": FaultSet(
        "Writing to the log and flushing it take longer.", _slow_disk, {"topic": None, "delay_ms": 50}
    ),
    "flaky-network": FaultSet(
        "Answers are cut, connections reset, answers late; each with this probability.",
        _flaky_network, {"probability": 0.02},
    ),
    "protocol-errors": FaultSet(
        "Wrong correlation ids, answers that come twice, garbage. A client must close the connection and "
        "continue on another one.",
        _protocol_errors, {"every": 20},
    ),
    "no-api-versions": FaultSet(
        "ApiVersions closes the connection, as brokers before 0.10 do. A client must fall back, or say why not.",
        _no_api_versions,
    ),
}  # fmt: skip


def rules_of(name: str, parameters: Mapping[str, Any]) -> Rules:
    """Return the rules of a set. Raises FaultError."""
    fault_set = SETS.get(name)
    if fault_set is None:
        raise FaultError(f"there is no set {name}; there are {', '.join(SETS)}", "set")
    for parameter in parameters:
        if parameter not in fault_set.parameters:
            parameter_names = ", ".join(fault_set.parameters) or "none"
            raise FaultError(f"{name} has no parameter {parameter}; it has {parameter_names}", "parameters")
    rules = fault_set.rules(**{**fault_set.parameters, **parameters})
    return [{**rule, "name": f"{name}.{rule['name']}"} for rule in rules]
