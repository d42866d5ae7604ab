"""Consumer instances of v2: each is a member of a group until it is deleted, or idle for too long.

The rule: an instance belongs to one user; its group may rebalance between two requests; only records in responses are
committed. The number of instances is bounded, by user and in total.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import trio

from barnabas.client import ClientError, Consumer, OffsetAndMetadata, TopicPartition, open_consumer
from barnabas.patterns import PatternError
from barnabas.patterns.java import java_pattern
from barnabas.rest.batches import View
from barnabas.rest.errors import (
    ALREADY_EXISTS,
    ILLEGAL_STATE,
    INSTANCE_NOT_FOUND,
    INVALID_CONSUMER,
    SERIALIZATION,
    TOO_MANY_REQUESTS,
    RestError,
    failure_of,
)
from barnabas.rest.reading import READING, Source

if TYPE_CHECKING:
    from barnabas.rest.backend import Backend

log = logging.getLogger(__name__)

OWNER_INSTANCES_MAX = 32
INSTANCES_MAX = 128
INSTANCE_SECONDS_MAX = 300.0
"""Time without a request after which an instance is closed (`consumer.instance.timeout.ms`)."""
REQUEST_TIMEOUT_MS = 1_000
"""Time that a read waits (`consumer.request.timeout.ms`)."""
REQUEST_TIMEOUT_MS_MAX = 300_000
RESPONSE_BYTES_MAX = 16 << 20
"""Bytes of keys and values in one response."""
ANSWER_BYTES_MAX = 24 << 20
"""Bytes of an answer with records."""
RECORDS_MAX = 20_000
"""Records in one response."""
QUIET_SECONDS = 0.2
"""Time without a further record after which a read without a minimum ends."""
COMMIT_SECONDS = 5.0
"""Time between automatic commits."""
CHECK_SECONDS = 1.0
NAME_CHARS_MAX = 256
RECORDS_PER_TURN = 200

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """Settings of an instance: format, beginning, whether to commit, the bytes and the time that a read waits for."""

    format_name: str
    offset_reset: str = "latest"
    is_auto_committing: bool = True
    bytes_min: int | None = None
    timeout_ms: int = REQUEST_TIMEOUT_MS


@dataclass(eq=False)
class Instance:
    """A consumer with its buffered records. Lifecycle: `run` in a task of its user's client."""

    backend: Backend
    group: str
    name: str
    settings: InstanceSettings
    used_at_s: float = field(default_factory=trio.current_time)
    lock: trio.Lock = field(default_factory=trio.Lock)
    topics: tuple[str, ...] = ()
    pattern: str = ""
    is_ended: bool = False
    _source: Source | None = None
    _handed: dict[TopicPartition, int] = field(default_factory=dict)
    _committed_at_s: float = -math.inf
    _change: trio.Event = field(default_factory=trio.Event)
    _ready: trio.Event = field(default_factory=trio.Event)

    async def run(self, *, task_status: trio.TaskStatus[Exception | None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a consumer open until `end`; `unsubscribe` replaces it by a new one."""
        is_started = False
        try:
            while not self.is_ended:
                self._change = trio.Event()
                async with open_consumer(
                    self.backend.bootstrap,
                    settings=replace(READING, group_id=self.group, offset_reset=self.settings.offset_reset),
                    client_settings=self.backend.settings,
                ) as consumer:
                    self._handed = {}
                    view = View(self.settings.format_name)
                    self._source = Source(self.backend, consumer, view)
                    if not is_started:
                        is_started = True
                        task_status.started(None)
                    self._ready.set()
                    await self._change.wait()
                    self._ready = trio.Event()
                    if self.settings.is_auto_committing:
                        await self._commit_handed(consumer)
        except Exception as error:
            if not is_started:
                task_status.started(error)
            else:
                failure_of(error, "a consumer instance")  # logs an unexpected error
        finally:
            self.is_ended = True
            self._ready.set()

    def end(self) -> None:
        """Make the consumer leave its group."""
        self.is_ended = True
        self._change.set()

    async def source(self) -> Source:
        """Return the records of the consumer. Raises RestError once it has ended."""
        await self._ready.wait()
        if self.is_ended or self._source is None:
            raise RestError(404, INSTANCE_NOT_FOUND, f"the consumer instance {self.name!r} has ended")
        return self._source

    async def consumer(self) -> Consumer:
        """Return the consumer. Raises RestError once it has ended."""
        return (await self.source()).consumer

    # --- reading ----------------------------------------------------------------------------------------------

    async def subscribe(self, topics: tuple[str, ...], pattern: str) -> None:
        """Become a member of the group, for topics by name or by a pattern (Java's). Raises RestError."""
        consumer = await self.consumer()
        try:
            compiled: Any = _Whole(java_pattern(pattern)) if pattern else None
            consumer.subscribe(*topics, pattern=compiled, on_revoked=self._give_up, on_lost=self._forget)
        except PatternError as error:
            raise RestError(400, 400, f"topic_pattern: {error}") from None
        except RuntimeError as error:
            raise RestError(409, ILLEGAL_STATE, str(error)) from None
        self.topics, self.pattern = topics, pattern

    async def unsubscribe(self) -> None:
        """Leave the group, and drop explicitly assigned partitions."""
        self.topics, self.pattern = (), ""
        self._change.set()
        await trio.lowlevel.checkpoint()

    async def assign(self, places: Iterable[Place]) -> None:
        """Take just these partitions. Raises RestError."""
        source = await self.source()
        before = source.consumer.assignment
        try:
            source.consumer.assign(places)
        except RuntimeError as error:
            raise RestError(409, ILLEGAL_STATE, str(error)) from None
        source.forget(before - source.consumer.assignment)

    async def subscription(self) -> list[str]:
        """Return the subscribed topics; for a pattern, those with assigned partitions."""
        if not self.pattern:
            return sorted(self.topics)
        return sorted({place.topic for place in (await self.consumer()).assignment})

    async def seek(self, offsets: dict[Place, int | str]) -> None:
        """Seek to offsets, or to the `earliest` or `latest` one. Raises NotAssignedError."""
        source = await self.source()
        consumer = source.consumer
        for place, offset in offsets.items():
            if offset == "earliest":
                consumer.seek_to_beginning(place)
            elif offset == "latest":
                consumer.seek_to_end(place)
            else:
                assert isinstance(offset, int)
                consumer.seek(place, offset)
            self._handed.pop(TopicPartition(*place), None)
        source.forget({TopicPartition(*place) for place in offsets})

    # --- records and commits ----------------------------------------------------------------------------------

    async def records(self, timeout_ms: int, bytes_max: int) -> list[bytes]:
        """Return the next records as JSON, at least one if it arrives in time. Raises RestError, ClientError."""
        async with self.lock:
            source = await self.source()
            if self.settings.is_auto_committing and (
                trio.current_time() - self._committed_at_s >= COMMIT_SECONDS
            ):
                await self._commit_handed(source.consumer)
            rows = await self._read(source, timeout_ms, bytes_max)
            await source.rest()
            return rows

    async def _read(self, source: Source, timeout_ms: int, bytes_max: int) -> list[bytes]:
        rows: list[bytes] = []
        size = written = 0
        bytes_min = self.settings.bytes_min
        ends_at = trio.current_time() + timeout_ms / 1000
        while len(rows) < RECORDS_MAX and written < ANSWER_BYTES_MAX:
            is_enough = bytes_min is not None and size > bytes_min
            if is_enough and not source.has_more():
                break
            quiet_at = trio.current_time() + QUIET_SECONDS if rows and bytes_min is None else math.inf
            row = await source.peek(deadline=min(ends_at, quiet_at))
            if row is None or (rows and size + row.size >= bytes_max):
                break
            if row.problem:
                if rows:
                    break
                raise RestError(
                    408, SERIALIZATION, f"{row.topic}-{row.partition} at offset {row.offset}: {row.problem}"
                )
            source.rows.popleft()
            rows.append(row.content)
            size += row.size
            written += len(row.content) + 1
            self._handed[TopicPartition(row.topic, row.partition)] = row.offset + 1
            if len(rows) % RECORDS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
        return rows

    async def commit(self, offsets: dict[Place, OffsetAndMetadata] | None) -> None:
        """Commit offsets, or with None all that answers have held. Raises ClientError."""
        consumer = await self.consumer()
        if offsets is None:
            await self._commit_handed(consumer, is_quiet=False)
        else:
            await consumer.commit(offsets)

    async def _commit_handed(self, consumer: Consumer, *, is_quiet: bool = True) -> None:
        """Commit the records of responses in partitions that are still assigned. Raises ClientError unless `is_quiet`."""
        offsets = {place: offset for place, offset in self._handed.items() if place in consumer.assignment}
        self._committed_at_s = trio.current_time()
        if not offsets:
            return
        try:
            await consumer.commit(offsets)
        except ClientError as error:
            if not is_quiet:
                raise
            log.debug("an automatic commit of %s in group %s failed: %s", self.name, self.group, error)
            return
        for place, offset in offsets.items():
            if self._handed.get(place) == offset:
                del self._handed[place]

    async def _give_up(self, places: set[TopicPartition]) -> None:
        """Commit the delivered records of revoked partitions, and drop the rest."""
        source = self._source
        if source is None:
            return
        if self.settings.is_auto_committing:
            offsets = {place: self._handed[place] for place in places if place in self._handed}
            if offsets:
                with suppress(ClientError):  # the next owner reads those records again
                    await source.consumer.commit(offsets)
        await self._forget(places)

    async def _forget(self, places: set[TopicPartition]) -> None:
        for place in places:
            self._handed.pop(place, None)
        if self._source is not None:
            self._source.forget(places)


class _Whole:
    """A pattern that matches whole names, as Java's `matches` does."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def match(self, text: str) -> Any:
        """Return whether a whole name matches."""
        return self._pattern.fullmatch(text)


class Instances:
    """All instances. Lifecycle: `run` in a task, until cancelled."""

    def __init__(self, *, seconds_max: float = INSTANCE_SECONDS_MAX) -> None:
        """`seconds_max` is the time without a request after which an instance is closed."""
        self._seconds_max = seconds_max
        self._instances: dict[tuple[Hashable, str, str], Instance] = {}

    async def run(self) -> None:
        """Close instances that are idle, until cancelled."""
        while True:
            await trio.sleep(CHECK_SECONDS)
            now = trio.current_time()
            for place, instance in [*self._instances.items()]:
                is_idle = now - instance.used_at_s > self._seconds_max and not instance.lock.locked()
                if instance.is_ended or is_idle:
                    instance.end()
                    del self._instances[place]

    def __len__(self) -> int:
        return len(self._instances)

    async def create(self, backend: Backend, group: str, name: str, settings: InstanceSettings) -> str:
        """Open an instance, and return its name, generated if empty. Raises RestError, ClientError."""
        name = name or f"rest-consumer-{secrets.token_hex(16)}"
        if not 0 < len(name) <= NAME_CHARS_MAX or "/" in name:
            raise RestError(
                422,
                INVALID_CONSUMER,
                f"the name of an instance has at most {NAME_CHARS_MAX} characters, none of them /",
            )
        place = (backend.owner, group, name)
        if place in self._instances and not self._instances[place].is_ended:
            raise RestError(409, ALREADY_EXISTS, f"group {group!r} has an instance {name!r} already")
        if sum(owner == backend.owner for owner, _, _ in self._instances) >= OWNER_INSTANCES_MAX:
            raise RestError(
                429,
                TOO_MANY_REQUESTS,
                f"there are {OWNER_INSTANCES_MAX} consumer instances already: delete one",
            )
        if len(self._instances) >= INSTANCES_MAX:
            raise RestError(503, 503, f"there are {INSTANCES_MAX} consumer instances already")
        instance = Instance(backend, group, name, settings)
        self._instances[place] = instance
        try:
            error: Exception | None = await backend.nursery.start(instance.run)
        except BaseException:
            self._instances.pop(place, None)
            raise
        if error is not None:
            self._instances.pop(place, None)
            raise error
        return name

    def find(self, backend: Backend, group: str, name: str) -> Instance:
        """Return an instance of a user. Raises RestError."""
        instance = self._instances.get((backend.owner, group, name))
        if instance is None or instance.is_ended:
            raise RestError(
                404, INSTANCE_NOT_FOUND, f"group {group[:80]!r} has no consumer instance {name[:80]!r}"
            )
        instance.used_at_s = trio.current_time()
        return instance

    def delete(self, backend: Backend, group: str, name: str) -> None:
        """Close an instance, which leaves its group. Raises RestError."""
        self.find(backend, group, name).end()
        del self._instances[backend.owner, group, name]
