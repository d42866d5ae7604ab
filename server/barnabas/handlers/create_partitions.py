"""CreatePartitions v0-v3. Gives a topic more partitions, or only says whether it could (validate_only)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.cluster import controller
from barnabas.cluster.image import Change, ClusterImage
from barnabas.errors import RequestError
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext

Result = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Grow each topic on its own."""
    names = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        result = Result(name=topic.name)
        results.append(result)
        assignments = None
        if topic.assignments is not None:
            assignments = [entry.broker_ids for entry in topic.assignments]
        try:
            if names[topic.name] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named twice")
            await _grow(context, topic.name, topic.count, assignments, validate_only=request.validate_only)
        except RequestError as error:
            result.error_code = error.code
            result.error_message = error.message or None
    return CreatePartitionsResponse(results=results)


async def _grow(
    context: RequestContext,
    name: str,
    total: int,
    assignments: list[list[int]] | None,
    *,
    validate_only: bool,
) -> None:
    def decide(image: ClusterImage) -> list[Change]:
        return controller.add_partitions(image, name, total, assignments)

    if validate_only:
        decide(context.broker.metadata.image)
    else:
        await context.broker.metadata.change(decide)
