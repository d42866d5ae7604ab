"""Content of the logs that are compared: every codec, headers, nulls, transactions, groups.

The rule: the calls of confluent-kafka are the same for both brokers, and only timestamps depend on the clock.
"""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "compared"
PARTITIONS = 2
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30


def segment_setting(version: str) -> str:
    """The topic setting for segments below 1 MiB, which Kafka 4.1 and later take for their own tests only."""
    return "segment.bytes" if version.startswith("3") else "internal.segment.bytes"


def write(bootstrap: str, *, segment_setting: str = "internal.segment.bytes") -> None:
    """Write it all, in segments so small that there are many. Raises on the first thing that a broker refuses."""
    settings = {segment_setting: "16384", "index.interval.bytes": "512"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1, config=settings)
    for future in admin.create_topics([topic]).values():
        future.result(TIMEOUT_S)
    for codec in CODECS:
        _produce(bootstrap, codec)
    _transact(bootstrap)
    _commit(bootstrap)


def _produce(bootstrap: str, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec,
            "enable.idempotence": codec != "gzip",  # one codec without a producer id
            "linger.ms": 5,
            "batch.num.messages": 10,
        }
    )
    for n in range(120):
        headers: list[tuple[str, str | bytes | None]] = (
            [("codec", codec), ("n", b"%d" % n)] if n % 7 == 0 else []
        )
        producer.produce(
            TOPIC,
            key=None if n % 11 == 0 else b"key-%d" % (n % 13),
            value=None if n % 17 == 0 else b"%s-%d-" % (codec.encode(), n) + b"v" * (n % 90),
            partition=n % PARTITIONS,
            headers=headers,
        )
    assert producer.flush(TIMEOUT_S) == 0


def _transact(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "compared", "linger.ms": 1})
    producer.init_transactions(TIMEOUT_S)
    for n in range(8):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            for i in range(12):
                producer.produce(TOPIC, key=b"txn-%d" % i, value=b"%d" % n + b"t" * 60, partition=partition)
        producer.flush(TIMEOUT_S)
        if n % 3 == 1:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)


def _commit(bootstrap: str) -> None:
    for group in ("compared-a", "compared-b"):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([TOPIC])
        seen = 0
        while seen < 100:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"only {seen} records came"
            assert message.error() is None, message.error()
            seen += 1
        consumer.commit(asynchronous=False)
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1, metadata="by hand")], asynchronous=False)
        consumer.close()
