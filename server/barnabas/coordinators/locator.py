"""Locator of coordinators: the leader of an id's partition of the internal topic."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.share.shares import Shares
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.environment.lazy import Lazy


class CoordinatorType(IntEnum):
    """Key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class CoordinatorLocator(Protocol):
    """Finds the broker that coordinates an id."""

    async def locate(self, kind: CoordinatorType, key: str) -> int:
        """Return the id of the broker that coordinates `key`; creates the internal topic if necessary.

        Raises COORDINATOR_NOT_AVAILABLE; INVALID_REQUEST for a share key of another form than group:topic id:partition.
        """


_TOPICS = {
    CoordinatorType.GROUP: OFFSETS_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTION_TOPIC,
    CoordinatorType.SHARE: SHARE_TOPIC,
}


class ImageLocator:
    """Implements `CoordinatorLocator` from the metadata image."""

    def __init__(
        self,
        metadata: MetadataStore,
        *,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        shares: Lazy[Shares],
    ) -> None:
        self._metadata = metadata
        self._groups = groups
        self._transactions = transactions
        self._shares = shares

    async def locate(self, kind: CoordinatorType, key: str) -> int:
        """Return the id of the broker that coordinates `key`."""
        partition = await self._partition_of(kind, key)
        info = self._metadata.image.partition(_TOPICS[kind], partition)
        if info is None or info.leader < 0:
            raise RequestError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{_TOPICS[kind]}-{partition} has no leader now"
            )
        return info.leader

    async def _partition_of(self, kind: CoordinatorType, key: str) -> int:
        if kind is CoordinatorType.GROUP:
            return await self._groups.partition_of(key)
        if kind is CoordinatorType.TRANSACTION:
            return await self._transactions.partition_of(key)
        shares = await self._shares.ready()
        from barnabas.coordinators.share.coordinator import key_of, name_of

        return await shares.state.partition_of(name_of(key_of(key)))
