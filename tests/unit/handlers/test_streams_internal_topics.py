"""StreamsGroupHeartbeat: internal topics are made, and those that cannot be made are named to the application."""

from __future__ import annotations

from barnabas.coordinators.groups.streams.topology import Status
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.support.broker import Asked, broker_to_ask
from tests.support.streams import topology

STREAMS = {"group.streams.initial.rebalance.delay.ms": "0"}


async def joined(asked: Asked, of: StreamsGroupHeartbeatRequest.Topology):
    """Return the answer to the first heartbeat of an application that reads `in`."""
    topic = CreateTopicsRequest.CreatableTopic(name="in", num_partitions=2, replication_factor=1)
    await asked(CreateTopicsRequest(topics=[topic]), 7)
    return await asked(
        StreamsGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, process_id="p", topology=of,
            active_tasks=[], standby_tasks=[], warmup_tasks=[],
        ),
        0,
    )  # fmt: skip


async def test_internal_topics_are_made(tmp_path):
    async with broker_to_ask(tmp_path, STREAMS) as asked:
        answer = await joined(asked, topology())
        assert answer.error_code == 0
        topics = asked.services.metadata.image.topics
        assert {"app-words-repartition", "app-counts-changelog"} <= set(topics)
        assert len(topics["app-words-repartition"].partitions) == 2


async def test_each_topic_that_cannot_be_made_is_named(tmp_path):
    asked_for = topology()
    names = [f"app-store-{number}-changelog" for number in range(50)]
    asked_for.subtopologies[0].state_changelog_topics = [
        StreamsGroupHeartbeatRequest.TopicInfo(name=name, replication_factor=3) for name in names
    ]
    async with broker_to_ask(tmp_path, STREAMS) as asked:
        answer = await joined(asked, asked_for)
        assert answer.error_code == 0
        [status] = [row for row in answer.status if row.status_code == Status.MISSING_INTERNAL_TOPICS]
        for name in names:
            assert status.status_detail.count(f"; Creation of {name} failed: ") == 1
        assert "app-words-repartition" in asked.services.metadata.image.topics
        assert not set(names) & set(asked.services.metadata.image.topics)
