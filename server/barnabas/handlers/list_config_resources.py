"""ListConfigResources v0-v1. The names of resources that have settings (KIP-1142); v0 knows client metrics only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.serving.context import RequestContext

KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


@dataclass(eq=False)
class ListConfigResources:
    """Handler of ListConfigResources."""

    metadata: MetadataStore

    async def handle(
        self, context: RequestContext, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        """List the resources of the kinds asked for; of all kinds when none is named."""
        image = self.metadata.image
        kinds = list(dict.fromkeys(request.resource_types)) or list(KINDS)
        if context.api_version == 0:
            kinds = [CLIENT_METRICS]
        for kind in kinds:
            if kind not in KINDS:
                raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"there are no resources of type {kind}")
        brokers = [str(broker_id) for broker_id in (*image.brokers, *image.fenced)]
        names = {TOPIC: list(image.topics), BROKER: brokers, BROKER_LOGGER: brokers}
        for kind in (CLIENT_METRICS, GROUP):
            names[kind] = [name for resource_type, name in image.configs if resource_type == kind]
        return ListConfigResourcesResponse(
            config_resources=[
                ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
                for kind in kinds
                for name in names[kind]
            ]
        )
