"""`barnabas serve --topic ... --seed-file ...`, seen by stock clients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka import KafkaConsumer

from barnabas.testing.running import import_path
from tests.e2e.conftest import PROGRAM, StartBroker

pytestmark = pytest.mark.e2e

SEEDS = """
topics:
  orders:
    partitions: 2
    records:
      - {key: a, value: first, partition: 1, headers: {source: shop}, timestamp: 1700000000000}
      - {value: {json: {id: 1}}, partition: 1}
groups:
  billing: {orders: {0: earliest, 1: 1}}
"""


def values_of(bootstrap: str) -> list[bytes]:
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    try:
        return [next(consumer).value for _ in range(2)]
    finally:
        consumer.close()


def test_stock_clients_find_what_was_seeded_once(tmp_path: Path, start_broker: StartBroker) -> None:
    seeds = tmp_path / "seeds.yaml"
    seeds.write_text(SEEDS)
    options = ("--topic", "events:3:cleanup.policy=compact,retention.ms=5000", "--seed-file", str(seeds))
    data = tmp_path / "data"
    for _ in range(2):  # the second start finds all of it
        broker = start_broker(data=data, program=PROGRAM, options=options)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = admin.list_topics(timeout=20).topics
        assert {name: len(topics[name].partitions) for name in ("events", "orders")} == {
            "events": 3,
            "orders": 2,
        }
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "events")]).values()
        settings = described.result(20)
        assert (settings["cleanup.policy"].value, settings["retention.ms"].value) == ("compact", "5000")
        assert values_of(broker.bootstrap) == [b"first", b'{"id":1}']
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        (zero, entry) = consumer.committed(
            [TopicPartition("orders", 0), TopicPartition("orders", 1)], timeout=20
        )
        (low, high) = consumer.get_watermark_offsets(TopicPartition("orders", 1), timeout=20)
        consumer.close()
        assert (zero.offset, entry.offset, low, high) == (0, 1, 0, 2)
        assert broker.stop() == 0


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        (["--topic", "a:x"], 2, "barnabas: 'a:x': 'x' is no number of partitions\n"),
        (["--seed-file", "seeds.yaml"], 2, "barnabas: seeds.yaml:2: topics.t.partitions: a whole number from 1 to 1000000 "
         "expected, and there is 'many'\n"),
        (["--topic", "a:1:cleanup.policy=none"], 1, "barnabas: topic a: INVALID_CONFIG"),
        (["--topic", "a", "--workers", "2"], 2, "barnabas: --topic and --seed-file are for a broker that is alone\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_seeded_stops_the_start(
    tmp_path: Path, options: list[str], code: int, reason: str
) -> None:
    (tmp_path / "seeds.yaml").write_text("topics:\n  t: {partitions: many}\n")
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "serve", "--ephemeral", "--listen", "127.0.0.1:0", *options],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": import_path()},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(reason)
