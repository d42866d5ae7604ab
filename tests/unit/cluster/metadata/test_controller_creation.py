"""Topics that are made on request: once at the controller, and no request waits long."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.cluster.metadata.changes import BrokerRegistered, ControllerChanged, TopicCreated
from barnabas.cluster.metadata.controller_creation import ControllerTopicCreation
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.cluster.metadata.topic_creation import LocalTopicCreation
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.wire.generated.create_topics import CreateTopicsResponse
from barnabas.wire.generated.errors import ErrorCode
from tests.support.clusters import StandingImage

ME, OTHER = 1, 2
LEADER_NOT_AVAILABLE = ErrorCode.LEADER_NOT_AVAILABLE


class Controller:
    """Stands for `Peers`: answers CreateTopics with `codes`, when `may_answer` is set."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.requests = []
        self.codes: dict[str, int] = {}
        self.failure: Exception | None = None
        self.may_answer = trio.Event()
        self.may_answer.set()

    async def ask_controller(self, request, *, error_of, **options):
        self.requests.append(request)
        self.asked.append([topic.name for topic in request.topics])
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        response = CreateTopicsResponse()
        for topic in request.topics:
            response.topics.append(
                CreateTopicsResponse.CreatableTopicResult(
                    name=topic.name, error_code=self.codes.get(topic.name, 0)
                )
            )
        assert error_of(response) == response.topics[0].error_code
        return response


def topic(name: str) -> TopicCreated:
    return TopicCreated(TopicInfo(name, name.encode().rjust(16), (PartitionInfo(OTHER, (OTHER,), (OTHER,)),)))


@asynccontextmanager
async def creation_in(controller_id=OTHER, brokers=(1, 2, 3), **settings):
    values = {"zookeeper.connect": "localhost:2181", "broker.id": "1", "log.dirs": "/nowhere", **settings}
    config = BrokerConfig({name.replace("_", "."): value for name, value in values.items()})
    changes = [BrokerRegistered(BrokerInfo(n, None, {})) for n in brokers]
    metadata = StandingImage(ClusterImage("c").apply([*changes, ControllerChanged(controller_id, 1)]))
    controller = Controller()
    local = LocalTopicCreation(config, metadata, real_environment().entropy)
    creation = ControllerTopicCreation(config, metadata, ME, local=local, peers=controller)  # type: ignore[arg-type]
    metadata.subscribe(creation)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(creation.run)
        await trio.testing.wait_all_tasks_blocked()
        yield creation, metadata, controller
        nursery.cancel_scope.cancel()


def codes(refused) -> dict[str, int]:
    return {name: error.code for name, error in refused.items()}


async def test_requests_for_a_new_topic_share_one_creation(autojump_clock) -> None:
    async with creation_in() as (creation, metadata, controller):
        results = []

        async def want(*names):
            results.append(codes(await creation.ensure_all(names)))

        controller.may_answer = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(want, "a", "b")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(want, "a")
            nursery.start_soon(want, "b", "c")
            await trio.testing.wait_all_tasks_blocked()
            assert controller.asked == [["a", "b"], ["c"]]
            controller.may_answer.set()
            await trio.testing.wait_all_tasks_blocked()
            assert results == [], "the controller has answered, this broker does not know the topics yet"
            await metadata.apply([topic("a"), topic("b")])
            await trio.testing.wait_all_tasks_blocked()
            assert results == [{}, {}]
            await metadata.apply([topic("c")])
        assert results == [{}, {}, {}]
        assert await creation.ensure_all(["a", "b", "c"]) == {}
        assert len(controller.asked) == 2


async def test_nobody_waits_for_a_controller_that_is_away(autojump_clock) -> None:
    async with creation_in() as (creation, metadata, controller):
        controller.may_answer = trio.Event()
        began = trio.current_time()
        for _ in range(3):
            assert codes(await creation.ensure_all(["a"])) == {"a": LEADER_NOT_AVAILABLE}
        assert trio.current_time() - began < 3
        assert controller.asked == [["a"]], "asked once, however often it is wanted"
        controller.failure = PeerUnavailableError("it is gone")
        controller.may_answer.set()
        await trio.testing.wait_all_tasks_blocked()
        controller.failure = None
        await metadata.apply([])
        assert codes(await creation.ensure_all(["a"])) == {"a": LEADER_NOT_AVAILABLE}
        assert controller.asked == [["a"], ["a"]], "asked again once the first time has failed"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
        (ErrorCode.TOPIC_ALREADY_EXISTS, LEADER_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, LEADER_NOT_AVAILABLE),
    ],
)
async def test_what_the_controller_says_is_told(answer, told, autojump_clock) -> None:
    async with creation_in() as (creation, _, controller):
        controller.codes = {"a": answer}
        assert codes(await creation.ensure_all(["a"])) == {"a": told}


async def test_this_brokers_settings_say_how(autojump_clock) -> None:
    settings = {
        "num_partitions": "7", "default_replication_factor": "3", "offsets_topic_num_partitions": "5",
        "offsets_topic_replication_factor": "2",
    }  # fmt: skip
    async with creation_in(**settings) as (creation, _, controller):
        await creation.ensure_all(["a", "__consumer_offsets"])
        topics = {topic.name: topic for topic in controller.requests[0].topics}
        assert (topics["a"].num_partitions, topics["a"].replication_factor) == (7, 3)
        offsets = topics["__consumer_offsets"]
        assert (offsets.num_partitions, offsets.replication_factor) == (5, 2)
        assert ("cleanup.policy", "compact") in [(config.name, config.value) for config in offsets.configs]


async def test_the_controller_makes_them_itself(autojump_clock) -> None:
    async with creation_in(controller_id=ME, default_replication_factor="2") as (
        creation,
        metadata,
        controller,
    ):
        assert await creation.ensure_all(["a"]) == {}
        assert len(metadata.image.topics["a"].partitions[0].replicas) == 2
        assert controller.asked == []


async def test_internal_topics_wait_for_enough_brokers(autojump_clock) -> None:
    factor = {"offsets_topic_replication_factor": "3"}
    async with creation_in(controller_id=ME, brokers=(1, 2), **factor) as (creation, metadata, _):
        refused = await creation.ensure_all(["__consumer_offsets"])
        assert codes(refused) == {"__consumer_offsets": ErrorCode.INVALID_REPLICATION_FACTOR}
        await metadata.apply([BrokerRegistered(BrokerInfo(3, None, {}))])
        await creation.ensure("__consumer_offsets")
        assert len(metadata.image.topics["__consumer_offsets"].partitions[0].replicas) == 3
