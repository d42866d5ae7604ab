"""A stock consumer that reads a topic from its beginning."""

from __future__ import annotations

from confluent_kafka import Consumer


def read_values(bootstrap: str, count: int, **login: str) -> set[bytes]:
    """Return `count` distinct values of topic `t`, or more. Raises AssertionError after a minute without a record."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "log_level": 0, **login})
    consumer.subscribe(["t"])
    values: set[bytes] = set()
    while len(values) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(values)} of {count} records are there"
        if message.error() is None:
            values.add(message.value())
    consumer.close()
    return values
