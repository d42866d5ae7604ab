"""IncrementalAlterConfigs v0-v1. Sets, deletes, appends to and subtracts from single settings (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.config_resources import alter, wanted_changes
from barnabas.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext

Answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Alter all resources in one change; one that is refused does not keep the others back."""
    changes = await wanted_changes(context, request.resources, replace_all=False)
    await alter(context, changes, replace_all=False, validate_only=request.validate_only)
    response = IncrementalAlterConfigsResponse()
    for change in changes:
        answer = Answer(resource_type=change.resource_type, resource_name=change.name, error_message=None)
        if change.refused is not None:
            answer.error_code, answer.error_message = change.refused.code, change.refused.message
        response.responses.append(answer)
        await context.broker.budget.checkpoint()
    return response
