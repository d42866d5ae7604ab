"""Requests to several brokers in parallel, and outcomes by item."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from barnabas.client.base_client import BaseClient
from barnabas.client.base_connection import BaseConnection
from barnabas.client.errors import ClientError, ConnectionLostError, ResponseError
from barnabas.wire.topic_partitions import TopicPartition

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Outcome = ClientError | None
"""None for success."""

BROKER_TIMEOUT_MS_MAX = 30_000
GROUPS_PER_REQUEST = 20
"""Groups in one request: decoding the response must fit a turn of the event loop."""
PARTITIONS_PER_TURN = 500
"""Number of partitions for which leaders are looked up before other tasks run."""


def outcome(code: int, doing: str, message: str | None = None) -> ResponseError | None:
    """Return the error of a code, None for 0."""
    return ResponseError(code, doing, message) if code else None


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partitions by topic, sorted."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return grouped


class Base:
    """A client, with requests to several of its brokers."""

    def __init__(self, client: BaseClient[Any]) -> None:
        self.client = client

    @property
    def _timeout_ms(self) -> int:
        """Timeout for a broker in ms, short enough that its answer arrives before the client's timeout."""
        return min(BROKER_TIMEOUT_MS_MAX, self.client.settings.request_timeout_ms * 4 // 5)

    async def _version(self, key: int) -> int:
        """Return the version for requests to any broker. Raises UnsupportedVersionError."""
        connection: BaseConnection = await self.client.any_connection()
        return connection.version_of(key)

    async def _brokers(self) -> list[int]:
        await self.client.refresh()
        return sorted(self.client.brokers)

    async def _ask_brokers(
        self, message: Any, brokers: Iterable[int] | None = None
    ) -> dict[int, Any | ClientError]:
        """Ask brokers, all without a list, at the same time: response or error by broker."""
        broker_ids = await self._brokers() if brokers is None else list(brokers)
        return await self.client.each(broker_ids, lambda broker: self.client.ask_broker(broker, message))

    async def _of_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | ClientError]]],
    ) -> dict[TopicPartition, V | ClientError]:
        """Send requests to the leaders of partitions, each once for all of its own; again after a change of the leader.

        `ask(broker, partitions)` returns a result or an error for each.
        """
        unique = list(dict.fromkeys(partitions))
        results: dict[TopicPartition, V | ClientError] = {}
        backoff_s = self.client.settings.retry_backoff_ms / 1000
        for _ in range(self.client.settings.retries + 1):
            remaining = [
                partition for partition in unique if partition not in results or _may_pass(results[partition])
            ]
            if not remaining:
                break
            if results:
                self.client.forget(*by_topic(remaining))
                await self.client.sleep(backoff_s * _spread())
                backoff_s = min(backoff_s * 2, self.client.settings.retry_backoff_max_ms / 1000)
            results |= await self._once_of_leaders(remaining, ask)
        return {partition: results[partition] for partition in unique}

    async def _once_of_leaders(
        self,
        partitions: list[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | ClientError]]],
    ) -> dict[TopicPartition, V | ClientError]:
        results: dict[TopicPartition, V | ClientError] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        with suppress(ClientError):  # which is found again below
            await self.client.refresh(by_topic(partitions))  # all topics with one request
        for number, (topic, partition) in enumerate(partitions):
            if number % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await self.client.sleep(0)
            try:
                leader = await self.client.leader(topic, partition)
            except ClientError as error:
                results[topic, partition] = error
            else:
                by_leader.setdefault(leader, []).append((topic, partition))
        answers = await self.client.each(by_leader, lambda leader: ask(leader, by_leader[leader]))
        for leader, answer in answers.items():
            if isinstance(answer, ClientError):
                results |= dict.fromkeys(by_leader[leader], answer)
            else:
                missing = ConnectionLostError(f"broker {leader} has left it out of its answer")
                results |= {partition: answer.get(partition, missing) for partition in by_leader[leader]}
        return results

    async def _of_coordinators(
        self,
        group_ids: Iterable[str],
        ask: Callable[[int, list[str]], Awaitable[Mapping[str, V | ClientError]]],
        ask_alone: Callable[[str], Awaitable[V]],
    ) -> dict[str, V | ClientError]:
        """Ask the coordinators of groups, some groups with a request; each group alone where that may help.

        `ask(broker, group_ids)` returns a result or an error for each.
        """
        unique = list(dict.fromkeys(group_ids))
        results: dict[str, V | ClientError] = {}
        if len(unique) > 1:
            requests: dict[tuple[int, int], list[str]] = {}
            with suppress(ClientError):  # which is found again below
                for broker, own in (await self.client.coordinators(unique)).items():
                    for at in range(0, len(own), GROUPS_PER_REQUEST):
                        requests[broker, at] = own[at : at + GROUPS_PER_REQUEST]
            answers = await self.client.each(requests, lambda place: ask(place[0], requests[place]))
            for answer in answers.values():
                if not isinstance(answer, ClientError):
                    results |= answer
        remaining = [
            group_id for group_id in unique if group_id not in results or _may_pass(results[group_id])
        ]
        results |= await self.client.each(remaining, ask_alone)
        return {group_id: results[group_id] for group_id in unique}


def _spread() -> float:
    """Return a random factor near 1, so that not all clients retry at the same time."""
    import random

    return random.uniform(0.8, 1.2)


def _may_pass(value: object) -> bool:
    return isinstance(value, ClientError) and value.is_retriable
