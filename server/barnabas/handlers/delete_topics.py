"""DeleteTopics v0-v6. Deletes topics by name, or by id (v6); v5 adds the reason in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.cluster import controller
from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext

NAMED_TWICE = "the topic is named twice"

Result = DeleteTopicsResponse.DeletableTopicResult


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic on its own; one that is named twice, by whatever, stays."""
    image = context.broker.metadata.image
    results: list[Result] = []
    wanted: list[tuple[str, bytes]] = []
    for (name, topic_id), count in _asked(request).items():
        if name is not None and topic_id != ZERO_UUID:
            results.append(_refused(name, topic_id, "both a name and an id are given"))
        elif count > 1:
            results.append(_refused(name, topic_id, NAMED_TWICE))
        elif name is not None:
            wanted.append((name, image.topics[name].id if name in image.topics else ZERO_UUID))
        elif topic_id == ZERO_UUID:
            results.append(_refused(None, topic_id, "neither a name nor an id is given"))
        elif (found := image.topic_name(topic_id)) is None:
            results.append(
                _refused(None, topic_id, "there is no topic with this id", ErrorCode.UNKNOWN_TOPIC_ID)
            )
        else:
            wanted.append((found, topic_id))
    for (name, topic_id), count in Counter(wanted).items():
        if count > 1:
            results.append(_refused(name, topic_id, NAMED_TWICE))
        else:
            results.append(await _delete(context, name, topic_id))
    return DeleteTopicsResponse(responses=results)


def _asked(request: DeleteTopicsRequest) -> Counter[tuple[str | None, bytes]]:
    """How often each (name, id) is asked for."""
    asked = Counter((topic.name, topic.topic_id) for topic in request.topics)
    asked.update((name, ZERO_UUID) for name in request.topic_names)
    return asked


def _refused(name: str | None, topic_id: bytes, why: str, code: int = ErrorCode.INVALID_REQUEST) -> Result:
    return Result(name=name, topic_id=topic_id, error_code=code, error_message=why)


async def _delete(context: RequestContext, name: str, topic_id: bytes) -> Result:
    result = Result(name=name, topic_id=topic_id)
    try:
        if not context.broker.config.get(settings.DELETE_TOPIC_ENABLE):
            raise RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        await context.broker.metadata.change(lambda image: controller.delete_topic(image, name))
        await context.broker.groups.forget_topics({name})
        await context.broker.shares.groups.forget_topics({topic_id})
    except RequestError as error:
        result.error_code = error.code
        result.error_message = error.message or None
    return result
