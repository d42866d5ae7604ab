"""Parts of a replica by themselves: counts of bytes, waits for an offset, subscribers, ends of epochs."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.replicas.epoch_ends import diverging_epoch
from barnabas.cluster.replicas.growth import UNCOMMITTED_APPENDS_MAX, Growth
from barnabas.cluster.replicas.in_sync import changed_isr
from barnabas.cluster.replication.leader import IsrChange
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import TOPIC_ID
from tests.support.replicas import Node

# --- growth -------------------------------------------------------------------------------------------------------


def grown(*appends: tuple[int, int]) -> Growth:
    """Appends of (size, log end offset) that are not committed yet."""
    counts = Growth()
    for size, end_offset in appends:
        counts.appended(size, 1)
        counts.note_uncommitted(end_offset)
    return counts


def test_of_very_many_appends_the_last_ones_count_as_one() -> None:
    most = UNCOMMITTED_APPENDS_MAX
    counts = grown(
        *((1, offset + 1) for offset in range(most - 1)), (100, most), (1_000, most + 1), (10_000, most + 2)
    )
    for high_watermark, committed in ((most - 1, most - 1), (most + 1, most - 1), (most + 2, most + 11_099)):
        counts.committed(high_watermark, 6)
        assert counts.committed_bytes == committed


# --- ends of leader epochs ----------------------------------------------------------------------------------------


async def led(epoch: int, *written: int) -> Node:
    """Broker 1, which has appended a record in each of these leader epochs, and leads in another one."""
    node = Node(1)
    info = PartitionInfo(1, (1, 2), (1,), min((*written, epoch)), 0)
    await node.create(info)
    for each in (*written, epoch):
        info = info._replace(leader_epoch=each, partition_epoch=info.partition_epoch + 1)
        await node.change(info)
        if each != epoch:
            node.produce(b"a", b"b", acks=1)
    return node


@pytest.mark.parametrize(("epoch", "offset"), [(8, 2), (8, 5), (4, 1), (4, 0)])
async def test_fetcher_ahead_of_the_leader_is_out_of_range(epoch: int, offset: int) -> None:
    node = await led(7, 2, 4)
    node.replica.log.advance_high_watermark(4)
    node.replica.delete_records_before(2)
    assert diverging_epoch(node.replica, 4, 2) is None
    with pytest.raises(RequestError) as caught:
        diverging_epoch(node.replica, epoch, offset)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


# --- changes of the ISR that this broker decides on ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "topic", "code"),
    [
        ({}, {}, 0),
        ({"isr": {1, 2}}, {}, 0),
        ({}, {"id": b"another topic id"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({}, {"name": "u"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({}, {"partitions": ()}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"leader_epoch": 4}, {}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 6}, {}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 6}, {}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 8}, {}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": {2, 3}}, {}, ErrorCode.INVALID_REQUEST),
        ({"isr": {1, 4}}, {}, ErrorCode.INVALID_REQUEST),
        ({"isr": {1, 5}}, {}, ErrorCode.INELIGIBLE_REPLICA),
        ({"leader": 2}, {}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_a_proposal_is_refused_with_the_first_reason_that_holds(
    change: dict[str, Any], topic: dict[str, Any], code: int
) -> None:
    node = Node(1)
    info = PartitionInfo(1, (3, 1, 2, 5), (1, 3), 5, 7)
    await node.create(info)
    info = info._replace(leader=change.pop("leader", 1))
    image = ClusterImage("c").apply([
        *(BrokerRegistered(BrokerInfo(id_, None, {})) for id_ in (1, 2, 4)),
        TopicCreated(TopicInfo(**{"name": "t", "id": TOPIC_ID, "partitions": (info,)} | topic)),
    ])  # fmt: skip
    proposed = IsrChange(**{"isr": frozenset({1, 2, 3}), "leader_epoch": 5, "partition_epoch": 7} | change)
    if code:
        with pytest.raises(RequestError) as caught:
            changed_isr(image, 1, node.replica, proposed)
        assert caught.value.code == code
    else:
        isr = (3, 1, 2) if 3 in proposed.isr else (1, 2)
        assert changed_isr(image, 1, node.replica, proposed) == info._replace(isr=isr, partition_epoch=8)
