"""A limit on topics that stands in `creation.admit` is met by each way to a new topic, but for the broker's own."""

from __future__ import annotations

import pytest
import trio.testing

from barnabas.cluster.metadata import creation
from barnabas.cluster.metadata.controller_creation import ControllerTopicCreation
from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.cluster.metadata.topic_creation import LocalTopicCreation
from barnabas.errors import RequestError
from barnabas.tools.seeding.planting import plant
from barnabas.tools.seeding.reading import read_seeds
from barnabas.tools.seeding.seeds import SeedError
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.broker import broker_to_ask
from tests.support.streams import topology
from tests.unit.handlers.test_streams_internal_topics import STREAMS, joined

LIMIT = 1


def refuse_more(image, config, topic, created):
    """A limit of one topic; the broker's own do not count."""
    if len({*image.topics, *created} - {OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC}) >= LIMIT:
        raise RequestError(ErrorCode.POLICY_VIOLATION, "too many topics")


def creatable(*names):
    topics = [
        CreateTopicsRequest.CreatableTopic(name, num_partitions=1, replication_factor=1) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000)


class ControllersHandlers:
    """Stands for `Peers`: the controller is another broker, which answers by its handlers."""

    def __init__(self, asked):
        self.asked = asked

    async def ask_controller(self, request, **options):
        return await self.asked(request, 7)


async def test_each_way_to_a_topic_meets_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(creation, "admit", refuse_more)
    async with broker_to_ask(tmp_path, {**STREAMS, "auto.create.topics.enable": "true"}) as asked:
        services = asked.services
        # The first topic is created, and none of the others.
        answer = await joined(asked, topology())
        [status] = answer.status
        assert "Creation of app-words-repartition failed: too many topics" in status.status_detail
        assert "Creation of app-counts-changelog failed: too many topics" in status.status_detail
        response = await asked(creatable("a", "b"), 7)
        assert {topic.error_code for topic in response.topics} == {ErrorCode.POLICY_VIOLATION}
        with pytest.raises(SeedError, match="too many topics"):
            await plant(asked.broker, read_seeds({"topics": {"seeded": {}}}))
        names = [MetadataRequest.MetadataRequestTopic(name="auto")]
        response = await asked(MetadataRequest(topics=names, allow_auto_topic_creation=True), 12)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with trio.open_nursery() as nursery:
            local = LocalTopicCreation(services.config, services.metadata, services.entropy)
            for controller_id in (services.broker_id, services.broker_id + 1):
                in_cluster = ControllerTopicCreation(
                    services.config, services.metadata, controller_id, local=local, peers=ControllersHandlers(asked)
                )  # fmt: skip
                nursery.start_soon(in_cluster.run)
                await trio.testing.wait_all_tasks_blocked()
                refused = await in_cluster.ensure_all(["auto"])
                assert refused["auto"].code == ErrorCode.POLICY_VIOLATION
            nursery.cancel_scope.cancel()
        assert not {"a", "b", "auto", "seeded"} & set(services.metadata.image.topics)


async def test_internal_topics_are_created_beyond_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(creation, "admit", refuse_more)
    async with broker_to_ask(tmp_path) as asked:
        assert [topic.error_code for topic in (await asked(creatable("a", "b"), 7)).topics] == [
            ErrorCode.NONE,
            ErrorCode.POLICY_VIOLATION,
        ]
        for key_type in (0, 1):
            await asked(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 6)
        assert {OFFSETS_TOPIC, TRANSACTION_TOPIC} <= set(asked.services.metadata.image.topics)
