"""DeleteShareGroupOffsets v0. Deletes the state of topics in a share group without members (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


@dataclass(eq=False)
class DeleteShareGroupOffsets:
    """Handler of DeleteShareGroupOffsets."""

    metadata: MetadataStore
    shares: Shares
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: DeleteShareGroupOffsetsRequest
    ) -> DeleteShareGroupOffsetsResponse:
        """Delete the state of each topic on its own."""
        image = self.metadata.image
        refused: set[str] = set()
        ids: dict[str, bytes] = {}
        for topic in request.topics:
            await self.budget.checkpoint()
            if not context.authorizes(Operation.READ, ResourceType.TOPIC, topic.topic_name):
                refused.add(topic.topic_name)
            elif topic.topic_name in image.topics:
                ids[topic.topic_name] = image.topics[topic.topic_name].id
        try:
            if not request.group_id:
                raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            results = await self.shares.groups.delete_offsets(request.group_id, ids.values())
        except RequestError as error:
            return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message or None)
        response = DeleteShareGroupOffsetsResponse()
        deleted: set[str] = set()
        for asked in request.topics:
            await self.budget.checkpoint()
            topic_id = ids.get(asked.topic_name)
            if topic_id in results:
                if asked.topic_name in deleted:
                    continue
                deleted.add(asked.topic_name)
            answer = Topic(topic_name=asked.topic_name, topic_id=topic_id or bytes(16))
            refusal = _refusal(asked.topic_name, topic_id, results)
            if asked.topic_name in refused:
                answer.error_code, answer.error_message = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
            elif refusal is not None:
                answer.error_code, answer.error_message = refusal.code, refusal.message or None
            response.responses.append(answer)
        return response


def _refusal(
    name: str, topic_id: bytes | None, results: dict[bytes, RequestError | None]
) -> RequestError | None:
    if topic_id is None:
        return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if topic_id not in results:
        return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the group has no offsets in {name!r}")
    return results[topic_id]
