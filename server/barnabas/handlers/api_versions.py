"""ApiVersions v0-v5. The APIs and versions that this broker serves, from the table in `apis`.

v3 has the client's name and version (KIP-511; invalid ones are INVALID_REQUEST) and adds features (KIP-584); v4 allows
a feature's minimum version to be 0. v5 has the cluster and node that the client expects (KIP-1242): if this broker is
another, the answer is REBOOTSTRAP_REQUIRED, without the table; one of the two alone is INVALID_REQUEST. Before
a login they are not compared, as in Kafka. The response header is version 0 whatever the version of the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.config.features import finalized
from barnabas.errors import RequestError
from barnabas.serving.error_responses import versions_of
from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.kraft.forwarding import Forwarder
    from barnabas.cluster.metadata.image import ClusterImage
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.serving.apis import Api
    from barnabas.serving.context import RequestContext
    from barnabas.serving.release import ReleaseProfile

CLIENT_SOFTWARE_SINCE = 3
MINIMUM_ZERO_SINCE = 4
DESTINATION_SINCE = 5
UNKNOWN_NODE = -1

_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@dataclass(eq=False)
class ApiVersions:
    """Handler of ApiVersions."""

    served: Mapping[int, Api]
    release: ReleaseProfile
    metadata: MetadataStore
    broker_id: int
    forwarder: Forwarder | None

    async def handle(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        """Return the whole table; remembers the client's software name and version."""
        if context.api_version >= CLIENT_SOFTWARE_SINCE:
            for value in (request.client_software_name, request.client_software_version):
                if not _CLIENT_SOFTWARE.fullmatch(value):
                    raise RequestError(
                        ErrorCode.INVALID_REQUEST, f"client software {value!r} is not a valid name"
                    )
            if context.api_version >= DESTINATION_SINCE:
                login = context.connection.login
                compares = login is None or login.is_done
                self._check_destination(request, self.metadata.image.cluster_id, compares=compares)
            context.connection.client_software_name = request.client_software_name
            context.connection.client_software_version = request.client_software_version
        if context.connection.login is not None:
            context.connection.login.versions_answered()
        return self._everything(self.metadata.image, context.api_version)

    def _check_destination(self, request: ApiVersionsRequest, cluster_id: str, *, compares: bool) -> None:
        """Check that this is the broker that the client means to reach. Raises INVALID_REQUEST, REBOOTSTRAP_REQUIRED."""
        if (request.cluster_id is None) != (request.node_id == UNKNOWN_NODE):
            raise RequestError(
                ErrorCode.INVALID_REQUEST, "cluster id and node id come together or not at all"
            )
        meant = request.cluster_id, request.node_id
        if compares and request.cluster_id is not None and meant != (cluster_id, self.broker_id):
            raise RequestError(
                ErrorCode.REBOOTSTRAP_REQUIRED,
                f"the client means to reach node {request.node_id} of cluster {request.cluster_id!r}",
            )

    def _advertised(self) -> Iterable[Api]:
        """Return the APIs in the versions that are served, by the active controller too where it answers them."""
        if self.forwarder is None:
            return self.served.values()
        return [
            narrowed
            for api in self.served.values()
            if (narrowed := self.forwarder.advertised(api)) is not None
        ]

    def _everything(self, image: ClusterImage, api_version: int) -> ApiVersionsResponse:
        epoch = self.release.features_epoch if image.features is None else image.features_epoch
        features = finalized(self.release.features, image.features)
        return ApiVersionsResponse(
            api_keys=[versions_of(api, self.release) for api in self._advertised()],
            supported_features=[
                ApiVersionsResponse.SupportedFeatureKey(
                    name=feature.name, min_version=feature.min_level, max_version=feature.max_level
                )
                for feature in features
                if feature.min_level
                or api_version >= MINIMUM_ZERO_SINCE  # older clients reject a minimum of 0
            ],
            finalized_features=[
                ApiVersionsResponse.FinalizedFeatureKey(
                    name=feature.name,
                    min_version_level=feature.finalized_level,
                    max_version_level=feature.finalized_level,
                )
                for feature in features
                if feature.finalized_level
            ],
            finalized_features_epoch=epoch,
        )
