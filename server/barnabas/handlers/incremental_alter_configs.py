"""IncrementalAlterConfigs v0-v1. Sets, deletes, appends to and subtracts from single settings (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.config_alteration import ConfigAlteration
from barnabas.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.listeners import ListenerSecurity
    from barnabas.config.loading import BrokerConfig
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext

Answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    *,
    metadata: MetadataStore,
    config: BrokerConfig,
    budget: LoopBudget,
    broker_id: int,
    security: ListenerSecurity,
) -> IncrementalAlterConfigsResponse:
    """Alter all resources in one change; one that is refused does not keep the others back."""
    alteration = ConfigAlteration(
        context,
        replace_all=False,
        validate_only=request.validate_only,
        metadata=metadata,
        config=config,
        budget=budget,
        broker_id=broker_id,
        security=security,
    )
    return IncrementalAlterConfigsResponse(responses=await alteration.apply(request.resources, Answer))
