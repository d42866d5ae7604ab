"""Store of the cluster's state, as its users see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas.cluster.metadata.image import Change, ClusterImage, Delta

Decide = Callable[[ClusterImage], Iterable[Change | None]]
"""Decides on changes to an image. None is a step that changes nothing, as where one of many wishes is refused."""


class Subscriber(Protocol):
    """A follower of the image. Its methods do not raise for faults of a disk or a client."""

    async def prepare(self, delta: Delta) -> None:
        """Prepare what the new image needs; other code still sees the old image."""

    def publish(self, delta: Delta) -> None:
        """Follow the new image, which all code sees now."""

    async def clean_up(self, delta: Delta) -> None:
        """Remove what only the old image needed."""


class MetadataStore(Protocol):
    """The only place where the cluster's state changes.

    Lifecycle: created and opened at the assembly of the broker, `subscribe` and `change` while it is open, `close`.
    """

    patience_ms: int
    """Longest wait (ms) for a change with a timeout of 0."""

    @property
    def image(self) -> ClusterImage:
        """The newest image for which the subscribers are ready."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Subscribe to each change, in order."""

    async def change(self, decide: Decide, /) -> ClusterImage:
        """Persist the changes that `decide` returns for the newest image, and return the image directly after them.

        Changes are applied one after the other, each seen by all subscribers before the next is published; so a subscriber
        must not call this. `decide` may be a generator: other tasks run between its changes, while the image stays the
        same. It is called again if another writer was faster; its errors are raised here, and then nothing has changed. A
        cancelled caller does not cancel a decided change. Raises StorageError if the change cannot be persisted: then the
        image is unchanged.
        """

    async def close(self) -> None:
        """Release all resources; a later change raises StorageError."""
