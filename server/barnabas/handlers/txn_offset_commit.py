"""TxnOffsetCommit v0-v6. Offsets that count when the transaction commits.

v2 adds leader epochs; v3 the member that commits, which is then checked as by OffsetCommit (KIP-447); v5 adds the
group to the transaction implicitly (KIP-890). v6 names topics by id, and returns STALE_MEMBER_EPOCH and
GROUP_ID_NOT_FOUND, as OffsetCommit does, where earlier versions return ILLEGAL_GENERATION (KIP-1319).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.handlers.shared.committing import Commits, RequestedCommit
from barnabas.handlers.shared.transactional import Admission, Part
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.transactions.ports import TransactionVerifier
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

IMPLICIT_SINCE = 5
TOPIC_IDS_SINCE = 6

TopicAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


@dataclass(eq=False)
class TxnOffsetCommit:
    """Handler of TxnOffsetCommit."""

    metadata: MetadataStore
    replicas: Replicas
    group_coordinator: GroupCoordinator
    transaction_verifier: TransactionVerifier
    config: BrokerConfig
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse:
        """Commit all valid offsets; each partition has its own result."""
        commits = Commits(
            context,
            request,
            metadata=self.metadata,
            replicas=self.replicas,
            group_coordinator=self.group_coordinator,
            budget=self.budget,
        )
        topics = await commits.take(
            _topic_answer, PartitionAnswer, by_id=context.api_version >= TOPIC_IDS_SINCE
        )
        admission = Admission(
            transactional_id=request.transactional_id,
            implicit=context.api_version >= IMPLICIT_SINCE,
            abortable_known=context.api_version >= IMPLICIT_SINCE - 1,
            replicas=self.replicas,
            verifier=self.transaction_verifier,
            config=self.config,
        )
        producer = Producer(request.producer_id, request.producer_epoch)

        async def commit(some: Sequence[RequestedCommit]) -> None:
            if not request.group_id:
                raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            topic_partition = (OFFSETS_TOPIC, await self.group_coordinator.partition_of(request.group_id))
            part = Part(topic_partition, producer)
            refused = await admission.admit([part])

            def check(why_not: RequestError | None) -> None:
                if why_not is not None:
                    context.log(
                        log, logging.INFO, "refused transactional commits",
                        "offsets of group %r in transaction %r refused: %s",
                        request.group_id, request.transactional_id, why_not,
                    )  # fmt: skip
                    raise why_not

            check(refused.get(topic_partition))

            await commits.write(
                some,
                check=lambda: check(admission.refusal(part)),
                producer=producer,
                says_epochs=context.api_version >= TOPIC_IDS_SINCE,
            )

        await commits.commit(commit)
        return TxnOffsetCommitResponse(topics=topics)


def _topic_answer(
    topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, partitions: list[PartitionAnswer]
) -> TopicAnswer:
    return TopicAnswer(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
