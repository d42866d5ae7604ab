"""Common part of the five APIs of the share coordinator: a group, topics, partitions, one answer for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.coordinators.share.records import StateKey
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.serving.loop_budget import LoopBudget

R = TypeVar("R")


async def answer_each(
    request: Any,
    response: R,
    result_name: str,
    act: Callable[[StateKey, Any, Any], Awaitable[None]],
    *,
    budget: LoopBudget,
) -> R:
    """Call `act(key, requested, result)` to fill each partition's result; its RequestErrors become the result's error."""
    topic_class = getattr(type(response), result_name)
    results: list[Any] = response.results  # type: ignore[attr-defined]
    for topic in request.topics:
        answered = topic_class(topic_id=topic.topic_id)
        results.append(answered)
        await budget.checkpoint()
        for asked in topic.partitions:
            result = type(response).PartitionResult(partition=asked.partition)  # type: ignore[attr-defined]
            answered.partitions.append(result)
            try:
                if not request.group_id:
                    raise RequestError(ErrorCode.INVALID_REQUEST, "the group id is empty")
                await act((request.group_id, topic.topic_id, asked.partition), asked, result)
            except RequestError as error:
                result.error_code, result.error_message = error.code, error.message or None
            await budget.checkpoint()
    return response
