"""librdkafka's mock cluster in a process, through confluent-kafka: prints its address, ends with its standard input."""

from __future__ import annotations

import sys

from confluent_kafka import Producer, libversion


def main() -> None:
    """Keep a mock cluster of one broker up."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    [broker] = producer.list_topics(timeout=20).brokers.values()
    print(f"{broker.host}:{broker.port} {libversion()[0]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
