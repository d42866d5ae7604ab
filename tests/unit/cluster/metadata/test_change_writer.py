"""Changes that a broker writes to ZooKeeper: what is awaited, decided again, held back, refused alone, and published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    AclRemoved,
    ClientQuotaChanged,
    DelegationTokenChanged,
    DelegationTokenRemoved,
)
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    LogDirsRegistered,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import (
    BROKER,
    NO_TOPIC_ID,
    TOPIC,
    Change,
    ClusterImage,
    PartitionInfo,
    ResourceKey,
    TopicInfo,
)
from barnabas.cluster.zookeeper import changes as writing
from barnabas.cluster.zookeeper import entity_settings, znodes
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.changes import ChangeWriter, _Need
from barnabas.errors import RequestError, StorageError
from barnabas.security.acls import AccessControlEntry, AclBinding, PatternType, Permission, ResourcePattern
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.tokens import Token
from barnabas.serving.loop_budget import LoopBudget
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from barnabas.wire.generated.errors import ErrorCode

ID, OTHER_ID = b"i" * 16, b"o" * 16
LED, UNLED = PartitionInfo(1, (1,), (1,)), PartitionInfo(-1, (1,), ())


def topic(*partitions: PartitionInfo, name: str = "t", id: bytes = ID) -> TopicInfo:
    return TopicInfo(name, id, partitions or (LED,))


def image_of(*topics: TopicInfo) -> ClusterImage:
    return ClusterImage("c").apply([TopicCreated(topic) for topic in topics])


# --- what is awaited ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "topic_info", "is_met"),
    [
        (0, None, True), (1, None, False),
        (0, topic(), False), (0, topic(id=OTHER_ID), True),
        (1, topic(), True), (1, topic(UNLED), False), (1, topic(id=OTHER_ID), True), (1, topic(id=NO_TOPIC_ID), True),
        (2, topic(), False), (2, topic(LED, LED), True), (2, topic(LED, UNLED), False), (2, topic(LED, LED, LED), True),
    ],
)  # fmt: skip
def test_a_topic_is_awaited_with_leaders_or_gone(
    partitions: int, topic_info: TopicInfo | None, is_met: bool
) -> None:
    need = _Need(topic(), partitions)
    assert need.is_met(image_of(*([topic_info] if topic_info else []))) is is_met


class World:
    """A writer of broker 7, and the publisher: the test says what the image becomes."""

    def __init__(self) -> None:
        self.zookeeper = SimulatedZooKeeper()
        self.session = self.zookeeper.session()
        self.admin = self.zookeeper.session()
        self.image = ClusterImage("c")
        self.published: list[tuple[list[ResourceKey], list[Change]]] = []
        self.writer = ChangeWriter(self.session, 7, self, LoopBudget(), has_topic_ids=True)
        self.answers: dict[str, Any] = {}
        self.decisions = 0

    async def publish_read(self, keys: Sequence[ResourceKey], others: Sequence[Change]) -> None:
        self.published.append((list(keys), list(others)))

    def learn(self, *changes: Change) -> None:
        """Have the image say this."""
        self.image = self.image.apply(changes)
        self.writer.published(self.image)

    async def ask(self, name: str, decide: Callable[[ClusterImage], Sequence[Change | None]]) -> None:
        """Have a change made, and note the answer."""

        def counted(image: ClusterImage) -> Sequence[Change | None]:
            self.decisions += 1
            return decide(image)

        try:
            self.answers[name] = await self.writer.change(counted)
        except Exception as error:
            self.answers[name] = error

    def paths(self) -> set[str]:
        return set(self.zookeeper.dump())


async def within(act: Callable[[World, trio.Nursery], Any]) -> World:
    async with trio.open_nursery() as nursery:
        world = World()
        for path in resources.PERSISTENT:
            await world.admin.create(path, parents=True)
        nursery.start_soon(world.writer.run)
        await act(world, nursery)
        nursery.cancel_scope.cancel()
    return world


async def test_what_is_decided_meanwhile_knows_of_what_was_written(autojump_clock: Any) -> None:
    async def act(world: World, nursery: trio.Nursery) -> None:
        seen: list[list[str]] = []

        def look(image: ClusterImage) -> Sequence[Change]:
            seen.append([f"{topic.name} {len(topic.partitions)}" for topic in image.topics.values()])
            return []

        async def ask(*changes: Change) -> None:
            nursery.start_soon(world.ask, f"{len(seen)}", lambda _: changes)
            await trio.sleep(0.1)
            await world.ask("look", look)

        await ask(TopicCreated(topic(LED)))
        await ask(PartitionsAdded("t", (LED,)))
        await ask(TopicCreated(topic(name="u", id=OTHER_ID)))
        await ask(TopicDeleted("u"))
        assert seen == [["t 1"], ["t 2"], ["t 2", "u 1"], ["t 2"]]
        await world.admin.delete(znodes.topic_path("t"))  # gone before the controller has told of it
        await world.ask("look", look)
        assert seen[-1] == []
        world.learn(TopicCreated(topic(LED, LED)))
        await world.ask("look", look)
        assert seen[-1] == ["t 2"]

    await within(act)


@pytest.mark.parametrize("goes_after_s", [0.5, 4.9, 5.5])
async def test_topic_waits_for_its_predecessors_end_with_a_limit(
    goes_after_s: float, autojump_clock: Any
) -> None:
    async def act(world: World, nursery: trio.Nursery) -> None:
        old = znodes.TopicAssignment({0: znodes.ReplicaAssignment((1,))}, OTHER_ID)
        await world.admin.create(znodes.topic_path("t"), znodes.encode_topic(old))
        await world.admin.create(znodes.delete_topic_path("t"))

        def make(image: ClusterImage) -> Sequence[Change]:
            if "t" in image.topics:
                raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")
            return [TopicCreated(topic())]

        nursery.start_soon(world.ask, "made", make)
        await trio.sleep(0.1)
        await world.ask("other", lambda _: [ProducerIdsAllocated(5)])
        assert world.answers["other"] is not None, "nobody else waits for it"
        await trio.sleep(goes_after_s - 0.1)
        await world.admin.delete(znodes.topic_path("t"))
        await world.admin.delete(znodes.delete_topic_path("t"))
        await trio.sleep(1)
        if goes_after_s > 5:
            assert world.answers["made"].code == ErrorCode.TOPIC_ALREADY_EXISTS
        else:
            assignment = znodes.decode_topic("t", world.zookeeper.dump()[znodes.topic_path("t")])
            assert assignment.topic_id == ID

    await within(act)


async def test_conflicting_change_is_refused_after_some_retries(autojump_clock: Any) -> None:
    async def act(world: World, _: trio.Nursery) -> None:
        other = znodes.TopicAssignment({0: znodes.ReplicaAssignment((1,))}, OTHER_ID)
        await world.admin.create(znodes.topic_path("t"), znodes.encode_topic(other))
        await world.ask("made", lambda _: [TopicCreated(topic())])  # whatever is there
        assert isinstance(world.answers["made"], StorageError)
        assert "does not fit" in str(world.answers["made"])
        assert world.decisions == 1 + 1 + writing.CONFLICTS_MAX - 1

    await within(act)


async def test_with_the_writer_all_fail_that_wait(autojump_clock: Any) -> None:
    async def act(world: World, nursery: trio.Nursery) -> None:
        await world.admin.create(znodes.delete_topic_path("held"))
        nursery.start_soon(world.ask, "unmet", lambda _: [TopicCreated(topic())])
        nursery.start_soon(world.ask, "held", lambda _: [TopicCreated(topic(name="held", id=OTHER_ID))])
        await trio.sleep(1)
        world.writer.close()
        await trio.sleep(1)
        assert {name: type(error) for name, error in world.answers.items()} == {
            "unmet": StorageError, "held": StorageError,
        }  # fmt: skip

    await within(act)


# --- what is published --------------------------------------------------------------------------------------------

QUOTA = ClientQuotaChanged(QuotaEntity("alice"), (("producer_byte_rate", 1.0),))
TOKEN = Token("id", "User:a", "User:b", (), 1, 2, 3)
ACL = AclBinding(
    ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "t"),
    AccessControlEntry("User:a", "*", Operation.READ, Permission.ALLOW),
)


@pytest.mark.parametrize(
    ("changes", "keys", "others"),
    [
        ([ConfigChanged(BROKER, "1", (("a", "1"),))], [(BROKER, "1")], []),
        ([ConfigChanged(TOPIC, "x", (("a", "1"),))], [(TOPIC, "x")], []),
        ([QUOTA], [(entity_settings.USERS, "alice")], []),
        ([ProducerIdsAllocated(9)], [], [ProducerIdsAllocated(9)]),
        ([LogDirsRegistered(7, frozenset())], [], [LogDirsRegistered(7, frozenset())]),
        ([DelegationTokenChanged(TOKEN)], [], [DelegationTokenChanged(TOKEN)]),
        ([DelegationTokenRemoved("id")], [], [DelegationTokenRemoved("id")]),
        ([AclAdded(ACL)], [], [AclAdded(ACL)]),
        ([AclRemoved(ACL)], [], [AclRemoved(ACL)]),
    ],
)  # fmt: skip
async def test_what_is_not_the_controllers_is_published_at_once(
    changes: list[Change], keys: list[ResourceKey], others: list[Change], autojump_clock: Any
) -> None:
    async def act(world: World, _: trio.Nursery) -> None:
        for path in (resources.TOKENS, "/kafka-acl/Topic"):
            await world.admin.create(path, parents=True)
        await world.ask("it", lambda _: changes)
        assert isinstance(world.answers["it"], ClusterImage)

    assert (await within(act)).published == [(keys, others)]
