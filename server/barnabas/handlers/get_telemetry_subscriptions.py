"""GetTelemetrySubscriptions v0. Which metrics a client is to push, and how often (KIP-714); gives it an id at first.

Answered at once when the subscription has changed, else once per push interval: THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.metrics.client_telemetry import attributes_of
from barnabas.metrics.telemetry.instances import ACCEPTED_COMPRESSIONS
from barnabas.wire.generated.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

if TYPE_CHECKING:
    from barnabas.metrics.client_telemetry import Telemetry
    from barnabas.serving.context import RequestContext


@dataclass(eq=False)
class GetTelemetrySubscriptions:
    """Handler of GetTelemetrySubscriptions."""

    telemetry: Telemetry

    async def handle(
        self, context: RequestContext, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """Return the present subscription of the client."""
        instances = self.telemetry.instances
        instance_id = instances.id_for(request.client_instance_id)
        instance = instances.get(
            instance_id, attributes_of(context, instance_id), context.connection.connection_id, context.now_ms
        )
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance.id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=[int(codec) for codec in ACCEPTED_COMPRESSIONS],
            push_interval_ms=instance.selection.push_interval_ms,
            telemetry_max_bytes=self.telemetry.bytes_max,
            delta_temporality=True,
            requested_metrics=list(instance.selection.metrics),
        )
