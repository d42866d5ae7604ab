"""Broker that coordinates an id: the leader of the partition of the internal topic that keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.coordinators.runtime.ports import CoordinatorType
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.runtime.groups import GroupCoordinator
    from barnabas.coordinators.runtime.shares import Shares
    from barnabas.coordinators.runtime.transactions import TransactionCoordinator
    from barnabas.environment.lazy import Lazy

_TOPICS = {
    CoordinatorType.GROUP: OFFSETS_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTION_TOPIC,
    CoordinatorType.SHARE: SHARE_TOPIC,
}


class ImageLocator:
    """Implements `ports.CoordinatorLocator` from the metadata image."""

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
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody leads {_TOPICS[kind]}-{partition} now"
            )
        return info.leader

    async def _partition_of(self, kind: CoordinatorType, key: str) -> int:
        if kind is CoordinatorType.GROUP:
            return await self._groups.partition_of(key)
        if kind is CoordinatorType.TRANSACTION:
            return await self._transactions.partition_of(key)
        shares = await self._shares.ready()
        from barnabas.coordinators.runtime.share_state import key_of, name_of

        return await shares.state.partition_of(name_of(key_of(key)))
