"""Outdated metadata: answered by the same handler from an older image of the cluster.

The rule: only the image is old; the client, its listener and its rights are the present ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.handlers import Handlers
from barnabas.serving import apis

if TYPE_CHECKING:
    from barnabas.broker.services import Services
    from barnabas.cluster.metadata.image import ClusterImage
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.serving.context import RequestContext

METADATA = 3


class _OldMetadata:
    """A metadata store with an older image; everything else of it is the broker's."""

    def __init__(self, metadata: MetadataStore, image: ClusterImage) -> None:
        self._metadata = metadata
        self.image = image

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metadata, name)


async def stale_answer(services: Services, image: ClusterImage, context: RequestContext, request: Any) -> Any:
    """Answer a Metadata request as the broker would have when the cluster was as in `image`. Raises RequestError."""
    old: Any = _OldMetadata(services.metadata, image)
    return await Handlers(services._replace(metadata=old)).answer(apis.BY_KEY[METADATA], context, request)
