"""Rows about partitions that exist: records removed from their beginning, elections, reassignments."""

from __future__ import annotations

from typing import Any

from barnabas.tools.conformance.rows import LAST, Row, row
from barnabas.tools.conformance.trial import Trial


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_delete_records(), *_leaders()]


def _delete_records() -> list[Row]:
    def before(offset: int, index: int = 0, name: str = "") -> Any:
        return lambda t, _: {
            "topics": [
                {"name": name or t.topic, "partitions": [{"partition_index": index, "offset": offset}]}
            ],
            "timeout_ms": 10_000,
        }

    path = "topics.0.partitions.0."
    return [
        row(
            "DeleteRecords",
            "before the first",
            "Removing what is before the log start removes nothing.",
            "KIP-107",
            before(0),
            {f"{path}error_code": 0, f"{path}low_watermark": 0},
        ),
        row(
            "DeleteRecords",
            "beyond the end",
            "An offset beyond the high watermark is OFFSET_OUT_OF_RANGE.",
            "KIP-107",
            before(11),
            {f"{path}error_code": "OFFSET_OUT_OF_RANGE"},
        ),
        row(
            "DeleteRecords",
            "offset -2",
            "A negative offset other than -1 is OFFSET_OUT_OF_RANGE.",
            "KIP-107",
            before(-2),
            {f"{path}error_code": "OFFSET_OUT_OF_RANGE"},
        ),
        row(
            "DeleteRecords",
            "an unknown partition",
            "A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-107",
            before(0, 9),
            {f"{path}error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
        ),
        row(
            "DeleteRecords",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-107",
            before(0, 0, "conform-no-such-topic"),
            {f"{path}error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "DeleteRecords",
            "nothing",
            "Nothing is removed where nothing is named.",
            "KIP-107",
            {"topics": [], "timeout_ms": 1000},
            {"topics.len": 0},
            with_topic=False,
        ),
    ]


def _leaders() -> list[Row]:
    def elect(index: int = 0, name: str = "", kind: int = 0) -> Any:
        return lambda t, _: {
            "election_type": kind,
            "topic_partitions": [{"topic": name or t.topic, "partitions": [index]}],
            "timeout_ms": 10_000,
        }

    def move(replicas: Any, index: int = 0, name: str = "") -> Any:
        def values(trial: Trial, _: int) -> dict[str, Any]:
            broker_ids = [trial.fixture.node_id] if replicas == "same" else replicas
            partition = {"partition_index": index, "replicas": broker_ids}
            return {
                "timeout_ms": 10_000,
                "topics": [{"name": name or trial.topic, "partitions": [partition]}],
            }

        return values

    elected, moved = (
        "replica_election_results.0.partition_result.0.error_code",
        "responses.0.partitions.0.error_code",
    )
    return [
        row(
            "ElectLeaders",
            "leads already",
            "A partition that its preferred replica leads needs no election.",
            "KIP-183",
            elect(),
            {"error_code": 0, elected: "ELECTION_NOT_NEEDED"},
        ),
        row(
            "ElectLeaders",
            "unclean, leads already",
            "A partition that has a leader needs no unclean election.",
            "KIP-460",
            elect(kind=1),
            {elected: "ELECTION_NOT_NEEDED"},
            (1, LAST),
        ),
        row(
            "ElectLeaders",
            "an unknown partition",
            "A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-183",
            elect(9),
            {elected: "UNKNOWN_TOPIC_OR_PARTITION"},
        ),
        row(
            "ElectLeaders",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-183",
            elect(0, "conform-no-such-topic"),
            {elected: "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "AlterPartitionReassignments",
            "as it is",
            "Replicas may be assigned to where they are.",
            "KIP-455",
            move("same"),
            {"error_code": 0, moved: 0},
        ),
        row(
            "AlterPartitionReassignments",
            "cancelled",
            "There is nothing to cancel where nothing moves.",
            "KIP-455",
            move(None),
            {moved: "NO_REASSIGNMENT_IN_PROGRESS"},
        ),
        row(
            "AlterPartitionReassignments",
            "to nobody",
            "A partition needs a replica: INVALID_REPLICA_ASSIGNMENT.",
            "KIP-455",
            move([]),
            {moved: "INVALID_REPLICA_ASSIGNMENT"},
        ),
        row(
            "AlterPartitionReassignments",
            "to an unknown broker",
            "Replicas are on brokers that there are: INVALID_REPLICA_ASSIGNMENT.",
            "KIP-455",
            move([30_000]),
            {moved: "INVALID_REPLICA_ASSIGNMENT"},
        ),
        row(
            "AlterPartitionReassignments",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-455",
            move("same", 0, "conform-no-such-topic"),
            {moved: "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "ListPartitionReassignments",
            "nothing moves",
            "Partitions that do not move are not listed.",
            "KIP-455",
            lambda t, _: {"timeout_ms": 10_000, "topics": [{"name": t.topic, "partition_indexes": [0]}]},
            {"error_code": 0, "topics.len": 0},
        ),
    ]
