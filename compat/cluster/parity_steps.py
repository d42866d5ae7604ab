"""Read-only requests to a broker of Kafka's and one of ours in a quorum.

The rule: they change nothing, so each is repeated until both responses are equal, or differ for too long.
"""

from __future__ import annotations

from collections.abc import Iterator

from compat.admin.reading import metadata_flags
from compat.cluster.parity_cluster import (
    BROKER,
    GROUP,
    LOGGER,
    METRICS,
    TOPIC,
)
from compat.cluster.peers import ADMIN, ALICE
from compat.kit.compare import Step
from compat.kit.wire import Values

UNKNOWN_ID = bytes(range(16))


def _versions() -> Iterator[Step]:
    for version in range(6):
        software = {"ClientSoftwareName": "kit", "ClientSoftwareVersion": "1"}
        yield Step(f"versions v{version}", "ApiVersions", version, software if version >= 3 else {})


def _metadata() -> Iterator[Step]:
    for version in range(14):
        flags = metadata_flags(version)
        yield Step(
            f"metadata v{version}: all",
            "Metadata",
            version,
            {"Topics": [] if version == 0 else None, **flags},
        )
        names = [["both", "careful", "gone"], ["many", "many"], ["a b"], [""]] + (
            [["nowhere"]] if version >= 4 else []
        )
        for asked in names:
            topics = [{"Name": name} for name in asked]
            yield Step(f"metadata v{version}: {asked}", "Metadata", version, {"Topics": topics, **flags})
            if version in (1, 9, 13):
                yield Step(
                    f"metadata v{version}: {asked} by alice",
                    "Metadata",
                    version,
                    {"Topics": topics, **flags},
                    ALICE,
                )
    yield Step("metadata at the port of logins", "Metadata", 12, {"Topics": None}, ADMIN)


def _cluster() -> Iterator[Step]:
    for version in range(3):
        for user in ("", ALICE):
            for operations in (False, True):
                values: Values = {"IncludeClusterAuthorizedOperations": operations}
                yield Step(
                    f"cluster v{version} {operations} {user}", "DescribeCluster", version, values, user
                )
        if version:
            for kind in (0, 1, 2, 3, -1):
                yield Step(
                    f"cluster v{version}: type {kind}", "DescribeCluster", version, {"EndpointType": kind}
                )
    for included in (False, True):
        for user in ("", ADMIN):
            values = {"IncludeFencedBrokers": included, "EndpointType": 1}
            yield Step(f"cluster v2: fenced {included} {user}", "DescribeCluster", 2, values, user)


def _partitions() -> Iterator[Step]:
    everything = ["both", "careful", "gone", "kafkas", "many", "ours"]
    for label, names, limit, cursor in (
        ("all", everything, 2000, None), ("some", everything, 4, None), ("none", [], 2000, None),
        ("from", everything, 3, ("careful", 1)), ("from gone", everything, 3, ("gone", 0)),
        ("limit 0", everything, 0, None),
        ("limit -1", everything, -1, None), ("unknown", ["nowhere", "both"], 9, None),
        ("twice", ["both", "both"], 9, None),
        ("cursor of none", everything, 9, ("nowhere", 0)), ("cursor behind", ["both"], 9, ("zzz", 0)),
        ("cursor -1", everything, 9, ("both", -1)), ("out of order", ["ours", "both"], 9, None),
    ):  # fmt: skip
        values: Values = {"Topics": [{"Name": name} for name in names], "ResponsePartitionLimit": limit}
        values["Cursor"] = None if cursor is None else {"TopicName": cursor[0], "PartitionIndex": cursor[1]}
        for user in ("", ALICE):
            yield Step(f"partitions: {label} {user}", "DescribeTopicPartitions", 0, values, user)


def _settings() -> Iterator[Step]:
    resources = [
        (TOPIC, "both"), (TOPIC, "careful"), (BROKER, "OWN"), (BROKER, ""), (GROUP, "g"), (GROUP, "s"),
        (GROUP, "other"),
        (METRICS, "slow"), (METRICS, "other"), (TOPIC, "nowhere"), (TOPIC, "a b"), (TOPIC, ""), (BROKER, "6"),
        (BROKER, "99"),
        (BROKER, "x"), (BROKER, "-1"), (LOGGER, ""), (LOGGER, "6"), (GROUP, ""), (METRICS, ""), (0, "x"), (99, "x"),
    ]  # fmt: skip
    for version in range(1, 5):
        for kind, name in resources:
            for keys in (None, [], ["retention.ms", "log.cleaner.threads", "no.such"]):
                if keys is not None and version not in (1, 4):
                    continue
                asked = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
                values = {"Resources": [asked], "IncludeSynonyms": True}
                label = f"describe v{version} {kind} {name!r}" + (
                    "" if keys is None else f" {len(keys)} keys"
                )
                yield Step(label, "DescribeConfigs", version, values)
    for user in (ALICE,):
        asked_all = [
            {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": None}
            for kind, name in resources[:11]
        ]
        yield Step(
            "describe by alice", "DescribeConfigs", 4, {"Resources": asked_all, "IncludeSynonyms": True}, user
        )
    for version in (0, 1):
        for kinds in ([], [TOPIC], [BROKER, LOGGER], [METRICS], [GROUP], [TOPIC, TOPIC], [0], [99]):
            if version or not kinds:
                for user in ("", ALICE):
                    yield Step(
                        f"resources v{version} {kinds} {user}", "ListConfigResources", version,
                        {"ResourceTypes": kinds} if version else {}, user,
                    )  # fmt: skip


def _access() -> Iterator[Step]:
    acl_filters = [
        {"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1},
        {"ResourceTypeFilter": 2, "ResourceNameFilter": "both", "PatternTypeFilter": 2, "Operation": 1,
         "PermissionType": 1},
        {"ResourceTypeFilter": 2, "ResourceNameFilter": "prefixes", "PatternTypeFilter": 2, "Operation": 1,
         "PermissionType": 1},
        {"ResourceTypeFilter": 4, "PatternTypeFilter": 3, "PrincipalFilter": "User:broker", "Operation": 1,
         "PermissionType": 1},
        {"ResourceTypeFilter": 0, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1},
        {"ResourceTypeFilter": 1, "PatternTypeFilter": 0, "Operation": 1, "PermissionType": 1},
    ]  # fmt: skip
    for number, values in enumerate(acl_filters):
        for version in (1, 2, 3):
            for user in ("", ALICE):
                yield Step(f"acls v{version} {number} {user}", "DescribeAcls", version, values, user)
    quotas: list[tuple[str, list[tuple[str, int, str | None]], bool]] = [
        ("all", [], False), ("strict none", [], True), ("user bob", [("user", 0, "bob")], False),
        ("user bob alone", [("user", 0, "bob")], True), ("default user", [("user", 1, None)], True),
        ("any ip", [("ip", 2, None)], False), ("unknown type", [("no-such", 2, None)], False),
        ("unknown match", [("user", 9, None)], False), ("twice", [("user", 2, None), ("user", 2, None)], False),
        ("ip and user", [("ip", 2, None), ("user", 2, None)], False), ("no type", [("", 2, None)], False),
        ("exact of null", [("user", 0, None)], False),
    ]  # fmt: skip
    for version in (0, 1):
        for label, components, strict in quotas:
            values = {
                "Components": [
                    {"EntityType": kind, "MatchType": match, "Match": name}
                    for kind, match, name in components
                ],
                "Strict": strict,
            }
            yield Step(f"quotas v{version} {label}", "DescribeClientQuotas", version, values)
    yield Step("quotas by alice", "DescribeClientQuotas", 1, {"Components": [], "Strict": False}, ALICE)
    for label, users in (
        ("all", None), ("none", []), ("bob", ["bob"]), ("unknown", ["nobody"]), ("twice", ["bob", "bob"]),
        ("empty", [""]),
    ):  # fmt: skip
        asked = {"Users": users if users is None else [{"Name": name} for name in users]}
        for user in ("", ALICE):
            yield Step(f"users {label} {user}", "DescribeUserScramCredentials", 0, asked, user)


def _tokens() -> Iterator[Step]:
    for version in range(1, 4):
        values: Values = {
            "Renewers": [{"PrincipalType": "User", "PrincipalName": "SIDE"}],
            "MaxLifetimeMs": -1,
        }
        if version == 3:
            values |= {"OwnerPrincipalType": "User", "OwnerPrincipalName": None}
        yield Step(f"token v{version} without a login", "CreateDelegationToken", version, values)
    odd: list[tuple[str, Values, str]] = [
        ("group", {"Renewers": [{"PrincipalType": "Group", "PrincipalName": "x"}], "MaxLifetimeMs": -1}, ALICE),
        ("for another", {"Renewers": [], "MaxLifetimeMs": -1, "OwnerPrincipalType": "User",
                         "OwnerPrincipalName": "bob"}, ALICE),
        ("no renewer's name", {"Renewers": [{"PrincipalType": "Role", "PrincipalName": ""}], "MaxLifetimeMs": -1}, ALICE),
    ]  # fmt: skip
    for label, values, user in odd:
        yield Step(f"token odd: {label}", "CreateDelegationToken", 3, values, user)
    for version in (1, 2):
        for api, period in (
            ("RenewDelegationToken", "RenewPeriodMs"),
            ("ExpireDelegationToken", "ExpiryTimePeriodMs"),
        ):
            for user in ("", ALICE):
                values = {"Hmac": b"no such", period: 1000}
                yield Step(f"{api} v{version} unknown {user}", api, version, values, user)
    for version in (1, 2, 3):
        for label, owners in (
            ("all", None), ("none", []), ("bob", ["bob"]), ("alice", ["alice"]),
        ):  # fmt: skip
            asked = {"Owners": owners if owners is None else [
                {"PrincipalType": "User", "PrincipalName": name} for name in owners]}  # fmt: skip
            for user in ("", ALICE, ADMIN):
                yield Step(
                    f"tokens v{version} {label} {user}", "DescribeDelegationToken", version, asked, user
                )


def _others() -> Iterator[Step]:
    for version in range(3):
        for name in ("__cluster_metadata", "other", ""):
            for user in ("", ALICE):
                values: Values = {"Topics": [{"TopicName": name, "Partitions": [{"PartitionIndex": 0}]}]}
                yield Step(f"quorum v{version} {name} {user}", "DescribeQuorum", version, values, user)
    yield Step("quorum: nothing", "DescribeQuorum", 2, {"Topics": []})
    for label, topics in (
        ("all", None), ("none", []), ("both", [{"Name": "both", "PartitionIndexes": [0, 9]}]),
        ("unknown", [{"Name": "nowhere", "PartitionIndexes": [0]}]),
    ):  # fmt: skip
        for user in ("", ALICE):
            asked = {"TimeoutMs": 9000, "Topics": topics}
            yield Step(f"moves {label} {user}", "ListPartitionReassignments", 0, asked, user)
    for version in range(1, 5):
        for label, topics in (
            ("unknown", [{"Topic": "nowhere", "Partitions": [0]}]), ("none", []),
            ("fenced", [{"Topic": "gone", "Partitions": [0]}]),
        ):  # fmt: skip
            for user in ("", ALICE):
                yield Step(
                    f"log dirs v{version} {label} {user}",
                    "DescribeLogDirs",
                    version,
                    {"Topics": topics},
                    user,
                )
    for version in range(7):
        for kind, key in ((0, "group"), (1, "transaction"), (9, "x"), (0, "")):
            values = {"Key": key} if version < 4 else {"CoordinatorKeys": [key]}
            if version:
                values["KeyType"] = kind
            if version or not kind:
                yield Step(f"coordinator v{version} {kind} {key!r}", "FindCoordinator", version, values)


PARTS = {
    "versions": _versions, "metadata": _metadata, "cluster": _cluster, "partitions": _partitions, "settings": _settings,
    "access": _access, "tokens": _tokens, "others": _others,
}  # fmt: skip
