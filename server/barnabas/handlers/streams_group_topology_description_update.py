"""StreamsGroupTopologyDescriptionUpdate v0. A member sends the description of its topology (KIP-1331): refused.

This broker stores no descriptions. Kafka without a plugin for them gives the same response to every request; its heartbeats
never request a description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext


class StreamsGroupTopologyDescriptionUpdate:
    """Handler of StreamsGroupTopologyDescriptionUpdate."""

    async def handle(
        self, _context: RequestContext, _request: StreamsGroupTopologyDescriptionUpdateRequest
    ) -> StreamsGroupTopologyDescriptionUpdateResponse:
        """Say that there is no place for descriptions."""
        return StreamsGroupTopologyDescriptionUpdateResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="this broker keeps no topology descriptions",
        )
