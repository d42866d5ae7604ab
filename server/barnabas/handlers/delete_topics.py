"""DeleteTopics v0-v6. Deletes topics by name, or by id (v6); v5 adds the reason in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster import controller
from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext

Result = DeleteTopicsResponse.DeletableTopicResult


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic on its own."""
    asked = [(topic.name, topic.topic_id) for topic in request.topics]
    asked += [(name, ZERO_UUID) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[await _delete(context, name, topic_id) for name, topic_id in asked]
    )


async def _delete(context: RequestContext, name: str | None, topic_id: bytes) -> Result:
    store = context.broker.metadata
    result = Result(name=name, topic_id=topic_id)
    try:
        if not context.broker.config.get(settings.DELETE_TOPIC_ENABLE):
            raise RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        if name is None:
            if topic_id == ZERO_UUID:
                raise RequestError(ErrorCode.INVALID_REQUEST, "neither a name nor an id is given")
            result.name = name = store.image.topic_name(topic_id)
            if name is None:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        elif topic_id != ZERO_UUID:
            raise RequestError(ErrorCode.INVALID_REQUEST, "both a name and an id are given")
        elif name in store.image.topics:
            result.topic_id = store.image.topics[name].id
        await store.change(lambda image: controller.delete_topic(image, name))
        await context.broker.groups.forget_topics({name})
        await context.broker.shares.groups.forget_topics({result.topic_id})
    except RequestError as error:
        result.error_code = error.code
        result.error_message = error.message or None
    return result
