"""The metadata store of a broker in a KRaft quorum.

The rule: the image follows the committed records of the metadata log, in their order, and nothing else. Only the active
controller makes changes: other parts request them there, and see them here once they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import trio

from barnabas.cluster.kraft.image import Change as QuorumChange
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.cluster.kraft.loader import ImageDelta
from barnabas.cluster.kraft.translation import translate
from barnabas.cluster.metadata.changes import ControllerChanged
from barnabas.cluster.metadata.image import ClusterImage
from barnabas.cluster.metadata.publishing import Publication
from barnabas.cluster.metadata.store import Decide, Subscriber
from barnabas.errors import RequestError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode


class QuorumStore:
    """Implements `store.MetadataStore`. Lifecycle: `follow` each committed batch of the log; `close`."""

    patience_ms = 0

    def __init__(self, cluster_id: str, broker_id: int, budget: LoopBudget) -> None:
        image = ClusterImage(cluster_id).apply([ControllerChanged(broker_id)])  # Kafka names any broker
        self._publication = Publication(image, budget)
        self._budget = budget
        self._offset = -1
        self.isr_candidates: Container[int] = frozenset()
        """Brokers that may join an ISR: alive, and not in controlled shutdown (KIP-841)."""
        self._advanced = trio.Event()

    @property
    def image(self) -> ClusterImage:
        """The newest image for which the subscribers are ready."""
        return self._publication.image

    @property
    def offset(self) -> int:
        """Offset of the last record in the published image, -1 before the first."""
        return self._offset

    def subscribe(self, subscriber: Subscriber) -> None:
        """Subscribe to each change, in order."""
        self._publication.subscribe(subscriber)

    async def follow(
        self, changes: Sequence[QuorumChange], image: QuorumImage, *, kraft_version: int = 0
    ) -> None:
        """Publish the changes of the records up to `image`. Raises UntranslatableError: then nothing is published."""
        translated = []
        for change in translate(self.image, changes, image, kraft_version=kraft_version):
            translated.append(change)
            await self._budget.checkpoint()
        await self._publication.publish(translated)
        self.isr_candidates = frozenset(
            broker.id for broker in self.image.brokers.values() if not broker.in_controlled_shutdown
        )
        # Clients see the offset as the epoch of features (KIP-584), as in Kafka.
        offset = image.position.offset
        self._publication.image = self.image._replace(features_epoch=max(offset, 0))
        self._offset = offset
        self._advanced.set()
        self._advanced = trio.Event()

    async def wait_for(self, offset: int) -> None:
        """Wait until the record at an offset is published."""
        while self._offset < offset:
            await self._advanced.wait()

    async def change(self, _decide: Decide) -> ClusterImage:
        """Raise NOT_CONTROLLER: in a quorum the active controller alone changes metadata."""
        raise RequestError(ErrorCode.NOT_CONTROLLER, "the active controller of the quorum changes metadata")

    async def close(self) -> None:
        """Do nothing: the log is closed by its owner."""


class Projection:
    """Updates a store from the image of the quorum. Implements `applying.ImageSubscriber`."""

    def __init__(self, store: QuorumStore, kraft_version: Callable[[], int]) -> None:
        """`kraft_version` returns the finalized level, which is in control records."""
        self._store = store
        self._kraft_version = kraft_version

    async def prepare(self, delta: ImageDelta) -> None:
        """Publish the changes to all subscribers of the store."""
        await self._store.follow(delta.changes, delta.after, kraft_version=self._kraft_version())

    def publish(self, delta: ImageDelta) -> None:
        """Do nothing: the store has published."""

    async def clean_up(self, delta: ImageDelta) -> None:
        """Do nothing."""
