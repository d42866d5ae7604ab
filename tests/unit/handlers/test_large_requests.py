"""Requests about thousands of topics: one sync of the metadata log, work in slices, and bounds that are looked at first."""

from contextlib import asynccontextmanager
from itertools import count

import pytest
import trio

from barnabas.cluster.metadata.image import TOPIC
from barnabas.handlers import describe_configs
from barnabas.serving.log_limit import LINES_MAX
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.metadata import MetadataRequest
from tests.support.broker import Asked, broker_to_ask
from tests.support.counting_disk import CountingDisk

MANY = 300
METADATA = "__cluster_metadata-0/00000000000000000000.log"
SET, DELETE, APPEND, SUBTRACT = range(4)


class CountingAsked(Asked):
    """A broker to ask that knows how often its metadata log was synced since `appends` was set."""

    disk: CountingDisk

    @property
    def appends(self):
        """Number of changes that were written."""
        return self.disk.syncs[METADATA] - self._before

    def forget_appends(self):
        """Count from here."""
        self._before = self.disk.syncs[METADATA]

    _before = 0


@asynccontextmanager
async def counted(tmp_path, settings=None):
    """A broker to ask with a budget that is always used up, and which counts the appends to its metadata log."""
    disk = CountingDisk()
    seconds = count()  # one more at each look
    budget = LoopBudget(clock=lambda: float(next(seconds)))
    async with broker_to_ask(tmp_path, settings, disk=disk, budget=budget, kind=CountingAsked) as ask:
        ask.disk = disk
        ask.forget_appends()
        yield ask


class Turns:
    """Counts how often another task has had a turn."""

    def __init__(self, nursery):
        self.count = 0
        self.seen = lambda: None
        nursery.start_soon(self._run)

    async def _run(self):
        while True:
            self.count += 1
            self.seen()
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def others():
    async with trio.open_nursery() as nursery:
        yield Turns(nursery)
        nursery.cancel_scope.cancel()


def metadata(names, **fields):
    topics = names if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True, **fields)


def new(*topics):
    entries = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for name, partitions in topics
    ]
    return CreateTopicsRequest(topics=entries, timeout_ms=60_000)


def codes(results):
    return {result.error_code for result in results}


NAMES = [f"t{number}" for number in range(MANY)]


async def test_metadata_creates_its_topics_with_one_sync_in_slices(tmp_path):
    async with counted(tmp_path) as ask, others() as turns:
        answer = await ask(metadata(NAMES), 9)
        assert ask.appends == 1
        assert turns.count >= MANY - 1
        assert [topic.name for topic in answer.topics] == NAMES
        assert codes(answer.topics) == {0}
        assert {topic.partitions[0].leader_id for topic in answer.topics} == {1}


@pytest.mark.parametrize("version", [1, 9])
async def test_metadata_makes_no_more_partitions_than_create_topics(tmp_path, version):
    async with counted(tmp_path, {"num.partitions": "100"}) as ask:
        answer = await ask(metadata([f"t{number}" for number in range(101)]), version)
        assert codes(answer.topics) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not ask.services.metadata.image.topics
        assert ask.appends == 0
        assert codes((await ask(metadata(["t1", "t2"]), version)).topics) == {0}


async def test_metadata_creates_no_topic_below_default_replication(tmp_path, caplog):
    async with counted(tmp_path, {"default.replication.factor": "3"}) as ask:
        answer = await ask(metadata(["t", "u"]), 9)
        assert codes(answer.topics) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert [topic.partitions for topic in answer.topics] == [[], []]
        assert "2 topics that are asked for are not made: t: " in caplog.text
        assert not ask.services.metadata.image.topics
        coordinator = await ask(FindCoordinatorRequest(key="g"), 2)
        assert coordinator.error_code == 0, "internal topics have as many replicas as there are brokers"


async def test_repeated_failing_auto_creation_does_not_fill_the_log(tmp_path, caplog):
    async with broker_to_ask(tmp_path, {"default.replication.factor": "3"}) as ask:
        for _ in range(20):
            await ask(metadata(["t"]), 9)
    assert caplog.text.count("are not made") == LINES_MAX


async def test_names_that_differ_in_dots_are_refused_in_one_request(tmp_path):
    async with counted(tmp_path) as ask:
        answer = await ask(metadata(["a.b", "a_b", "c"]), 9)
        assert [topic.error_code for topic in answer.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]
        answer = await ask(new(("a_b", 1), ("x_y", 1), ("x.y", 1)), 7)
        assert [topic.error_code for topic in answer.topics] == [
            ErrorCode.INVALID_TOPIC_EXCEPTION, 0, ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]  # fmt: skip
        await ask(DeleteTopicsRequest(topic_names=["a.b"], timeout_ms=60_000), 4)
        assert codes((await ask(new(("a_b", 1)), 7)).topics) == {0}


async def test_create_topics_makes_all_with_one_sync(tmp_path):
    async with counted(tmp_path) as ask, others() as turns:
        answer = await ask(new(*((name, 1) for name in NAMES), ("t0", 1), ("bad name", 1)), 7)
        assert ask.appends == 1
        assert turns.count >= MANY - 1
        refused = {topic.name: topic.error_code for topic in answer.topics if topic.error_code}
        assert refused == {"t0": ErrorCode.INVALID_REQUEST, "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert len(ask.services.metadata.image.topics) == MANY - 1


async def test_create_topics_counts_the_partitions_of_all_topics_first(tmp_path):
    async with counted(tmp_path) as ask:
        answer = await ask(new(("a", 5_000), ("b", 5_000), ("c", 1), ("bad name", -7)), 7)
        assert codes(answer.topics) == {ErrorCode.POLICY_VIOLATION}
        assert not ask.services.metadata.image.topics


async def test_a_topic_is_seen_when_all_its_logs_are_there(tmp_path):
    async with counted(tmp_path) as ask, others() as turns:
        image = []

        def look():
            image.append("t" in ask.services.metadata.image.topics)
            assert len(ask.services.replicas) == (MANY if image[-1] else 0)

        turns.seen = look
        await ask(new(("t", MANY)), 7)
        assert image.count(False) >= MANY
        assert image == sorted(image)


async def test_delete_topics_deletes_all_with_one_sync(tmp_path):
    async with counted(tmp_path) as ask, others() as turns:
        await ask(new(*((name, 1) for name in NAMES)), 7)
        ask.forget_appends()
        turns.count = 0
        answer = await ask(DeleteTopicsRequest(topic_names=[*NAMES, "none"], timeout_ms=60_000), 5)
        assert ask.appends == 1
        assert turns.count >= MANY - 1
        refused = {response.name: response.error_code for response in answer.responses if response.error_code}
        assert refused == {"none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not ask.services.metadata.image.topics
        assert not len(ask.services.logs)


async def test_create_partitions_grows_all_with_one_sync_up_to_a_bound(tmp_path):
    async with counted(tmp_path) as ask:
        await ask(new(("a", 1), ("b", 1), ("c", 1)), 7)
        ask.forget_appends()
        entries = [
            CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=total, assignments=None)
            for name, total in (("a", 20), ("c", 3), ("b", 9_990))
        ]
        for topics, code, appends in ((entries, ErrorCode.POLICY_VIOLATION, 0), (entries[:2], 0, 1)):
            answer = await ask(CreatePartitionsRequest(topics=topics, timeout_ms=60_000), 3)
            assert {result.error_code for result in answer.results} == {code}
            assert ask.appends == appends
        assert {name: len(info.partitions) for name, info in ask.services.metadata.image.topics.items()} == {
            "a": 20, "b": 1, "c": 3,
        }  # fmt: skip


def alteration(name, *entries):
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in entries
        ],
    )


async def alter(ask, *resources):
    answer = await ask(IncrementalAlterConfigsRequest(resources=list(resources)), 1)
    return [(row.resource_name, row.error_code) for row in answer.responses if row.error_code]


async def test_settings_of_many_topics_change_with_one_sync(tmp_path):
    async with counted(tmp_path) as ask, others() as turns:
        await ask(new(*((name, 1) for name in NAMES)), 7)
        ask.forget_appends()
        turns.count = 0
        resources = [alteration(name, ("retention.ms", SET, "7")) for name in (*NAMES, "none")]
        assert await alter(ask, *resources) == [("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        assert ask.appends == 1
        assert turns.count >= MANY - 1
        assert {log.config.retention_ms for log in ask.services.logs} == {7}


async def test_no_more_settings_change_at_once_than_in_kafka(tmp_path):
    async with counted(tmp_path) as ask:
        await ask(new(("t", 1)), 7)
        ask.forget_appends()
        many = alteration("t", *((f"x{number}", SET, "1") for number in range(10_000)))
        refused = await alter(ask, many, alteration("u", ("retention.ms", SET, "7")))
        assert refused == [("t", ErrorCode.POLICY_VIOLATION), ("u", ErrorCode.POLICY_VIOLATION)]
        assert ask.appends == 0


async def test_a_list_does_not_grow_beyond_what_a_value_can_hold(tmp_path):
    async with counted(tmp_path) as ask:
        await ask(new(("t", 1)), 7)
        name = "leader.replication.throttled.replicas"
        items = ",".join(f"{number}:1" for number in range(3_500))
        assert await alter(ask, alteration("t", (name, APPEND, items))) == []
        more = ",".join(f"{number}:2" for number in range(3_500))
        assert await alter(ask, alteration("t", (name, APPEND, more))) == [("t", ErrorCode.INVALID_CONFIG)]
        assert await alter(ask, alteration("t", (name, SUBTRACT, items))) == []


async def test_a_resource_that_is_named_often_is_described_once(tmp_path, monkeypatch):
    async with counted(tmp_path) as ask, others() as turns:
        await ask(new(("t", 1)), 7)
        asked = []
        describe = describe_configs._describe
        monkeypatch.setattr(
            describe_configs, "_describe", lambda *a, **k: asked.append(a) or describe(*a, **k)
        )
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC, resource_name="t", configuration_keys=None
        )
        turns.count = 0
        answer = await ask(DescribeConfigsRequest(resources=[resource] * MANY), 4)
        assert len(asked) == 1
        assert turns.count >= MANY - 1
        (result,) = answer.results
        assert {entry.name for entry in result.configs} >= {"retention.ms", "cleanup.policy"}
