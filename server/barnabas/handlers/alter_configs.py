"""AlterConfigs v0-v2. Replaces all of a resource's own settings; what is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.handlers.config_resources import SET, Alteration, alter, named_twice
from barnabas.wire.generated.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext

Answer = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Alter each resource on its own."""
    answers = []
    twice = named_twice(request.resources)
    for resource in request.resources:
        answer = Answer(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        answers.append(answer)
        wanted = [Alteration(entry.name, SET, entry.value) for entry in resource.configs]
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the resource is named twice")
            await alter(
                context,
                resource.resource_type,
                resource.resource_name,
                wanted,
                replace_all=True,
                validate_only=request.validate_only,
            )
        except RequestError as error:
            answer.error_code, answer.error_message = error.code, error.message
    return AlterConfigsResponse(responses=answers)
