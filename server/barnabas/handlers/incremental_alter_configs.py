"""IncrementalAlterConfigs v0-v1. Sets, deletes, appends to and subtracts from single settings (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.config_resources import alter, wanted_changes
from barnabas.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
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
) -> IncrementalAlterConfigsResponse:
    """Alter all resources in one change; one that is refused does not keep the others back."""
    changes = await wanted_changes(request.resources, replace_all=False, budget=budget)
    await alter(
        changes,
        replace_all=False,
        validate_only=request.validate_only,
        metadata=metadata,
        config=config,
        budget=budget,
        broker_id=broker_id,
        context=context,
    )
    response = IncrementalAlterConfigsResponse()
    for change in changes:
        answer = Answer(resource_type=change.resource_type, resource_name=change.name, error_message=None)
        if change.refused is not None:
            answer.error_code, answer.error_message = change.refused.code, change.refused.message
        response.responses.append(answer)
        await budget.checkpoint()
    return response
