"""TxnOffsetCommit v0-v5. Offsets that count when the transaction commits.

v2 adds leader epochs; v3 the member that commits, which is then checked as by OffsetCommit (KIP-447); v5 makes the
group part of the transaction by itself (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cluster.internal_topics import OFFSETS_TOPIC
from barnabas.errors import RequestError
from barnabas.groups.shard import GroupShard
from barnabas.handlers.offset_commit import RequestedCommit, check_size, checked_commit, commit_in_slices
from barnabas.handlers.transactional import Admission, Part
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.statemachine.decision import Decision
from barnabas.transactions.transaction import Producer
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordination.groups import GroupCoordinator
    from barnabas.coordination.transactions import TransactionCoordinator
    from barnabas.loop_budget import LoopBudget
    from barnabas.replicas.partitions import Partitions
    from barnabas.requests.context import RequestContext

IMPLICIT_SINCE = 5

PartitionAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


async def handle(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    *,
    metadata: MetadataStore,
    replicas: Partitions,
    group_coordinator: GroupCoordinator,
    transaction_coordinator: TransactionCoordinator,
    config: BrokerConfig,
    budget: LoopBudget,
) -> TxnOffsetCommitResponse:
    """Commit what can be committed; each partition has its own answer."""
    await check_size(request.group_id, request.topics, replicas=replicas, group_coordinator=group_coordinator)
    response = TxnOffsetCommitResponse()
    requested: list[RequestedCommit] = []
    accepted: list[PartitionAnswer] = []
    for topic in request.topics:
        answers = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name)
        response.topics.append(answers)
        may_read = context.authorizes(Operation.READ, ResourceType.TOPIC, topic.name)
        for partition in topic.partitions:
            await budget.checkpoint()
            answer = PartitionAnswer(partition_index=partition.partition_index)
            answers.partitions.append(answer)
            try:
                requested.append(
                    checked_commit(
                        context,
                        topic.name,
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                        metadata=metadata,
                        group_coordinator=group_coordinator,
                        may_read=may_read,
                    )
                )
                accepted.append(answer)
            except RequestError as error:
                answer.error_code = error.code
    await commit_in_slices(
        requested,
        accepted,
        partial(
            _commit,
            context,
            request,
            replicas=replicas,
            group_coordinator=group_coordinator,
            transaction_coordinator=transaction_coordinator,
            config=config,
        ),
    )
    return response


async def _commit(
    context: RequestContext,
    request: TxnOffsetCommitRequest,
    requested: Sequence[RequestedCommit],
    *,
    replicas: Partitions,
    group_coordinator: GroupCoordinator,
    transaction_coordinator: TransactionCoordinator,
    config: BrokerConfig,
) -> None:
    groups = group_coordinator
    if not request.group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    producer = Producer(request.producer_id, request.producer_epoch)
    topic_partition = (OFFSETS_TOPIC, await groups.partition_of(request.group_id))

    def decide(shard: GroupShard, out: Decision) -> None:
        shard.check_commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            context.now_ms,
            out,
            transactional=True,
            topic_partitions=[one.commit[0] for one in requested],
        )
        shard.commit(request.group_id, [one.commit for one in requested if not one.is_too_long], out)
        out.producer = producer

    admission = Admission(
        transactional_id=request.transactional_id,
        implicit=context.api_version >= IMPLICIT_SINCE,
        abortable_known=context.api_version >= IMPLICIT_SINCE - 1,
        replicas=replicas,
        transaction_coordinator=transaction_coordinator,
        config=config,
    )
    refused = await admission.admit([Part(topic_partition, producer)])
    if topic_partition in refused:
        raise refused[topic_partition]
    try:
        await groups.perform(request.group_id, decide)
    except RequestError as error:
        if error.code == ErrorCode.UNKNOWN_SERVER_ERROR:  # more than a batch can hold
            raise RequestError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE) from error
        raise
