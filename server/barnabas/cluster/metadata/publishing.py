"""The newest image, and the subscribers that follow it.

The rule: changes are published one after the other, each seen by all subscribers before the next; the image is replaced
between `prepare` and `publish`.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from barnabas.cluster.metadata.image import Change, ClusterImage, Delta
from barnabas.cluster.metadata.store import Subscriber
from barnabas.serving.loop_budget import LoopBudget

CHANGES_PER_STEP = 100
"""Changes that are applied without a checkpoint between them."""


class Publication:
    """An image with its subscribers; `publish` is for one task at a time."""

    def __init__(self, image: ClusterImage, budget: LoopBudget) -> None:
        self.image = image
        """The newest image for which the subscribers are ready."""
        self._budget = budget
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Subscribe to each change, in order."""
        self._subscribers.append(subscriber)

    async def publish(self, changes: Sequence[Change]) -> None:
        """Apply changes, and have all subscribers follow. A caller that is cancelled waits until they have."""
        if not changes:
            return
        with trio.CancelScope(shield=True):
            image = await applied(self._budget, self.image, changes)
            delta = Delta.of(self.image, image, changes)
            for subscriber in self._subscribers:
                await subscriber.prepare(delta)
            self.image = image
            for subscriber in self._subscribers:
                subscriber.publish(delta)
            for subscriber in self._subscribers:
                await subscriber.clean_up(delta)


async def applied(budget: LoopBudget, image: ClusterImage, changes: Sequence[Change]) -> ClusterImage:
    """Return the image after these changes; other tasks run meanwhile."""
    for start in range(0, len(changes), CHANGES_PER_STEP):
        image = image.apply(changes[start : start + CHANGES_PER_STEP])
        await budget.checkpoint()
    return image
