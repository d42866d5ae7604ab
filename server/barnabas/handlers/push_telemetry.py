"""PushTelemetry v0. Receives a client's metrics (KIP-714), in OpenTelemetry's format, compressed or not.

THROTTLING_QUOTA_EXCEEDED before the push interval is over, except for the last push; after UNKNOWN_SUBSCRIPTION_ID the
client requests its subscription again; TELEMETRY_TOO_LARGE above `telemetry.max.bytes`, compressed or uncompressed;
INVALID_RECORD for unreadable metrics. A push without metrics is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.metrics.client_telemetry import attributes_of
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from barnabas.metrics.client_telemetry import Telemetry
    from barnabas.serving.context import RequestContext


@dataclass(eq=False)
class PushTelemetry:
    """Handler of PushTelemetry."""

    telemetry: Telemetry

    async def handle(self, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
        """Take the metrics up, if the client may push them now."""
        instance = self.telemetry.instances.push(
            request.client_instance_id,
            attributes_of(context, request.client_instance_id),
            context.connection.connection_id,
            context.now_ms,
            subscription_id=request.subscription_id,
            terminating=request.terminating,
            compression=request.compression_type,
            size=len(request.metrics),
        )
        if request.metrics:
            await self.telemetry.take(context, instance, request.compression_type, request.metrics)
        else:
            self.telemetry.instances.settled(instance, ErrorCode.NONE)
        return PushTelemetryResponse()
