"""A coordinator is at the leader of the partition that keeps the id, wherever that is."""

from __future__ import annotations

from collections.abc import Awaitable
from types import SimpleNamespace

import pytest

from barnabas.cluster.metadata.changes import TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.locator import CoordinatorType, ImageLocator
from barnabas.environment.lazy import Lazy
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import uuid_text


class Coordinator:
    """Stands for a coordinator whose ids are all kept in one partition."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.state = self
        self.asked: list[str] = []

    async def partition_of(self, key: str) -> int:
        self.asked.append(key)
        return self.partition


OF_GROUPS, OF_TRANSACTIONS, OF_SHARES, NOBODYS = range(4)
LEADERS = (3, 1, 2, -1)


class World:
    """A locator over coordinators that each keep all in a partition of their own, which a broker of its own leads."""

    def __init__(self, *topics: str) -> None:
        partitions = tuple(PartitionInfo(leader, (1, 2, 3), (1, 2, 3)) for leader in LEADERS)
        changes = [TopicCreated(TopicInfo(name, name.encode()[:16], partitions)) for name in topics]
        self.groups = Coordinator(OF_GROUPS)
        self.transactions = Coordinator(OF_TRANSACTIONS)
        self.shares = Coordinator(OF_SHARES)
        self.locator = ImageLocator(
            SimpleNamespace(image=ClusterImage("c").apply(changes)),  # type: ignore[arg-type]
            groups=self.groups,  # type: ignore[arg-type]
            transactions=self.transactions,  # type: ignore[arg-type]
            shares=Lazy(lambda: self.shares),  # type: ignore[arg-type, return-value]
        )

    def __getitem__(self, kind: CoordinatorType) -> Coordinator:
        return {
            CoordinatorType.GROUP: self.groups,
            CoordinatorType.TRANSACTION: self.transactions,
            CoordinatorType.SHARE: self.shares,
        }[kind]


TOPICS = {
    CoordinatorType.GROUP: "__consumer_offsets",
    CoordinatorType.TRANSACTION: "__transaction_state",
    CoordinatorType.SHARE: "__share_group_state",
}
SHARE_KEY = f"g:{uuid_text(bytes(range(16)))}:7"


@pytest.mark.parametrize("kind", TOPICS)
async def test_each_kind_of_id_is_looked_up_by_its_own_coordinator_in_its_own_topic(kind) -> None:
    world = World(*TOPICS.values())
    assert await world.locator.locate(kind, SHARE_KEY) == LEADERS[world[kind].partition]
    assert [len(world[each].asked) for each in TOPICS] == [each is kind for each in TOPICS]
    assert world[kind].asked == [SHARE_KEY]


@pytest.mark.parametrize("kind", TOPICS)
async def test_where_nobody_leads_the_partition_or_has_its_topic_there_is_none(kind) -> None:
    others = [name for each, name in TOPICS.items() if each is not kind]
    without, headless = World(*others), World(*TOPICS.values())
    headless[kind].partition = NOBODYS
    for world in (without, headless):
        assert await code_of(world.locator.locate(kind, SHARE_KEY)) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_name_that_is_no_share_partitions_is_refused() -> None:
    assert await code_of(World().locator.locate(CoordinatorType.SHARE, "g")) == ErrorCode.INVALID_REQUEST


async def code_of(awaitable: Awaitable[int]) -> int:
    with pytest.raises(RequestError) as refused:
        await awaitable
    return refused.value.code
