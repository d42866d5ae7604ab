"""Rows about versions, metadata, the cluster and its features."""

from __future__ import annotations

from typing import Any

from barnabas.conformance.rows import LAST, Row, row
from barnabas.conformance.stage import UNKNOWN_ID
from barnabas.conformance.trial import Trial

NO_OPERATIONS = -(2**31)
LONGEST = "n" * 249


def _topics(*names: str | None, **more: Any) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False, **more}


def _has_self(answer: Any) -> bool:
    """ApiVersions among them"""
    return any(one.api_key == 18 and one.min_version == 0 for one in answer)


def _ranges_make_sense(answer: Any) -> bool:
    """first versions that are not after the last ones, each API once"""
    keys = [one.api_key for one in answer]
    return len(set(keys)) == len(keys) and all(0 <= one.min_version <= one.max_version for one in answer)


def _by_id(topic_id: bytes, name: str | None = None) -> dict[str, Any]:
    return {"topics": [{"name": name, "topic_id": topic_id}], "allow_auto_topic_creation": False}


def _table(trial: Trial, version: int) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "topics.len": 1,
        "topics.0.error_code": 0,
        "topics.0.name": trial.topic,
        "topics.0.partitions.len": 3,
        "topics.0.partitions.0.error_code": 0,
        "topics.0.partitions.0.leader_id": trial.stage.node_id,
        "topics.0.partitions.0.replica_nodes": [trial.stage.node_id],
        "topics.0.partitions.0.isr_nodes": [trial.stage.node_id],
        "topics.0.partitions.0.offline_replicas": [],
    }
    if version >= 1:
        wanted["topics.0.is_internal"] = False
    if version >= 2:
        wanted["cluster_id"] = trial.stage.cluster_id
    if version >= 7:
        wanted["topics.0.partitions.0.leader_epoch"] = _not_negative
    if version >= 10:
        wanted["topics.0.topic_id"] = trial.topic_id
    return wanted


def _not_negative(value: int) -> bool:
    """0 or more"""
    return value >= 0


def _some(value: Any) -> bool:
    """not empty"""
    return bool(value)


def rows() -> list[Row]:
    """All of them."""
    return [*_api_versions(), *_metadata(), *_cluster(), *_features(), *_quorum(), *_resources()]


def _api_versions() -> list[Row]:
    named = {"client_software_name": "barnabas-conform", "client_software_version": "1.0"}
    found = [
        row(
            "ApiVersions",
            "names itself",
            "ApiVersions is among the APIs that are named, from version 0 on.",
            "KIP-35",
            named,
            {"error_code": 0, "api_keys": _has_self},
            with_topic=False,
        ),
        row(
            "ApiVersions",
            "ranges",
            "Each API is named once, with its first version not after its last.",
            "KIP-35",
            named,
            {"api_keys": _ranges_make_sense},
            with_topic=False,
        ),
    ]
    for label, name, version in (
        ("no name", "", "1"),
        ("a name with a space", "a b", "1"),
        ("a name that ends with a dash", "a-", "1"),
        ("no version", "a", ""),
        ("a version with a slash", "a", "1/2"),
    ):
        values = {"client_software_name": name, "client_software_version": version}
        found.append(
            row(
                "ApiVersions",
                label,
                "Name and version of the software are letters and digits, with dots and dashes between "
                "them; anything else is INVALID_REQUEST.",
                "KIP-511",
                values,
                {"error_code": "INVALID_REQUEST"},
                (3, LAST),
                with_topic=False,
            )
        )
    return found


def _metadata() -> list[Row]:
    unknown = (
        "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, and is not made unless that is asked for."
    )
    bad = "A name that no topic can have is INVALID_TOPIC_EXCEPTION."
    return [
        row(
            "Metadata",
            "a topic",
            "A topic is described with its partitions, their leaders and replicas.",
            "protocol guide",
            lambda t, _: _topics(t.topic),
            _table,
        ),
        row(
            "Metadata",
            "all topics",
            "A topic list of null (in version 0 an empty one) asks for all topics.",
            "KIP-4",
            lambda _, v: {"topics": None if v else [], "allow_auto_topic_creation": v < 4},
            lambda t, _: {"topics": lambda found: any(one.name == t.topic for one in found)},
        ),
        row(
            "Metadata",
            "no topics",
            "An empty topic list asks for none since version 1.",
            "KIP-4",
            lambda _, v: {"topics": [], "allow_auto_topic_creation": v < 4},
            {"topics.len": 0, "brokers": _some},
            (1, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "this broker",
            "The brokers of the cluster are named, and a controller since version 1.",
            "KIP-4",
            lambda _, v: {"topics": [], "allow_auto_topic_creation": v < 4},
            lambda t, _: {
                "brokers": lambda found: any(one.node_id == t.stage.node_id for one in found),
                "controller_id": lambda found: found >= 0,
            },
            (1, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "an unknown topic",
            unknown,
            "KIP-487",
            lambda t, _: _topics(t.unknown),
            lambda t, _: {
                "topics.len": 1,
                "topics.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION",
                "topics.0.name": t.unknown,
                "topics.0.partitions.len": 0,
            },
            (4, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "known and unknown",
            unknown,
            "KIP-487",
            lambda t, _: _topics(t.topic, t.unknown),
            {"topics.len": 2, "topics": lambda found: sorted(one.error_code for one in found) == [0, 3]},
            (4, LAST),
        ),
        row(
            "Metadata",
            "a topic twice",
            "A topic that is named twice is answered once.",
            "Apache Kafka 4.3",
            lambda t, _: _topics(t.topic, t.topic),
            {"topics.len": 1, "topics.0.error_code": 0},
            (4, LAST),
        ),
        row(
            "Metadata",
            "a name with a space",
            bad,
            "protocol guide",
            _topics("a b"),
            {"topics.0.error_code": "INVALID_TOPIC_EXCEPTION", "topics.0.name": "a b"},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "a name of 250 characters",
            bad,
            "protocol guide",
            _topics(LONGEST + "n"),
            {"topics.0.error_code": "INVALID_TOPIC_EXCEPTION"},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "an empty name",
            bad,
            "protocol guide",
            _topics(""),
            {"topics.0.error_code": "INVALID_TOPIC_EXCEPTION"},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "Metadata",
            "operations not asked for",
            "Authorized operations that are not asked for are the smallest int32.",
            "KIP-430",
            lambda t, _: _topics(t.topic),
            lambda _, v: (
                {"topics.0.topic_authorized_operations": NO_OPERATIONS}
                | ({"cluster_authorized_operations": NO_OPERATIONS} if v <= 10 else {})
            ),
            (8, LAST),
        ),
        row(
            "Metadata",
            "operations asked for",
            "Authorized operations of a topic are answered as bits where they are asked for.",
            "KIP-430",
            lambda t, _: _topics(t.topic, include_topic_authorized_operations=True),
            {"topics.0.topic_authorized_operations": lambda found: found > 0},
            (8, LAST),
        ),
        row(
            "Metadata",
            "by id",
            "A topic may be asked for by its id alone.",
            "KIP-516",
            lambda t, _: _by_id(t.topic_id),
            lambda t, _: {
                "topics.0.error_code": 0,
                "topics.0.name": t.topic,
                "topics.0.topic_id": t.topic_id,
            },
            (12, LAST),
        ),
        row(
            "Metadata",
            "by an unknown id",
            "An id that no topic has is UNKNOWN_TOPIC_ID.",
            "KIP-516",
            _by_id(UNKNOWN_ID),
            {
                "topics.0.error_code": "UNKNOWN_TOPIC_ID",
                "topics.0.topic_id": UNKNOWN_ID,
                "topics.0.name": None,
            },
            (12, LAST),
        ),
    ]


def _cluster() -> list[Row]:
    return [
        row(
            "DescribeCluster",
            "described",
            "The cluster is described with its id, controller and brokers.",
            "KIP-700",
            {},
            lambda t, _: {
                "error_code": 0,
                "cluster_id": t.stage.cluster_id,
                "brokers": lambda found: any(one.broker_id == t.stage.node_id for one in found),
                "cluster_authorized_operations": NO_OPERATIONS,
            },
            with_topic=False,
        ),
        row(
            "DescribeCluster",
            "operations",
            "Authorized operations are answered as bits where they are asked for.",
            "KIP-430",
            {"include_cluster_authorized_operations": True},
            {"cluster_authorized_operations": lambda found: found > 0},
            with_topic=False,
        ),
        row(
            "DescribeCluster",
            "controllers asked of a broker",
            "A broker that is asked for controllers says MISMATCHED_ENDPOINT_TYPE.",
            "KIP-919",
            {"endpoint_type": 2},
            {"error_code": "MISMATCHED_ENDPOINT_TYPE"},
            (1, LAST),
            with_topic=False,
        ),
        row(
            "DescribeCluster",
            "an unknown type of endpoint",
            "A type of endpoint that there is not is UNSUPPORTED_ENDPOINT_TYPE.",
            "KIP-919",
            {"endpoint_type": 9},
            {"error_code": "UNSUPPORTED_ENDPOINT_TYPE"},
            (1, LAST),
            with_topic=False,
        ),
        row(
            "DescribeLogDirs",
            "a partition",
            "Log dirs are described with the partitions that are asked for.",
            "KIP-113",
            lambda t, _: {"topics": [{"topic": t.topic, "partitions": [0]}]},
            lambda t, _: {
                "results": lambda found: (
                    [(t.topic, 0)]
                    == [
                        (topic.name, one.partition_index)
                        for each in found
                        for topic in each.topics
                        for one in topic.partitions
                    ]
                )
            },
        ),
        row(
            "DescribeLogDirs",
            "nothing",
            "No partitions are described where none are asked for.",
            "KIP-113",
            {"topics": []},
            {"results": lambda found: found and not any(each.topics for each in found)},
            with_topic=False,
        ),
        row(
            "DescribeLogDirs",
            "an unknown topic",
            "A topic that does not exist is in no log dir.",
            "KIP-113",
            lambda t, _: {"topics": [{"topic": t.unknown, "partitions": [0]}]},
            {"results": lambda found: found and not any(each.topics for each in found)},
            with_topic=False,
        ),
        row(
            "DescribeLogDirs",
            "everything",
            "Null asks for all partitions.",
            "KIP-113",
            {"topics": None},
            lambda t, _: {
                "results": lambda found: any(topic.name == t.topic for each in found for topic in each.topics)
            },
        ),
        row(
            "AlterReplicaLogDirs",
            "an unknown dir",
            "A replica cannot move to a dir that is not among the log dirs.",
            "KIP-113",
            lambda t, _: {
                "dirs": [{"path": "/no/such/dir", "topics": [{"name": t.topic, "partitions": [0]}]}]
            },
            {"results.0.partitions.0.error_code": "LOG_DIR_NOT_FOUND"},
        ),
        row(
            "AlterReplicaLogDirs",
            "an unknown topic",
            "A replica that is not there cannot move.",
            "KIP-113",
            lambda t, _: {
                "dirs": [{"path": "/no/such/dir", "topics": [{"name": t.unknown, "partitions": [0]}]}]
            },
            {"results.0.partitions.0.error_code": {"LOG_DIR_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION"}},
            with_topic=False,
        ),
    ]


def _features() -> list[Row]:
    def update(name: str, level: int, upgrade_type: int = 1) -> dict[str, Any]:
        one = {"feature": name, "max_version_level": level, "upgrade_type": upgrade_type}
        return {"timeout_ms": 10_000, "feature_updates": [one], "validate_only": True}

    refused = {"INVALID_UPDATE_VERSION", "INVALID_REQUEST", "FEATURE_UPDATE_FAILED", "UNSUPPORTED_VERSION"}

    return [
        row(
            "UpdateFeatures",
            "an unknown feature",
            "A feature that no broker supports cannot be changed.",
            "KIP-584",
            update("no.such.feature", 1),
            {"error_code": refused},
            (1, LAST),
            with_topic=False,
            releases="4",
        ),
        row(
            "UpdateFeatures",
            "a level that is too high",
            "A level that a broker does not support cannot be finalized.",
            "KIP-584",
            update("group.version", 99),
            {"error_code": refused},
            (1, LAST),
            with_topic=False,
            releases="4",
        ),
    ]


def _quorum() -> list[Row]:
    return [
        row(
            "DescribeQuorum",
            "the metadata quorum",
            "The quorum of the metadata log names its leader and voters.",
            "KIP-595",
            {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
            {
                "error_code": 0,
                "topics.0.partitions.0.error_code": 0,
                "topics.0.partitions.0.current_voters": lambda found: len(found) > 0,
            },
            with_topic=False,
        ),
        row(
            "UnregisterBroker",
            "an unknown broker",
            "A broker that is not registered cannot be unregistered.",
            "KIP-500",
            {"broker_id": 2**31 - 1},
            {"error_code": "BROKER_ID_NOT_REGISTERED"},
            with_topic=False,
        ),
        row(
            "AddRaftVoter",
            "of another cluster",
            "A voter of another cluster is INCONSISTENT_CLUSTER_ID.",
            "KIP-853",
            {"cluster_id": "another", "timeout_ms": 1000, "voter_id": 9, "listeners": []},
            {"error_code": {"INCONSISTENT_CLUSTER_ID", "INVALID_REQUEST", "UNSUPPORTED_VERSION"}},
            with_topic=False,
        ),
        row(
            "RemoveRaftVoter",
            "of another cluster",
            "A voter of another cluster is INCONSISTENT_CLUSTER_ID.",
            "KIP-853",
            {"cluster_id": "another", "voter_id": 9},
            {"error_code": {"INCONSISTENT_CLUSTER_ID", "INVALID_REQUEST", "UNSUPPORTED_VERSION"}},
            with_topic=False,
        ),
    ]


def _resources() -> list[Row]:
    return [
        row(
            "ListConfigResources",
            "metrics",
            "Version 0 lists the subscriptions of client metrics.",
            "KIP-714",
            {},
            {"error_code": 0},
            (0, 0),
            with_topic=False,
        ),
        row(
            "ListConfigResources",
            "topics",
            "Resources of the types that are asked for are listed.",
            "KIP-1142",
            {"resource_types": [2]},
            lambda t, _: {
                "error_code": 0,
                "config_resources": lambda found: (
                    (t.topic, 2) in [(one.resource_name, one.resource_type) for one in found]
                ),
            },
            (1, LAST),
        ),
        row(
            "ListConfigResources",
            "an unknown type",
            "A type that has no settings is UNSUPPORTED_VERSION.",
            "KIP-1142",
            {"resource_types": [99]},
            {"error_code": "UNSUPPORTED_VERSION"},
            (1, LAST),
            with_topic=False,
        ),
        row(
            "DescribeTopicPartitions",
            "a topic",
            "A topic's partitions are described.",
            "KIP-966",
            lambda t, _: {"topics": [{"name": t.topic}], "response_partition_limit": 100},
            lambda t, _: {
                "topics.0.error_code": 0,
                "topics.0.name": t.topic,
                "topics.0.topic_id": t.topic_id,
                "topics.0.partitions.len": 3,
                "next_cursor": None,
            },
        ),
        row(
            "DescribeTopicPartitions",
            "one partition a page",
            "A page has as many partitions as the request allows, and says where the next one begins.",
            "KIP-966",
            lambda t, _: {"topics": [{"name": t.topic}], "response_partition_limit": 1},
            lambda t, _: {
                "topics.0.partitions.len": 1,
                "next_cursor.topic_name": t.topic,
                "next_cursor.partition_index": 1,
            },
        ),
        row(
            "DescribeTopicPartitions",
            "from a cursor",
            "A cursor goes on with the partition that it names.",
            "KIP-966",
            lambda t, _: {
                "topics": [{"name": t.topic}],
                "response_partition_limit": 10,
                "cursor": {"topic_name": t.topic, "partition_index": 2},
            },
            {"topics.0.partitions.len": 1, "topics.0.partitions.0.partition_index": 2, "next_cursor": None},
        ),
        row(
            "DescribeTopicPartitions",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-966",
            lambda t, _: {"topics": [{"name": t.unknown}], "response_partition_limit": 10},
            {"topics.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "DescribeTopicPartitions",
            "a negative cursor",
            "A cursor before the first partition is INVALID_REQUEST.",
            "KIP-966",
            lambda t, _: {
                "topics": [{"name": t.topic}],
                "response_partition_limit": 10,
                "cursor": {"topic_name": t.topic, "partition_index": -1},
            },
            {"topics.len": 1, "topics.0.error_code": "INVALID_REQUEST"},
        ),
    ]
