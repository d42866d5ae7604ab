"""Offsets that consumers before 0.9, and OffsetCommit and OffsetFetch v0, store in ZooKeeper.

The rule: each offset is a znode, `/consumers/<group>/offsets/<topic>/<partition>`; the last commit counts, and membership
is not checked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.resource_znodes import decode_offset, encode_offset, offset_path
from barnabas.cluster.zookeeper.session import (
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.zookeeper.session import ZooKeeper
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)


class ZooKeeperConsumerOffsets:
    """Implements `cluster.metadata.ports.ConsumerOffsets`."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, RequestError]:
        """Keep offsets of a group; returns why not, by partition. Raises INVALID_GROUP_ID."""
        _check(group)
        refused: dict[TopicPartition, RequestError] = {}
        for topic_partition, offset in offsets.items():
            try:
                await self._write(offset_path(group, *topic_partition), encode_offset(offset))
            except ZooKeeperError as error:
                log.warning("an offset of group %r is not kept: %s", group, error)
                refused[topic_partition] = _as_answer(error)
        return refused

    async def _write(self, path: str, data: bytes) -> None:
        """Write a znode, be it there or not. Raises ZooKeeperError."""
        try:
            await self._zookeeper.set(path, data)
        except NoNodeError:
            try:
                await self._zookeeper.create(path, data, parents=True)
            except NodeExistsError:  # another writer was quicker
                await self._zookeeper.set(path, data)

    async def fetch(
        self, group: str, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offsets of a group that are kept. Raises RequestError."""
        _check(group)
        asked = list(topic_partitions)
        paths = [offset_path(group, *topic_partition) for topic_partition in asked]
        try:
            nodes = await self._zookeeper.get_many(paths)
        except ZooKeeperError as error:
            raise _as_answer(error) from error
        offsets: dict[TopicPartition, int] = {}
        for topic_partition, path, znode in zip(asked, paths, nodes, strict=True):
            if znode is not None:
                try:
                    offsets[topic_partition] = decode_offset(path, znode[0])
                except ZnodeError as error:
                    log.warning("group %r: %s", group, error)
        return offsets


def _check(group: str) -> None:
    """Raise INVALID_GROUP_ID for a group that cannot be the name of one znode."""
    if not group or "/" in group or "\0" in group or group in (".", ".."):
        raise RequestError(ErrorCode.INVALID_GROUP_ID, f"{group!r} cannot be kept in ZooKeeper")


def _as_answer(error: ZooKeeperError) -> RequestError:
    """Return the error for a client; a retriable one for transient faults."""
    may_pass = isinstance(error, ConnectionLostError | SessionExpiredError)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if may_pass else ErrorCode.UNKNOWN_SERVER_ERROR
    return RequestError(code, f"ZooKeeper: {error}")
