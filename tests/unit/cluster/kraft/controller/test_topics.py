"""CreateTopics, CreatePartitions, DeleteTopics and AllocateProducerIds at the active controller."""

import pytest

from barnabas.cluster.kraft.image import TOPIC
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.generated.create_partitions import CreatePartitionsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.primitives import ZERO_UUID
from tests.support.active_image import ActiveImage, log_dir

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Named = DeleteTopicsRequest.DeleteTopicState


@pytest.fixture
def active():
    return ActiveImage().start(1, 2, 3)


def create(active, *topics, validate_only=False, **options):
    """Return the results by name."""
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return {result.name: result for result in active.ask(19, request, **options).topics}


def code(active, *args, **fields):
    return create(active, Topic(*args, **fields))[args[0]].error_code


def only(*permissions):
    """Return an authorizer with these permissions alone."""
    return lambda *asked: asked in permissions


# --- creation -------------------------------------------------------------------------------------------------------


def test_new_topic_takes_the_defaults_of_counts():
    active = ActiveImage(num_partitions=3, default_replication_factor=2).start(1, 2)
    result = create(active, Topic("t", -1, -1))["t"]
    assert (result.num_partitions, result.replication_factor) == (3, 2)


def test_new_topic_with_assignments_has_them(active):
    active.register(4)
    assert active.create("t", (3, 1), (4, 2)).error_code == 0
    first, second = active.partition("t", 0), active.partition("t", 1)
    assert (first.replicas, first.isr, first.leader) == ((3, 1), (3, 1), 3)
    assert (second.replicas, second.isr, second.leader) == ((4, 2), (2,), 2)


def test_new_topic_has_its_settings(active):
    result = active.create("t", (1,), configs={"retention.ms": "5", "cleanup.policy": "compact"})
    assert active.image.settings[TOPIC, "t"] == {"retention.ms": "5", "cleanup.policy": "compact"}
    told = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
    assert told["retention.ms"] == ("5", 1)
    assert told["segment.ms"] == ("604800000", 5)


def test_new_topic_tells_defaults_that_are_set_for_all_brokers(active):
    active.set("log.retention.bytes", "77")
    active.set("log.retention.bytes", "78", (4, "9"))
    active.set("min.insync.replicas", "2")
    told = {entry.name: (entry.value, entry.config_source) for entry in active.create("t", (1,)).configs}
    assert told["retention.bytes"] == ("78", 2)
    assert told["min.insync.replicas"] == ("2", 3)


def test_new_topic_tells_no_settings_without_permission(active):
    may = lambda operation, *_: operation is not Operation.DESCRIBE_CONFIGS  # noqa: E731
    result = active.create("t", (1,), may=may)
    assert (result.error_code, result.topic_config_error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert (result.configs, result.num_partitions, result.replication_factor) == ([], -1, -1)


def test_new_topic_that_is_only_validated_is_not_made(active):
    result = create(active, Topic("t", 2, 2), validate_only=True)["t"]
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert not active.image.topics


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x_y", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x.y", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
        ("x-y", ErrorCode.NONE),
    ],
)
def test_new_topic_needs_a_name_of_its_own(active, name, expected):
    active.create("x.y", (1,))
    assert code(active, name, 1, 1) == expected


def test_new_topics_are_refused_each_by_itself(active):
    results = create(
        active,
        Topic("a", 1, 1),
        Topic("b", 1, 9),
        Topic("c", 1, 1),
        Topic("c", 2, 1),
        Topic("d.e", 1, 1),
        Topic("d_e", 1, 1),
    )
    assert {name: result.error_code for name, result in results.items()} == {
        "a": 0,
        "b": ErrorCode.INVALID_REPLICATION_FACTOR,
        "c": ErrorCode.INVALID_REQUEST,
        "d.e": 0,
        "d_e": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert sorted(active.image.topic_ids) == ["a", "d.e"]


@pytest.mark.parametrize(
    ("partitions", "factor", "expected"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.NONE),
    ],
)
def test_new_topic_needs_counts_that_are_possible(active, partitions, factor, expected):
    assert code(active, "t", partitions, factor) == expected


@pytest.mark.parametrize(
    ("assignments", "counts", "expected"),
    [
        ([(0, (1, 2))], (-1, 2), ErrorCode.INVALID_REQUEST),
        ([(0, (1, 2))], (1, -1), ErrorCode.INVALID_REQUEST),
        ([(0, (1, 2)), (0, (1, 2))], (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, (1, 2)), (2, (1, 2))], (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, (1, 2)), (1, (1,))], (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, (1, 1))], (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, ())], (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, (1, 9))], (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, (4,))], (-1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(1, (2, 3)), (0, (1, 4))], (-1, -1), ErrorCode.NONE),
    ],
)
def test_new_topic_needs_assignments_that_are_possible(active, assignments, counts, expected):
    active.register(4)
    entries = [Assignment(index, list(replicas)) for index, replicas in assignments]
    assert code(active, "t", *counts, assignments=entries) == expected


@pytest.mark.parametrize("setting", [("no.such", "1"), ("retention.ms", "x"), ("retention.ms", None)])
def test_new_topic_needs_settings_that_are_possible(active, setting):
    configs = [CreateTopicsRequest.CreatableTopicConfig(*setting)]
    assert code(active, "t", 1, 1, configs=configs) == ErrorCode.INVALID_CONFIG


def test_new_topics_with_too_many_partitions_are_refused_whole(active):
    for topics in ([Topic("a", 5_000, 1), Topic("b", 5_001, 1)], [Topic("a", 9_999, 1), Topic("b", 1, 1)]):
        with pytest.raises(RequestError) as refusal:
            create(active, *topics)
        assert refusal.value.code == ErrorCode.POLICY_VIOLATION


def test_new_topic_needs_permission_on_the_cluster_or_the_name(active):
    on_name = (Operation.CREATE, ResourceType.TOPIC, "a")
    results = create(active, Topic("a", 1, 1), Topic("b", 1, 1), may=only(on_name))
    assert (results["a"].error_code, results["b"].error_code) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    on_cluster = (Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
    assert create(active, Topic("b", 1, 1), may=only(on_cluster))["b"].error_code == 0


def exhausted(*_):
    raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def test_partitions_that_come_and_go_are_charged(active):
    charged = []

    def charge(topic, partitions):
        charged.append((topic, partitions))

    create(active, Topic("t", 3, 1), charge=charge)
    grow(active, "t", 5, charge=charge)
    delete(active, "t", charge=charge)
    assert charged == [("t", 3), ("t", 2), ("t", 5)]
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert create(active, Topic("u", 3, 1), charge=exhausted)["u"].error_code == refused
    create(active, Topic("v", 3, 1))
    topic_id, _ = active.key("v")
    assert delete(active, "v", charge=exhausted) == [("v", topic_id, refused)]


# --- growth ---------------------------------------------------------------------------------------------------------


def grow(active, name, count, assignments=None, *, validate_only=False, **options):
    entry = CreatePartitionsRequest.CreatePartitionsAssignment
    entries = assignments and [entry(list(replicas)) for replicas in assignments]
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name, count, entries)
    request = CreatePartitionsRequest([topic], validate_only=validate_only)
    (result,) = active.ask(37, request, **options).results
    return result.error_code


def test_more_partitions_have_their_assignments(active):
    active.create("t", (1, 2))
    assert grow(active, "t", 3, [(3, 1), (2, 3)]) == 0
    assert [active.partition("t", index).replicas for index in (1, 2)] == [(3, 1), (2, 3)]


def test_more_partitions_that_are_only_validated_are_not_made(active):
    active.create("t", (1,))
    assert grow(active, "t", 3, validate_only=True) == 0
    assert active.image.partition_counts[active.key("t")[0]] == 1


@pytest.mark.parametrize(
    ("count", "assignments", "expected"),
    [
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (3, [(1, 2)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [(1,)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (2, [(1, 9)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_more_partitions_must_be_possible(active, count, assignments, expected):
    active.create("t", (1, 2))
    assert grow(active, "t", count, assignments) == expected


def test_more_partitions_need_a_topic_permission_and_brokers(active):
    active.create("t", (1, 2))
    assert grow(active, "u", 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(active, "t", 2, may=lambda *_: False) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    active.tick(9_001)
    assert grow(active, "t", 2) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_more_partitions_of_a_topic_named_twice_are_refused(active):
    active.create("t", (1,))
    twice = [CreatePartitionsRequest.CreatePartitionsTopic("t", count, None) for count in (2, 3)]
    (result,) = active.ask(37, CreatePartitionsRequest(twice)).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_too_many_more_partitions_are_refused_as_a_whole(active):
    active.create("t", (1,))
    active.create("u", (1,))
    grown = [CreatePartitionsRequest.CreatePartitionsTopic(name, 5_002, None) for name in ("t", "u")]
    with pytest.raises(RequestError) as refusal:
        active.ask(37, CreatePartitionsRequest(grown))
    assert refusal.value.code == ErrorCode.POLICY_VIOLATION
    with pytest.raises(RequestError, match="at most 10000"):
        grow(active, "t", 10_002, [(1,)])
    grown[1].count = 1
    assert [result.error_code for result in active.ask(37, CreatePartitionsRequest(grown)).results] == [
        0, ErrorCode.INVALID_PARTITIONS,
    ]  # fmt: skip


def test_brokers_without_room_are_not_assigned_by_hand():
    active = ActiveImage().start(1, 2, dirs=2)
    active.create("t", (1,))
    active.beat(2, cordoned=[log_dir(2, 0), log_dir(2, 1)])
    assert grow(active, "t", 2, [(2,)]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    active.beat(2, cordoned=[log_dir(2, 0)])
    assert grow(active, "t", 2, [(2,)]) == 0


# --- deletion -------------------------------------------------------------------------------------------------------


def delete(active, *names, ids=(), named=(), version=6, **options):
    """Return (name, id, code) of each result, sorted."""
    topics = [*(Named(None, topic_id) for topic_id in ids), *named]
    if version < 6:
        request = DeleteTopicsRequest(topic_names=list(names))
    else:
        request = DeleteTopicsRequest(topics=[*(Named(name) for name in names), *topics])
    results = active.ask(20, request, version=version, **options).responses
    return sorted(((result.name, result.topic_id, result.error_code) for result in results), key=str)


@pytest.mark.parametrize("version", [5, 6])
def test_deleted_topic_is_gone_with_its_settings(active, version):
    active.create("t", (1,), (2,), configs={"retention.ms": "5"})
    topic_id, _ = active.key("t")
    assert delete(active, "t", version=version) == [("t", topic_id, 0)]
    assert not active.image.topics
    assert not active.image.partitions
    assert not active.image.settings


def test_deletion_by_id_names_the_topic(active):
    active.create("t", (1,))
    topic_id, _ = active.key("t")
    assert delete(active, ids=[topic_id]) == [("t", topic_id, 0)]
    assert delete(active, ids=[topic_id]) == [(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert delete(active, "t") == [("t", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_deletion_of_a_topic_named_twice_is_refused(active):
    active.create("t", (1,))
    topic_id, _ = active.key("t")
    refused = ErrorCode.INVALID_REQUEST
    assert delete(active, "t", "t") == [("t", ZERO_UUID, refused)]
    assert delete(active, ids=[topic_id, topic_id]) == [(None, topic_id, refused)]
    assert delete(active, "t", ids=[topic_id]) == [("t", topic_id, refused)]
    assert delete(active, named=[Named("t", topic_id)]) == [("t", topic_id, refused)]
    assert delete(active, named=[Named("t", topic_id)] * 2) == [("t", topic_id, refused)] * 2
    assert delete(active, named=[Named()] * 2) == [(None, ZERO_UUID, refused)] * 2
    assert "t" in active.image.topic_ids


def test_deletion_tells_nothing_that_may_not_be_seen(active):
    active.create("t", (1,))
    topic_id, _ = active.key("t")
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    nothing, describe = only(), only((Operation.DESCRIBE, ResourceType.TOPIC, "t"))
    remove = only((Operation.DELETE, ResourceType.TOPIC, "t"))
    assert delete(active, "t", "u", may=nothing) == [("t", ZERO_UUID, denied), ("u", ZERO_UUID, denied)]
    assert delete(active, ids=[topic_id], may=nothing) == [(None, topic_id, denied)]
    request = DeleteTopicsRequest(topic_names=["t"])
    assert active.ask(20, request, version=5, may=nothing).responses[0].error_message
    assert delete(active, ids=[topic_id], may=describe) == [("t", topic_id, denied)]
    assert delete(active, "t", may=describe) == [("t", ZERO_UUID, denied)]
    assert delete(active, "t", may=remove) == [("t", ZERO_UUID, denied)], "by its name only with DESCRIBE"
    assert delete(active, ids=[topic_id], may=remove)[0][2] == 0


@pytest.mark.parametrize(
    ("version", "expected"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_deletion_can_be_disabled(version, expected):
    active = ActiveImage(delete_topic_enable="false").start(1)
    active.create("t", (1,))
    assert active.code(20, DeleteTopicsRequest(topic_names=["t"]), version=version) == expected
    assert "t" in active.image.topic_ids


# --- producer ids ---------------------------------------------------------------------------------------------------


def test_producer_ids_are_allocated_in_blocks(active):
    epoch = active.image.brokers[1].epoch
    blocks = [active.ask(67, AllocateProducerIdsRequest(1, epoch)) for _ in range(3)]
    assert [(block.producer_id_start, block.producer_id_len) for block in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]
    assert active.image.producer_ids == 3000
    assert active.code(67, AllocateProducerIdsRequest(1, epoch - 1)) == ErrorCode.STALE_BROKER_EPOCH
    assert active.code(67, AllocateProducerIdsRequest(9, 0)) == ErrorCode.STALE_BROKER_EPOCH


def test_producer_ids_end(active):
    from barnabas.wire.generated.metadata_records.producer_ids import ProducerIdsRecord

    active.apply([ProducerIdsRecord(1, 1, 2**63 - 1_001)])
    request = AllocateProducerIdsRequest(1, active.image.brokers[1].epoch)
    assert active.ask(67, request).producer_id_start == 2**63 - 1_001
    assert active.code(67, request) == ErrorCode.UNKNOWN_SERVER_ERROR
