"""Random changes of records, transactions and groups, and the state that later changes depend on."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType

from confluent_kafka import Producer

from compat.kit.records import record_batch
from compat.kit.wire import Connection, Values
from compat.metadata import workload
from compat.metadata.drawn_settings import HOUR_MS
from compat.metadata.workload import BROKER, HOST, WorkloadError

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


class CoordinatorChanges:
    """Changes, and the resulting state that later changes depend on."""

    _broker: Connection
    """Connection to the broker in its present start."""
    _login: Connection
    """The same with a login."""

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
        """Let a static member join a new classic group, get its partitions and commit; it does not leave."""
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
