"""The cluster's features in ZooKeeper (KIP-584): their finalized levels, and the supported levels of each broker.

The rule: `/feature` is authoritative, written on the condition of its version; the image follows it, for every writer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.changes import FeaturesChanged
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.registration import until_answered
from barnabas.cluster.zookeeper.session import (
    BadVersionError,
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.zookeeper.session import Watch, ZooKeeper
    from barnabas.cluster.zookeeper.store import ZooKeeperStore

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
NO_EPOCH = -1


class ZooKeeperFeatures:
    """Implements `cluster.metadata.ports.FeatureLevels`. Lifecycle: `read` once, then `run` in a task, until cancelled."""

    def __init__(self, zookeeper: ZooKeeper, store: ZooKeeperStore) -> None:
        self._zookeeper = zookeeper
        self._store = store

    async def read(self, watch: Watch | None = None) -> None:
        """Read the levels into the image. Raises ZooKeeperError, StorageError."""
        levels, epoch = await self._levels(watch)

        def decide(image: ClusterImage) -> list[Change]:
            if (image.features, image.features_epoch) == (levels, epoch):
                return []
            if levels != (image.features or {}):
                log.info("the features of the cluster are now %s", levels or "all off")
            return [FeaturesChanged(tuple(sorted(levels.items())), epoch)]

        await self._store.publish(decide)

    async def _levels(self, watch: Watch | None = None) -> tuple[dict[str, int], int]:
        """Return the levels in `/feature` and its version; none and -1 without the znode, or where it is switched off."""
        try:
            data, stat = await self._zookeeper.get(resources.FEATURE, watch)
        except NoNodeError:
            if watch is not None:
                await self._zookeeper.exists(resources.FEATURE, watch)
            return {}, NO_EPOCH
        try:
            features = resources.decode_features(data)
        except ZnodeError as error:
            log.error("features are off: %s", error)
            return {}, NO_EPOCH
        return (dict(features.levels), stat.version) if features.is_enabled else ({}, NO_EPOCH)

    async def run(self) -> None:
        """Follow the znode until cancelled."""
        while True:
            changed = trio.Event()
            try:
                await self.read(changed.set)
                await changed.wait()
            except (ConnectionLostError, SessionExpiredError):
                if self._zookeeper.is_closed:
                    return
                await self._zookeeper.wait_connected()
            except ZooKeeperError as error:
                log.error("features cannot be read, which is tried again: %s", error)
                await trio.sleep(RETRY_SECONDS)

    # --- what UpdateFeatures needs --------------------------------------------------------------------------

    async def supported(self) -> dict[int, Mapping[str, tuple[int, int]]]:
        """Return the lowest and the highest level of each feature that a registered broker supports, by broker."""
        try:
            return await until_answered(self._zookeeper, self._supported)
        except ZooKeeperError as error:
            raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}") from error

    async def _supported(self) -> dict[int, Mapping[str, tuple[int, int]]]:
        names = await self._zookeeper.children(znodes.BROKER_IDS)
        nodes = await self._zookeeper.get_many([znodes.broker_path(int(name)) for name in names])
        support: dict[int, Mapping[str, tuple[int, int]]] = {}
        for name, znode in zip(names, nodes, strict=True):
            if znode is not None:
                try:
                    support[int(name)] = znodes.decode_broker(int(name), znode[0]).features
                except ZnodeError as error:
                    log.warning("%s", error)
                    support[int(name)] = {}
        return support

    async def finalize(self, levels: Mapping[str, int]) -> None:
        """Finalize features at these levels, 0 for no longer; returns when this broker knows. Raises RequestError."""
        try:
            await until_answered(self._zookeeper, lambda: self._write(levels))
        except ZooKeeperError as error:
            raise RequestError(ErrorCode.FEATURE_UPDATE_FAILED, f"ZooKeeper: {error}") from error

    async def _write(self, levels: Mapping[str, int]) -> None:
        while True:
            before, version = await self._levels()
            new = {name: level for name, level in {**before, **levels}.items() if level}
            if new != before or version == NO_EPOCH:
                data = resources.encode_features(resources.FinalizedFeatures(is_enabled=True, levels=new))
                try:
                    await self._put(data, version)
                except (BadVersionError, NodeExistsError, NoNodeError):
                    continue  # another writer was quicker
            await self.read()
            return

    async def _put(self, data: bytes, version: int) -> None:
        """Write the znode if it still has this version; in any case if features are disabled or the znode is missing."""
        if version != NO_EPOCH:
            await self._zookeeper.set(resources.FEATURE, data, version)
        elif await self._zookeeper.exists(resources.FEATURE) is None:
            await self._zookeeper.create(resources.FEATURE, data, parents=True)
        else:
            await self._zookeeper.set(resources.FEATURE, data)
