"""ShareAcknowledge v0-v2. What a share group's member has done with its records (KIP-932); v2 renews locks (KIP-1222)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.handlers.share_common import acknowledge, acknowledgements_of, check_asker, tell_leaders
from barnabas.share.sessions import EPOCH_FINAL, EPOCH_INITIAL
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.coordination.shares import Shares
    from barnabas.loop_budget import LoopBudget
    from barnabas.requests.context import RequestContext
    from barnabas.topic_partitions import TopicIdPartition

Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
PartitionData = ShareAcknowledgeResponse.PartitionData


async def handle(
    context: RequestContext,
    request: ShareAcknowledgeRequest,
    *,
    metadata: MetadataStore,
    shares: Shares,
    budget: LoopBudget,
) -> ShareAcknowledgeResponse:
    """Process each partition's acknowledgements on its own; the last request ends the session."""
    try:
        key = check_asker(request)
        if request.share_session_epoch == EPOCH_INITIAL:
            raise RequestError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session does not begin with an acknowledgement"
            )
        shares.sessions.resume(key, request.share_session_epoch)
    except RequestError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message or None)
    outcomes = await acknowledge(
        context,
        key,
        await acknowledgements_of(request, budget=budget),
        is_renew=request.is_renew_ack,
        metadata=metadata,
        shares=shares,
        budget=budget,
    )
    if request.share_session_epoch == EPOCH_FINAL:
        await shares.end_session(key)
    settings = shares.partitions.settings_of(key[0])
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
        await budget.checkpoint()
    await tell_leaders(context, response, answers, metadata=metadata, budget=budget)
    return response
