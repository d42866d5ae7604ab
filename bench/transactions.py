"""Transactions of one producer over three brokers: latency of EndTxn, and of a whole transaction.

The rule: requests over bare sockets, one at a time, as otherwise the clients' own pauses after CONCURRENT_TRANSACTIONS
would be measured; a pause of 20 ms replaces them (the first pause of Kafka's producer).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from bench.tools import BenchError
from compat.kit.records import record_batch
from compat.kit.wire import Connection, Values

CONCURRENT_TRANSACTIONS = 51
COMING = (3, 6, 14, 15, 16, CONCURRENT_TRANSACTIONS)
"""UNKNOWN_TOPIC_OR_PARTITION and NOT_LEADER_OR_FOLLOWER, of a topic that has just been made; COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
PAUSE_S = 0.02
GIVE_UP_S = 60.0
WARMUP = 30
TRANSACTIONAL_ID = "measured"
TIMEOUT_MS = 60_000
ADD_VERSION, PRODUCE_VERSION, END_VERSION = 3, 9, 4
"""Of producers of version 1, which add partitions themselves."""


class TransactionalProducer:
    """Commits transactions that add partitions of a topic and write a record to the first one."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.ends: list[float] = []
        """Seconds that each EndTxn has taken."""
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        any_broker = Connection(host, int(port))
        keys = {"KeyType": 1, "CoordinatorKeys": [TRANSACTIONAL_ID]}
        node = self._until(
            lambda: any_broker.ask("FindCoordinator", 4, keys)["Coordinators"][0],
            lambda answer: answer["ErrorCode"],
        )
        self.coordinator = Connection(node["Host"], node["Port"])
        begin = {"TransactionalId": TRANSACTIONAL_ID, "TransactionTimeoutMs": TIMEOUT_MS}
        begun = self._until(
            lambda: self.coordinator.ask("InitProducerId", 4, begin), lambda answer: answer["ErrorCode"]
        )
        self.producer_id, self.epoch = begun["ProducerId"], begun["ProducerEpoch"]
        topics = [{"Name": topic, "TopicId": bytes(16)}]
        cluster = any_broker.ask("Metadata", 12, {"Topics": topics})
        places = {broker["NodeId"]: (broker["Host"], broker["Port"]) for broker in cluster["Brokers"]}
        leader = cluster["Topics"][0]["Partitions"][0]["LeaderId"]
        self.leader = Connection(*places[leader])
        self._sequence = 0

    @staticmethod
    def _until(ask: Callable[[], Values], code_of: Callable[[Values], int]) -> Values:
        """Repeat a request while its error is retriable. Raises BenchError for any other error."""
        give_up = time.monotonic() + GIVE_UP_S
        while (code := code_of(answer := ask())) in COMING and time.monotonic() < give_up:
            time.sleep(PAUSE_S)
        if code:
            raise BenchError(f"a transaction is answered {code}")
        return answer

    def commit_one(self, partitions: int) -> None:
        """Run a transaction of `partitions` partitions, with a record in the first one."""
        producer = {
            "TransactionalId": TRANSACTIONAL_ID,
            "ProducerId": self.producer_id,
            "ProducerEpoch": self.epoch,
        }
        added = {f"V3AndBelow{name}": value for name, value in producer.items()}
        added["V3AndBelowTopics"] = [{"Name": self.topic, "Partitions": list(range(partitions))}]
        self._until(
            lambda: self.coordinator.ask("AddPartitionsToTxn", ADD_VERSION, added),
            lambda answer: max(
                result["PartitionErrorCode"]
                for result in answer["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"]
            ),
        )
        identity = (self.producer_id, self.epoch, self._sequence)
        batch = record_batch([b"v" * 100], time.time_ns() // 1_000_000, producer=identity, transactional=True)
        data = [{"Name": self.topic, "PartitionData": [{"Index": 0, "Records": batch}]}]
        request = {"TransactionalId": TRANSACTIONAL_ID, "Acks": -1, "TimeoutMs": 9_000, "TopicData": data}
        self._until(
            lambda: self.leader.ask("Produce", PRODUCE_VERSION, request),
            lambda answer: answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"],
        )
        self._sequence += 1
        begun = time.monotonic()
        self._until(
            lambda: self.coordinator.ask("EndTxn", END_VERSION, producer | {"Committed": True}),
            lambda answer: answer["ErrorCode"],
        )
        self.ends.append(time.monotonic() - begun)


def transactions(bootstrap: str, topic: str, partitions: int, count: int) -> tuple[float, float]:
    """Return the median ms of EndTxn and of a whole transaction, over successive transactions. Raises BenchError."""
    producer = TransactionalProducer(bootstrap, topic)
    for _ in range(WARMUP):
        producer.commit_one(partitions)
    producer.ends.clear()
    begun = time.monotonic()
    for _ in range(count):
        producer.commit_one(partitions)
    whole_s = (time.monotonic() - begun) / count
    return statistics.median(producer.ends) * 1000, whole_s * 1000
