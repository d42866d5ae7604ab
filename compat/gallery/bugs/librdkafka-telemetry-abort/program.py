"""A producer that lives for some seconds."""

import time

from confluent_kafka import Producer
from gallery import bootstrap, not_shown

producer = Producer({"bootstrap.servers": bootstrap})
deadline = time.monotonic() + 6
while time.monotonic() < deadline:
    producer.produce("telemetry", b"x")
    producer.poll(0.1)
not_shown("the process lives, and pushes nothing")
