"""Store of the cluster's state, as its users see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas.cluster.metadata.image import Change, ClusterImage, Delta

Decide = Callable[[ClusterImage], Iterable[Change | None]]
"""Decides on changes to an image. None is a step that changes nothing, as where one of many wishes is refused."""


class Subscriber(Protocol):
    """A follower of the image. None of its methods raises for what a disk or a client does."""

    async def prepare(self, delta: Delta) -> None:
        """Make what the new image needs; other code still sees the old one."""

    def publish(self, delta: Delta) -> None:
        """Follow the new image, which all code sees from now on."""

    async def clean_up(self, delta: Delta) -> None:
        """Remove what only the old image needed."""


class MetadataStore(Protocol):
    """The one place where the cluster's state changes.

    Lifecycle: made and opened where the broker is assembled, `subscribe` and `change` while it is open, `close`.
    """

    patience_ms: int
    """Longest wait (ms) for a change that is asked for with a timeout of 0."""

    @property
    def image(self) -> ClusterImage:
        """The newest image for which the subscribers are ready."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have `subscriber` follow each change, in order."""

    async def change(self, decide: Decide, /) -> ClusterImage:
        """Ask `decide` for changes to the newest image, make them last, and return the image just after them.

        Changes are made one after the other, each seen by all subscribers before the next is published; so a
        subscriber must not call this. `decide` may be a generator: others run between its changes, while the image
        stays as it is. It is asked again when another writer was quicker; whatever it raises is raised here, and nothing
        of it has changed then. A caller that is cancelled does not cancel what has been decided. Raises StorageError
        when the change cannot be kept: then the image is what it was.
        """

    async def close(self) -> None:
        """Release all resources; a later change raises StorageError."""
