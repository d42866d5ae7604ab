"""Topic ids that are lost in ZooKeeper: what is known is written back, and no topic that was there gets another one.

kafka-topics.sh --zookeeper of Kafka 0.8 to 2.7 writes a topic's znode without its id, and so does a controller below 2.8.
"""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.protocol_version import V2_7_IV2
from barnabas.cluster.zookeeper import znodes
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from barnabas.wire.primitives import ZERO_UUID
from tests.support.controller_cluster import Cluster, running


def led(cluster: Cluster, topic: str, index: int = 0) -> int | None:
    state = cluster.state(topic, index)
    return None if state is None else state.leader


def told_ids(cluster: Cluster, topic: str) -> set[bytes]:
    """The ids that brokers were told of a topic since `sent` was cleared."""
    return {
        state.topic_id
        for sent in cluster.sent
        if isinstance(sent.request, LeaderAndIsrRequest | UpdateMetadataRequest)
        for state in sent.request.topic_states
        if state.topic_name == topic
    }


async def test_an_id_that_is_lost_is_written_back_at_once(autojump_clock, caplog):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (1, 2, 3))
        await cluster.until(lambda: led(cluster, "t") == 1)
        topic_id = cluster.topic_id("t")
        await cluster.rewrite_as_old_tools_do("t")
        await cluster.until(lambda: cluster.topic_id("t") == topic_id)
    assert "t" in next(record.getMessage() for record in caplog.records if "topic_id" in record.getMessage())


async def test_partitions_added_by_old_tools_are_led(autojump_clock):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (1, 2, 3))
        await cluster.until(lambda: led(cluster, "t") == 1)
        topic_id = cluster.topic_id("t")
        parts = {0: znodes.ReplicaAssignment((1, 2, 3)), 1: znodes.ReplicaAssignment((2, 3, 1))}
        await cluster.admin.set(znodes.topic_path("t"), znodes.encode_topic(znodes.TopicAssignment(parts), 1))
        await cluster.until(lambda: led(cluster, "t", 1) == 2)
        assert cluster.topic_id("t") == topic_id
        assert told_ids(cluster, "t") == {topic_id}


@pytest.mark.parametrize("kill", [True, False])
async def test_the_next_controller_writes_back_what_it_was_told(autojump_clock, kill):
    async with running(1, 2, 3) as cluster:
        await cluster.create_topic("t", (1, 2, 3))
        await cluster.until(lambda: led(cluster, "t") == 1)
        topic_id = cluster.topic_id("t")
        await cluster.until(lambda: all(broker.topic_ids for broker in cluster.brokers.values()))
        cluster.sent.clear()
        cluster.brokers[1].stop(kill=kill)
        await cluster.rewrite_as_old_tools_do("t")
        await cluster.until(lambda: led(cluster, "t") in (2, 3))
        await cluster.until(lambda: cluster.topic_id("t") == topic_id)
        assert told_ids(cluster, "t") == {topic_id}


async def test_after_a_stop_of_all_brokers_the_logs_are_asked(autojump_clock):
    """The first broker that comes has no replica; the one that has some knows the id from its partition.metadata."""
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (2,))
        await cluster.until(lambda: led(cluster, "t") == 2)
        topic_id = cluster.topic_id("t")
        for broker_id in (1, 2):
            cluster.brokers[broker_id].stop()
        await cluster.rewrite_as_old_tools_do("t")
        cluster.sent.clear()
        cluster.start(1)
        await cluster.until(lambda: cluster.controller is not None)
        cluster.start(2).log_ids["t"] = topic_id
        await cluster.until(lambda: cluster.topic_id("t") == topic_id)
        await cluster.until(lambda: topic_id in told_ids(cluster, "t"))
        assert told_ids(cluster, "t") <= {topic_id, ZERO_UUID}
        await cluster.until(lambda: cluster.brokers[1].topic_ids.get("t") == topic_id)


async def test_topic_gets_an_id_if_no_broker_knows_one(autojump_clock):
    """As after the upgrade of a cluster from Kafka 2.7."""
    async with running(1, 2, protocol=V2_7_IV2) as cluster:
        parts = {0: znodes.ReplicaAssignment((1, 2)), 1: znodes.ReplicaAssignment((2, 1))}
        await cluster.admin.create(
            "/brokers/topics/old", znodes.encode_topic(znodes.TopicAssignment(parts), 1)
        )
        await cluster.until(lambda: led(cluster, "old", 1) == 2)
        assert cluster.topic_id("old") is None
        for broker_id in (1, 2):
            cluster.brokers[broker_id].stop()
        cluster.settings = type(cluster.settings)(broker_id=0)
        cluster.start(1)
        await cluster.until(lambda: cluster.topic_id("old") is not None)
        cluster.start(2)
        await cluster.until(
            lambda: all(
                broker.topic_ids.get("old") == cluster.topic_id("old") for broker in cluster.brokers.values()
            )
        )


async def test_a_topic_that_is_made_again_without_an_id_gets_a_new_one(autojump_clock):
    """Deleted as one deletes, and made by a tool that knows of no ids: there is nothing to write back."""
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (1, 2))
        await cluster.until(lambda: led(cluster, "t") == 1)
        topic_id = cluster.topic_id("t")
        await cluster.delete_topic("t")
        await cluster.until(lambda: "/brokers/topics/t" not in cluster.zookeeper.dump())
        assignment = znodes.TopicAssignment({0: znodes.ReplicaAssignment((1, 2))})
        await cluster.admin.create("/brokers/topics/t", znodes.encode_topic(assignment, 1))
        await cluster.until(lambda: led(cluster, "t") == 1)
        assert cluster.topic_id("t") not in (None, topic_id)


async def test_foreign_id_in_a_topics_znode_is_corrected(autojump_clock, caplog):
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (1, 2))
        await cluster.until(lambda: led(cluster, "t") == 1)
        topic_id = cluster.topic_id("t")
        other = znodes.TopicAssignment({0: znodes.ReplicaAssignment((1, 2))}, bytes(range(16)))
        await cluster.admin.set(znodes.topic_path("t"), znodes.encode_topic(other))
        await cluster.until(lambda: cluster.topic_id("t") == topic_id)
        assert told_ids(cluster, "t") == {topic_id}
    assert any(record.levelname == "ERROR" and "topic t" in record.getMessage() for record in caplog.records)
