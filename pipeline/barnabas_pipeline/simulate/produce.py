"""Sending a simulation through a stock producer (confluent-kafka), at a rate or at full speed.

The rule: every record is acknowledged before the job succeeds, else it fails with the number of missing acknowledgements.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.simulate import bad
from barnabas_pipeline.simulate.model import Event

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

FLUSH_SECONDS_MAX = 120.0


def create_topics(bootstrap: str, topics: Sequence[str], partitions: int, config: dict[str, str]) -> None:
    """Create missing topics. Raises IncompleteError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    new_topics = [NewTopic(topic, partitions, 1, config=config) for topic in topics]
    for topic, future in admin.create_topics(new_topics, request_timeout=30).items():
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise IncompleteError(f"cannot create {topic}: {error.args[0].str()}") from None


def send(
    bootstrap: str,
    events: Sequence[Event],
    *,
    values: bad.Values = bad.JSON,
    prefix: str = "",
    rate_per_second: float = 0,
    bad_fraction: float = 0,
    seed: int = 1,
    config: dict[str, str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Counter[str]:
    """Send events in their order to the topics `prefix` + kind. Returns the number of spoilt events, by reason."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "acks": "all", "enable.idempotence": True}
    producer = Producer(settings | (config or {}))
    failures: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    spoilt = bad.choose(len(events), bad_fraction, seed, values.reasons)
    began = time.monotonic()
    for n, event in enumerate(events):
        value = values.spoiled(event, spoilt[n]) if n in spoilt else values.value(event)
        _produce(producer, f"{prefix}{event.kind}", event, value, delivered)
        if rate_per_second and n % 50 == 0:
            time.sleep(max(0.0, began + n / rate_per_second - time.monotonic()))
        if n % 1000 == 0:
            producer.poll(0)
            progress(n)
    unsent = producer.flush(FLUSH_SECONDS_MAX)
    progress(len(events))
    if failures or unsent:
        raise IncompleteError(
            f"{len(failures)} records failed ({failures[:1]}), {unsent} were not acknowledged"
        )
    return Counter(spoilt.values())


def _produce(
    producer: Producer,
    topic: str,
    event: Event,
    value: bytes,
    delivered: Callable[[KafkaError | None, Message], None],
) -> None:
    while True:
        try:
            producer.produce(
                topic,
                value,
                event.key.encode(),
                timestamp=event.delivered,
                headers=[("kind", event.kind.encode())],
                on_delivery=delivered,
            )
            return
        except BufferError:
            producer.poll(0.1)
