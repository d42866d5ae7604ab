"""DeleteTopics v0-v6. Deletes topics by name, or by id (v6); v5 adds the reason in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from barnabas.cluster import controller
from barnabas.cluster.image import Change, ClusterImage
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
    """Delete all topics in one change; one that is named twice, by whatever, stays."""
    broker = context.broker
    image = broker.metadata.image
    results: list[Result] = []
    wanted: Counter[tuple[str, bytes]] = Counter()
    for (name, topic_id), count in (await _asked(context, request)).items():
        if name is not None and topic_id != ZERO_UUID:
            results.append(_refused(name, topic_id, "both a name and an id are given"))
        elif count > 1:
            results.append(_refused(name, topic_id, NAMED_TWICE))
        elif name is not None:
            wanted[name, image.topics[name].id if name in image.topics else ZERO_UUID] += 1
        elif topic_id == ZERO_UUID:
            results.append(_refused(None, topic_id, "neither a name nor an id is given"))
        elif (found := image.topic_name(topic_id)) is None:
            results.append(
                _refused(None, topic_id, "there is no topic with this id", ErrorCode.UNKNOWN_TOPIC_ID)
            )
        else:
            wanted[found, topic_id] += 1
        await broker.budget.checkpoint()
    once = [key for key, count in wanted.items() if count == 1]
    refused = await _delete(context, once)
    for (name, topic_id), count in wanted.items():
        error = refused.get(name)
        if count > 1:
            results.append(_refused(name, topic_id, NAMED_TWICE))
        elif error is not None:
            results.append(_refused(name, topic_id, error.message or None, error.code))
        else:
            results.append(Result(name=name, topic_id=topic_id))
        await broker.budget.checkpoint()
    return DeleteTopicsResponse(responses=results)


async def _asked(context: RequestContext, request: DeleteTopicsRequest) -> Counter[tuple[str | None, bytes]]:
    """How often each (name, id) is asked for."""
    asked: Counter[tuple[str | None, bytes]] = Counter()
    for topic in request.topics:
        asked[topic.name, topic.topic_id] += 1
        await context.broker.budget.checkpoint()
    for name in request.topic_names:
        asked[name, ZERO_UUID] += 1
        await context.broker.budget.checkpoint()
    return asked


async def _delete(context: RequestContext, wanted: Sequence[tuple[str, bytes]]) -> dict[str, RequestError]:
    """Delete topics by name and id, and what coordinators know of them; returns why not, by name."""
    broker = context.broker
    if not broker.config.get(settings.DELETE_TOPIC_ENABLE):
        disabled = RequestError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        return {name: disabled for name, _ in wanted}
    refused: dict[str, RequestError] = {}
    deleted: dict[str, bytes] = {}

    def decide(image: ClusterImage) -> Iterator[Change]:
        for name, topic_id in wanted:
            try:
                changes = controller.delete_topic(image, name, topic_id)
            except RequestError as error:
                refused[name] = error
                continue
            deleted[name] = topic_id
            yield from changes

    await broker.metadata.change(decide)
    if deleted:
        await broker.groups.forget_topics(set(deleted))
        await broker.shares.groups.forget_topics(set(deleted.values()))
    return refused


def _refused(
    name: str | None, topic_id: bytes, why: str | None, code: int = ErrorCode.INVALID_REQUEST
) -> Result:
    return Result(name=name, topic_id=topic_id, error_code=code, error_message=why)
