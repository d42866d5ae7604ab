"""Share groups over a bare socket: every version, every refusal, and what becomes of records when a connection goes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.records.batch import iter_batches
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.wire import registry
from barnabas.wire.generated.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.share_acknowledge import ShareAcknowledgeRequest
from barnabas.wire.generated.share_fetch import ShareFetchRequest
from barnabas.wire.generated.share_group_describe import ShareGroupDescribeRequest
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.wire.headers import decode_response, encode_request

from .conftest import BrokerProcess, StartBroker
from .test_groups import fresh

pytestmark = pytest.mark.e2e

ACCEPT, RELEASE, RENEW = 1, 2, 4
GROUP_RESOURCE = 32


class Connection:
    """A connection on which requests are asked one after the other."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 10)
        self.stream = self.socket.makefile("rb")

    def ask(self, name: str, version: int, message: object) -> Any:
        key = registry.key_of(name)
        self.socket.sendall(b"".join(encode_request(key, version, 1, "test", message)))  # type: ignore[arg-type]
        size = self.stream.read(4)
        assert len(size) == 4, f"{name} v{version}: the connection was closed instead of an answer"
        return decode_response(self.stream.read(int.from_bytes(size, "big")), key, version)[1]

    def close(self) -> None:
        self.stream.close()
        self.socket.close()

    # --- shorter --------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1) -> bytes:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        created = self.ask("CreateTopics", 7, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        assert created.topics[0].error_code == 0
        return created.topics[0].topic_id  # type: ignore[no-any-return]

    def produce(self, name: str, count: int) -> None:
        batch = encode_batch([Record(offset, 1_700_000_000_000, None, b"value") for offset in range(count)])
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name=name, partition_data=[data])
        done = self.ask("Produce", 7, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]))
        assert done.responses[0].partition_responses[0].error_code == 0

    def configure(self, group: str, **settings: str) -> None:
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=GROUP_RESOURCE,
            resource_name=group,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(name=name.replace("_", "."), value=value)
                for name, value in settings.items()
            ],
        )
        done = self.ask("IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=[resource]))
        assert done.responses[0].error_code == 0

    def join(self, group: str, member: str, topic: str, version: int = 1) -> Any:
        return self.ask(
            "ShareGroupHeartbeat",
            version,
            ShareGroupHeartbeatRequest(
                group_id=group, member_id=member, member_epoch=0, subscribed_topic_names=[topic]
            ),
        )

    def fetch(
        self, group: str | None, member: str, epoch: int, topic: bytes = b"", version: int = 2, **fields: Any
    ) -> Any:
        acks = fields.pop("acks", ())
        partition = ShareFetchRequest.FetchPartition(
            partition_index=fields.pop("partition", 0),
            partition_max_bytes=0 if version else 1 << 20,
            acknowledgement_batches=[
                ShareFetchRequest.AcknowledgementBatch(
                    first_offset=a, last_offset=b, acknowledge_types=list(c)
                )
                for a, b, *c in acks
            ],
        )
        topics = [ShareFetchRequest.FetchTopic(topic_id=topic, partitions=[partition])] if topic else []
        asked: dict[str, Any] = {"max_wait_ms": 100, "min_bytes": 1, "max_records": 500, "batch_size": 500}
        if version < 1:
            del asked["max_records"], asked["batch_size"]
        message = ShareFetchRequest(
            group_id=group, member_id=member, share_session_epoch=epoch, topics=topics, **(asked | fields)
        )
        return self.ask("ShareFetch", version, message)

    def acknowledge(
        self, group: str, member: str, epoch: int, topic: bytes, *acks: Any, version: int = 2, **fields: Any
    ) -> Any:
        partition = ShareAcknowledgeRequest.AcknowledgePartition(
            partition_index=0,
            acknowledgement_batches=[
                ShareAcknowledgeRequest.AcknowledgementBatch(
                    first_offset=a, last_offset=b, acknowledge_types=list(c)
                )
                for a, b, *c in acks
            ],
        )
        topics = [ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=topic, partitions=[partition])]
        message = ShareAcknowledgeRequest(
            group_id=group, member_id=member, share_session_epoch=epoch, topics=topics, **fields
        )
        return self.ask("ShareAcknowledge", version, message)


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer.error_message
    return [
        (records.first_offset, records.last_offset, records.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for records in partition.acquired_records
    ]


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    connection = Connection(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def shared(connection: Connection) -> tuple[str, bytes]:
    """A group that has joined and begins at the earliest offset, and its topic with ten records."""
    group = fresh("share")
    topic = connection.create(group)
    connection.configure(group, share_auto_offset_reset="earliest")
    assert connection.join(group, "m", group).error_code == 0
    connection.produce(group, 10)
    return group, topic


@pytest.mark.parametrize("version", range(3))
def test_every_version_fetches_and_acknowledges(
    connection: Connection, shared: tuple[str, bytes], version: int
) -> None:
    group, topic = shared
    answer = connection.fetch(group, "m", 0, topic, version)
    assert acquired(answer) == [(0, 9, 1)]
    partition = answer.responses[0].partitions[0]
    assert [header.records_count for _, header in iter_batches(partition.records)] == [10]
    if version >= 1:
        assert answer.acquisition_lock_timeout_ms == 30_000
    done = connection.acknowledge(group, "m", 1, topic, (0, 4, ACCEPT), version=version)
    assert done.responses[0].partitions[0].error_code == 0
    answer = connection.fetch(group, "m", 2, topic, version, acks=[(5, 9, RELEASE)])
    assert answer.responses[0].partitions[0].acknowledge_error_code == 0
    assert acquired(answer) == [(5, 9, 2)]
    assert connection.fetch(group, "m", -1, version=version).error_code == 0


@pytest.mark.parametrize("version", range(2))
def test_every_version_joins_and_is_described(connection: Connection, version: int) -> None:
    group = fresh("share")
    topic = connection.create(group, 2)
    joined = connection.join(group, "m", group, version)
    assert (joined.error_code, joined.member_id, joined.heartbeat_interval_ms) == (0, "m", 5000)
    assert [(t.topic_id, t.partitions) for t in joined.assignment.topic_partitions] == [(topic, [0, 1])]
    request = ShareGroupDescribeRequest(group_ids=[group, "nobody"], include_authorized_operations=True)
    described, unknown = connection.ask("ShareGroupDescribe", version, request).groups
    assert (described.group_state, described.assignor_name, len(described.members)) == ("Stable", "simple", 1)
    # The epochs and the assignment that Kafka describes: what is known ahead is in the answer alone.
    assert (described.group_epoch, described.members[0].member_epoch) == (2, 2)
    assert described.members[0].assignment.topic_partitions == []
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    again = ShareGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=2)
    stayed = connection.ask("ShareGroupHeartbeat", version, again)
    assert (stayed.member_epoch, len(stayed.assignment.topic_partitions)) == (3, 1)
    described = connection.ask("ShareGroupDescribe", version, request).groups[0]
    assert (described.group_epoch, described.assignment_epoch) == (3, 3)
    assert described.members[0].assignment.topic_partitions[0].topic_name == group


def test_acknowledgements_are_checked(connection: Connection, shared: tuple[str, bytes]) -> None:
    group, topic = shared
    connection.fetch(group, "m", 0, topic)
    connection.fetch(group, "other", 0, topic)
    answer = connection.acknowledge(group, "other", 1, topic, (0, 0, ACCEPT))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_RECORD_STATE
    wrong = [(3, 2, ACCEPT), (0, 3, ACCEPT, ACCEPT), (0, 0, 9), (0, 0, RENEW), (5, 20, ACCEPT)]
    for epoch, batch in enumerate(wrong, 1):
        answer = connection.acknowledge(group, "m", epoch, topic, batch)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST, batch
    unknown = connection.acknowledge(group, "m", len(wrong) + 1, b"?" * 16, (0, 0, ACCEPT))
    assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    renewing = connection.fetch(group, "m", len(wrong) + 2, topic, is_renew_ack=True)
    assert renewing.error_code == ErrorCode.INVALID_REQUEST
    renewed = connection.acknowledge(group, "m", len(wrong) + 2, topic, (0, 9, RENEW), is_renew_ack=True)
    assert renewed.responses[0].partitions[0].error_code == 0
    assert renewed.acquisition_lock_timeout_ms == 30_000


def test_a_fetch_waits_for_records(
    connection: Connection, broker: BrokerProcess, shared: tuple[str, bytes]
) -> None:
    group, topic = shared
    connection.fetch(group, "m", 0, topic)
    assert acquired(connection.fetch(group, "m", 1)) == []
    other = Connection(broker.bootstrap)
    message = ShareFetchRequest(
        group_id=group, member_id="m", share_session_epoch=2, max_wait_ms=20_000, min_bytes=1,
        max_records=500, batch_size=500,
    )  # fmt: skip
    key = registry.key_of("ShareFetch")
    connection.socket.sendall(b"".join(encode_request(key, 2, 1, "test", message)))  # type: ignore[arg-type]
    other.produce(group, 3)
    size = int.from_bytes(connection.stream.read(4), "big")
    answer = decode_response(connection.stream.read(size), key, 2)[1]
    assert acquired(answer) == [(10, 12, 1)]
    other.close()


def test_records_of_a_closed_connection_are_free_again(
    connection: Connection, broker: BrokerProcess, shared: tuple[str, bytes]
) -> None:
    group, topic = shared
    other = Connection(broker.bootstrap)
    assert acquired(other.fetch(group, "gone", 0, topic)) == [(0, 9, 1)]
    other.close()
    assert acquired(connection.fetch(group, "m", 0, topic, max_wait_ms=20_000)) == [(0, 9, 2)]


def test_offsets_can_be_described_and_altered(connection: Connection, shared: tuple[str, bytes]) -> None:
    group, topic = shared

    def offsets(version: int) -> Any:
        asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(
            group_id=group, topics=None
        )
        request = DescribeShareGroupOffsetsRequest(groups=[asked])
        return connection.ask("DescribeShareGroupOffsets", version, request).groups[0].topics[0].partitions[0]

    partition = offsets(1)
    assert (partition.start_offset, partition.lag, partition.error_code) == (-1, -1, 0)
    connection.fetch(group, "m", 0, topic)
    connection.fetch(group, "m", -1, topic, acks=[(0, 5, ACCEPT)])
    assert offsets(1).lag == 4
    assert offsets(0).start_offset == 6
    change = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
        topic_name=group,
        partitions=[
            AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
                partition_index=index, start_offset=3
            )
            for index in (0, 1)
        ],
    )
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=[change])
    refused = connection.ask("AlterShareGroupOffsets", 0, request)
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    remaining = ShareGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=-1)
    assert connection.ask("ShareGroupHeartbeat", 1, remaining).error_code == 0
    altered = connection.ask("AlterShareGroupOffsets", 0, request)
    assert [p.error_code for p in altered.responses[0].partitions] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert (offsets(1).start_offset, offsets(1).lag) == (3, 7)


def test_what_was_acknowledged_stays_so_over_a_crash(start_broker: StartBroker) -> None:
    broker = start_broker()
    connection = Connection(broker.bootstrap)
    group = fresh("share")
    topic = connection.create(group)
    connection.configure(group, share_auto_offset_reset="earliest")
    connection.join(group, "m", group)
    connection.produce(group, 10)
    assert acquired(connection.fetch(group, "m", 0, topic)) == [(0, 9, 1)]
    done = connection.acknowledge(group, "m", 1, topic, (0, 3, ACCEPT), (5, 6, ACCEPT), (8, 8, RELEASE))
    assert done.responses[0].partitions[0].error_code == 0
    broker.stop(9)  # before the connection is closed, which would release what is still acquired
    connection.close()
    broker = start_broker(data=broker.data)
    connection = Connection(broker.bootstrap)
    assert acquired(connection.fetch(group, "m", 0, topic)) == [(4, 4, 1), (7, 7, 1), (8, 8, 2), (9, 9, 1)]
    connection.close()
