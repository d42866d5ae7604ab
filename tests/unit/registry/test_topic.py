"""The topic of a registry: made where it is not there, and refused where it would lose schemas."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import (
    ClientError,
    ClientSettings,
    ConnectionLostError,
    ProducerFencedError,
    RecordTooLargeError,
    ResponseError,
)
from barnabas.client.administration.topics import NewTopic
from barnabas.registry import store as stores
from barnabas.registry.errors import RegistryError
from barnabas.registry.state import State
from barnabas.registry.store import Clients, Store
from barnabas.wire.generated.errors import ErrorCode

GONE = ResponseError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "looking")
THERE = ResponseError(ErrorCode.TOPIC_ALREADY_EXISTS, "making")


class Topics:
    """Stands for an administrator's client: what it is asked for in turn, and what it finds."""

    def __init__(self, listings: list[Any], created: Any = None, policy: str = "compact") -> None:
        self.listings, self.created, self.policy = listings, created, policy
        self.requested: list[Any] = []

    async def topics(self, names: list[str]) -> dict[str, Any]:
        """Find the topic, or not."""
        return {names[0]: self.listings.pop(0)}

    async def describe_cluster(self) -> Any:
        """Return a cluster of two brokers."""
        return SimpleNamespace(brokers=[1, 2])

    async def create_topics(self, requested: list[Any]) -> dict[str, Any]:
        """Make it, or fail to."""
        self.requested += requested
        return {requested[0].name: self.created}

    async def describe_configs(self, resources: list[Any]) -> dict[Any, Any]:
        """Return its policy."""
        return {resources[0]: [SimpleNamespace(name="cleanup.policy", value=self.policy)]}


def of_partitions(count: int) -> Any:
    return SimpleNamespace(partitions=range(count))


class OneBatch:
    """Stands for a consumer: a single batch that has all records."""

    def __init__(self, records: list[Any]) -> None:
        self.batches = [records, []]

    def assign(self, places: list[Any]) -> None:
        """Be given the partition."""

    seek_to_beginning = resume = assign

    async def end_offsets(self, places: list[Any]) -> dict[Any, int]:
        """Return where the partition ends."""
        return dict.fromkeys(places, len(self.batches[0]))

    async def receive_until(self, ends: dict[Any, int]) -> list[Any]:
        """Return all, then nothing."""
        return self.batches.pop(0)

    async def receive_batch(self) -> list[Any]:
        """Wait for what does not come."""
        await trio.sleep_forever()
        raise AssertionError


@asynccontextmanager
async def opened(client: Any) -> AsyncIterator[Any]:
    yield client


def store_of(topics: Topics, records: list[Any] | None = None, open_producer: Any = None) -> Store:
    """A store of this topic, with these records."""
    clients = Clients(
        lambda *_: opened(None),
        lambda _: topics,  # type: ignore[arg-type,return-value]
        lambda *_, **__: opened(OneBatch(records or [])),
        open_producer,
    )
    return Store([], ClientSettings(), "kept", clients)


async def test_a_topic_that_is_not_there_is_made(nursery: trio.Nursery) -> None:
    topics = Topics([GONE])
    await nursery.start(store_of(topics).run)
    assert topics.listings == []
    assert topics.requested == [NewTopic("kept", 1, 2, {"cleanup.policy": "compact"})], (
        "no more copies than brokers"
    )
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        (Topics([of_partitions(2)]), "topic kept has 2 partitions"),
        (Topics([of_partitions(1)], policy="compact,delete"), "cleanup.policy=compact,delete"),
        (Topics([GONE, of_partitions(1)], created=THERE, policy="delete"), "cleanup.policy=delete"),
    ],
)
async def test_a_topic_that_would_lose_schemas_is_refused(topics: Topics, words: str) -> None:
    with pytest.raises(RegistryError, match=words):
        await store_of(topics).run()


class Failing:
    """Producers without a transaction that works; counts how often one was opened, each after `delay_s`."""

    def __init__(self, error: ClientError, delay_s: float = 0.0) -> None:
        self.error, self.delay_s = error, delay_s
        self.tries = 0

    @asynccontextmanager
    async def open(self, *_: Any, **__: Any) -> AsyncIterator[Failing]:
        self.tries += 1
        await trio.sleep(self.delay_s)
        yield self

    def transaction(self) -> Any:
        raise self.error


async def nothing_to_decide(_: State) -> tuple[list[Any], None]:
    return [], None


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ResponseError(ErrorCode.MESSAGE_TOO_LARGE, "writing"), 422, 42209),
        (RecordTooLargeError("too large"), 422, 42209),
        (ResponseError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "writing"), 500, 50001),
        (ResponseError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "writing"), None, None),
        (ResponseError(ErrorCode.PRODUCER_FENCED, "writing"), None, None),
        (ProducerFencedError("by another"), None, None),
        (ConnectionLostError("gone"), None, None),
    ],
)
async def test_change_is_retried_while_another_registry_writes(
    error: ClientError,
    status: int | None,
    code: int | None,
    autojump_clock: trio.testing.MockClock,
    nursery: trio.Nursery,
) -> None:
    producers = Failing(error)
    store = store_of(Topics([of_partitions(1)]), open_producer=producers.open)
    await nursery.start(store.run)
    with pytest.raises(RegistryError) as raised:
        await store.write(nothing_to_decide)
    assert (raised.value.status, raised.value.code) == (status or 500, code or 50001)
    assert producers.tries == (stores.TRIES_MAX if status is None else 1), "not without end"
    nursery.cancel_scope.cancel()


async def test_abandoned_change_is_not_retried(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    producers = Failing(ConnectionLostError("gone"), delay_s=stores.WRITE_SECONDS_MAX + 1)
    store = store_of(Topics([of_partitions(1)]), open_producer=producers.open)
    await nursery.start(store.run)
    with pytest.raises(RegistryError):
        await store.write(nothing_to_decide)
    await trio.sleep(10 * stores.WRITE_SECONDS_MAX)
    assert producers.tries == 1
    nursery.cancel_scope.cancel()


async def test_others_run_while_very_many_records_are_taken() -> None:
    count = 2_000
    records = [
        SimpleNamespace(
            key=json.dumps({"keytype": "CONFIG", "subject": f"s{n}", "magic": 0}).encode(),
            value=b'{"compatibilityLevel":"NONE"}',
            offset=n,
        )
        for n in range(count)
    ]

    store = store_of(Topics([of_partitions(1)]), records)
    sizes = [0]

    async def watch() -> None:
        while True:
            sizes.append(len(store.state.configs))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await nursery.start(store.run)
        assert len(store.state.configs) == count
        nursery.cancel_scope.cancel()
    taken = max(after - before for before, after in pairwise(sizes))  # in one turn, or at the ends of two
    assert taken * stores.RECORD_BYTES <= 2 * stores.APPLIED_BYTES
