"""Random changes of a cluster from a seed: one broker gets, changes and loses all that metadata and coordinators keep.

    changes = RandomChanges(Random("seed"), nodes, has_features=True)
    changes.all_kinds()         # each kind of change at least once
    changes.some(20)

The rule: each change is one that Kafka accepts, and any error is raised; the draws depend on the seed alone, but for a
few that depend on an answer (an epoch, a member id).
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Final

from confluent_kafka import Producer

from compat.kit.records import record_batch
from compat.kit.wire import Connection, Values
from compat.metadata import workload
from compat.metadata.workload import BROKER, CLIENT_METRICS, GROUP, HOST, PASSWORD, TOPIC, WorkloadError

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_ALREADY_EXISTS = 36
"""Error of a topic that is created again, after an answer of a broker that has not learned of its controller yet."""
POLICY_VIOLATION = 44
"""Error of records that are to be deleted from a topic that is compacted."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NAMES = ("alice", "bob", "CN=web-7,O=Ünïted", "a b/c#d%e", "x" * 200, "<default>")
"""Users, client ids and groups of users, some of them odd."""
HOUR_MS = 3_600_000
FAR_MS = 400 * 24 * HOUR_MS
"""Times that no run waits for: records and tokens do not expire meanwhile."""
TRANSACTION_TIMEOUT_MS = 900_000
NUMBERS: Final = MappingProxyType(
    {
        TOPIC: {
            "compression.gzip.level": (1, 9), "compression.lz4.level": (1, 17), "compression.zstd.level": (-100, 22),
            "delete.retention.ms": (0, FAR_MS), "file.delete.delay.ms": (0, 90_000), "flush.messages": (1, 2**62),
            "flush.ms": (0, FAR_MS), "index.interval.bytes": (0, 9000), "max.compaction.lag.ms": (FAR_MS, 2**62),
            "max.message.bytes": (2_000_000, 9_000_000), "message.timestamp.after.max.ms": (FAR_MS, 2**62),
            "message.timestamp.before.max.ms": (FAR_MS, 2**62), "min.compaction.lag.ms": (0, FAR_MS),
            "min.insync.replicas": (1, 1), "retention.bytes": (10**12, 2**62), "retention.ms": (FAR_MS, 2**62),
            "segment.bytes": (2**20, 2**31 - 1), "segment.index.bytes": (4096, 2**24), "segment.jitter.ms": (0, 900),
            "segment.ms": (FAR_MS, 2**62),
        },
        BROKER: {
            "background.threads": (8, 12), "follower.replication.throttled.rate": (10**6, 2**62),
            "leader.replication.throttled.rate": (10**6, 2**62), "log.cleaner.delete.retention.ms": (0, FAR_MS),
            "log.cleaner.threads": (1, 2), "log.flush.interval.messages": (1, 2**62), "log.index.interval.bytes": (0, 9000),
            "log.retention.ms": (FAR_MS, 2**62), "log.segment.bytes": (2**20, 2**31 - 1), "max.connections": (500, 9999),
            "max.connections.per.ip": (500, 9999), "message.max.bytes": (2_000_000, 9_000_000), "num.io.threads": (6, 10),
        },
        GROUP: {
            "consumer.heartbeat.interval.ms": (5000, 15_000), "consumer.session.timeout.ms": (45_000, 60_000),
            "share.heartbeat.interval.ms": (5000, 15_000), "share.record.lock.duration.ms": (15_000, 60_000),
            "share.session.timeout.ms": (45_000, 60_000), "streams.heartbeat.interval.ms": (5000, 15_000),
            "streams.num.standby.replicas": (0, 2), "streams.session.timeout.ms": (45_000, 60_000),
        },
        CLIENT_METRICS: {"interval.ms": (100, HOUR_MS)},
    }
)  # fmt: skip
"""Settings with their lowest and highest value, of which none removes a record or shuts a client out."""
WORDS: Final = MappingProxyType(
    {
        TOPIC: {
            "cleanup.policy": ("compact", "delete", "compact,delete", "delete,compact"),
            "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            "follower.replication.throttled.replicas": ("", "*", "0:1", "0:1,1:1"),
            "leader.replication.throttled.replicas": ("", "*", "0:1", "0:1,1:1"),
            "message.timestamp.type": ("CreateTime", "LogAppendTime"), "min.cleanable.dirty.ratio": ("0", "0.25", "1.0"),
            "preallocate": ("false",), "unclean.leader.election.enable": ("true", "false"),
        },
        BROKER: {
            "compression.type": ("producer", "gzip", "zstd"), "log.cleaner.backoff.ms": ("1", "15000"),
            "log.cleaner.io.max.bytes.per.second": ("1000000.0", "1.7976931348623157E308"),
            "log.message.timestamp.type": ("CreateTime", "LogAppendTime"), "my.plugin.api.token": (PASSWORD, "Ünïcode\n=#"),
            "my.plugin.note": ("", "a,b", "Ünïcode"), "unclean.leader.election.enable": ("true", "false"),
        },
        GROUP: {
            "share.auto.offset.reset": ("earliest", "latest", "by_duration:PT1H"),
            "share.isolation.level": ("read_committed", "read_uncommitted"),
        },
        CLIENT_METRICS: {
            "match": ("client_id=web-.*", "client_software_name=apache-kafka-java,client_source_address=10\\..*"),
            "metrics": ("*", "", "org.apache.kafka.producer.", "org.apache.kafka.consumer.,org.apache.kafka.admin."),
        },
    }
)  # fmt: skip
LISTS = ("cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
FEATURES = MappingProxyType(
    {"eligible.leader.replicas.version": (0, 1), "transaction.version": (1, 2), "streams.version": (0, 1)}
)


@dataclass
class Node:
    """Addresses of the broker: ports that need no login, and one with SASL."""

    port: int
    sasl_port: int


@dataclass
class Transaction:
    """A transactional id that has begun at least one transaction."""

    producer: tuple[int, int]
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    open_in: set[tuple[str, int]] = field(default_factory=set)


class RandomChanges:
    """Changes, and what they have led to as far as the next ones need it. Lifecycle: `connect` for each start."""

    def __init__(self, random: Random, node: Node, *, has_features: bool) -> None:
        self._random = random
        self._node = node
        self._number = 0
        self.topics: dict[str, int] = {}
        self.resources: dict[tuple[int, str], set[str]] = {(BROKER, ""): set(), (BROKER, "1"): set()}
        self.groups: dict[str, list[str]] = {"classic": [], "simple": [], "consumer": [], "share": []}
        self.transactions: dict[str, Transaction] = {}
        self._acls: list[Values] = []
        self._quotas: list[tuple[list[Values], set[str]]] = []
        self._credentials: set[tuple[str, int]] = set()
        self._hmacs: list[bytes] = []
        self._levels = {name: levels[-1] for name, levels in FEATURES.items()} if has_features else {}
        self.log: list[str] = []
        """Names of the changes so far."""

    def all_kinds(self, broker: Connection, login: Connection) -> None:
        """Make a change of each kind, in any order but for topics, with records, before all."""
        kinds = list(KINDS)
        self._random.shuffle(kinds)
        for kind in (RandomChanges.create_topics, RandomChanges.create_topics, RandomChanges.produce, *kinds):
            self._make(kind, broker, login)

    def some(self, count: int, broker: Connection, login: Connection) -> None:
        """Make so many changes of any kind."""
        for kind in self._random.choices(KINDS, k=count):
            self._make(kind, broker, login)

    def _make(self, kind: Callable[..., None], broker: Connection, login: Connection) -> None:
        self.log.append(kind.__name__)
        self._broker, self._login = broker, login
        kind(self)

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}"

    def _topic(self) -> str:
        return self._random.choice(sorted(self.topics))

    def _partitions(self) -> list[tuple[str, int]]:
        """Return some partitions."""
        partitions = [
            (topic, index) for topic, count in sorted(self.topics.items()) for index in range(count)
        ]
        return sorted(self._random.sample(partitions, min(len(partitions), self._random.randint(1, 4))))

    def _ask(self, api: str, version: int, values: Values) -> Values:
        return workload.ask(self._broker, api, version, values)

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
        """Append to a list of a topic's settings, and take from it."""
        topic = self._topic()
        key = self._random.choice(LISTS[1:])
        for operation, value in ((SET, "0:1"), (APPEND, "0:2,1:1"), (SUBTRACT, "0:1")):
            self._configure(TOPIC, topic, {key: value}, operation)

    def many_settings(self) -> None:
        """Set all there are of one resource at once."""
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
        """Set some of one broker, and of all."""
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

    # --- records ------------------------------------------------------------------------------------------------

    def produce(self) -> None:
        """Produce records of the last hour with keys, headers, tombstones and with each codec in turn."""
        for codec in CODECS:
            is_idempotent = self._random.random() < 0.3
            settings = {
                "bootstrap.servers": f"{HOST}:{self._node.port}", "compression.type": codec, "linger.ms": 1,
                "enable.idempotence": is_idempotent, "retry.backoff.ms": 50,
            }  # fmt: skip
            producer = Producer(settings)
            for topic, partition in self._partitions():
                for _ in range(self._random.randint(1, 20)):
                    value = self._random.choice(
                        (None, b"", self._random.randbytes(self._random.randint(1, 2000)))
                    )
                    headers = [("kind", b"odd"), ("kind", None)][: self._random.randint(0, 2)]
                    key = str(self._random.randint(0, 99))
                    time_ms = int(time.time() * 1000) - self._random.randint(0, HOUR_MS)
                    producer.produce(topic, value, key, partition, timestamp=time_ms, headers=headers)
            if producer.flush(60):
                raise WorkloadError(f"records with {codec} were not acknowledged")

    def transact(self) -> None:
        """Begin a transaction in some partitions, or continue one; commit it, abort it, or leave it open."""
        transactional_ids = sorted(self.transactions)
        if not transactional_ids or self._random.random() < 0.5:
            self._begin(self._name("transaction"))
        else:
            self._continue(self._random.choice(transactional_ids))

    def end_transaction(self) -> None:
        """End a transaction that is open."""
        for transactional_id in sorted(self.transactions):
            if self.transactions[transactional_id].open_in:
                self._end(transactional_id)
                return

    def _begin(self, transactional_id: str) -> None:
        self._ask("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [transactional_id]})
        values = {"TransactionalId": transactional_id, "TransactionTimeoutMs": TRANSACTION_TIMEOUT_MS}
        answer = self._ask("InitProducerId", 4, values)
        self.transactions[transactional_id] = Transaction((answer["ProducerId"], answer["ProducerEpoch"]))
        self._continue(transactional_id)

    def _continue(self, transactional_id: str) -> None:
        transaction = self.transactions[transactional_id]
        producer_id, epoch = transaction.producer
        identity = {"TransactionalId": transactional_id, "ProducerId": producer_id, "ProducerEpoch": epoch}
        partitions = self._partitions()
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(index)
        topics = [{"Name": topic, "Partitions": indexes} for topic, indexes in by_topic.items()]
        names = {f"V3AndBelow{name}": value for name, value in identity.items()}
        self._ask("AddPartitionsToTxn", 3, {**names, "V3AndBelowTopics": topics})
        for topic, index in partitions:
            count = self._random.randint(1, 9)
            sequence = transaction.sequences.get((topic, index), 0)
            transaction.sequences[topic, index] = sequence + count
            transaction.open_in.add((topic, index))
            batch = record_batch(
                [self._random.randbytes(30) for _ in range(count)],
                producer=(producer_id, epoch, sequence),
                transactional=True,
            )
            data = [{"Name": topic, "PartitionData": [{"Index": index, "Records": batch}]}]
            values = {"TransactionalId": transactional_id, "Acks": -1, "TimeoutMs": 10_000, "TopicData": data}
            self._ask("Produce", 9, values)
        if self._random.random() < 0.5:
            group = self._simple_group()
            self._ask("AddOffsetsToTxn", 3, {**identity, "GroupId": group})
            topic, index = self._partitions()[0]
            offset = {
                "PartitionIndex": index,
                "CommittedOffset": self._random.randint(0, 99),
                "CommittedMetadata": "t",
            }
            offsets = [{"Name": topic, "Partitions": [offset]}]
            none = {"GenerationIdOrMemberEpoch": -1, "MemberId": "", "Topics": offsets}
            self._ask("TxnOffsetCommit", 3, {**identity, "GroupId": group, **none})
        if self._random.random() < 0.6:
            self._end(transactional_id)

    def _end(self, transactional_id: str) -> None:
        transaction = self.transactions[transactional_id]
        producer_id, epoch = transaction.producer
        values = {
            "TransactionalId": transactional_id, "ProducerId": producer_id, "ProducerEpoch": epoch,
            "Committed": self._random.random() < 0.5,
        }  # fmt: skip
        self._ask("EndTxn", 3, values)
        transaction.open_in.clear()

    # --- groups -------------------------------------------------------------------------------------------------

    def _simple_group(self) -> str:
        simple = self.groups["simple"]
        if not simple or self._random.random() < 0.3:
            simple.append(self._name("simple"))
            self._ask("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [simple[-1]]})
        return self._random.choice(simple)

    def commit_offsets(self) -> None:
        """Commit offsets of a group without members, with metadata and leader epochs."""
        self._commit(self._simple_group(), "", -1)

    def _commit(self, group: str, member_id: str, epoch: int) -> None:
        topics = []
        for topic, index in self._partitions()[:3]:
            partition = {
                "PartitionIndex": index, "CommittedOffset": self._random.randint(0, 2**40),
                "CommittedLeaderEpoch": self._random.choice((-1, 0)),
                "CommittedMetadata": self._random.choice((None, "", "Ünïcode")),
            }  # fmt: skip
            topics.append({"Name": topic, "Partitions": [partition]})
        member = {"GroupId": group, "GenerationIdOrMemberEpoch": epoch, "MemberId": member_id}
        for topic in topics:
            self._ask("OffsetCommit", 9, {**member, "Topics": [topic]})

    def classic_group(self) -> None:
        """Have a static member join a new classic group, get its partitions and commit; it stays."""
        group = self._name("classic")
        self.groups["classic"].append(group)
        self._ask("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group]})
        instance = {"GroupId": group, "GroupInstanceId": "instance-1", "ProtocolType": "consumer"}
        topic = self._topic().encode()
        subscription = struct.pack(f">hih{len(topic)}si", 0, 1, len(topic), topic, -1)
        protocols = [{"Name": name, "Metadata": subscription} for name in ("range", "roundrobin")]
        joins = {
            "SessionTimeoutMs": 1_800_000,
            "RebalanceTimeoutMs": 300_000,
            "MemberId": "",
            "Protocols": protocols,
        }
        joined = self._ask("JoinGroup", 9, {**instance, **joins})
        member = {"GenerationId": joined["GenerationId"], "MemberId": joined["MemberId"]}
        assignments = [{"MemberId": joined["MemberId"], "Assignment": self._random.randbytes(20)}]
        synced = {**instance, **member, "ProtocolName": joined["ProtocolName"], "Assignments": assignments}
        self._ask("SyncGroup", 5, synced)
        self._commit(group, joined["MemberId"], joined["GenerationId"])

    def consumer_group(self) -> None:
        """Have a member join a new group of the consumer protocol, commit, and leave; a static one may come back."""
        group, member_id = self._name("consumer"), self._random.randbytes(16).hex()
        self.groups["consumer"].append(group)
        self._ask("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group]})
        member: Values = {"GroupId": group, "MemberId": member_id}
        is_static = self._random.random() < 0.3
        if is_static:
            member["InstanceId"] = "instance-1"
        joins = {
            "MemberEpoch": 0, "RebalanceTimeoutMs": 60_000, "SubscribedTopicNames": [self._topic()],
            "TopicPartitions": [], "ServerAssignor": self._random.choice((None, "uniform", "range")),
        }  # fmt: skip
        epoch = self._ask("ConsumerGroupHeartbeat", 1, {**member, **joins})["MemberEpoch"]
        self._commit(group, member_id, epoch)
        leaves = {
            "MemberEpoch": -2 if is_static else -1,
            "SubscribedTopicNames": None,
            "TopicPartitions": None,
        }
        self._ask("ConsumerGroupHeartbeat", 1, {**member, **leaves})

    def share_group(self) -> None:
        """Have a member join a new share group and leave it, and set offsets from which the group starts."""
        group, member_id = self._name("share"), self._random.randbytes(16).hex()
        self.groups["share"].append(group)
        self._ask("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group]})
        topic = self._topic()
        member = {"GroupId": group, "MemberId": member_id}
        self._ask("ShareGroupHeartbeat", 1, {**member, "MemberEpoch": 0, "SubscribedTopicNames": [topic]})
        self._ask("ShareGroupHeartbeat", 1, {**member, "MemberEpoch": -1, "SubscribedTopicNames": None})
        partitions = [{"PartitionIndex": 0, "StartOffset": self._random.randint(0, 9)}]
        values = {"GroupId": group, "Topics": [{"TopicName": topic, "Partitions": partitions}]}
        self._ask("AlterShareGroupOffsets", 0, values)

    def delete_group(self) -> None:
        """Delete a group without members, once there are a few."""
        simple = self.groups["simple"]
        if len(simple) > 2 and not any(transaction.open_in for transaction in self.transactions.values()):
            group = simple.pop(self._random.randrange(len(simple)))
            self._ask("DeleteGroups", 2, {"GroupsNames": [group]})


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
