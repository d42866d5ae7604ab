"""All topics of a cluster in a few numbers each, from which pages are cut.

The rule: read in pages where the broker has pages (KIP-966), so that no one else waits for a list of 10,000 topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import trio

from barnabas.client.admin import Admin, TopicInfo
from barnabas.console.kept import Kept


class TopicRow(NamedTuple):
    """A topic: the numbers of its partitions, under-replicated and offline ones; their leaders, -1 for none."""

    name: str
    partitions: int
    replication: int
    under_replicated: int
    offline: int
    is_internal: bool
    leaders: tuple[int, ...] = ()


class TopicIndex:
    """The topics that one visitor may see, by name."""

    def __init__(self, admin: Admin, nursery: trio.Nursery) -> None:
        self._admin = admin
        self._kept = Kept(self._read, nursery)

    async def rows(self) -> Sequence[TopicRow]:
        """Return all rows in the order of names. Raises ClientError."""
        return await self._kept.get()

    def forget(self) -> None:
        """Read the index again at its next use: a topic was created, changed or deleted."""
        self._kept.forget()

    async def _read(self) -> Sequence[TopicRow]:
        rows: list[TopicRow] = []
        async for page in self._admin.pages():
            for topic in page:
                row = row_of(topic)
                if rows and rows[-1].name == row.name:  # its partitions begin on the page before
                    row = _joined(rows.pop(), row)
                rows.append(row)
        return rows


def row_of(topic: TopicInfo) -> TopicRow:
    """Return the row of a topic."""
    parts = [(partition.replicas, partition.in_sync, partition.leader) for partition in topic.partitions]
    return _counted(topic.name, parts, is_internal=topic.is_internal)


def _counted(
    name: str, parts: Sequence[tuple[Sequence[int], Sequence[int], int]], *, is_internal: bool
) -> TopicRow:
    """Return the row of a topic by the replicas, in-sync replicas and leaders of its partitions."""
    return TopicRow(
        name,
        len(parts),
        max((len(replicas) for replicas, _, _ in parts), default=0),
        sum(len(in_sync) < len(replicas) for replicas, in_sync, _ in parts),
        sum(leader < 0 for _, _, leader in parts),
        is_internal,
        tuple(leader for _, _, leader in parts),
    )


def _joined(first: TopicRow, second: TopicRow) -> TopicRow:
    return TopicRow(
        first.name,
        first.partitions + second.partitions,
        max(first.replication, second.replication),
        first.under_replicated + second.under_replicated,
        first.offline + second.offline,
        first.is_internal,
        first.leaders + second.leaders,
    )


ORDERS: dict[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: (row.partitions, row.name),
    "replication": lambda row: (row.replication, row.name),
    "under_replicated": lambda row: (row.under_replicated + row.offline, row.name),
}
