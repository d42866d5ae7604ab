"""A producer that lives for some seconds."""

import time

from confluent_kafka import Producer

from gallery import bootstrap, not_shown, requests

producer = Producer({"bootstrap.servers": bootstrap})
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    producer.produce("telemetry", b"x")
    producer.poll(0.1)
    if len(requests("PushTelemetry")) > 3:
        break
not_shown(f"the process lives, {len(requests('PushTelemetry'))} times it has pushed")
