"""CreateTopics and CreatePartitions: what is made, what is refused with which code, and what is only asked about."""

import pytest

from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import broker_to_ask

Topic = CreateTopicsRequest.CreatableTopic


def topic(name, partitions=1, replicas=1, assigned=(), **settings):
    entry = Topic(name=name, num_partitions=partitions, replication_factor=replicas)
    entry.assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
        for index, ids in assigned
    ]
    entry.configs = [
        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    return entry


async def create(ask, *topics, version=7, validate_only=False):
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=60_000)
    if version >= 1:
        request.validate_only = validate_only
    answer = await ask(request, version)
    return {result.name: result for result in answer.topics}


def partitions_of(ask):
    return {name: len(info.partitions) for name, info in ask.services.metadata.image.topics.items()}


@pytest.mark.parametrize("version", range(8))
async def test_every_version_makes_topics(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        result = (await create(ask, topic("t", 2, retention_ms="9"), version=version))["t"]
        assert result.error_code == 0
        assert partitions_of(ask) == {"t": 2}
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 1)
            settings = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
            assert settings["retention.ms"] == ("9", 1)
            assert settings["flush.messages"] == (str(2**63 - 1), 5)
        if version >= 7:
            assert result.topic_id == ask.services.metadata.image.topics["t"].id


async def test_the_brokers_defaults_fill_in(tmp_path):
    async with broker_to_ask(tmp_path, {"num.partitions": "3", "log.retention.hours": "2"}) as ask:
        result = (await create(ask, topic("t", -1, -1)))["t"]
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 1)
        settings = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
        assert settings["retention.ms"] == ("7200000", 4)


WRONG = {
    "no partitions": (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
    "negative partitions": (topic("t", -2), ErrorCode.INVALID_PARTITIONS),
    "too many partitions": (topic("t", 10_001), ErrorCode.POLICY_VIOLATION),
    "no replicas": (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "negative replicas": (topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
    "more replicas than brokers": (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
    "replicas come before partitions": (topic("t", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "settings come before counts": (topic("t", 0, 0, no_such="1"), ErrorCode.INVALID_CONFIG),
    "assigned and counted": (topic("t", 1, -1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
    "assigned to nobody": (topic("t", -1, -1, [(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assigned to an unknown broker": (topic("t", -1, -1, [(0, [7])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assigned twice to one broker": (topic("t", -1, -1, [(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assigned with a gap": (topic("t", -1, -1, [(0, [1]), (2, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "one partition assigned twice": (
        topic("t", -1, -1, [(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assigned unevenly": (topic("t", -1, -1, [(0, [1]), (1, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "no name": (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a dot": (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "two dots": (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "too long": (topic("n" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a space": (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "an umlaut": (topic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "like another": (topic("there_is"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "the controllers'": (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    "there": (topic("there.is", 0, 0, no_such="1"), ErrorCode.TOPIC_ALREADY_EXISTS),
    "unknown setting": (topic("t", no_such="1"), ErrorCode.INVALID_CONFIG),
    "bad setting": (topic("t", retention_ms="x"), ErrorCode.INVALID_CONFIG),
    "setting out of bounds": (topic("t", retention_ms="-2"), ErrorCode.INVALID_CONFIG),
    "setting without a value": (topic("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
    "contradiction": (
        topic("t", min_compaction_lag_ms="2", max_compaction_lag_ms="1"), ErrorCode.INVALID_CONFIG,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_what_cannot_be_made(tmp_path, case, validate_only):
    creation, code = WRONG[case]
    async with broker_to_ask(tmp_path) as ask:
        await create(ask, topic("there.is"))
        result = (await create(ask, creation, validate_only=validate_only))[creation.name]
        assert result.error_code == code
        assert result.error_message
        assert result.topic_id == bytes(16)
        assert partitions_of(ask) == {"there.is": 1}


async def test_the_longest_name_is_possible(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        assert (await create(ask, topic("n" * 249), topic("...")))["..."].error_code == 0
        assert partitions_of(ask) == {"n" * 249: 1, "...": 1}


async def test_assigned_partitions_come_in_any_order(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        result = (await create(ask, topic("t", -1, -1, [(1, [1]), (0, [1])])))["t"]
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


async def test_asking_makes_nothing(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        answer = (await create(ask, topic("t", 4), validate_only=True))["t"]
        assert (answer.error_code, answer.num_partitions) == (0, 4)
        assert answer.topic_id != bytes(16)
        assert partitions_of(ask) == {}


async def test_one_that_is_refused_does_not_keep_others_back(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        answers = await create(ask, topic("bad", 0), topic("twice"), topic("good"), topic("twice", 2))
        codes = {name: answer.error_code for name, answer in answers.items()}
        assert codes == {"bad": ErrorCode.INVALID_PARTITIONS, "twice": ErrorCode.INVALID_REQUEST, "good": 0}
        assert partitions_of(ask) == {"good": 1}


async def grow(ask, *topics, version=3, validate_only=False):
    request = CreatePartitionsRequest(timeout_ms=60_000, validate_only=validate_only)
    for name, count, assigned in topics:
        entry = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        if assigned is not None:
            entry.assignments = [
                CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned
            ]
        request.topics.append(entry)
    return {result.name: result.error_code for result in (await ask(request, version)).results}


@pytest.mark.parametrize("version", range(4))
async def test_topics_grow(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        await create(ask, topic("t", 2))
        assert await grow(ask, ("t", 3, None), version=version, validate_only=True) == {"t": 0}
        assert partitions_of(ask) == {"t": 2}
        assert await grow(ask, ("t", 3, None), version=version) == {"t": 0}
        assert await grow(ask, ("t", 5, [[1], [1]]), version=version) == {"t": 0}
        assert partitions_of(ask) == {"t": 5}
        assert ask.services.replicas.leader("t", 4).log.log_end_offset == 0


@pytest.mark.parametrize(
    ("name", "count", "assigned", "code"),
    [
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, [[1]], ErrorCode.INVALID_PARTITIONS),
        ("t", 10_003, None, ErrorCode.POLICY_VIOLATION),
        ("nowhere", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_growth_that_is_refused(tmp_path, name, count, assigned, code):
    async with broker_to_ask(tmp_path) as ask:
        await create(ask, topic("t", 2))
        assert await grow(ask, (name, count, assigned)) == {name: code}
        assert partitions_of(ask) == {"t": 2}


async def test_a_topic_that_is_to_grow_twice_does_not(tmp_path):
    async with broker_to_ask(tmp_path) as ask:
        await create(ask, topic("t"), topic("u"))
        codes = await grow(ask, ("t", 2, None), ("u", 2, None), ("t", 3, None))
        assert codes == {"t": ErrorCode.INVALID_REQUEST, "u": 0}
        assert partitions_of(ask) == {"t": 1, "u": 2}


@pytest.mark.parametrize("version", range(8))
async def test_a_topic_that_is_made_has_no_error_message(tmp_path, version):
    async with broker_to_ask(tmp_path) as ask:
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        (result,) = (await ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), version)).topics
        assert result.error_code == ErrorCode.NONE
        assert result.error_message == ("" if version == 0 else None)  # v0 has no such field
        (again,) = (await ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), version)).topics
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert bool(again.error_message) == (version > 0)
