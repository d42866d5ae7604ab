"""Changed metadata as the coordinators hear of them: each of its own topic, and all of topics that are gone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.metadata.changes import PartitionChanged, TopicCreated, TopicDeleted
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.image_events import CoordinatorEvents
from barnabas.environment.lazy import Lazy
from tests.support.clusters import StandingImage

OFFSETS, TRANSACTIONS, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
ONE = PartitionInfo(1, (1,), (1,))


class Part:
    """Stands for a coordinator, or for what share groups have: notes what it is told."""

    def __init__(self, name: str, told: list[Any]) -> None:
        self.name = name
        self.told = told
        self.state: Any = None

    def unload(self) -> None:
        self.told.append((self.name, "unload"))

    def leadership_changed(self) -> None:
        self.told.append((self.name, "leadership"))

    async def forget_topics(self, *what: Any) -> None:
        self.told.append((self.name, "forget", *what))


class World:
    """A broker's image with the internal topics `topics`, and what its coordinators are told of changes."""

    def __init__(self, *topics: str, uses_shares: bool = True) -> None:
        self.told: list[Any] = []
        self.now_ms = 7_000
        image = ClusterImage("c").apply([created(name) for name in ("t", "u", *topics)])
        self.metadata = StandingImage(image)
        self.events = CoordinatorEvents(
            groups=Part("groups", self.told),  # type: ignore[arg-type]
            transactions=Part("transactions", self.told),  # type: ignore[arg-type]
            shares=Lazy(self._make_shares),
            now_ms=lambda: self.now_ms,
        )
        if uses_shares:
            self.events._shares.get()
        self.metadata.subscribe(self.events)

    def _make_shares(self) -> Any:
        shares = Part("shares", self.told)
        shares.state = Part("share state", self.told)
        return shares

    @asynccontextmanager
    async def running(self):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.events.run)
            await trio.testing.wait_all_tasks_blocked()
            yield
            nursery.cancel_scope.cancel()

    async def changed(self, *changes: Any) -> list[Any]:
        """Make changes; returns what was told since the last time."""
        await self.metadata.apply(changes)
        await trio.testing.wait_all_tasks_blocked()
        told = self.told.copy()
        self.told.clear()
        return told


def created(name: str, id_byte: bytes = b"") -> TopicCreated:
    return TopicCreated(TopicInfo(name, (name.encode()[-16:] + id_byte).rjust(16)[-16:], (ONE,)))


@pytest.mark.parametrize(
    ("topic", "who"),
    [(OFFSETS, "groups"), (TRANSACTIONS, "transactions"), (SHARES, "share state"), ("t", "")],
)
async def test_moved_leader_reaches_its_topics_coordinator_alone(topic, who):
    world = World(OFFSETS, TRANSACTIONS, SHARES)
    moved = PartitionChanged(topic, 0, ONE._replace(leader_epoch=1))
    assert await world.changed(moved) == ([(who, "leadership")] if who else [])


@pytest.mark.parametrize(
    ("topic", "who"), [(OFFSETS, "groups"), (TRANSACTIONS, "transactions"), (SHARES, "shares")]
)
@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
async def test_deleted_internal_topic_unloads_its_coordinator(topic, who, again):
    world = World(OFFSETS, TRANSACTIONS, SHARES)
    changes = [TopicDeleted(topic), *([created(topic, b"2")] if again else [])]
    told = await world.changed(*changes)
    assert [event for event in told if event[1] == "unload"] == [(who, "unload")] * 2
    first, last = told[0], told[-1]
    assert first == last == (who, "unload")
    state = "share state" if topic == SHARES else who
    assert told[1:-1] == [(state, "leadership")]


@pytest.mark.parametrize("share_topic", [True, False])
async def test_deleted_topics_reach_coordinators_by_name_and_id(share_topic):
    world = World(*([SHARES] if share_topic else []), uses_shares=False)
    ids = {name: topic.id for name, topic in world.metadata.image.topics.items()}
    async with world.running():
        told = await world.changed(TopicDeleted("t"))
        of_t = frozenset({ids["t"]})
        in_groups = ("groups", "forget", frozenset({"t"}), of_t, 7_000)
        assert told == [in_groups, *([("share state", "forget", of_t)] if share_topic else [])]
        world.now_ms = 8_000
        both = await world.changed(created("v"), TopicDeleted("u"), created("u", b"2"))
        assert both[0] == ("groups", "forget", frozenset({"u"}), frozenset({ids["u"]}), 8_000)
        assert await world.changed(created("w")) == [], "nothing was deleted"
