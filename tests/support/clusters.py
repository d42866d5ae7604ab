"""A broker's view of a cluster that it is a member of: an image that the test makes."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.cluster.metadata.image import Change, ClusterImage, Delta
from barnabas.cluster.metadata.store import Decide, Subscriber
from tests.support.broker import Asked


class StandingImage:
    """Implements `cluster.store.MetadataStore` with an image that stays until the test replaces it."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.patience_ms = 0
        self.decided: list[Change] = []
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    async def change(self, decide: Decide) -> ClusterImage:
        await self.apply(decide(self.image))
        return self.image

    async def apply(self, changes: Iterable[Change | None]) -> None:
        """Apply changes, and notify the subscribers of the image."""
        new = [change for change in changes if change is not None]
        self.decided += new
        delta = Delta.of(self.image, self.image.apply(new), new)
        for subscriber in self._subscribers:
            await subscriber.prepare(delta)
        self.image = delta.new
        for subscriber in self._subscribers:
            subscriber.publish(delta)
        for subscriber in self._subscribers:
            await subscriber.clean_up(delta)

    async def close(self) -> None:
        """Nothing is open."""


def seen_in_cluster(ask: Asked, changes: Iterable[Change]) -> StandingImage:
    """Give the handlers of a broker its image with `changes`, as a member of a cluster; returns the image's store."""
    metadata = StandingImage(ask.services.metadata.image.apply(changes))
    ask.services = ask.services._replace(metadata=metadata)
    return metadata
