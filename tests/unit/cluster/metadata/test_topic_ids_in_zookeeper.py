"""Ids of topics that are written back into znodes that have lost them, and into no others."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.topic_ids import restore_topic_ids
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper

ID, OTHER_ID = b"i" * 16, b"o" * 16
PARTS = {0: znodes.ReplicaAssignment((1, 2), (2,)), 1: znodes.ReplicaAssignment((2,))}


class Session:
    """A session beside which another one writes before its next write."""

    def __init__(self, zookeeper: SimulatedZooKeeper) -> None:
        self._session = zookeeper.session()
        self.meanwhile: list[Any] = []
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def set(self, *args: Any) -> Any:
        self.writes += 1
        if self.meanwhile:
            await self.meanwhile.pop(0)()
        return await self._session.set(*args)


def data(topic_id: bytes | None, parts: Any = PARTS) -> bytes:
    return znodes.encode_topic(znodes.TopicAssignment(parts, topic_id))


async def restored(it: Session, *names: str) -> None:
    with trio.fail_after(5):
        await restore_topic_ids(it, dict.fromkeys(names, ID))  # type: ignore[arg-type]


async def test_each_topic_is_looked_at() -> None:
    zookeeper = SimulatedZooKeeper()
    it = Session(zookeeper)
    for name, held in (("a", data(OTHER_ID)), ("b", data(None)), ("c", b"{"), ("d", data(None))):
        await it.create(znodes.topic_path(name), held, parents=True)
    await restored(it, "a", "gone", "b", "c", "d")
    contents = {name: zookeeper.dump()[znodes.topic_path(name)] for name in "abcd"}
    assert contents == {"a": data(OTHER_ID), "b": data(ID), "c": b"{", "d": data(ID)}


@pytest.mark.parametrize(
    ("other", "after", "writes"), [(data(None, {}), data(ID, {}), 2), (data(OTHER_ID), data(OTHER_ID), 1), (None, None, 1)]
)  # fmt: skip
async def test_who_is_quicker_is_not_overwritten(
    other: bytes | None, after: bytes | None, writes: int
) -> None:
    zookeeper = SimulatedZooKeeper()
    it, admin = Session(zookeeper), zookeeper.session()
    path = znodes.topic_path("t")
    await it.create(path, data(None), parents=True)

    async def somebody_else() -> None:
        if other is None:
            await admin.delete(path)
        else:
            await admin.set(path, other)

    it.meanwhile = [somebody_else]
    await restored(it, "t")
    assert zookeeper.dump().get(path) == after
    assert it.writes == writes
