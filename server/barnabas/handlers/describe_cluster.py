"""DescribeCluster v0-v2. The cluster's id, its controller and its brokers (KIP-700).

v1 distinguishes the endpoints of controllers and brokers: a request for controllers is refused with
MISMATCHED_ENDPOINT_TYPE. v2 can include fenced brokers, which only a KRaft cluster has (KIP-1073).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.endpoints import advertised_nodes, fenced_nodes
from barnabas.errors import RequestError
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.serving.context import RequestContext

BROKERS = 1
CONTROLLERS = 2


@dataclass(eq=False)
class DescribeCluster:
    """Handler of DescribeCluster."""

    metadata: MetadataStore

    async def handle(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Describe the cluster as this client can reach it."""
        if request.endpoint_type == CONTROLLERS:
            raise RequestError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker's endpoint, not a controller's"
            )
        if request.endpoint_type != BROKERS:
            raise RequestError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type}")
        image = self.metadata.image
        response = DescribeClusterResponse(cluster_id=image.cluster_id, controller_id=image.controller_id)
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = context.cluster_operations()
        alive = advertised_nodes(image, context.connection)
        fenced = fenced_nodes(image, context.connection) if request.include_fenced_brokers else []
        response.brokers = [
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=node in fenced
            )
            for node in (*alive, *fenced)
        ]
        return response
