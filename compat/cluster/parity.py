"""python -m compat.cluster.parity: a broker of Kafka's and one of ours in one quorum, asked the same, field by field.

What a cluster has is made first: topics with replicas at each, at a broker that is fenced, and without a leader; settings,
ACLs, quotas, users, tokens. Then each broker is asked to describe it, and to change it, rightly and wrongly; and Kafka's
tools are run at each. The rule: what a request changes has a name of its own at each side, written SIDE here, so that both
can be asked the same.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat.cluster.nodes import KAFKA, OURS, ClusterError, in_directory, wait_until
from compat.cluster.parity_clients import clients, internal_topics
from compat.cluster.parity_known import KNOWN
from compat.cluster.peers import ADMIN, ALICE
from compat.cluster.quorum_peers import QuorumPeers
from compat.kafka import ToolProcess, release
from compat.kafka.broker import CLUSTER_ID
from compat.kit.compare import Seen, Step, run
from compat.kit.known import Difference, judge
from compat.kit.sides import Side
from compat.kit.wire import Connection, Values

SIDE = "SIDE"
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
KAFKAS, OF_OURS, FENCED = 4, 5, 6
"""The numbers of the brokers; the one that is fenced is no process."""
FEATURES = (
    "metadata.version", "kraft.version", "transaction.version", "group.version", "share.version", "streams.version",
    "eligible.leader.replicas.version",
)  # fmt: skip
AT_ONCE = ("consumer.assignment.interval", "share.assignment.interval", "streams.initial.rebalance.delay")
SETTLE_S = 1.5
"""Time that both brokers of one quorum may take to see a change; busy machines take longer."""
UNKNOWN_ID = bytes(range(16))


# --- sides that are asked alike ------------------------------------------------------------------------------------


IN_ANY_ORDER = ("NodeId", "BrokerId", "User", "Mechanism", "TokenId")
"""Fields by which lists are put in order whose order means nothing."""


class Asking(Connection):
    """A connection that has its side's word in place of SIDE, in both directions, and lists in order."""

    word = ""
    broker_id = 0

    def send(self, api: str, version: int, values: Values) -> None:
        super().send(api, version, self._worded(values))

    def receive(self, api: str, version: int) -> Values:
        answer: Values = self._plain(super().receive(api, version))
        return answer

    def _worded(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._worded(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._worded(item) for item in value]
        if value == "OWN":
            return str(self.broker_id)
        return value.replace(SIDE, self.word) if isinstance(value, str) else value

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            if "ErrorCode" in value and value.get("ResourceName") == str(self.broker_id):
                value["ResourceName"] = "OWN"
            return {key: self._plain(item) for key, item in value.items()}
        if isinstance(value, list):
            items = [self._plain(item) for item in value]
            for key in IN_ANY_ORDER:
                if items and all(isinstance(item, dict) and key in item for item in items):
                    return sorted(items, key=lambda item: item[key])
            return items
        return value.replace(self.word, SIDE) if isinstance(value, str) else value


@dataclass(frozen=True)
class Member(Side):
    """A broker of the cluster."""

    word: str = ""
    broker_id: int = 0

    @property
    def ports(self) -> dict[int, str]:
        """None: both name the same brokers, with their own ports."""
        return {}

    def connect(self, client_id: str = "parity", user: str = "") -> Connection:
        """A new connection, whose login is that of `Side`."""
        connection = super().connect(client_id, user)
        connection.__class__ = Asking
        assert isinstance(connection, Asking)
        connection.word, connection.broker_id = self.word, self.broker_id
        return connection


# --- what is there ---------------------------------------------------------------------------------------------------


def fill(controller: Connection, broker: Connection) -> None:
    """Make one of everything by a broker of Kafka's. Raises ClusterError."""
    epoch = _registered(controller)
    _beat(controller, epoch)
    assignments: dict[str, list[list[int]]] = {
        "both": [[KAFKAS, OF_OURS], [OF_OURS, KAFKAS], [KAFKAS, OF_OURS]],
        "kafkas": [[KAFKAS]],
        "ours": [[OF_OURS]],
        "careful": [[KAFKAS, FENCED], [OF_OURS, FENCED]],
        "gone": [[FENCED]],
        "many": [[KAFKAS]] * 7,
        "filled": [[OF_OURS], [KAFKAS]],
    }
    configs = {
        "careful": {"min.insync.replicas": "2"},
        "both": {"retention.ms": "007", "cleanup.policy": "compact, delete"},
    }
    for name, replicas in assignments.items():
        topic = {
            "Name": name, "NumPartitions": -1, "ReplicationFactor": -1,
            "Assignments": [{"PartitionIndex": index, "BrokerIds": ids} for index, ids in enumerate(replicas)],
            "Configs": [{"Name": key, "Value": value} for key, value in configs.get(name, {}).items()],
        }  # fmt: skip
        _ok(broker, "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 9000})
        _beat(controller, epoch)
    for kind, name, key, value in (
        (BROKER, "", "log.cleaner.threads", "2"),
        (BROKER, "", "message.max.bytes", "2000000"),
        (BROKER, "4", "background.threads", "9"),
        (BROKER, "5", "background.threads", "9"),
        (BROKER, "6", "background.threads", "9"),
        (BROKER, "4", "a.plugins.secret", "x"),
        (BROKER, "5", "a.plugins.secret", "x"),
        (METRICS, "slow", "metrics", "org.apache.kafka.producer."),
        (METRICS, "slow", "interval.ms", "60000"),
        (METRICS, "slow", "match", "client_id=a"),
        (GROUP, "g", "consumer.session.timeout.ms", "50000"),
        (GROUP, "s", "share.auto.offset.reset", "earliest"),
        (TOPIC, "many", "leader.replication.throttled.replicas", "0:1,1:1"),
    ):
        # A broker of Kafka's takes its own settings alone, and the controller those of each.
        _ok(
            controller if name.isdigit() else broker,
            "IncrementalAlterConfigs",
            1,
            _change(kind, name, (key, 0, value)),
        )
    for pattern, name, principal in ((3, "both", "User:bob"), (4, "pre", "User:eve"), (3, "*", "User:*")):
        acl = {"ResourceType": 2, "ResourceName": name, "ResourcePatternType": pattern, "Principal": principal,
               "Host": "*", "Operation": 3, "PermissionType": 3}  # fmt: skip
        _ok(broker, "CreateAcls", 3, {"Creations": [acl]})
    for entity, key in (
        ([("user", "bob"), ("client-id", None)], "producer_byte_rate"), ([("user", "bob")], "request_percentage"),
        ([("user", None)], "consumer_byte_rate"), ([("client-id", "c")], "controller_mutation_rate"),
        ([("ip", "10.0.0.1")], "connection_creation_rate"), ([("ip", None)], "connection_creation_rate"),
    ):  # fmt: skip
        _ok(broker, "AlterClientQuotas", 1, {"Entries": [_quota(entity, key, 1024.0)], "ValidateOnly": False})
    for mechanism in (1, 2):
        user = {"Name": "bob", "Mechanism": mechanism, "Iterations": 4096 * mechanism, "Salt": b"salt",
                "SaltedPassword": b"salted" * 5}  # fmt: skip
        _ok(broker, "AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": [user]})


def _registered(controller: Connection) -> int:
    values = {
        "BrokerId": FENCED, "ClusterId": CLUSTER_ID, "IncarnationId": bytes(range(1, 17)),
        "Listeners": [
            {"Name": name, "Host": "127.0.0.1", "Port": 9 + number, "SecurityProtocol": protocol}
            for number, (name, protocol) in enumerate({"PLAINTEXT": 0, "USERS": 2, "BETWEEN": 3}.items())
        ],
        "Features": [{"Name": name, "MinSupportedVersion": 0 if name != "metadata.version" else 7,
                      "MaxSupportedVersion": 33 if name == "metadata.version" else 2} for name in FEATURES],
        "Rack": "rack-6", "LogDirs": [bytes(range(100, 116))], "PreviousBrokerEpoch": -1,
    }  # fmt: skip
    epoch: int = _ok(controller, "BrokerRegistration", 4, values)["BrokerEpoch"]
    return epoch


def _beat(controller: Connection, epoch: int) -> None:
    values = {"BrokerId": FENCED, "BrokerEpoch": epoch, "CurrentMetadataOffset": 1 << 40, "WantFence": False,
              "WantShutDown": False, "OfflineLogDirs": []}  # fmt: skip
    _ok(controller, "BrokerHeartbeat", 1, values)


def _ok(connection: Connection, api: str, version: int, values: Values) -> Values:
    answer = connection.ask(api, version, values)
    if any(_codes(answer)):
        raise ClusterError(f"{api}: {answer}")
    return answer


def _codes(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [
            code for key, item in value.items() for code in ([item] if key == "ErrorCode" else _codes(item))
        ]
    return [code for item in value for code in _codes(item)] if isinstance(value, list) else []


# --- what is asked ---------------------------------------------------------------------------------------------------


def _change(kind: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False) -> Values:
    configs = [
        {"Name": key, "ConfigOperation": operation, "Value": value} for key, operation, value in changes
    ]
    return {
        "Resources": [{"ResourceType": kind, "ResourceName": name, "Configs": configs}],
        "ValidateOnly": validate,
    }


def _replace(kind: int, name: str, *settings: tuple[str, str | None], validate: bool = False) -> Values:
    configs = [{"Name": key, "Value": value} for key, value in settings]
    return {
        "Resources": [{"ResourceType": kind, "ResourceName": name, "Configs": configs}],
        "ValidateOnly": validate,
    }


def _quota(
    entity: Sequence[tuple[str, str | None]], key: str, value: float, *, remove: bool = False
) -> Values:
    return {
        "Entity": [{"EntityType": kind, "EntityName": name} for kind, name in entity],
        "Ops": [{"Key": key, "Value": value, "Remove": remove}],
    }


def _versions() -> Iterator[Step]:
    for version in range(6):
        software = {"ClientSoftwareName": "kit", "ClientSoftwareVersion": "1"}
        yield Step(f"versions v{version}", "ApiVersions", version, software if version >= 3 else {})


def _metadata() -> Iterator[Step]:
    for version in range(14):
        flags: Values = {}
        if version >= 4:
            flags["AllowAutoTopicCreation"] = False
        if 8 <= version <= 10:
            flags["IncludeClusterAuthorizedOperations"] = True
        if version >= 8:
            flags["IncludeTopicAuthorizedOperations"] = True
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
        ("from", everything, 3, ("careful", 1)), ("from gone", everything, 3, ("gone", 0)), ("limit 0", everything, 0, None),
        ("limit -1", everything, -1, None), ("unknown", ["nowhere", "both"], 9, None), ("twice", ["both", "both"], 9, None),
        ("cursor of none", everything, 9, ("nowhere", 0)), ("cursor behind", ["both"], 9, ("zzz", 0)),
        ("cursor -1", everything, 9, ("both", -1)), ("out of order", ["ours", "both"], 9, None),
    ):  # fmt: skip
        values: Values = {"Topics": [{"Name": name} for name in names], "ResponsePartitionLimit": limit}
        values["Cursor"] = None if cursor is None else {"TopicName": cursor[0], "PartitionIndex": cursor[1]}
        for user in ("", ALICE):
            yield Step(f"partitions: {label} {user}", "DescribeTopicPartitions", 0, values, user)


def _settings() -> Iterator[Step]:
    resources = [
        (TOPIC, "both"), (TOPIC, "careful"), (BROKER, "OWN"), (BROKER, ""), (GROUP, "g"), (GROUP, "s"), (GROUP, "other"),
        (METRICS, "slow"), (METRICS, "other"), (TOPIC, "nowhere"), (TOPIC, "a b"), (TOPIC, ""), (BROKER, "6"), (BROKER, "99"),
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
        {"ResourceTypeFilter": 2, "ResourceNameFilter": "both", "PatternTypeFilter": 2, "Operation": 1, "PermissionType": 1},
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
        ("all", None), ("none", []), ("bob", ["bob"]), ("unknown", ["nobody"]), ("twice", ["bob", "bob"]), ("empty", [""]),
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
                values = {"Topics": [{"TopicName": name, "Partitions": [{"PartitionIndex": 0}]}]}
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
            ("unknown", [{"Topic": "nowhere", "Partitions": [0]}]), ("none", []), ("fenced", [{"Topic": "gone", "Partitions": [0]}]),
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


def _topics() -> Iterator[Step]:
    def one(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> Values:
        return {
            "Name": name,
            "NumPartitions": partitions,
            "ReplicationFactor": replicas,
            "Assignments": [],
            "Configs": [],
        } | more

    def assigned(*ids: Sequence[int]) -> Values:
        return {"NumPartitions": -1, "ReplicationFactor": -1,
                "Assignments": [{"PartitionIndex": index, "BrokerIds": list(one)} for index, one in enumerate(ids)]}  # fmt: skip

    tries: dict[str, list[Values]] = {
        "defaults": [one("SIDE-defaults", -1, 2)],
        "more replicas than brokers": [one("SIDE-x", 1, 9)],
        "assigned": [one("SIDE-assigned", **assigned([4, 5], [5, 4]))],
        "to the fenced": [one("SIDE-x", **assigned([FENCED]))],
        "to one and the fenced": [one("SIDE-half", **assigned([5, FENCED]))],
        "to an unknown": [one("SIDE-x", **assigned([99]))],
        "twice to one": [one("SIDE-x", **assigned([4, 4]))],
        "exists": [one("both")],
        "bad name": [one("a b")],
        "no name": [one("")],
        "the quorum's": [one("__cluster_metadata")],
        "internal": [one("__consumer_offsets")],
        "no partitions": [one("SIDE-x", 0)],
        "-2 replicas": [one("SIDE-x", 1, -2)],
        "a setting": [one("SIDE-set", 1, 1, Configs=[{"Name": "retention.ms", "Value": "007"}])],
        "unknown setting": [one("SIDE-x", 1, 1, Configs=[{"Name": "no.such", "Value": "1"}])],
        "bad setting": [one("SIDE-x", 1, 1, Configs=[{"Name": "retention.ms", "Value": "x"}])],
        "null setting": [one("SIDE-x", 1, 1, Configs=[{"Name": "retention.ms", "Value": None}])],
        "twice": [one("SIDE-twice"), one("SIDE-twice", 2), one("SIDE-once")],
        "like another": [one("SIDE.defaults")],
        "good and bad": [one("SIDE-good"), one("SIDE-bad", 0)],
        "nothing": [],
    }
    for label, topics in tries.items():
        for version in range(2, 8):
            for user in ("", ALICE) if version == 7 else ("",):
                asked = {"Topics": topics, "timeoutMs": 9000, "validateOnly": True}
                yield Step(
                    f"create v{version} only asked: {label} {user}", "CreateTopics", version, asked, user
                )
        yield Step(f"create: {label}", "CreateTopics", 7, {"Topics": topics, "timeoutMs": 9000})
    growths: dict[str, list[tuple[str, int, list[list[int]] | None]]] = {
        "more": [("SIDE-defaults", 5, None)], "as many": [("SIDE-defaults", 5, None)], "fewer": [("SIDE-defaults", 1, None)],
        "unknown": [("nowhere", 3, None)], "bad name": [("a b", 3, None)], "assigned": [("SIDE-set", 2, [[5]])],
        "too few": [("SIDE-set", 4, [[5]])], "to an unknown": [("SIDE-set", 3, [[99]])], "nothing": [],
        "twice": [("SIDE-set", 5, None), ("SIDE-set", 6, None)], "to the fenced": [("SIDE-set", 3, [[FENCED]])],
        "none": [("SIDE-set", 3, [])],
    }  # fmt: skip
    for label, entries in growths.items():
        topics = [
            {"Name": name, "Count": count,
             "Assignments": None if ids is None else [{"BrokerIds": one_ids} for one_ids in ids]}
            for name, count, ids in entries
        ]  # fmt: skip
        for version in range(4):
            for user in ("", ALICE) if version == 3 else ("",):
                asked = {"Topics": topics, "TimeoutMs": 9000, "ValidateOnly": True}
                yield Step(
                    f"grow v{version} only asked: {label} {user}", "CreatePartitions", version, asked, user
                )
        yield Step(f"grow: {label}", "CreatePartitions", 3, {"Topics": topics, "TimeoutMs": 9000})
    for version in range(1, 6):
        for label, names in (
            ("unknown", ["nowhere"]), ("bad", ["a b"]), ("nothing", []), ("twice", ["nowhere", "nowhere"]),
            ("the quorum's", ["__cluster_metadata"]),
        ):  # fmt: skip
            for user in ("", ALICE):
                asked = {"TopicNames": names, "TimeoutMs": 9000}
                yield Step(f"delete v{version} {label} {user}", "DeleteTopics", version, asked, user)
    asked = {"TopicNames": ["SIDE-set", "SIDE-once", "SIDE-set"], "TimeoutMs": 9000}
    yield Step("delete v5", "DeleteTopics", 5, asked)

    def by_id(seen: Seen) -> Values:
        answer = seen["id of half"]["Topics"][0]
        return {"Topics": [{"Name": None, "TopicId": answer["TopicId"]}], "TimeoutMs": 9000}

    yield Step(
        "id of half", "Metadata", 12, {"Topics": [{"Name": "SIDE-half"}], "AllowAutoTopicCreation": False}
    )
    yield Step("delete v6 by id as alice", "DeleteTopics", 6, by_id, ALICE)
    yield Step("delete v6 by id", "DeleteTopics", 6, by_id)
    yield Step("delete v6 by id again", "DeleteTopics", 6, by_id)
    for label, entry in (
        ("unknown id", {"Name": None, "TopicId": UNKNOWN_ID}), ("neither", {"Name": None}),
        ("both", {"Name": "SIDE-defaults", "TopicId": UNKNOWN_ID}), ("unknown name", {"Name": "nowhere"}),
    ):  # fmt: skip
        yield Step(f"delete v6 {label}", "DeleteTopics", 6, {"Topics": [entry], "TimeoutMs": 9000})


def _changes() -> Iterator[Step]:
    yield Step("topic of changes", "CreateTopics", 7, {"timeoutMs": 9000, "Topics": [
        {"Name": "SIDE-t", "NumPartitions": 1, "ReplicationFactor": 1, "Assignments": [], "Configs": []}]})  # fmt: skip
    yield Step(
        "topic of changes is there",
        "Metadata",
        12,
        {"Topics": [{"Name": "SIDE-t"}], "AllowAutoTopicCreation": False},
    )
    tries: list[tuple[int, str, list[list[tuple[str, int, str | None]]]]] = [
        (TOPIC, "SIDE-t", [
            [("retention.ms", 0, "1000")], [("retention.ms", 1, None)], [("retention.ms", 0, None)],
            [("retention.ms", 0, "x")], [("retention.ms", 0, "-2")], [("retention.ms", 2, "1")], [("retention.ms", 9, "1")],
            [("retention.ms", -1, "1")], [("retention.ms", 0, "1"), ("retention.ms", 0, "2")],
            [("retention.ms", 0, "1"), ("retention.ms", 1, None)],
            [("cleanup.policy", 2, "compact")], [("cleanup.policy", 3, "delete")], [("cleanup.policy", 3, "compact")],
            [("no.such", 0, "1")], [("no.such", 1, None)], [("", 0, "1")], [],
            [("min.insync.replicas", 0, "2")], [("min.insync.replicas", 1, None)], [("segment.bytes", 0, "1000")],
            [("remote.storage.enable", 0, "true")], [("min.compaction.lag.ms", 0, "9"), ("max.compaction.lag.ms", 0, "1")],
            [("leader.replication.throttled.replicas", 0, "0:1,1:1")], [("compression.type", 0, "zstd")],
            [("unclean.leader.election.enable", 0, "true")], [("message.format.version", 0, "3.0")],
        ]),
        (TOPIC, "nowhere", [[("retention.ms", 0, "1")], []]), (TOPIC, "a b", [[("retention.ms", 0, "1")]]),
        (TOPIC, "", [[("retention.ms", 0, "1")]]),
        (BROKER, "OWN", [
            [("message.max.bytes", 0, "3000000")], [("message.max.bytes", 0, "-1")], [("message.max.bytes", 0, "x")],
            [("message.max.bytes", 1, None)], [("node.id", 0, "4")], [("num.partitions", 0, "4")], [("no.such", 0, "1")],
            [("no.such", 1, None)], [("log.cleanup.policy", 2, "compact")], [("log.cleanup.policy", 1, None)],
            [("message.max.bytes", 2, "1")], [("leader.replication.throttled.rate", 0, "1000")],
            [("leader.replication.throttled.rate", 1, None)], [("listener.name.users.max.connections", 0, "600")],
            [("listener.name.users.max.connections", 1, None)], [("min.insync.replicas", 0, "2")],
            [("min.insync.replicas", 1, None)], [("num.io.threads", 0, "900")], [("zookeeper.connect", 0, "a:1")],
            [("background.threads", 0, "8")], [("max.connections", 0, None)], [("max.connections", 0, "1"), ("max.connections", 0, "2")],
            [("cordoned.log.dirs", 0, "/nowhere")], [("unclean.leader.election.enable", 0, "true")],
            [("unclean.leader.election.enable", 1, None)], [("controller.quorum.voters", 0, "1@a:1")],
            [("auto.create.topics.enable", 0, "false")], [("process.roles", 0, "controller")], [],
        ]),
        (BROKER, "", [
            [("message.max.bytes", 0, "2500000")], [("message.max.bytes", 0, "x")], [("message.max.bytes", 0, "2000000")],
            [("max.connections", 0, "1000")], [("max.connections", 1, None)], [("no.such", 0, "1")], [("no.such", 1, None)],
            [("min.insync.replicas", 0, "1")], [("ssl.keystore.password", 0, "x")], [("node.id", 0, "3")],
            [("log.cleaner.threads", 0, "2")], [],
        ]),
        (BROKER, "6", [[("message.max.bytes", 0, "3000000")]]), (BROKER, "99", [[("message.max.bytes", 0, "3000000")]]),
        (BROKER, "x", [[("message.max.bytes", 0, "3000000")]]), (BROKER, "-1", [[("message.max.bytes", 0, "3000000")]]),
        (LOGGER, "OWN", [[("no.such.logger", 0, "INFO")], [("root", 0, "NONE")], [("root", 1, None)], [("root", 2, "INFO")], []]),
        (LOGGER, "", [[("root", 0, "INFO")]]), (LOGGER, "6", [[("root", 0, "INFO")]]),
        (GROUP, "SIDE-g", [
            [("consumer.session.timeout.ms", 0, "50000")], [("consumer.session.timeout.ms", 0, "1")],
            [("consumer.session.timeout.ms", 0, "x")], [("consumer.session.timeout.ms", 1, None)], [("no.such", 0, "1")],
            [("share.auto.offset.reset", 0, "earliest")], [("share.auto.offset.reset", 0, "x")],
            [("share.isolation.level", 2, "read_committed")],
        ]),
        (GROUP, "", [[("consumer.session.timeout.ms", 0, "50000")]]),
        (METRICS, "SIDE-m", [
            [("interval.ms", 0, "60000")], [("interval.ms", 0, "1")], [("metrics", 0, "a,b")], [("metrics", 2, "c")],
            [("match", 0, "nonsense")], [("match", 0, "client_id=[")], [("no.such", 0, "1")], [("interval.ms", 1, None)],
        ]),
        (METRICS, "", [[("interval.ms", 0, "60000")]]), (0, "x", [[("a", 0, "1")]]), (99, "x", [[("a", 0, "1")]]),
    ]  # fmt: skip
    for kind, name, changes in tries:
        for number, change in enumerate(changes):
            text = ", ".join(f"{key} {operation} {value}" for key, operation, value in change)
            label = f"{kind} {name!r} {number}: {text}"
            for version in (0, 1):
                asked = _change(kind, name, *change, validate=True)
                yield Step(f"change v{version} only asked {label}", "IncrementalAlterConfigs", version, asked)
            yield Step(
                f"change by alice {label}", "IncrementalAlterConfigs", 1, _change(kind, name, *change), ALICE
            )
            yield Step(f"change {label}", "IncrementalAlterConfigs", 1, _change(kind, name, *change))
            seen = {
                "ResourceType": kind,
                "ResourceName": name,
                "ConfigurationKeys": [key for key, _, _ in change],
            }
            if change:
                asked = {"Resources": [seen], "IncludeSynonyms": True}
                yield Step(f"after change {label}", "DescribeConfigs", 4, asked)
            if any(operation for _, operation, _ in change) or kind in (BROKER, LOGGER):
                continue
            replaced = _replace(kind, name, *((key, value) for key, _, value in change), validate=True)
            for version in range(3):
                yield Step(f"replace v{version} {label}", "AlterConfigs", version, replaced)
    doubled = _change(TOPIC, "SIDE-t", ("retention.ms", 0, "5"))["Resources"]
    for label, resources in (
        ("twice", [*doubled, *doubled]), ("nothing", []),
        ("mixed", [*doubled, *_change(BROKER, "OWN", ("node.id", 0, "3"))["Resources"],
                   *_change(TOPIC, "nowhere", ("retention.ms", 0, "3"))["Resources"],
                   *_change(LOGGER, "OWN", ("no.such", 0, "INFO"))["Resources"],
                   *_change(GROUP, "SIDE-g", ("consumer.session.timeout.ms", 0, "50000"))["Resources"]]),
    ):  # fmt: skip
        for validate in (True, False):
            for user in ("", ALICE):
                asked = {"Resources": resources, "ValidateOnly": validate}
                yield Step(
                    f"change together {label} {validate} {user}", "IncrementalAlterConfigs", 1, asked, user
                )
    for kind, name, key, value in (
        (BROKER, "OWN", "message.max.bytes", "3000000"), (BROKER, "", "message.max.bytes", "2000000"),
        (BROKER, "OWN", "node.id", "3"), (LOGGER, "OWN", "root", "INFO"), (TOPIC, "SIDE-t", "retention.ms", None),
    ):  # fmt: skip
        yield Step(
            f"replace {kind} {name} {key}",
            "AlterConfigs",
            2,
            _replace(kind, name, (key, value), validate=True),
        )


def _rights() -> Iterator[Step]:
    acls: dict[str, Values] = {
        "good": {"ResourceName": "SIDE-acl"}, "again": {"ResourceName": "SIDE-acl"}, "no type": {"ResourceType": 0},
        "any type": {"ResourceType": 1}, "no pattern": {"ResourcePatternType": 0}, "match": {"ResourcePatternType": 2},
        "any operation": {"Operation": 1}, "no permission": {"PermissionType": 0}, "no name": {"ResourceName": ""},
        "no principal": {"Principal": "nobody"}, "of the cluster": {"ResourceType": 4, "ResourceName": "other"},
        "wrong operation": {"Operation": 12, "ResourceName": "SIDE-acl"},
    }  # fmt: skip
    right = {"ResourceType": 2, "ResourceName": "SIDE-x", "ResourcePatternType": 3, "Principal": "User:SIDE", "Host": "*",
             "Operation": 3, "PermissionType": 3}  # fmt: skip
    for label, change in acls.items():
        for version in (1, 2, 3):
            for user in (ALICE, "") if version == 3 else (ALICE,):
                yield Step(
                    f"acl v{version} {label} {user}",
                    "CreateAcls",
                    version,
                    {"Creations": [right | change]},
                    user,
                )
    mine = {
        "ResourceTypeFilter": 1,
        "PatternTypeFilter": 1,
        "PrincipalFilter": "User:SIDE",
        "Operation": 1,
        "PermissionType": 1,
    }
    yield Step("acls made", "DescribeAcls", 3, mine)
    filters = [mine | {"ResourceTypeFilter": 0}, mine | {"PrincipalFilter": "User:nobody"}, mine]
    for number, values in enumerate(filters):
        for user in (ALICE, ""):
            yield Step(f"acls deleted {number} {user}", "DeleteAcls", 3, {"Filters": [values]}, user)
    yield Step("acls gone", "DescribeAcls", 3, mine)
    entries: dict[str, Values] = {
        "good": _quota([("user", "SIDE")], "producer_byte_rate", 1e6), "negative": _quota([("user", "SIDE")], "producer_byte_rate", -1),
        "unknown key": _quota([("user", "SIDE")], "no_such", 1), "unknown type": _quota([("x", "SIDE")], "producer_byte_rate", 1),
        "nothing": _quota([], "producer_byte_rate", 1), "no name": _quota([("user", "")], "producer_byte_rate", 1),
        "ip of a user": _quota([("user", "SIDE")], "connection_creation_rate", 1),
        "bad ip": _quota([("ip", "x y")], "connection_creation_rate", 1), "ip and user": _quota([("ip", "1.1.1.1"), ("user", "x")], "connection_creation_rate", 1),
        "half": _quota([("ip", "1.1.1.2")], "connection_creation_rate", 1.5), "none there": _quota([("user", "SIDE2")], "producer_byte_rate", 1, remove=True),
        "removed": _quota([("user", "SIDE")], "producer_byte_rate", 1, remove=True),
    }  # fmt: skip
    for label, entry in entries.items():
        for version in (0, 1):
            for validate in (True, False):
                for user in (ALICE, ""):
                    asked = {"Entries": [entry], "ValidateOnly": validate}
                    yield Step(
                        f"quota v{version} {label} {validate} {user}",
                        "AlterClientQuotas",
                        version,
                        asked,
                        user,
                    )
    user_ = {
        "Name": "SIDE",
        "Mechanism": 1,
        "Iterations": 4096,
        "Salt": b"salt",
        "SaltedPassword": b"salted" * 5,
    }
    users: dict[str, tuple[list[Values], list[Values]]] = {
        "good": ([], [user_]), "few": ([], [user_ | {"Iterations": 1}]), "many": ([], [user_ | {"Iterations": 99_999}]),
        "no mechanism": ([], [user_ | {"Mechanism": 0}]), "unknown mechanism": ([], [user_ | {"Mechanism": 9}]),
        "no name": ([], [user_ | {"Name": ""}]), "no salt": ([], [user_ | {"Salt": b""}]), "twice": ([], [user_, user_]),
        "gone": ([{"Name": "nobody", "Mechanism": 1}], []), "both": ([{"Name": "SIDE", "Mechanism": 1}], [user_]),
        "no such": ([{"Name": "SIDE", "Mechanism": 2}], []), "removed": ([{"Name": "SIDE", "Mechanism": 1}], []),
        "nothing": ([], []), "odd deletion": ([{"Name": "SIDE", "Mechanism": 7}], []),
    }  # fmt: skip
    for label, (deletions, upsertions) in users.items():
        for user in (ALICE, ""):
            asked = {"Deletions": deletions, "Upsertions": upsertions}
            yield Step(f"user {label} {user}", "AlterUserScramCredentials", 0, asked, user)
        yield Step(f"user after {label}", "DescribeUserScramCredentials", 0, {"Users": [{"Name": "SIDE"}]})


def _decisions() -> Iterator[Step]:
    for version in range(3):
        for label, kind, topics in (
            ("as it is", 0, [("both", [0])]), ("unknown", 0, [("nowhere", [0])]), ("unknown partition", 0, [("both", [9])]),
            ("unclean", 1, [("gone", [0])]), ("nonsense", 9, [("both", [0])]), ("of the fenced", 0, [("gone", [0])]),
            ("nothing", 0, []), ("twice", 0, [("both", [0, 0])]), ("bad", 0, [("a b", [0])]),
        ):  # fmt: skip
            entries = [{"Topic": name, "Partitions": indexes} for name, indexes in topics]
            for user in ("", ALICE):
                values: Values = {"TimeoutMs": 9000, "TopicPartitions": entries}
                if version:
                    values["ElectionType"] = kind
                yield Step(f"elect v{version} {label} {user}", "ElectLeaders", version, values, user)
    for version in range(2):
        for label, name, index, replicas in (
            ("as it is", "both", 0, [4, 5]), ("cancelled", "both", 0, None), ("nobody", "both", 0, []), ("unknown", "nowhere", 0, [4]),
            ("unknown broker", "both", 0, [99]), ("twice", "both", 0, [4, 4]), ("negative", "both", 0, [-1]), ("bad", "a b", 0, None),
            ("unknown partition", "both", 9, [4]), ("negative partition", "both", -1, [4]), ("to the fenced", "kafkas", 0, [6]),
        ):  # fmt: skip
            for user in ("", ALICE):
                partition = {"PartitionIndex": index, "Replicas": replicas}
                values = {"TimeoutMs": 9000, "Topics": [{"Name": name, "Partitions": [partition]}]}
                yield Step(
                    f"move v{version} {label} {user}", "AlterPartitionReassignments", version, values, user
                )
    features: dict[str, list[tuple[str, int, int]]] = {
        "none": [], "unknown": [("no.such", 1, 1)], "unknown, removed": [("no.such", 0, 2)], "no name": [("", 1, 1)],
        "as it is": [("transaction.version", 2, 1)], "too high": [("transaction.version", 99, 1)],
        "negative": [("transaction.version", -1, 1)], "lower, as an upgrade": [("transaction.version", 1, 1)],
        "no such type": [("transaction.version", 2, 9)], "twice": [("transaction.version", 2, 1)] * 2,
        "metadata.version down": [("metadata.version", 7, 2)], "metadata.version up": [("metadata.version", 99, 1)],
        "kraft.version": [("kraft.version", 0, 2)],
    }  # fmt: skip
    for version in range(3):
        for label, updates in features.items():
            entries = [
                {"Feature": name, "MaxVersionLevel": level}
                | ({"UpgradeType": kind} if version else {"AllowDowngrade": kind != 1})
                for name, level, kind in updates
            ]
            values = {"timeoutMs": 9000, "FeatureUpdates": entries}
            for only_asked in (True, False) if version else (False,):
                for user in ("", ALICE):
                    asked = {**values, "ValidateOnly": only_asked} if version else values
                    yield Step(
                        f"features v{version} {only_asked} {label} {user}",
                        "UpdateFeatures",
                        version,
                        asked,
                        user,
                    )
    for broker_id in (99, -1):
        for user in ("", ALICE):
            yield Step(f"unregister {broker_id} {user}", "UnregisterBroker", 0, {"BrokerId": broker_id}, user)
    voter = {"ClusterId": CLUSTER_ID, "TimeoutMs": 2000, "VoterId": 77, "VoterDirectoryId": UNKNOWN_ID,
             "Listeners": [{"Name": "CONTROLLER", "Host": "127.0.0.1", "Port": 9}]}  # fmt: skip
    for label, change in (
        ("another cluster", {"ClusterId": "x"}), ("no listeners", {"Listeners": []}), ("known", {"VoterId": 1}),
        ("not there", {}), ("no listener's name", {"Listeners": [{"Name": "X", "Host": "127.0.0.1", "Port": 9}]}),
    ):  # fmt: skip
        for version in (0, 1):
            for user in ("", ALICE):
                yield Step(f"voter v{version} {label} {user}", "AddRaftVoter", version, voter | change, user)
    for label, change in (
        ("another cluster", {"ClusterId": "x"}),
        ("unknown", {}),
        ("no id", {"VoterId": -1}),
    ):
        values = {key: voter[key] for key in ("ClusterId", "VoterId", "VoterDirectoryId")} | change
        for user in ("", ALICE):
            yield Step(f"voter removed: {label} {user}", "RemoveRaftVoter", 0, values, user)


def _auto() -> Iterator[Step]:
    """Topics that are made because a client asks for them: Kafka's broker answers first that there is none."""
    for label, name, user in (
        ("made", "SIDE-auto", ""), ("not allowed", "SIDE-auto-of-alice", ALICE), ("bad name", "a b", ""),
        ("controllers'", "__cluster_metadata", ""), ("by a user", "SIDE-auto-of-admin", ADMIN),
    ):  # fmt: skip
        for version in (4, 12):
            asked = {"Topics": [{"Name": name}], "AllowAutoTopicCreation": True}
            yield Step(f"auto v{version}: {label}", "Metadata", version, asked, user)
        seen = {"ResourceType": TOPIC, "ResourceName": name, "ConfigurationKeys": None}
        yield Step(
            f"auto: {label}: its settings",
            "DescribeConfigs",
            4,
            {"Resources": [seen], "IncludeSynonyms": True},
        )


def _throttled() -> Iterator[Step]:
    """Ask for more topics than a quota lets a client id make: answers in which the controller says so, of each version."""
    yield Step("mutations: quota", "AlterClientQuotas", 1, {"Entries": [
        _quota([("user", ADMIN)], "controller_mutation_rate", 1.0)], "ValidateOnly": False})  # fmt: skip
    yield Step("mutations: known", "DescribeClientQuotas", 1, {"Components": [
        {"EntityType": "user", "MatchType": 0, "Match": ADMIN}], "Strict": True})  # fmt: skip
    for version in (5, 6, 7):
        topics = [
            {
                "Name": f"SIDE-quota-{version}",
                "NumPartitions": 40,
                "ReplicationFactor": 1,
                "Assignments": [],
                "Configs": [],
            }
        ]
        for turn in range(2):
            asked = {"Topics": [topics[0] | {"Name": f"SIDE-quota-{version}-{turn}"}], "timeoutMs": 9000}
            yield Step(f"mutations: create v{version} {turn}", "CreateTopics", version, asked, ADMIN)
    yield Step("mutations: no quota", "AlterClientQuotas", 1, {"Entries": [
        _quota([("user", ADMIN)], "controller_mutation_rate", 1.0, remove=True)], "ValidateOnly": False})  # fmt: skip


PARTS = {
    "versions": _versions, "metadata": _metadata, "cluster": _cluster, "partitions": _partitions, "settings": _settings,
    "access": _access, "tokens": _tokens, "others": _others, "topics": _topics, "changes": _changes, "rights": _rights,
    "decisions": _decisions, "auto": _auto, "throttled": _throttled,
}  # fmt: skip


OTHERS = {"internal": internal_topics, "clients": clients}
"""Parts that are no single requests."""
READING = ("versions", "metadata", "cluster", "partitions", "settings", "access", "tokens", "others")
ALL = (*READING, "tools", *(name for name in PARTS if name not in READING), *OTHERS)
"""In an order in which what one part leaves is not in the way of another."""


# --- Kafka's tools ---------------------------------------------------------------------------------------------------

TOOLS: tuple[tuple[str, str], ...] = (
    ("topics", "--list"), ("topics", "--describe"), ("topics", "--describe --topic both"),
    ("topics", "--describe --under-replicated-partitions"), ("topics", "--describe --unavailable-partitions"),
    ("topics", "--describe --under-min-isr-partitions"), ("topics", "--describe --at-min-isr-partitions"),
    ("topics", "--describe --topics-with-overrides"), ("topics", "--describe --topic nowhere"),
    ("topics", "--create --topic SIDE-tool --partitions 2 --replication-factor 2 --config retention.ms=9"),
    ("topics", "--create --topic SIDE-tool"), ("topics", "--create --topic SIDE-tool --if-not-exists"),
    ("topics", "--create --topic SIDE-bad --partitions 0"), ("topics", "--create --topic SIDE-bad --replication-factor 9"),
    ("topics", "--create --topic SIDE-ids --replica-assignment 4:5,5:4"),
    ("topics", "--alter --topic SIDE-tool --partitions 3"), ("topics", "--alter --topic SIDE-tool --partitions 1"),
    ("topics", "--describe --topic SIDE-ids"), ("topics", "--delete --topic SIDE-tool"),
    ("topics", "--delete --topic SIDE-tool"), ("topics", "--delete --topic SIDE-ids"),
    ("configs", "--describe --all --entity-type topics --entity-name both"),
    ("configs", "--describe --entity-type topics"), ("configs", "--describe --entity-type brokers"),
    ("configs", "--describe --entity-type brokers --entity-default"),
    ("configs", "--describe --entity-type brokers --entity-name OWN"),
    ("configs", "--describe --entity-type users"), ("configs", "--describe --entity-type users --entity-name bob"),
    ("configs", "--describe --entity-type users --entity-default"), ("configs", "--describe --entity-type clients"),
    ("configs", "--describe --entity-type ips"), ("configs", "--describe --entity-type client-metrics"),
    ("configs", "--describe --entity-type groups"), ("configs", "--describe --entity-type groups --entity-name g --all"),
    ("configs", "--describe --entity-type broker-loggers --entity-name 99"),
    ("configs", "--alter --entity-type topics --entity-name many --add-config retention.ms=77"),
    ("configs", "--alter --entity-type topics --entity-name many --delete-config retention.ms"),
    ("configs", "--alter --entity-type topics --entity-name many --add-config no.such=1"),
    ("configs", "--alter --entity-type topics --entity-name nowhere --add-config retention.ms=1"),
    ("configs", "--alter --entity-type brokers --entity-default --add-config log.cleaner.threads=2"),
    ("configs", "--alter --entity-type brokers --entity-name OWN --add-config log.cleaner.threads=2"),
    ("configs", "--alter --entity-type brokers --entity-name OWN --delete-config log.cleaner.threads"),
    ("configs", "--alter --entity-type users --entity-name SIDE --add-config SCRAM-SHA-256=[password=x]"),
    ("configs", "--alter --entity-type users --entity-name SIDE --add-config producer_byte_rate=77"),
    ("configs", "--describe --entity-type users --entity-name SIDE"),
    ("configs", "--alter --entity-type users --entity-name SIDE --delete-config SCRAM-SHA-256"),
    ("configs", "--alter --entity-type users --entity-name SIDE --delete-config producer_byte_rate"),
    ("acls", "--list"), ("acls", "--list --topic both"),
    ("acls", "--add --allow-principal User:SIDE --producer --topic SIDE-acl"), ("acls", "--list --principal User:SIDE"),
    ("acls", "--remove --force --allow-principal User:SIDE --producer --topic SIDE-acl"),
    ("metadata-quorum", "describe --status"), ("metadata-quorum", "describe --replication"),
    ("metadata-quorum", "remove-controller --controller-id 99 --controller-directory-id AAAAAAAAAAAAAAAAAAAAAQ"),
    ("features", "describe"), ("features", "upgrade --feature transaction.version=2"),
    ("features", "upgrade --feature no.such=2"), ("features", "downgrade --feature transaction.version=1 --dry-run"),
    ("features", "disable --feature group.version --dry-run"), ("features", "upgrade --release-version 4.3"),
    ("cluster", "cluster-id"), ("cluster", "list-endpoints"), ("cluster", "list-endpoints --include-fenced-brokers"),
    ("cluster", "unregister --id 99"), ("log-dirs", "--describe --topic-list many"),
    ("log-dirs", "--describe --broker-list 4 --topic-list many"), ("log-dirs", "--describe --broker-list 99"),
    ("reassign-partitions", "--list"),
    ("reassign-partitions", "--execute --reassignment-json-file MOVE"),
    ("reassign-partitions", "--verify --reassignment-json-file MOVE"),
    ("leader-election", "--election-type preferred --topic both --partition 0"),
    ("leader-election", "--election-type preferred --topic nowhere --partition 0"),
    ("leader-election", "--election-type unclean --topic gone --partition 0"),
    ("client-metrics", "--list"), ("client-metrics", "--describe"), ("client-metrics", "--describe --name slow"),
    ("client-metrics", "--alter --name SIDE --metrics a,b --interval 1000"), ("client-metrics", "--describe --name SIDE"),
    ("client-metrics", "--delete --name SIDE"), ("client-metrics", "--delete --name nowhere"),
    ("delegation-tokens", "--describe"), ("groups", "--list"), ("transactions", "list"),
    ("broker-api-versions", ""),
)  # fmt: skip
AFTER = ("cluster", "metadata-quorum", "features")
"""Tools with their action first."""
READS = ("--list", "--describe", "describe", "list")


def tools(peers: QuorumPeers) -> tuple[list[Difference], int]:
    """Run Kafka's tools at both brokers; returns what differs, and the number of commands."""
    move = '{"version":1,"partitions":[{"topic":"many","partition":0,"replicas":[4]}]}'
    (peers.directory / "MOVE.json").write_text(move)
    differences = []
    with ToolProcess(release(peers.cluster.version)) as process:
        for tool, words in TOOLS:
            give_up = time.monotonic() + (10 if words.startswith(READS) or " --describe" in words else 0)
            while True:
                said = [_run(process, peers, broker_id, tool, words) for broker_id in (KAFKAS, OF_OURS)]
                if said[0] == said[1] or time.monotonic() > give_up:
                    break
                time.sleep(1)
            if said[0] != said[1]:
                only = [sorted(set(said[n]) - set(said[1 - n])) for n in (0, 1)]
                if not any(only):
                    only = said
                differences.append(
                    Difference(f"kafka-{tool} {words}", "", only[0], only[1], whole=(said[0], said[1]))
                )
    return differences, len(TOOLS)


NUMBERS = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?|\b1[789]\d{11}\b"), "TIME"),
    (re.compile(r"\[\d{4}-[^\]]*\]"), "[TIME]"),
    (re.compile(r"(Epoch|FinalizedVersionEpoch): ?\d+"), r"\1: N"),
    (re.compile(r"TopicId: \S{22}"), "TopicId: ID"),
)
MOVING = re.compile(r"^(HighWatermark|MaxFollowerLag\w*|LeaderEpoch):")


def _run(process: ToolProcess, peers: QuorumPeers, broker_id: int, tool: str, words: str) -> list[str]:
    word = {KAFKAS: "kafkas-side", OF_OURS: "our-side"}[broker_id]
    where = ["--bootstrap-server", f"127.0.0.1:{peers.users[broker_id]}"]
    login = ["--config" if tool == "cluster" else "--admin.config" if tool == "leader-election" else "--command-config",
             str(peers.admin)]  # fmt: skip
    own = [
        {"OWN": str(broker_id), "MOVE": str(peers.directory / "MOVE.json")}.get(
            part, part.replace(SIDE, word)
        )
        for part in words.split()
    ]
    arguments = [own[0], *where, *login, *own[1:]] if tool == "cluster" else [*where, *login, *own]
    code, text = process.run(tool, *arguments)
    for pattern, form in NUMBERS:
        text = pattern.sub(form, text)
    text = text.replace(word, SIDE).replace(where[1], "ADDRESS")
    if "OWN" in words:
        text = re.sub(rf"\bbroker {broker_id}\b", "broker OWN", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    if tool == "metadata-quorum":
        lines = [
            line if not line[:1].isdigit() else " ".join(line.split()[:2])
            for line in lines
            if not MOVING.match(line)
        ]
    return [
        f"exit code {code}",
        *sorted(line for line in lines if line and not line.startswith("at ") and "\tat " not in line),
    ]


# --- the whole -------------------------------------------------------------------------------------------------------


def sides(peers: QuorumPeers) -> tuple[Member, Member]:
    """(The broker of Kafka's, ours), to be asked by `compat.kit.compare`."""
    theirs, ours = (
        Member(peers.what(broker_id), peers.cluster.ports[broker_id], peers.users[broker_id], word, broker_id)
        for broker_id, word in ((KAFKAS, "kafkas-side"), (OF_OURS, "our-side"))
    )
    return theirs, ours


def compare(peers: QuorumPeers, parts: Sequence[str], only: str) -> int:
    """Ask and judge; returns how many differences are not known."""
    theirs, ours = sides(peers)
    differences: list[Difference] = []
    asked = commands = 0
    for name in parts:
        begun = time.monotonic()
        if name in OTHERS:
            try:
                print(f"  {name}: {OTHERS[name](peers, (KAFKAS, OF_OURS))}", flush=True)
                found = []
            except ClusterError as error:
                found = [Difference(name, "", "", str(error))]
        elif name == "tools":
            found, commands = tools(peers)
        else:
            steps = list(PARTS[name]())
            asked += len(steps)
            found = run(steps, theirs, ours, KNOWN, SETTLE_S)
        unknown = [one for one in found if not any(row.covers(one) for row in KNOWN)]
        print(
            f"  {name}: {len(found)} differences, {len(unknown)} not known ({time.monotonic() - begun:.0f} s)",
            flush=True,
        )
        differences += found
    shown = [difference for difference in differences if only in difference.label]
    complete = len(parts) == len(ALL) and not only
    sys.stdout.flush()
    bad = judge(shown, KNOWN, complete=complete, together=True)
    print(
        f"{asked} requests and {commands} commands, {len(differences)} differences, {bad} of them not as known",
        flush=True,
    )
    return bad


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster.parity", description=__doc__)
    parser.add_argument("--parts", default="", metavar="A,B", help=f"only these, of {', '.join(ALL)}")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="show differences of steps with this in their label"
    )
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    parser.add_argument(
        "--turns", action="store_true", help="restart our broker and ask again at each line of stdin"
    )
    options = parser.parse_args(argv)
    parts = [name for name in options.parts.split(",") if name] or ALL

    def compared(directory: Path) -> None:
        # ANONYMOUS, the program that asks, is a super user; each topic has as many replicas as are wanted.
        settings = {"default.replication.factor": "1", "min.insync.replicas": "1", "num.partitions": "1"}
        # What brokers of ours have in all checks.
        settings |= {f"group.{name}.ms": "0" for name in AT_ONCE}
        internal = {f"{name}.replication.factor": "1" for name in ("offsets.topic", "transaction.state.log")}
        peers = QuorumPeers(directory, (KAFKA, OURS), settings=settings | internal)
        with peers.cluster as cluster:
            with Connection("127.0.0.1", cluster.quorum.leader().admin_port) as controller:
                with Connection("127.0.0.1", cluster.ports[KAFKAS]) as broker:
                    fill(controller, broker)
            wait_until(lambda: cluster.live() == {KAFKAS, OF_OURS}, "the third broker is fenced")
            bad = compare(peers, parts, options.only)
            while options.turns and (line := sys.stdin.readline().strip()):
                cluster.nodes[OF_OURS].stop()
                cluster.start(OF_OURS)
                chosen, _, only = line.partition(" ")
                bad = compare(peers, ALL if chosen == "all" else chosen.split(","), only)
                print("--- turn ends", flush=True)
            for broker_id, lines in cluster.complaints().items():
                print(f"broker {broker_id} has logged {len(lines)} errors, the first: {lines[0]}")
        if bad:
            raise ClusterError(f"{bad} differences are not known")

    return in_directory("parity-", options.dir, compared)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
