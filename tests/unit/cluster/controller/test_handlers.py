"""Brokers ask the controller in all versions, through the handlers: on the wire as Apache Kafka asks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.errors import RequestError
from barnabas.handlers.allocate_producer_ids import AllocateProducerIds
from barnabas.handlers.alter_partition import AlterPartition
from barnabas.handlers.controlled_shutdown import ControlledShutdown
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire import registry
from barnabas.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.generated.alter_partition import AlterPartitionRequest
from barnabas.wire.generated.controlled_shutdown import ControlledShutdownRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import encode_request, parse_request_header
from tests.support.controller_cluster import running

ALTER_PARTITION = 56


def over_the_wire(key, version, request):
    """The request as the handler gets it in this version."""
    data = b"".join(bytes(chunk) for chunk in encode_request(key, version, 1, "c", request))[4:]
    return registry.request_codec(key).decoders[version](data, parse_request_header(data).body_position)[0]


def proposal(
    version, topic_id, broker_epoch, *, isr, leader_epoch=0, partition_epoch=0, index=0, epochs=None
):
    partition = AlterPartitionRequest.PartitionData(
        partition_index=index,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        new_isr=isr if version < 3 else [],
        new_isr_with_epochs=[
            AlterPartitionRequest.BrokerState(broker_id=id_, broker_epoch=(epochs or {}).get(id_, -1))
            for id_ in (isr if version >= 3 else [])
        ],
    )
    topic = AlterPartitionRequest.TopicData(topic_name="t", topic_id=topic_id, partitions=[partition])
    request = AlterPartitionRequest(broker_id=1, broker_epoch=broker_epoch, topics=[topic])
    return over_the_wire(ALTER_PARTITION, version, request)


async def alter(cluster, version, request):
    context = SimpleNamespace(api_version=version)
    response = await AlterPartition(cluster.controller, LoopBudget()).handle(context, request)
    chunks = []
    registry.response_codec(ALTER_PARTITION).encode_into(response, version, chunks)
    (topic,) = response.topics
    (partition,) = topic.partitions
    return partition


@pytest.mark.parametrize("version", range(4))
async def test_a_leader_changes_its_isr(version, autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (1, 2, 3))
        await cluster.until(lambda: ("t", 0) in cluster.brokers[1].believes)
        topic_id = cluster.topic_id("t")
        mine = cluster.brokers[1].epoch

        async def asked(**fields):
            answer = await alter(cluster, version, proposal(version, topic_id, mine, **fields))
            return answer.error_code

        shrunk = await alter(cluster, version, proposal(version, topic_id, mine, isr=[1, 2]))
        assert (shrunk.error_code, shrunk.leader_id, shrunk.isr, shrunk.partition_epoch) == (0, 1, [1, 2], 1)
        again = await alter(cluster, version, proposal(version, topic_id, mine, isr=[1, 2]))
        assert (again.error_code, again.partition_epoch) == (0, 1), "the same once more"
        assert await asked(isr=[1]) == ErrorCode.INVALID_UPDATE_VERSION
        assert await asked(isr=[1], partition_epoch=7) == ErrorCode.NOT_CONTROLLER
        assert await asked(isr=[1], leader_epoch=-1) == ErrorCode.FENCED_LEADER_EPOCH
        assert await asked(isr=[1], leader_epoch=9) == ErrorCode.NOT_CONTROLLER
        assert await asked(isr=[2], partition_epoch=1) == ErrorCode.INVALID_REQUEST
        assert await asked(isr=[1, 4], partition_epoch=1) == ErrorCode.INVALID_REQUEST
        assert await asked(isr=[1], index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if version == 3:
            stale = {3: cluster.brokers[3].epoch - 1}
            assert await asked(isr=[1, 2, 3], partition_epoch=1, epochs=stale) == ErrorCode.INELIGIBLE_REPLICA
        cluster.brokers[3].stop()
        await cluster.until(lambda: cluster.brokers[1].brokers == {1, 2})
        refused = ErrorCode.INELIGIBLE_REPLICA if version >= 2 else ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await asked(isr=[1, 2, 3], partition_epoch=1) == refused
        assert cluster.state("t").isr == (1, 2)


async def test_unknown_broker_id_and_old_epoch_are_refused(autojump_clock):
    async with running(1) as cluster:
        await cluster.create_topic("t", (1,))
        await cluster.until(lambda: ("t", 0) in cluster.brokers[1].believes)
        mine = cluster.brokers[1].epoch
        answer = await alter(cluster, 2, proposal(2, b"x" * 16, mine, isr=[1]))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        with pytest.raises(RequestError) as caught:
            await alter(cluster, 2, proposal(2, cluster.topic_id("t"), mine - 1, isr=[1]))
        assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("version", range(4))
async def test_a_broker_that_stops_asks_for_its_leaders_to_be_moved(version, autojump_clock):
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (2, 1), (2, 1))
        await cluster.until(lambda: len(cluster.brokers[1].believes) == 2)
        epoch = cluster.brokers[2].epoch if version >= 2 else -1
        request = over_the_wire(7, version, ControlledShutdownRequest(broker_id=2, broker_epoch=epoch))
        answer = await ControlledShutdown(cluster.controller).handle(None, request)
        assert (answer.error_code, answer.remaining_partitions) == (0, [])
        assert cluster.state("t", 1).leader == 1
        again = over_the_wire(7, version, ControlledShutdownRequest(broker_id=1))
        answer = await ControlledShutdown(cluster.controller).handle(None, again)
        remaining = [(part.topic_name, part.partition_index) for part in answer.remaining_partitions]
        assert remaining == [("t", 0), ("t", 1)], "nobody else is in sync"
        unknown = over_the_wire(7, version, ControlledShutdownRequest(broker_id=9))
        with pytest.raises(RequestError) as caught:
            await ControlledShutdown(cluster.controller).handle(None, unknown)
        assert caught.value.code == ErrorCode.BROKER_NOT_AVAILABLE


async def test_a_broker_that_is_not_the_controller_says_so(autojump_clock):
    async with running(1, 2) as cluster:
        other = cluster.brokers[2].runtime
        request = ControlledShutdownRequest(broker_id=2)
        with pytest.raises(RequestError) as caught:
            await ControlledShutdown(other).handle(None, request)
        assert caught.value.code == ErrorCode.STALE_CONTROLLER_EPOCH
        ids = AllocateProducerIdsRequest(broker_id=2, broker_epoch=cluster.brokers[2].epoch)
        with pytest.raises(RequestError) as caught:
            await AllocateProducerIds(other).handle(None, ids)
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        block = await AllocateProducerIds(cluster.controller).handle(None, ids)
        assert (block.producer_id_start, block.producer_id_len) == (0, 1000)
