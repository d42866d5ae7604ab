"""All topics of a cluster in a few numbers each, from which pages are cut.

The rule: read in pages where the broker has pages (KIP-966), so that no one else waits for a list of 10,000 topics; and
read again when somebody looks at it, at most every few seconds, while the older one is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from barnabas.client import ClientError
from barnabas.client.admin import Admin, TopicInfo
from barnabas.wire.generated.describe_topic_partitions import DescribeTopicPartitionsRequest as Request

if TYPE_CHECKING:
    from barnabas.client import Connection

DESCRIBE_TOPIC_PARTITIONS = 75
PAGE_PARTITIONS = 1_000
"""Partitions that are decoded in one turn of the event loop: some 10 ms."""
FRESH_SECONDS = 5.0
STALE_SECONDS = 60.0
"""An index that is older is not shown while it is read again."""
REST_FACTOR = 20
"""Age at which it is read again, as a multiple of the time that this takes: of 10,000 topics some seconds."""


class TopicRow(NamedTuple):
    """A topic: how many of its partitions lack replicas, and how many a leader."""

    name: str
    partitions: int
    replication: int
    under_replicated: int
    offline: int
    is_internal: bool


class TopicIndex:
    """The topics that one visitor may see, by name."""

    def __init__(self, admin: Admin, nursery: trio.Nursery) -> None:
        self._admin = admin
        self._nursery = nursery
        self._rows: Sequence[TopicRow] | None = None
        self._read_at = 0.0
        self._fresh_s = FRESH_SECONDS
        self._lock = trio.Lock()
        self._is_refreshing = False

    async def rows(self) -> Sequence[TopicRow]:
        """Return all rows in the order of names. Raises ClientError."""
        age = time.monotonic() - self._read_at
        stale_s = STALE_SECONDS + 2 * self._fresh_s
        if self._rows is None or age > stale_s:
            async with self._lock:
                if self._rows is None or time.monotonic() - self._read_at > stale_s:
                    await self._read()
        elif age > self._fresh_s and not self._is_refreshing:
            self._is_refreshing = True
            self._nursery.start_soon(self._refresh)
        rows = self._rows
        assert rows is not None
        return rows

    def forget(self) -> None:
        """Have the index read again before it is next shown: a topic was made, changed or deleted."""
        self._rows = None

    async def _refresh(self) -> None:
        try:
            async with self._lock:
                with suppress(ClientError):  # whoever needs it in a minute is told
                    await self._read()
        finally:
            self._is_refreshing = False

    async def _read(self) -> None:
        began = time.monotonic()
        connection = await self._admin.client.any_connection()
        if DESCRIBE_TOPIC_PARTITIONS in connection.versions:
            rows = await self._read_pages(connection)
        else:
            found = await self._admin.topics()
            rows = [_row(one) for one in found.values() if isinstance(one, TopicInfo)]
        self._rows = rows
        self._read_at = began
        self._fresh_s = max(FRESH_SECONDS, REST_FACTOR * (time.monotonic() - began))

    async def _read_pages(self, connection: Connection) -> list[TopicRow]:
        rows: list[TopicRow] = []
        cursor: Any = None
        while True:
            request = Request([], PAGE_PARTITIONS, cursor)
            response = await connection.ask(request)
            for topic in response.topics:
                if topic.error_code or topic.name is None:
                    continue
                row = _row_of(topic)
                if rows and rows[-1].name == row.name:  # its partitions begin on the page before
                    row = _joined(rows.pop(), row)
                rows.append(row)
            if response.next_cursor is None:
                return rows
            cursor = Request.Cursor(response.next_cursor.topic_name, response.next_cursor.partition_index)
            await trio.lowlevel.checkpoint()


def _row_of(topic: Any) -> TopicRow:
    parts = [(one.replica_nodes, one.isr_nodes, one.leader_id) for one in topic.partitions]
    return _counted(topic.name, parts, is_internal=topic.is_internal)


def _row(topic: TopicInfo) -> TopicRow:
    parts = [(one.replicas, one.in_sync, one.leader) for one in topic.partitions]
    return _counted(topic.name, parts, is_internal=topic.is_internal)


def _counted(
    name: str, parts: Sequence[tuple[Sequence[int], Sequence[int], int]], *, is_internal: bool
) -> TopicRow:
    """Return the row of a topic whose partitions have these replicas, in-sync replicas and leaders."""
    return TopicRow(
        name,
        len(parts),
        max((len(replicas) for replicas, _, _ in parts), default=0),
        sum(len(in_sync) < len(replicas) for replicas, in_sync, _ in parts),
        sum(leader < 0 for _, _, leader in parts),
        is_internal,
    )


def _joined(first: TopicRow, second: TopicRow) -> TopicRow:
    return TopicRow(
        first.name,
        first.partitions + second.partitions,
        max(first.replication, second.replication),
        first.under_replicated + second.under_replicated,
        first.offline + second.offline,
        first.is_internal,
    )


ORDERS: dict[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: (row.partitions, row.name),
    "replication": lambda row: (row.replication, row.name),
    "under_replicated": lambda row: (row.under_replicated + row.offline, row.name),
}
