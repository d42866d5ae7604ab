"""ShareAcknowledge v0-v2. Acknowledgements of records by a share group's member (KIP-932); v2 renews locks (KIP-1222)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.coordinators.share.sessions import EPOCH_FINAL, EPOCH_INITIAL
from barnabas.errors import RequestError
from barnabas.handlers.shared.share_common import acknowledge, acknowledgements_of, check_asker, tell_leaders
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.share.shares import Shares
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicIdPartition

Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
PartitionData = ShareAcknowledgeResponse.PartitionData


@dataclass(eq=False)
class ShareAcknowledge:
    """Handler of ShareAcknowledge."""

    metadata: MetadataStore
    shares: Shares
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: ShareAcknowledgeRequest
    ) -> ShareAcknowledgeResponse:
        """Process each partition's acknowledgements on its own; the last request ends the session."""
        try:
            key = check_asker(request)
            if request.share_session_epoch == EPOCH_INITIAL:
                raise RequestError(
                    ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session does not begin with an acknowledgement"
                )
            self.shares.sessions.resume(key, request.share_session_epoch)
        except RequestError as error:
            return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message or None)
        outcomes = await acknowledge(
            context,
            key,
            await acknowledgements_of(request, budget=self.budget),
            is_renew=request.is_renew_ack,
            metadata=self.metadata,
            shares=self.shares,
            budget=self.budget,
        )
        if request.share_session_epoch == EPOCH_FINAL:
            await self.shares.end_session(key)
        settings = self.shares.partitions.settings_of(key[0])
        response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=settings.record_lock_ms)
        topics: dict[bytes, Topic] = {}
        answers: list[tuple[TopicIdPartition, PartitionData]] = []
        for (topic_id, index), refusal in outcomes.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = Topic(topic_id=topic_id)
                response.responses.append(topic)
            answer = PartitionData(partition_index=index)
            if refusal is not None:
                answer.error_code, answer.error_message = refusal.code, refusal.message or None
            topic.partitions.append(answer)
            answers.append(((topic_id, index), answer))
            await self.budget.checkpoint()
        await tell_leaders(context, response, answers, metadata=self.metadata, budget=self.budget)
        return response
