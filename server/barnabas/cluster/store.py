"""Where the cluster's state is kept, as everybody else sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.cluster.image import Change, ClusterImage

Subscriber = Callable[[ClusterImage, ClusterImage], None]
Decide = Callable[[ClusterImage], Sequence[Change]]


class MetadataStore(Protocol):
    """The one place where the cluster's state changes."""

    @property
    def image(self) -> ClusterImage:
        """The newest image."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new)` after each change, in order."""

    async def change(self, decide: Decide) -> ClusterImage:
        """Ask `decide` for changes to the newest image, make them last, and return the image after them.

        `decide` is asked again when somebody else was quicker; whatever it raises is raised here, and nothing has
        changed then. Raises StorageError when the change cannot be kept.
        """
