"""Requests that cannot be derived from the schemas, for a cluster with one broker, and APIs that controllers lack.

The rule: a step sets up the state for the next one; labels begin with the subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from codegen.parse import load_message
from compat.controller.requests import (
    FEATURES,
    TOPIC,
    acl,
    acl_filter,
    created,
    epoch_of,
    id_of,
    token_hmac,
    topic_id_of,
)
from compat.controller.sides import NODE_ID
from compat.kit.compare import Step
from compat.kit.mutation import resolved
from compat.kit.wire import API, Values

SERVED = frozenset((
    1, 17, 18, 19, 20, 29, 30, 31, 32, 33, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58,
    59, 60, 62, 63, 64, 67, 70, 73, 80, 81, 82,
))  # fmt: skip
"""Keys of the APIs of a controller of Kafka 4.3."""
FORWARDED = "User:ANONYMOUS"
TOPICS, BROKERS, LOGGERS, GROUPS, METRICS = 2, 4, 8, 32, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def step(label: str, api: str, version: int, values: Values, user: str = "") -> Step:
    return Step(f"edge {label}", api, version, lambda seen: resolved(values, seen), user)


def of_one_broker() -> Iterator[Step]:
    """Yield the steps for a cluster of one unfenced broker."""
    yield from _not_served()
    yield from _topics()
    yield from _settings()
    yield from _access()
    yield from _quotas_and_users()
    yield from _tokens()
    yield from _features()
    yield from _producer_ids()
    yield from _mutations()


def _not_served() -> Iterator[Step]:
    for path in sorted(API.glob("*_*Request.json")):
        shape = load_message(path)
        if shape is None or shape.api_key is None or shape.api_key in SERVED:
            continue
        api = shape.name.removesuffix("Request")
        yield step(f"not served: {api}", api, shape.versions.first, {})
    for api, version in (("CreateTopics", 1), ("CreateTopics", 8), ("DescribeAcls", 0), ("Fetch", 3), ("Fetch", 19),
                         ("Vote", 3), ("BrokerRegistration", 5), ("ApiVersions", 5), ("ApiVersions", 99)):  # fmt: skip
        yield step(f"not served: {api} v{version}", api, version, {})


def _topics() -> Iterator[Step]:
    def create(label: str, *topics: Values, user: str = "", **fields: Any) -> Step:
        values = {"timeoutMs": 9000, "Topics": list(topics), **fields}
        return step(f"create {label}", "CreateTopics", 7, values, user)

    def topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> Values:
        return {"Name": name, "NumPartitions": partitions, "ReplicationFactor": factor, **fields}

    def by_hand(name: str, *assignments: tuple[int, list[int]], **fields: Any) -> Values:
        entries = [{"PartitionIndex": index, "BrokerIds": brokers} for index, brokers in assignments]
        return topic(name, -1, -1, Assignments=entries, **fields)

    def configs(**values: str | None) -> list[Values]:
        return [{"Name": name.replace("_", "."), "Value": value} for name, value in values.items()]

    yield create("several", topic("edge-a"), topic("edge-b", 3), topic(TOPIC), topic("a b"), topic(""))
    yield create("names that differ by a dot", topic("edge.c"), topic("edge_d"))
    yield create("the same but for a dot", topic("edge_c"))
    yield create("the topic of the controllers", topic("__cluster_metadata"))
    yield create("internal", topic("__consumer_offsets"))
    yield create("too long", topic("x" * 250))
    yield create("the longest", topic("x" * 249))
    yield create("dots", topic("."), topic(".."))
    yield create("defaults", topic("edge-defaults", -1, -1))
    yield create("too many replicas", topic("edge-many", 1, 9))
    yield create("too many partitions", topic("edge-many", 10_001))
    yield create("with partitions and assignments", by_hand("edge-both", (0, [1]), NumPartitions=1))
    yield create("with a gap", by_hand("edge-gap", (0, [1]), (2, [1])))
    yield create("that begins later", by_hand("edge-later", (1, [1])))
    yield create("twice the same partition", by_hand("edge-twice", (0, [1]), (0, [1])))
    yield create("on nobody", by_hand("edge-nobody", (0, [])))
    yield create("on a broker twice", by_hand("edge-broker", (0, [1, 1])))
    yield create("on brokers that are not there", by_hand("edge-unknown", (0, [7])))
    yield create("in an order", by_hand("edge-order", (1, [1]), (0, [1])))
    yield create(
        "settings",
        topic("edge-settings", Configs=configs(cleanup_policy="compact,delete", retention_ms="-1")),
    )
    yield create("setting that is none", topic("edge-none", Configs=configs(no_such="1")))
    yield create("setting of a wrong value", topic("edge-none", Configs=configs(retention_ms="x")))
    yield create("setting without a value", topic("edge-none", Configs=configs(retention_ms=None)))
    yield create(
        "setting twice", topic("edge-again", Configs=[*configs(flush_ms="5"), *configs(flush_ms="6")])
    )
    yield create("a negative timeout", topic("edge-timeout"), timeoutMs=-1)
    for version in range(2, 8):
        yield step(f"validate v{version}", "CreateTopics", version, {
            "timeoutMs": 9000, "validateOnly": True, "Topics": [
                topic("edge-asked", 2), topic(TOPIC), by_hand("edge-asked-too", (0, [1]))]})  # fmt: skip
    for version in range(4):
        for label, count, assignments in (
            ("more", 4, None), ("as many", 2, None), ("fewer", 1, None), ("none", 0, None),
            ("by hand", 4, [[1], [1]]), ("too few by hand", 4, [[1]]), ("replicas of another number", 3, [[1, 1]]),
            ("two for one", 3, [[1, 7]]), ("on nobody", 3, [[]]), ("far more", 20_000, [[1]]),
        ):  # fmt: skip
            entries = None if assignments is None else [{"BrokerIds": brokers} for brokers in assignments]
            for only_asked in (True, False):
                name = f"edge-grow-{version}-{label}-{only_asked}".replace(" ", "-")
                yield step(f"before grow v{version} {label} {only_asked}", *created(name, [1], [1]))
                yield step(
                    f"grow v{version} {label} {only_asked}", "CreatePartitions", version,
                    {"TimeoutMs": 9000, "ValidateOnly": only_asked,
                     "Topics": [{"Name": name, "Count": count, "Assignments": entries}]},
                )  # fmt: skip
    yield step("grow several", "CreatePartitions", 3, {"TimeoutMs": 9000, "Topics": [
        {"Name": "edge-a", "Count": 2, "Assignments": None}, {"Name": "nowhere", "Count": 2, "Assignments": None},
        {"Name": "edge-b", "Count": 4, "Assignments": None}]})  # fmt: skip
    delete = ("DeleteTopics", 6)
    yield step("delete several", *delete, {"TimeoutMs": 9000, "Topics": [
        {"Name": "edge-a"}, {"Name": "nowhere"}, {"Name": "edge-b", "TopicId": id_of("b")},
        {"Name": None, "TopicId": id_of("nobody")}]})  # fmt: skip
    yield step("delete nothing", *delete, {"TimeoutMs": 9000, "Topics": [{"Name": None}]})
    yield Step("topic edge-ids", *created("edge-ids"))
    by_id = {"Name": None, "TopicId": topic_id_of("edge-ids")}
    yield step("delete by name and id", *delete, {"TimeoutMs": 9000, "Topics": [{"Name": "edge-ids"}, by_id]})
    yield step("delete by id twice", *delete, {"TimeoutMs": 9000, "Topics": [by_id, by_id]})
    yield step("delete by id", *delete, {"TimeoutMs": 9000, "Topics": [by_id]})
    yield step("delete by id again", *delete, {"TimeoutMs": 9000, "Topics": [by_id]})


def _settings() -> Iterator[Step]:
    def alter(
        label: str, kind: int, name: str, *entries: tuple[str, int, str | None], user: str = ""
    ) -> Step:
        configs = [
            {"Name": key, "ConfigOperation": operation, "Value": value} for key, operation, value in entries
        ]
        resource = {"ResourceType": kind, "ResourceName": name, "Configs": configs}
        return step(f"alter {label}", "IncrementalAlterConfigs", 1, {"Resources": [resource]}, user)

    for user in ("", FORWARDED):
        how = " forwarded" if user else ""
        node = str(NODE_ID)
        yield alter(f"delete{how}", TOPICS, TOPIC, ("retention.ms", DELETE, None), user=user)
        yield alter(f"append{how}", TOPICS, TOPIC, ("cleanup.policy", APPEND, "compact"), user=user)
        yield alter(
            f"append what is there{how}", TOPICS, TOPIC, ("cleanup.policy", APPEND, "compact"), user=user
        )
        yield alter(f"subtract{how}", TOPICS, TOPIC, ("cleanup.policy", SUBTRACT, "compact"), user=user)
        yield alter(f"append to no list{how}", TOPICS, TOPIC, ("retention.ms", APPEND, "1"), user=user)
        yield alter(f"set null{how}", TOPICS, TOPIC, ("retention.ms", SET, None), user=user)
        yield alter(
            f"one right one wrong{how}", TOPICS, TOPIC, ("retention.ms", SET, "5"), ("x", SET, "5"), user=user
        )
        yield alter(
            f"twice one{how}",
            TOPICS,
            TOPIC,
            ("retention.ms", SET, "5"),
            ("retention.ms", SET, "6"),
            user=user,
        )
        for label, name in (
            ("this node", node),
            ("all", ""),
            ("nobody", "99"),
            ("no number", "x"),
            ("negative", "-1"),
        ):
            for key, value in (("log.cleaner.threads", "2"), ("no.such", "1"), ("node.id", "5"),
                               ("min.insync.replicas", "2"), ("cordoned.log.dirs", "/tmp")):  # fmt: skip
                yield alter(f"{label} {key}{how}", BROKERS, name, (key, SET, value), user=user)
                yield alter(f"{label} {key} away{how}", BROKERS, name, (key, DELETE, None), user=user)
        for label, name, key, value in (
            ("loggers", node, "kafka", "DEBUG"), ("loggers of another", "99", "kafka", "DEBUG"),
            ("no logger", node, "no.such.logger", "DEBUG"), ("no level", node, "kafka", "LOUD"),
        ):  # fmt: skip
            yield alter(f"{label}{how}", LOGGERS, name, (key, SET, value), user=user)
        yield alter(
            f"metrics{how}",
            METRICS,
            "edge",
            ("metrics", SET, "a.b"),
            ("match", SET, "client_id=x"),
            user=user,
        )
        yield alter(f"metrics wrong{how}", METRICS, "edge", ("match", SET, "x"), user=user)
        yield alter(f"group{how}", GROUPS, "edge", ("share.session.timeout.ms", SET, "50000"), user=user)
        yield alter(
            f"group out of bounds{how}", GROUPS, "edge", ("share.session.timeout.ms", SET, "1"), user=user
        )
    for version in range(1, 5):
        for kind, name in ((TOPICS, TOPIC), (TOPICS, "nowhere"), (BROKERS, "99"), (BROKERS, ""), (BROKERS, "x"),
                           (METRICS, "edge"), (GROUPS, "edge"), (GROUPS, ""), (LOGGERS, "99"), (3, "x")):  # fmt: skip
            yield step(f"describe v{version} {kind} {name!r}", "DescribeConfigs", version, {
                "IncludeSynonyms": True,
                "Resources": [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": None}]})  # fmt: skip


def _access() -> Iterator[Step]:
    def create(label: str, *acls: Values, user: str = "") -> Step:
        return step(f"acls {label}", "CreateAcls", 3, {"Creations": list(acls)}, user)

    odd: dict[str, Values] = {
        "of a group": {"ResourceType": 3}, "of the cluster": {"ResourceType": 4, "ResourceName": "kafka-cluster"},
        "of another cluster": {"ResourceType": 4}, "of a user": {"ResourceType": 7, "ResourceName": "User:x"},
        "prefixed": {"ResourcePatternType": 4}, "matching": {"ResourcePatternType": 2}, "wildcard": {"ResourceName": "*"},
        "of a principal without a type": {"Principal": "alice"}, "of no principal": {"Principal": ""},
        "of a principal with no name": {"Principal": "User:"}, "of a network": {"Host": "10.0.0.0/8"},
        "of a host": {"Host": "10.0.0.1"}, "that cannot be done": {"Operation": 5},
        "with a long name": {"ResourceName": "x" * 300},
        "that deny": {"PermissionType": 2},
    }  # fmt: skip
    for label, fields in odd.items():
        yield create(label, {**acl(f"edge-{label}"), **fields})
        yield step(f"acls {label} described", "DescribeAcls", 3, {
            **acl_filter(f"edge-{label}"), "ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1,
            "PermissionType": 1, "PrincipalFilter": None, "HostFilter": None})  # fmt: skip
    yield create("one of two", {**acl("edge-two"), "ResourceName": ""}, acl("edge-two"))
    filters = [
        {**acl_filter("edge-two")},
        {**acl_filter("edge-two"), "PatternTypeFilter": 2},
        {**acl_filter("none")},
    ]
    yield step("acls removed by several filters", "DeleteAcls", 3, {"Filters": filters})


def _quotas_and_users() -> Iterator[Step]:
    def quota(
        label: str,
        entity: list[tuple[str, str | None]],
        *ops: tuple[str, float, bool],
        only_asked: bool = False,
    ) -> Step:
        entry = {
            "Entity": [{"EntityType": kind, "EntityName": name} for kind, name in entity],
            "Ops": [{"Key": key, "Value": value, "Remove": remove} for key, value, remove in ops],
        }
        values = {"Entries": [entry], "ValidateOnly": only_asked}
        return step(f"quota {label}", "AlterClientQuotas", 1, values)

    rate = ("producer_byte_rate", 5.0, False)
    user = [("user", "edge")]
    yield quota("of a user", user, rate)
    yield quota("as it is", user, rate)
    yield quota("only asked", user, ("producer_byte_rate", 6.0, False), only_asked=True)
    yield quota("of the default user", [("user", None)], rate)
    yield quota("of a client of a user", [("client-id", "c"), ("user", "edge")], rate)
    yield quota("of an address", [("ip", "10.0.0.1")], ("connection_creation_rate", 5.0, False))
    yield quota("of an address that is none", [("ip", "x y")], ("connection_creation_rate", 5.0, False))
    yield quota("of a user and an address", [("user", "edge"), ("ip", "10.0.0.1")], rate)
    yield quota("of nobody", [], rate)
    yield quota("of an unknown type", [("x", "y")], rate)
    yield quota("of a type twice", [("user", "a"), ("user", "b")], rate)
    yield quota("of another entity", [("ip", "10.0.0.1")], rate)
    for value in (0.0, -1.0, 0.5, 1e308, float("inf"), float("nan")):
        for key in ("producer_byte_rate", "request_percentage", "controller_mutation_rate"):
            yield quota(f"{key} {value}", user, (key, value, False))
    yield quota("whole number", [("ip", "10.0.0.1")], ("connection_creation_rate", 1.5, False))
    yield quota("set and removed", user, rate, ("producer_byte_rate", 5.0, True))
    yield quota("removed", user, ("producer_byte_rate", 0.0, True))
    yield quota("removed again", user, ("producer_byte_rate", 0.0, True))

    def users(label: str, deletions: list[tuple[str, int]], *upsertions: tuple[str, int, int]) -> Step:
        return step(f"user {label}", "AlterUserScramCredentials", 0, {
            "Deletions": [{"Name": name, "Mechanism": mechanism} for name, mechanism in deletions],
            "Upsertions": [{"Name": name, "Mechanism": mechanism, "Iterations": iterations, "Salt": b"s",
                            "SaltedPassword": b"p"} for name, mechanism, iterations in upsertions]})  # fmt: skip

    yield users("with both mechanisms", [], ("edge", 1, 4096), ("edge", 2, 4096))
    yield users("with one", [], ("edge", 1, 4096))
    yield users("with another", [], ("edge", 2, 8192))
    yield users("too few iterations", [], ("edge-few", 1, 4095))
    yield users("too many iterations", [], ("edge-many", 1, 16385))
    yield users("deleted and set", [("edge", 1)], ("edge", 1, 4096))
    yield users("deleted for both", [("edge", 1), ("edge", 2)])
    yield users("one of two", [("edge", 1), ("nobody", 1)], ("edge-other", 2, 4096))


def _tokens() -> Iterator[Step]:
    for label, period in (("for the time of the settings", 0), ("for longer than it lives", 1 << 40)):
        values = {"Hmac": token_hmac, "RenewPeriodMs": period}
        yield step(f"token renewed {label}", "RenewDelegationToken", 2, values, FORWARDED)
    yield step("token of another owner", "CreateDelegationToken", 3, {
        "OwnerPrincipalType": "User", "OwnerPrincipalName": "carol", "MaxLifetimeMs": 0}, FORWARDED)  # fmt: skip
    yield step(
        "token expired", "ExpireDelegationToken", 2, {"Hmac": token_hmac, "ExpiryTimePeriodMs": -1}, FORWARDED
    )
    yield step("token of nobody", "CreateDelegationToken", 3, {"MaxLifetimeMs": -1}, "User:bob")


def _features() -> Iterator[Step]:
    def update(
        label: str, *updates: tuple[str, int, int], version: int = 2, only_asked: bool = False
    ) -> Step:
        entries = [
            {"Feature": name, "MaxVersionLevel": level}
            | ({"UpgradeType": kind} if version else {"AllowDowngrade": kind != UPGRADE})
            for name, level, kind in updates
        ]
        values: Values = {"timeoutMs": 9000, "FeatureUpdates": entries}
        if version:
            values["ValidateOnly"] = only_asked
        return step(
            f"feature v{version}{' only asked' * only_asked}: {label}", "UpdateFeatures", version, values
        )

    for version in range(3):
        for only_asked in (True, False) if version else (False,):
            for name, (low, high) in FEATURES.items():
                for level in sorted({-1, 0, 1, low, high - 1, high, high + 1, 99}):
                    for kind in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)[: 3 if version else 2]:
                        if name == "kraft.version" and level == 0 and kind != UPGRADE:
                            continue
                        yield update(
                            f"{name} {level} {kind}",
                            (name, level, kind),
                            version=version,
                            only_asked=only_asked,
                        )
                        if not only_asked:
                            restored = [(name, high, UPGRADE)]
                            yield update(f"{name} {level} {kind}, back", *restored, version=version)
            yield update(
                "two", ("group.version", 1, 1), ("no.such", 1, 1), version=version, only_asked=only_asked
            )
            yield update(
                "unknown at 0", ("no.such", 0, SAFE_DOWNGRADE), version=version, only_asked=only_asked
            )
            yield update("of no type", ("group.version", 1, 9), version=version, only_asked=only_asked)


def _producer_ids() -> Iterator[Step]:
    for label, broker, epoch in (
        ("block", 1, epoch_of(1)),
        ("another block", 1, epoch_of(1)),
        ("block of nobody", 9, 0),
    ):
        values = {"BrokerId": broker, "BrokerEpoch": epoch}
        yield step(f"producer ids: {label}", "AllocateProducerIds", 0, values)


def _mutations() -> Iterator[Step]:
    """Yield changes of partitions by a client with a low controller mutation quota (KIP-599)."""
    user = "User:admin"
    for api, versions in (("CreateTopics", (5, 7)), ("CreatePartitions", (2, 3)), ("DeleteTopics", (4, 6))):
        for version in versions:
            names = [f"edge-rate-{api.lower()}-{version}-{number}" for number in range(3)]
            topics = [{"Name": name, "NumPartitions": 5, "ReplicationFactor": 1} for name in names]
            values: Values = {"timeoutMs": 9000, "Topics": topics}
            if api != "CreateTopics":
                yield step(f"before mutations {api} v{version}", "CreateTopics", 7, values)
                values = {"TimeoutMs": 9000, "Topics": [
                    {"Name": name} | ({"Count": 9, "Assignments": None} if api == "CreatePartitions" else {})
                    for name in names]}  # fmt: skip
                values = (
                    {"TimeoutMs": 9000, "TopicNames": names}
                    if (api, version) == ("DeleteTopics", 4)
                    else values
                )
            for is_limited in (True, False):
                entry = {"Entity": [{"EntityType": "user", "EntityName": "admin"}],
                         "Ops": [{"Key": "controller_mutation_rate", "Value": 0.5, "Remove": not is_limited}]}  # fmt: skip
                what = f"{api} v{version}"
                yield step(
                    f"mutations limited {is_limited} {what}", "AlterClientQuotas", 1, {"Entries": [entry]}
                )
                yield step(f"mutations seen {is_limited} {what}", "DescribeCluster", 2, {"EndpointType": 2})
                if is_limited:
                    yield step(f"mutations {what}", api, version, values, user)
