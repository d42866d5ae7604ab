"""Groups of the consumer protocol (KIP-848) with a stock librdkafka consumer."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from .conftest import BrokerProcess, StartBroker
from .test_groups import COUNT, drain, fill, fresh, librdkafka, poll_until

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]


def member(bootstrap: str, group: str, *topics: str, **options: object) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            **options,
        }
    )
    consumer.subscribe(list(topics))
    return consumer


def held(consumer: Consumer) -> set[tuple[str, int]]:
    return {(p.topic, p.partition) for p in consumer.assignment()}


@pytest.fixture(scope="module")
def settings() -> tuple[str, ...]:
    """Rebalances in a second or two; a busy machine expires no member."""
    return ("group.consumer.heartbeat.interval.ms=200",)


@pytest.fixture
def started(start_broker: StartBroker, settings: tuple[str, ...]) -> BrokerProcess:
    return start_broker(*settings)


def test_two_members_share_and_one_takes_over(started: BrokerProcess) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(started.bootstrap, topic, 0, COUNT)
    first = member(started.bootstrap, group, topic)
    assert sorted(drain(first, COUNT)) == list(range(COUNT))
    second = member(started.bootstrap, group, topic)
    poll_until(lambda: {len(held(first)), len(held(second))} == {1, 2}, first, second)
    assert held(first) | held(second) == {(topic, index) for index in range(3)}
    first.close()
    poll_until(lambda: len(held(second)) == 3, second)
    second.close()


def test_a_group_resumes_over_a_kill_of_the_broker(
    start_broker: StartBroker, settings: tuple[str, ...]
) -> None:
    broker = start_broker(*settings)
    fill(broker.bootstrap, "kept", 0, COUNT)
    consumer = member(broker.bootstrap, "readers", "kept")
    assert sorted(drain(consumer, COUNT)) == list(range(COUNT))
    consumer.commit(asynchronous=False)
    port = broker.bootstrap.rpartition(":")[2]
    broker.stop(signal.SIGKILL)
    broker = start_broker(*settings, data=broker.data, listen=f"127.0.0.1:{port}")
    # The member is still one: its group, its epoch and what it owns have been read again.
    fill(broker.bootstrap, "kept", COUNT, COUNT + 20)
    assert sorted(drain(consumer, 20)) == list(range(COUNT, COUNT + 20))
    consumer.commit(asynchronous=False)
    consumer.close()
    fill(broker.bootstrap, "kept", COUNT + 20, COUNT + 30)
    consumer = member(broker.bootstrap, "readers", "kept")
    assert sorted(drain(consumer, 10)) == list(range(COUNT + 20, COUNT + 30))
    consumer.close()


def test_new_partitions_and_new_topics_are_taken_up(started: BrokerProcess) -> None:
    first_topic, second_topic, group = fresh("topic"), fresh("topic"), fresh("group")
    fill(started.bootstrap, first_topic, 0, 10, partitions=1)
    consumer = member(started.bootstrap, group, first_topic, second_topic)
    poll_until(lambda: held(consumer) == {(first_topic, 0)}, consumer)
    admin = AdminClient({"bootstrap.servers": started.bootstrap})
    growing = admin.create_partitions([NewPartitions(first_topic, 3)])
    growing[first_topic].result(10)
    poll_until(lambda: held(consumer) == {(first_topic, index) for index in range(3)}, consumer)
    creating = admin.create_topics([NewTopic(second_topic, 2, 1)])
    creating[second_topic].result(10)
    poll_until(lambda: len(held(consumer)) == 5, consumer)
    consumer.close()


def test_a_regular_expression_is_matched_by_the_broker(started: BrokerProcess) -> None:
    prefix, group = fresh("match"), fresh("group")
    fill(started.bootstrap, f"{prefix}-a", 0, 10, partitions=2)
    fill(started.bootstrap, f"other-{prefix}", 0, 10, partitions=2)
    consumer = member(started.bootstrap, group, f"^{prefix}.*")
    poll_until(lambda: held(consumer) == {(f"{prefix}-a", 0), (f"{prefix}-a", 1)}, consumer)
    fill(started.bootstrap, f"{prefix}-b", 0, 10, partitions=1)
    poll_until(lambda: (f"{prefix}-b", 0) in held(consumer), consumer)
    assert len(held(consumer)) == 3
    consumer.close()


def test_a_bad_regular_expression_is_refused(started: BrokerProcess) -> None:
    consumer = member(started.bootstrap, fresh("group"), "^a{2000}")  # librdkafka would let it pass
    with pytest.raises(KafkaException, match="regular expression is not valid"):
        poll_until(lambda: _raises(consumer))
    consumer.close()


def _raises(consumer: Consumer) -> bool:
    message = consumer.poll(0.1)
    if message is not None and message.error() is not None:
        raise KafkaException(message.error())
    return False


def test_groups_are_listed_described_and_deleted(started: BrokerProcess) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(started.bootstrap, topic, 0, 10)
    consumer = member(started.bootstrap, group, topic, **{"client.id": "one", "group.instance.id": "i"})
    assert len(drain(consumer, 10)) == 10
    consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": started.bootstrap})
    listing = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER})
    listed = {entry.group_id: entry for entry in listing.result(10).valid}
    assert listed[group].state == ConsumerGroupState.STABLE
    assert listed[group].type == ConsumerGroupType.CONSUMER
    listing = admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC})
    assert group not in [entry.group_id for entry in listing.result(10).valid]
    describing = admin.describe_consumer_groups([group])
    described = describing[group].result(10)
    assert described.state == ConsumerGroupState.STABLE
    assert described.type == ConsumerGroupType.CONSUMER
    assert described.partition_assignor == "uniform"
    (only,) = described.members
    assert (only.client_id, only.group_instance_id) == ("one", "i")
    assert {(p.topic, p.partition) for p in only.assignment.topic_partitions} == held(consumer)
    consumer.close()
    # A static member that closes has left for a while only.
    deleting = admin.delete_consumer_groups([group])
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        deleting[group].result(10)


def test_a_static_member_comes_back_to_what_it_had(started: BrokerProcess) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(started.bootstrap, topic, 0, COUNT)
    options = {"group.instance.id": "one"}
    first, other = member(started.bootstrap, group, topic, **options), member(started.bootstrap, group, topic)
    poll_until(lambda: held(first) and held(other) and len(held(first) | held(other)) == 3, first, other)
    before = held(first)
    first.close()
    again = member(started.bootstrap, group, topic, **options)
    poll_until(lambda: bool(held(again)), again, other)
    assert held(again) == before
    again.close()
    other.close()


def seen_by(*consumers: Consumer) -> list[tuple[str, int]]:
    return sorted(slot for consumer in consumers for slot in held(consumer))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_to_the_consumer_protocol_and_back(started: BrokerProcess, strategy: str) -> None:
    topic, group = fresh("topic"), fresh("group")
    fill(started.bootstrap, topic, 0, COUNT, partitions=6)
    everything = [(topic, index) for index in range(6)]
    options = {"partition.assignment.strategy": strategy}
    old = [librdkafka(started.bootstrap, group, topic, **options) for _ in range(2)]
    poll_until(lambda: sorted(map(len, map(held, old))) == [3, 3], *old)
    new = member(started.bootstrap, group, topic)
    both = [*old, new]
    poll_until(lambda: [len(held(m)) for m in both] == [2, 2, 2] and seen_by(*both) == everything, *both)
    admin = AdminClient({"bootstrap.servers": started.bootstrap})
    describing = admin.describe_consumer_groups([group])
    assert describing[group].result(10).type == ConsumerGroupType.CONSUMER
    new.close()
    poll_until(lambda: seen_by(*old) == everything, *old)
    describing = admin.describe_consumer_groups([group])
    assert describing[group].result(10).type == ConsumerGroupType.CLASSIC
    for consumer in old:
        consumer.close()
