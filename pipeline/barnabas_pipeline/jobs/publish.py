"""Publishing of results to a topic, for consumers that subscribe instead of reading files.

The rule: a message's key is its subject, its value the whole state, so that the last message counts and repeats are
harmless. Only changes since the last run are sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.lake import store
from barnabas_pipeline.lake.iceberg import explained

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from barnabas_pipeline.data_types import Json

FLUSH_SECONDS_MAX = 120.0


@explained()
def publish(
    bootstrap: str, topic: str, messages: Mapping[str, Json], *, io: store.StoreIO, memory: str
) -> int:
    """Send messages (by key, as JSON; None deletes) that differ from those last sent. Returns the number sent.

    The object at the location `memory` has digests of the messages last sent; it is replaced when all are acknowledged.
    Raises IncompleteError.
    """
    from confluent_kafka import Producer

    published: dict[str, str] = {}
    with suppress(FileNotFoundError):
        published = json.loads(store.read(io, memory))
    texts = {key: json.dumps(value, sort_keys=True, separators=(",", ":")) for key, value in messages.items()}
    digests = {key: hashlib.sha256(text.encode()).hexdigest() for key, text in texts.items()}
    changed = sorted(key for key in digests if published.get(key) != digests[key])
    gone = sorted(set(published) - set(digests))
    failures: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for key in [*changed, *gone]:
        value = texts[key].encode() if key in texts else None
        while True:
            try:
                producer.produce(topic, value, key.encode(), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
    unsent = producer.flush(FLUSH_SECONDS_MAX)
    if failures or unsent:
        raise IncompleteError(
            f"{len(failures)} messages failed ({failures[:1]}), {unsent} were not acknowledged"
        )
    store.replace(io, memory, json.dumps(digests, sort_keys=True).encode())
    return len(changed) + len(gone)
