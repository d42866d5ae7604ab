"""IncrementalAlterConfigs v0-v1. Sets, deletes, appends to and subtracts from single settings (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.handlers.config_resources import Alteration, alter, named_twice
from barnabas.wire.generated.errors import ErrorCode
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
    """Alter each resource on its own."""
    answers = []
    twice = named_twice(request.resources)
    for resource in request.resources:
        answer = Answer(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        answers.append(answer)
        wanted = [Alteration(entry.name, entry.config_operation, entry.value) for entry in resource.configs]
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the resource is named twice")
            await alter(
                context,
                resource.resource_type,
                resource.resource_name,
                wanted,
                replace_all=False,
                validate_only=request.validate_only,
            )
        except RequestError as error:
            answer.error_code, answer.error_message = error.code, error.message
    return IncrementalAlterConfigsResponse(responses=answers)
