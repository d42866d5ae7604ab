"""Requests for changes, valid and invalid, in each version, to a broker of Kafka's and one of ours in a quorum.

The rule: the names of changed resources contain SIDE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from compat.cluster.parity_cluster import (
    BROKER,
    FENCED,
    GROUP,
    LOGGER,
    METRICS,
    TOPIC,
    change,
    quota,
    replace,
)
from compat.cluster.peers import ADMIN, ALICE
from compat.kafka.broker import CLUSTER_ID
from compat.kit.compare import Seen, Step
from compat.kit.wire import Values

UNKNOWN_ID = bytes(range(16))


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
        values: Values = {"NumPartitions": -1, "ReplicationFactor": -1,
                "Assignments": [
                    {"PartitionIndex": index, "BrokerIds": list(of)} for index, of in enumerate(ids)
                ]}  # fmt: skip
        return values

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
        "more": [("SIDE-defaults", 5, None)], "as many": [("SIDE-defaults", 5, None)],
        "fewer": [("SIDE-defaults", 1, None)],
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
            [("retention.ms", 0, "x")], [("retention.ms", 0, "-2")], [("retention.ms", 2, "1")],
            [("retention.ms", 9, "1")],
            [("retention.ms", -1, "1")], [("retention.ms", 0, "1"), ("retention.ms", 0, "2")],
            [("retention.ms", 0, "1"), ("retention.ms", 1, None)],
            [("cleanup.policy", 2, "compact")], [("cleanup.policy", 3, "delete")], [("cleanup.policy", 3, "compact")],
            [("no.such", 0, "1")], [("no.such", 1, None)], [("", 0, "1")], [],
            [("min.insync.replicas", 0, "2")], [("min.insync.replicas", 1, None)], [("segment.bytes", 0, "1000")],
            [("remote.storage.enable", 0, "true")],
            [("min.compaction.lag.ms", 0, "9"), ("max.compaction.lag.ms", 0, "1")],
            [("leader.replication.throttled.replicas", 0, "0:1,1:1")], [("compression.type", 0, "zstd")],
            [("unclean.leader.election.enable", 0, "true")], [("message.format.version", 0, "3.0")],
        ]),
        (TOPIC, "nowhere", [[("retention.ms", 0, "1")], []]), (TOPIC, "a b", [[("retention.ms", 0, "1")]]),
        (TOPIC, "", [[("retention.ms", 0, "1")]]),
        (BROKER, "OWN", [
            [("message.max.bytes", 0, "3000000")], [("message.max.bytes", 0, "-1")], [("message.max.bytes", 0, "x")],
            [("message.max.bytes", 1, None)], [("node.id", 0, "4")], [("num.partitions", 0, "4")],
            [("no.such", 0, "1")],
            [("no.such", 1, None)], [("log.cleanup.policy", 2, "compact")], [("log.cleanup.policy", 1, None)],
            [("message.max.bytes", 2, "1")], [("leader.replication.throttled.rate", 0, "1000")],
            [("leader.replication.throttled.rate", 1, None)], [("listener.name.users.max.connections", 0, "600")],
            [("listener.name.users.max.connections", 1, None)], [("min.insync.replicas", 0, "2")],
            [("min.insync.replicas", 1, None)], [("num.io.threads", 0, "900")], [("zookeeper.connect", 0, "a:1")],
            [("background.threads", 0, "8")], [("max.connections", 0, None)],
            [("max.connections", 0, "1"), ("max.connections", 0, "2")],
            [("cordoned.log.dirs", 0, "/nowhere")], [("unclean.leader.election.enable", 0, "true")],
            [("unclean.leader.election.enable", 1, None)], [("controller.quorum.voters", 0, "1@a:1")],
            [("auto.create.topics.enable", 0, "false")], [("process.roles", 0, "controller")], [],
        ]),
        (BROKER, "", [
            [("message.max.bytes", 0, "2500000")], [("message.max.bytes", 0, "x")],
            [("message.max.bytes", 0, "2000000")],
            [("max.connections", 0, "1000")], [("max.connections", 1, None)], [("no.such", 0, "1")],
            [("no.such", 1, None)],
            [("min.insync.replicas", 0, "1")], [("ssl.keystore.password", 0, "x")], [("node.id", 0, "3")],
            [("log.cleaner.threads", 0, "2")], [],
        ]),
        (BROKER, "6", [[("message.max.bytes", 0, "3000000")]]), (BROKER, "99", [[("message.max.bytes", 0, "3000000")]]),
        (BROKER, "x", [[("message.max.bytes", 0, "3000000")]]), (BROKER, "-1", [[("message.max.bytes", 0, "3000000")]]),
        (LOGGER, "OWN", [[("no.such.logger", 0, "INFO")], [("root", 0, "NONE")], [("root", 1, None)],
                         [("root", 2, "INFO")], []]),
        (LOGGER, "", [[("root", 0, "INFO")]]), (LOGGER, "6", [[("root", 0, "INFO")]]),
        (GROUP, "SIDE-g", [
            [("consumer.session.timeout.ms", 0, "50000")], [("consumer.session.timeout.ms", 0, "1")],
            [("consumer.session.timeout.ms", 0, "x")], [("consumer.session.timeout.ms", 1, None)],
            [("no.such", 0, "1")],
            [("share.auto.offset.reset", 0, "earliest")], [("share.auto.offset.reset", 0, "x")],
            [("share.isolation.level", 2, "read_committed")],
        ]),
        (GROUP, "", [[("consumer.session.timeout.ms", 0, "50000")]]),
        (METRICS, "SIDE-m", [
            [("interval.ms", 0, "60000")], [("interval.ms", 0, "1")], [("metrics", 0, "a,b")], [("metrics", 2, "c")],
            [("match", 0, "nonsense")], [("match", 0, "client_id=[")], [("no.such", 0, "1")],
            [("interval.ms", 1, None)],
        ]),
        (METRICS, "", [[("interval.ms", 0, "60000")]]), (0, "x", [[("a", 0, "1")]]), (99, "x", [[("a", 0, "1")]]),
    ]  # fmt: skip
    for kind, name, changes in tries:
        for number, alterations in enumerate(changes):
            text = ", ".join(f"{key} {operation} {value}" for key, operation, value in alterations)
            label = f"{kind} {name!r} {number}: {text}"
            for version in (0, 1):
                asked = change(kind, name, *alterations, validate=True)
                yield Step(f"change v{version} only asked {label}", "IncrementalAlterConfigs", version, asked)
            yield Step(
                f"change by alice {label}",
                "IncrementalAlterConfigs",
                1,
                change(kind, name, *alterations),
                ALICE,
            )
            yield Step(f"change {label}", "IncrementalAlterConfigs", 1, change(kind, name, *alterations))
            seen = {
                "ResourceType": kind,
                "ResourceName": name,
                "ConfigurationKeys": [key for key, _, _ in alterations],
            }
            if alterations:
                asked = {"Resources": [seen], "IncludeSynonyms": True}
                yield Step(f"after change {label}", "DescribeConfigs", 4, asked)
            if any(operation for _, operation, _ in alterations) or kind in (BROKER, LOGGER):
                continue
            replaced = replace(kind, name, *((key, value) for key, _, value in alterations), validate=True)
            for version in range(3):
                yield Step(f"replace v{version} {label}", "AlterConfigs", version, replaced)
    doubled = change(TOPIC, "SIDE-t", ("retention.ms", 0, "5"))["Resources"]
    for label, resources in (
        ("twice", [*doubled, *doubled]), ("nothing", []),
        ("mixed", [*doubled, *change(BROKER, "OWN", ("node.id", 0, "3"))["Resources"],
                   *change(TOPIC, "nowhere", ("retention.ms", 0, "3"))["Resources"],
                   *change(LOGGER, "OWN", ("no.such", 0, "INFO"))["Resources"],
                   *change(GROUP, "SIDE-g", ("consumer.session.timeout.ms", 0, "50000"))["Resources"]]),
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
            replace(kind, name, (key, value), validate=True),
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
    for label, odd in acls.items():
        for version in (1, 2, 3):
            for user in (ALICE, "") if version == 3 else (ALICE,):
                yield Step(
                    f"acl v{version} {label} {user}",
                    "CreateAcls",
                    version,
                    {"Creations": [right | odd]},
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
        "good": quota([("user", "SIDE")], "producer_byte_rate", 1e6),
        "negative": quota([("user", "SIDE")], "producer_byte_rate", -1),
        "unknown key": quota([("user", "SIDE")], "no_such", 1),
        "unknown type": quota([("x", "SIDE")], "producer_byte_rate", 1),
        "nothing": quota([], "producer_byte_rate", 1), "no name": quota([("user", "")], "producer_byte_rate", 1),
        "ip of a user": quota([("user", "SIDE")], "connection_creation_rate", 1),
        "bad ip": quota([("ip", "x y")], "connection_creation_rate", 1),
        "ip and user": quota([("ip", "1.1.1.1"), ("user", "x")], "connection_creation_rate", 1),
        "half": quota([("ip", "1.1.1.2")], "connection_creation_rate", 1.5),
        "none there": quota([("user", "SIDE2")], "producer_byte_rate", 1, remove=True),
        "removed": quota([("user", "SIDE")], "producer_byte_rate", 1, remove=True),
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
    scram = {
        "Name": "SIDE",
        "Mechanism": 1,
        "Iterations": 4096,
        "Salt": b"salt",
        "SaltedPassword": b"salted" * 5,
    }
    users: dict[str, tuple[list[Values], list[Values]]] = {
        "good": ([], [scram]), "few": ([], [scram | {"Iterations": 1}]), "many": ([], [scram | {"Iterations": 99_999}]),
        "no mechanism": ([], [scram | {"Mechanism": 0}]), "unknown mechanism": ([], [scram | {"Mechanism": 9}]),
        "no name": ([], [scram | {"Name": ""}]), "no salt": ([], [scram | {"Salt": b""}]),
        "twice": ([], [scram, scram]),
        "gone": ([{"Name": "nobody", "Mechanism": 1}], []), "both": ([{"Name": "SIDE", "Mechanism": 1}], [scram]),
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
            ("as it is", 0, [("both", [0])]), ("unknown", 0, [("nowhere", [0])]),
            ("unknown partition", 0, [("both", [9])]),
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
            ("as it is", "both", 0, [4, 5]), ("cancelled", "both", 0, None), ("nobody", "both", 0, []),
            ("unknown", "nowhere", 0, [4]),
            ("unknown broker", "both", 0, [99]), ("twice", "both", 0, [4, 4]), ("negative", "both", 0, [-1]),
            ("bad", "a b", 0, None),
            ("unknown partition", "both", 9, [4]), ("negative partition", "both", -1, [4]),
            ("to the fenced", "kafkas", 0, [6]),
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
    for label, odd in (
        ("another cluster", {"ClusterId": "x"}), ("no listeners", {"Listeners": []}), ("known", {"VoterId": 1}),
        ("not there", {}), ("no listener's name", {"Listeners": [{"Name": "X", "Host": "127.0.0.1", "Port": 9}]}),
    ):  # fmt: skip
        for version in (0, 1):
            for user in ("", ALICE):
                yield Step(f"voter v{version} {label} {user}", "AddRaftVoter", version, voter | odd, user)
    for label, odd in (
        ("another cluster", {"ClusterId": "x"}),
        ("unknown", {}),
        ("no id", {"VoterId": -1}),
    ):
        values = {key: voter[key] for key in ("ClusterId", "VoterId", "VoterDirectoryId")} | odd
        for user in ("", ALICE):
            yield Step(f"voter removed: {label} {user}", "RemoveRaftVoter", 0, values, user)


def _auto() -> Iterator[Step]:
    """Yield requests that create topics automatically: Kafka's broker first responds that the topic is unknown."""
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
    """Yield requests for more topics than a client id's quota allows, with the controller's refusal in each version."""
    yield Step("mutations: quota", "AlterClientQuotas", 1, {"Entries": [
        quota([("user", ADMIN)], "controller_mutation_rate", 1.0)], "ValidateOnly": False})  # fmt: skip
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
        quota([("user", ADMIN)], "controller_mutation_rate", 1.0, remove=True)], "ValidateOnly": False})  # fmt: skip


PARTS = {
    "topics": _topics, "changes": _changes, "rights": _rights, "decisions": _decisions, "auto": _auto,
    "throttled": _throttled,
}  # fmt: skip
