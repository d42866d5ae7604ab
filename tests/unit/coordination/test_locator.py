"""Where a coordinator is: at the leader of the partition that keeps the id, wherever that is."""

from __future__ import annotations

import pytest

from barnabas.cluster.changes import TopicCreated
from barnabas.cluster.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordination.locator import ImageLocator
from barnabas.coordination.ports import CoordinatorType
from barnabas.errors import RequestError
from barnabas.statemachine.partitioning import partition_for
from barnabas.wire.generated.errors import ErrorCode

LEADERS = (3, 1, -1, 2)


class Metadata:
    def __init__(self, image: ClusterImage) -> None:
        self.image = image


class Coordinator:
    async def partition_of(self, key: str) -> int:
        return partition_for(key, len(LEADERS))


def locator(topic: str) -> ImageLocator:
    partitions = tuple(PartitionInfo(leader, 0, (1, 2, 3), (1, 2, 3), 0) for leader in LEADERS)
    image = ClusterImage("c").apply([TopicCreated(TopicInfo(topic, bytes(16), partitions))])
    coordinator = Coordinator()
    return ImageLocator(
        Metadata(image),
        groups=coordinator,
        transactions=coordinator,
        shares=None,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("kind", "topic"),
    [
        (CoordinatorType.GROUP, "__consumer_offsets"),
        (CoordinatorType.TRANSACTION, "__transaction_state"),
    ],
)
async def test_the_leader_of_the_partition_is_the_coordinator(kind: CoordinatorType, topic: str) -> None:
    found = locator(topic)
    for key in ("a", "b", "c", "d", "e", "f"):
        leader = LEADERS[partition_for(key, len(LEADERS))]
        if leader >= 0:
            assert await found.locate(kind, key) == leader
            continue
        with pytest.raises(RequestError) as caught:
            await found.locate(kind, key)
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_without_its_topic_there_is_none() -> None:
    with pytest.raises(RequestError) as caught:
        await locator("other").locate(CoordinatorType.GROUP, "a")
    assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
