"""Random changes of a cluster from a seed: creations, changes and deletions of all metadata and coordinators' state.

    changes = RandomChanges(Random("seed"), nodes, has_features=True)
    changes.all_kinds()         # each kind of change at least once
    changes.some(20)

The rule: each change is one that Kafka accepts, and any error is raised; the draws depend on the seed alone, but for a
few that depend on an answer (an epoch, a member id).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from compat.kit.wire import Connection, Values
from compat.metadata import workload
from compat.metadata.coordinator_changes import CoordinatorChanges
from compat.metadata.drawn_settings import HOUR_MS, LISTS, NUMBERS, WORDS
from compat.metadata.workload import BROKER, CLIENT_METRICS, GROUP, PASSWORD, TOPIC

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_ALREADY_EXISTS = 36
"""Error of a topic that is created again, after an answer of a broker that has not learned of its controller yet."""
POLICY_VIOLATION = 44
"""Error of records that are to be deleted from a topic that is compacted."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NAMES = ("alice", "bob", "CN=web-7,O=Ünïted", "a b/c#d%e", "x" * 200, "<default>")
"""Users, client ids and groups of users, some of them odd."""
TRANSACTION_TIMEOUT_MS = 900_000
FEATURES = MappingProxyType(
    {"eligible.leader.replicas.version": (0, 1), "transaction.version": (1, 2), "streams.version": (0, 1)}
)


class RandomChanges(CoordinatorChanges):
    """Changes of all kinds."""

    def all_kinds(self, broker: Connection, login: Connection) -> None:
        """Make a change of each kind, topics and records first, the others in random order."""
        kinds = list(KINDS)
        self._random.shuffle(kinds)
        for kind in (RandomChanges.create_topics, RandomChanges.create_topics, RandomChanges.produce, *kinds):
            self._make(kind, broker, login)

    def some(self, count: int, broker: Connection, login: Connection) -> None:
        """Make `count` random changes."""
        for kind in self._random.choices(KINDS, k=count):
            self._make(kind, broker, login)

    def _make(self, kind: Callable[..., None], broker: Connection, login: Connection) -> None:
        self.log.append(kind.__name__)
        self._broker, self._login = broker, login
        kind(self)

    # --- topics -------------------------------------------------------------------------------------------------

    def create_topics(self) -> None:
        """Create topics with settings, by a count of partitions or by replicas, some with long names."""
        topics = []
        for _ in range(self._random.randint(1, 3)):
            name = self._name(self._random.choice(("orders", "Events_2.0", "__odd." + "n" * 200)))
            count = self._random.randint(1, 5)
            by_replicas = self._random.random() < 0.3
            assignments = [{"PartitionIndex": index, "BrokerIds": [1]} for index in range(count)]
            settings = self._settings(TOPIC, self._random.randint(0, 4))
            topics.append(
                {
                    "Name": name, "NumPartitions": -1 if by_replicas else count,
                    "ReplicationFactor": -1 if by_replicas else 1, "Assignments": assignments if by_replicas else [],
                    "Configs": [{"Name": key, "Value": value} for key, value in settings.items()],
                }
            )  # fmt: skip
            self.topics[name] = count
            self.resources[TOPIC, name] = set(settings)
        values = {"Topics": topics, "timeoutMs": 10_000}
        workload.ask(self._broker, "CreateTopics", 7, values, but={TOPIC_ALREADY_EXISTS})

    def add_partitions(self) -> None:
        topic = self._topic()
        self.topics[topic] += self._random.randint(1, 3)
        change = {"Name": topic, "Count": self.topics[topic], "Assignments": None}
        self._ask("CreatePartitions", 3, {"Topics": [change], "TimeoutMs": 10_000, "ValidateOnly": False})

    def delete_topic(self) -> None:
        """Delete a topic, once there are enough, in which no transaction is open."""
        in_transactions = {
            topic for transaction in self.transactions.values() for topic, _ in transaction.open_in
        }
        topics = sorted(self.topics.keys() - in_transactions)
        if len(self.topics) < 4 or not topics:
            self.create_topics()
            topics = sorted(self.topics.keys() - in_transactions)
        topic = self._random.choice(topics)
        self._ask("DeleteTopics", 5, {"TopicNames": [topic], "TimeoutMs": 10_000})
        del self.topics[topic], self.resources[TOPIC, topic]
        for transaction in self.transactions.values():
            transaction.sequences = {
                partition: number
                for partition, number in transaction.sequences.items()
                if partition[0] != topic
            }

    def delete_records(self) -> None:
        """Delete some of the records of partitions up to their last stable offset."""
        for topic, index in self._partitions():
            first, end = (self._offset(topic, index, timestamp, 1) for timestamp in (-2, -1))
            partition = {"PartitionIndex": index, "Offset": self._random.randint(first, end)}
            topics = [{"Name": topic, "Partitions": [partition]}]
            values = {"Topics": topics, "TimeoutMs": 10_000}
            workload.ask(self._broker, "DeleteRecords", 2, values, but={POLICY_VIOLATION})

    def _offset(self, topic: str, index: int, timestamp: int, isolation: int) -> int:
        partition = {"PartitionIndex": index, "Timestamp": timestamp}
        topics = [{"Name": topic, "Partitions": [partition]}]
        values = {"ReplicaId": -1, "IsolationLevel": isolation, "Topics": topics}
        answer = self._ask("ListOffsets", 7, values)
        return int(answer["Topics"][0]["Partitions"][0]["Offset"])

    def move_to_other_dir(self) -> None:
        """Move replicas into one of the log dirs."""
        dirs = self._ask("DescribeLogDirs", 4, {"Topics": None})["Results"]
        topics = [{"Name": topic, "Partitions": [index]} for topic, index in self._partitions()[:1]]
        path = self._random.choice(sorted(entry["LogDir"] for entry in dirs))
        self._ask("AlterReplicaLogDirs", 2, {"Dirs": [{"Path": path, "Topics": topics}]})

    # --- settings -----------------------------------------------------------------------------------------------

    def _settings(self, kind: int, count: int) -> dict[str, str]:
        """Return settings of a kind of resource with random values."""
        keys = sorted({*NUMBERS[kind], *WORDS[kind]})
        return {key: self._value(kind, key) for key in self._random.sample(keys, min(count, len(keys)))}

    def _value(self, kind: int, key: str) -> str:
        if key in WORDS[kind]:
            return self._random.choice(WORDS[kind][key])
        low, high = NUMBERS[kind][key]
        return str(self._random.choice((low, high, self._random.randint(low, high))))

    def change_settings(self) -> None:
        """Set and remove settings of a few resources in one request."""
        resources = []
        for kind, name in self._random.sample(sorted(self.resources), min(3, len(self.resources))):
            own = self.resources[kind, name]
            removed = set(self._random.sample(sorted(own), self._random.randint(0, len(own) // 2)))
            settings = {
                key: value
                for key, value in self._settings(kind, self._random.randint(1, 4)).items()
                if key not in removed
            }
            configs = [
                {"Name": key, "ConfigOperation": SET, "Value": value} for key, value in settings.items()
            ]
            configs += [{"Name": key, "ConfigOperation": DELETE, "Value": None} for key in sorted(removed)]
            self.resources[kind, name] = own - removed | set(settings)
            resources.append({"ResourceType": kind, "ResourceName": name, "Configs": configs})
        self._ask("IncrementalAlterConfigs", 1, {"Resources": resources, "ValidateOnly": False})

    def change_list(self) -> None:
        """Append to a list in a topic's settings, and subtract from it."""
        topic = self._topic()
        key = self._random.choice(LISTS[1:])
        for operation, value in ((SET, "0:1"), (APPEND, "0:2,1:1"), (SUBTRACT, "0:1")):
            self._configure(TOPIC, topic, {key: value}, operation)

    def many_settings(self) -> None:
        """Set all settings of one resource at once."""
        kind, name = self._random.choice(sorted(self.resources))
        self._configure(kind, name, self._settings(kind, 99))

    def replace_settings(self) -> None:
        """Replace all settings of a topic, as older clients do."""
        topic = self._topic()
        settings = self._settings(TOPIC, self._random.randint(0, 9))
        configs = [{"Name": key, "Value": value} for key, value in settings.items()]
        resource = {"ResourceType": TOPIC, "ResourceName": topic, "Configs": configs}
        self._ask("AlterConfigs", 2, {"Resources": [resource], "ValidateOnly": False})
        self.resources[TOPIC, topic] = set(settings)

    def broker_settings(self) -> None:
        """Set settings of one broker, and of all brokers."""
        for name in ("", "1"):
            self._configure(BROKER, name, self._settings(BROKER, self._random.randint(1, 5)))

    def subscribe_to_metrics(self) -> None:
        self._configure(CLIENT_METRICS, self._name("metrics"), self._settings(CLIENT_METRICS, 3))

    def group_settings(self) -> None:
        self._configure(GROUP, self._name("group"), self._settings(GROUP, self._random.randint(1, 9)))

    def forget_resource(self) -> None:
        """Remove all settings of a group, or of a subscription to metrics."""
        resources = [
            resource for resource in sorted(self.resources) if resource[0] in (GROUP, CLIENT_METRICS)
        ]
        if len(resources) > 2:
            kind, name = self._random.choice(resources)
            self._configure(kind, name, dict.fromkeys(sorted(self.resources.pop((kind, name)))), DELETE)

    def _configure(
        self, kind: int, name: str, settings: Mapping[str, str | None], operation: int = SET
    ) -> None:
        configs = [
            {"Name": key, "ConfigOperation": operation, "Value": value} for key, value in settings.items()
        ]
        resource = {"ResourceType": kind, "ResourceName": name, "Configs": configs}
        self._ask("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})
        if operation == SET:
            self.resources.setdefault((kind, name), set()).update(settings)

    # --- access -------------------------------------------------------------------------------------------------

    def create_acls(self) -> None:
        """Create entries of every kind of resource, pattern, operation and permission."""
        for _ in range(self._random.randint(1, 12)):
            kind = self._random.randint(2, 7)
            resources = ("*", *sorted(self.topics)[:2], *NAMES)
            name = "kafka-cluster" if kind == 4 else self._random.choice(resources)
            self._acls.append(
                {
                    "ResourceType": kind, "ResourceName": name,
                    "ResourcePatternType": 3 if kind == 4 or name == "*" else self._random.choice((3, 4)),
                    "Principal": f"{self._random.choice(('User', 'Group'))}:{self._random.choice(('*', *NAMES))}",
                    "Host": self._random.choice(("*", "10.1.2.3", "2001:db8::7", "web.example.com")),
                    "Operation": self._random.randint(2, 15), "PermissionType": self._random.choice((2, 3)),
                }
            )  # fmt: skip
            self._ask("CreateAcls", 3, {"Creations": [self._acls[-1]]})

    def delete_acls(self) -> None:
        """Delete one entry, or all of a principal."""
        if not self._acls:
            self.create_acls()
        acl = self._random.choice(self._acls)
        exact = {
            "ResourceTypeFilter": acl["ResourceType"], "ResourceNameFilter": acl["ResourceName"],
            "PatternTypeFilter": acl["ResourcePatternType"], "PrincipalFilter": acl["Principal"],
            "HostFilter": acl["Host"], "Operation": acl["Operation"], "PermissionType": acl["PermissionType"],
        }  # fmt: skip
        wide = {**workload.ANY_ACL, "PrincipalFilter": acl["Principal"]}
        self._ask("DeleteAcls", 3, {"Filters": [self._random.choice((exact, exact, exact, wide))]})

    def alter_quotas(self) -> None:
        """Set quotas of users, client ids, both, and addresses, named or by default, none of them low; remove some."""
        for _ in range(self._random.randint(1, 6)):
            kinds = self._random.choice((("user",), ("client-id",), ("user", "client-id"), ("ip",)))
            names = (None, "10.0.0.1", "2001:db8::7") if kinds == ("ip",) else (None, *NAMES)
            entity = [{"EntityType": kind, "EntityName": self._random.choice(names)} for kind in kinds]
            keys = (
                ("connection_creation_rate",)
                if kinds == ("ip",)
                else (
                    "producer_byte_rate",
                    "consumer_byte_rate",
                    "request_percentage",
                    "controller_mutation_rate",
                )
            )
            chosen = self._random.sample(keys, self._random.randint(1, len(keys)))
            values = {
                key: self._random.randint(10**6, 10**9)
                + (0.125 if key in ("request_percentage", "controller_mutation_rate") else 0)
                for key in chosen
            }
            self._quota(
                entity,
                [{"Key": key, "Value": float(value), "Remove": False} for key, value in values.items()],
            )
            self._quotas.append((entity, set(chosen)))
        if len(self._quotas) > 4:
            entity, removed = self._quotas.pop(self._random.randrange(len(self._quotas)))
            self._quota(entity, [{"Key": key, "Value": 0.0, "Remove": True} for key in sorted(removed)])

    def _quota(self, entity: Sequence[Values], operations: Sequence[Values]) -> None:
        entry = {"Entity": list(entity), "Ops": list(operations)}
        self._ask("AlterClientQuotas", 1, {"Entries": [entry], "ValidateOnly": False})

    def alter_users(self) -> None:
        """Set credentials of both mechanisms, and remove one."""
        name = self._random.choice(NAMES)
        for mechanism, algorithm in ((1, "sha256"), (2, "sha512")):
            iterations, salt = (
                self._random.randint(4096, 8192),
                self._random.randbytes(self._random.randint(1, 40)),
            )
            salted = hashlib.pbkdf2_hmac(algorithm, PASSWORD.encode(), salt, iterations)
            user = {"Name": name, "Mechanism": mechanism, "Iterations": iterations, "Salt": salt}
            upsertions = [{**user, "SaltedPassword": salted}]
            self._ask("AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": upsertions})
            self._credentials.add((name, mechanism))
        if len(self._credentials) > 2:
            name, mechanism = self._random.choice(sorted(self._credentials))
            self._credentials.remove((name, mechanism))
            deletions = [{"Name": name, "Mechanism": mechanism}]
            self._ask("AlterUserScramCredentials", 0, {"Deletions": deletions, "Upsertions": []})

    def tokens(self) -> None:
        """Create a token, for another owner at times, renew one, and end one."""
        renewers = [
            {"PrincipalType": "User", "PrincipalName": name} for name in self._random.sample(NAMES, 2)
        ]
        values: Values = {"Renewers": renewers, "MaxLifetimeMs": self._random.choice((-1, HOUR_MS * 30))}
        if self._random.random() < 0.5:
            values |= {"OwnerPrincipalType": "User", "OwnerPrincipalName": "alice"}
        self._hmacs.append(workload.ask(self._login, "CreateDelegationToken", 3, values)["Hmac"])
        renewed = {"Hmac": self._random.choice(self._hmacs), "RenewPeriodMs": HOUR_MS * 7}
        workload.ask(self._login, "RenewDelegationToken", 2, renewed)
        if len(self._hmacs) > 2:
            ended = {
                "Hmac": self._hmacs.pop(self._random.randrange(len(self._hmacs))),
                "ExpiryTimePeriodMs": -1,
            }
            workload.ask(self._login, "ExpireDelegationToken", 2, ended)

    def change_feature(self) -> None:
        """Move one feature up or down."""
        if not self._levels:
            return
        name = self._random.choice(sorted(self._levels))
        before = self._levels[name]
        self._levels[name] = after = sum(FEATURES[name]) - before
        update = {"Feature": name, "MaxVersionLevel": after, "UpgradeType": 1 if after > before else 2}
        values = {"timeoutMs": 10_000, "FeatureUpdates": [update], "ValidateOnly": False}
        self._ask("UpdateFeatures", 1, values)


KINDS: Final = (
    RandomChanges.create_topics, RandomChanges.add_partitions, RandomChanges.delete_topic, RandomChanges.delete_records,
    RandomChanges.move_to_other_dir, RandomChanges.change_settings, RandomChanges.change_list,
    RandomChanges.many_settings, RandomChanges.replace_settings, RandomChanges.broker_settings,
    RandomChanges.subscribe_to_metrics, RandomChanges.group_settings, RandomChanges.forget_resource,
    RandomChanges.create_acls, RandomChanges.delete_acls, RandomChanges.alter_quotas, RandomChanges.alter_users,
    RandomChanges.tokens, RandomChanges.change_feature, RandomChanges.produce, RandomChanges.transact,
    RandomChanges.end_transaction, RandomChanges.commit_offsets, RandomChanges.classic_group,
    RandomChanges.consumer_group, RandomChanges.share_group, RandomChanges.delete_group,
)  # fmt: skip
