"""AlterConfigs v0-v2. Replaces all of a resource's own settings; what is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.config_resources import alter, wanted_changes
from barnabas.wire.generated.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext

Answer = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    context: RequestContext,
    request: AlterConfigsRequest,
    *,
    metadata: MetadataStore,
    config: BrokerConfig,
    budget: LoopBudget,
    broker_id: int,
) -> AlterConfigsResponse:
    """Alter all resources in one change; one that is refused does not keep the others back."""
    changes = await wanted_changes(request.resources, replace_all=True, budget=budget)
    await alter(
        changes,
        replace_all=True,
        validate_only=request.validate_only,
        metadata=metadata,
        config=config,
        budget=budget,
        broker_id=broker_id,
        context=context,
    )
    response = AlterConfigsResponse()
    for change in changes:
        answer = Answer(resource_type=change.resource_type, resource_name=change.name, error_message=None)
        if change.refused is not None:
            answer.error_code, answer.error_message = change.refused.code, change.refused.message
        response.responses.append(answer)
        await budget.checkpoint()
    return response
