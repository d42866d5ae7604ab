"""Reading partitions to their end with a stock consumer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition


def read_to_end(
    settings: Mapping[str, object], topic: str, partitions: int, *, seconds: float
) -> Iterator[Message]:
    """Yield the records and errors that a consumer with these settings gets, up to the end of each partition.

    Raises TimeoutError after `seconds`, with the unfinished partitions.
    """
    consumer = Consumer({**settings, "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        unread = set(range(partitions))
        deadline = time.monotonic() + seconds
        while unread:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} cannot be read to its end: {sorted(unread)} are left")
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                yield message
    finally:
        consumer.close()
