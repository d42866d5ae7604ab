"""Membership of a consumer in its group: the common part of both protocols.

The rule: a membership decides on the consumer's partitions; the consumer, its `Host`, applies that and runs the
program's callbacks. Partitions are given up only once the program is done with the delivered records, or has lost the
partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import trio

from barnabas.client.client import Client
from barnabas.client.consuming.settings import ConsumerSettings
from barnabas.client.errors import ClientError
from barnabas.client.topics import TopicWatch
from barnabas.client.values import GroupMetadata, TopicPartition
from barnabas.wire import registry
from barnabas.wire.generated.errors import ErrorCode

LANE = "group"
COORDINATOR_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Host(Protocol):
    """Partitions of the consumer in its group, and the program that reads them."""

    assigned: set[TopicPartition]
    """Partitions that the consumer has in the group."""

    async def add(self, places: set[TopicPartition]) -> None:
        """Add partitions of a new assignment, and call the program's callback."""

    async def revoke(self, places: set[TopicPartition]) -> None:
        """Give partitions up once the program is done with their records; commit, and call the program's callback."""

    async def lose(self, places: set[TopicPartition]) -> None:
        """Drop partitions that another member may have by now, and call the program's callback."""

    def busy_s(self) -> float:
        """Return the time in s since the program received its records; 0 while it waits for the next ones."""

    async def idle(self) -> None:
        """Wait until the program asks for its next record."""

    def fail(self, error: ClientError) -> None:
        """End the membership with an error, which each later call of the program raises."""


class Subscription:
    """Topics that a consumer subscribes to: by name, or by a pattern."""

    def __init__(self, names: Iterable[str] = (), pattern: Any = None) -> None:
        self.names = frozenset(names)
        self.pattern = pattern

    def topics(self, watch: TopicWatch) -> frozenset[str]:
        """Return the names of the topics that are known."""
        if self.pattern is None:
            return self.names
        matches = self.pattern.match
        return frozenset(name for name, info in watch.infos.items() if matches(name) and not info.is_internal)


class Membership(ABC):
    """A member of a group. `run` is a task of the consumer."""

    def __init__(self, client: Client, topics: TopicWatch, settings: ConsumerSettings, host: Host) -> None:
        assert settings.group_id is not None
        self.group_id = settings.group_id
        self.member_id = ""
        self.generation = -1
        """Generation, or the member's epoch; -1 while it is not in the group."""
        self.subscription = Subscription()
        self._client = client
        self._topics = topics
        self._settings = settings
        self._host = host

    def metadata(self) -> GroupMetadata:
        """Return group, generation and member, by which the coordinator checks commits."""
        return GroupMetadata(
            self.group_id,
            self.generation,
            self.member_id if self.generation >= 0 else "",
            self._settings.instance_id,
        )

    def subscribe(self, subscription: Subscription) -> None:
        """Change the topics."""
        self.subscription = subscription
        self._topics.watch(subscription.names, everything=subscription.pattern is not None)
        self.wake()

    @abstractmethod
    def wake(self) -> None:
        """Wake the membership: its subscription or the topics may have changed."""

    @abstractmethod
    def rejoin(self) -> None:
        """Join again, after the coordinator has lost the member."""

    @abstractmethod
    async def run(self) -> None:
        """Be a member, for ever."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave the group, but not as a static member of the classic protocol. Raises ClientError."""

    async def _ask(
        self,
        request: Any,
        *,
        version_max: int,
        timeout_ms: float | None = None,
        prepare: Callable[[int], None] | None = None,
    ) -> Any:
        """Send the coordinator a request once; `prepare` is called before with its version. Raises ClientError."""
        try:
            connection = await self._client.broker(await self._client.coordinator(self.group_id), lane=LANE)
            key = registry.key_of(type(request).__name__.removesuffix("Request"))
            version = connection.version_of(key, version_max)
            if prepare is not None:
                prepare(version)
            response = await connection.ask(request, version=version, timeout_ms=timeout_ms)
        except ClientError:
            self._client.forget_coordinator(self.group_id)
            raise
        if getattr(response, "error_code", 0) in COORDINATOR_ERRORS:
            self._client.forget_coordinator(self.group_id)
        return response

    async def _pause(self) -> None:
        await trio.sleep(self._client.settings.retry_backoff_ms / 1000)
