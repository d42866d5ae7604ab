"""Rows about versions, the cluster, its log dirs, features and quorum."""

from __future__ import annotations

from typing import Any

from barnabas.tools.conformance.rows import LAST, Row, row

NO_OPERATIONS = -(2**31)


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_api_versions(), *_cluster(), *_features(), *_quorum()]


def _has_self(answer: Any) -> bool:
    """ApiVersions among them"""
    return any(api.api_key == 18 and api.min_version == 0 for api in answer)


def _ranges_make_sense(answer: Any) -> bool:
    """first versions that are not after the last ones, each API once"""
    keys = [api.api_key for api in answer]
    return len(set(keys)) == len(keys) and all(0 <= api.min_version <= api.max_version for api in answer)


def _api_versions() -> list[Row]:
    named = {"client_software_name": "barnabas-conform", "client_software_version": "1.0"}
    rows = [
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
        rows.append(
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
    for label, code, meant in (
        ("another cluster", "REBOOTSTRAP_REQUIRED", {"cluster_id": "conform-no-such-cluster", "node_id": 0}),
        ("a cluster without a node", "INVALID_REQUEST", {"cluster_id": "conform-no-such-cluster"}),
        ("a node without a cluster", "INVALID_REQUEST", {"node_id": 0}),
    ):
        rows.append(
            row(
                "ApiVersions",
                label,
                "A client that names a cluster and a node which are not these has to bootstrap again: "
                "REBOOTSTRAP_REQUIRED, and no API; one of the two alone is INVALID_REQUEST.",
                "KIP-1242",
                named | meant,
                {"error_code": code, "api_keys.len": 0},
                (5, LAST),
                with_topic=False,
            )
        )
    return rows


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
                "cluster_id": t.fixture.cluster_id,
                "brokers": lambda brokers: any(broker.broker_id == t.fixture.node_id for broker in brokers),
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
            {"cluster_authorized_operations": lambda operations: operations > 0},
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
                "results": lambda dirs: (
                    [(t.topic, 0)]
                    == [
                        (topic.name, partition.partition_index)
                        for each in dirs
                        for topic in each.topics
                        for partition in topic.partitions
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
            {"results": lambda dirs: dirs and not any(each.topics for each in dirs)},
            with_topic=False,
        ),
        row(
            "DescribeLogDirs",
            "an unknown topic",
            "A topic that does not exist is in no log dir.",
            "KIP-113",
            lambda t, _: {"topics": [{"topic": t.unknown, "partitions": [0]}]},
            {"results": lambda dirs: dirs and not any(each.topics for each in dirs)},
            with_topic=False,
        ),
        row(
            "DescribeLogDirs",
            "everything",
            "Null asks for all partitions.",
            "KIP-113",
            {"topics": None},
            lambda t, _: {
                "results": lambda dirs: any(topic.name == t.topic for each in dirs for topic in each.topics)
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
        feature = {"feature": name, "max_version_level": level, "upgrade_type": upgrade_type}
        return {"timeout_ms": 10_000, "feature_updates": [feature], "validate_only": True}

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
                "topics.0.partitions.0.current_voters": lambda voters: len(voters) > 0,
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
            "UnregisterController",
            "an unknown controller",
            "A controller that is not registered cannot be unregistered, nor any below metadata.version 33.",
            "Kafka 4.4",
            {"controller_id": 2**31 - 1},
            {"error_code": {"CONTROLLER_ID_NOT_REGISTERED", "UNSUPPORTED_VERSION"}},
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
