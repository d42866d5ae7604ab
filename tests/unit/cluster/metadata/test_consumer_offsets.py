"""Offsets of old consumers in ZooKeeper: where their tools look for them."""

from __future__ import annotations

import pytest

from barnabas.cluster.zookeeper.consumer_offsets import ZooKeeperConsumerOffsets
from barnabas.errors import RequestError
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from barnabas.wire.generated.errors import ErrorCode

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


async def test_an_offset_is_a_znode_of_its_own(autojump_clock) -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    offsets = ZooKeeperConsumerOffsets(session)
    assert await offsets.fetch("g", [A0]) == {}
    assert await offsets.commit("g", {A0: 5, B0: 7}) == {}
    assert await offsets.commit("g", {A0: 6}) == {}
    assert await offsets.fetch("g", [A0, A1, B0]) == {A0: 6, B0: 7}
    assert await offsets.fetch("other", [A0]) == {}
    assert zookeeper.dump()["/consumers/g/offsets/a/0"] == b"6"
    await session.set("/consumers/g/offsets/a/0", b"not a number")
    assert await offsets.fetch("g", [A0, B0]) == {B0: 7}


@pytest.mark.parametrize("group", ["", "a/b", ".", "..", "a\0b"])
async def test_a_group_that_is_no_name_of_a_znode_is_refused(group, autojump_clock) -> None:
    offsets = ZooKeeperConsumerOffsets(SimulatedZooKeeper().session())
    for asking in (offsets.commit(group, {A0: 1}), offsets.fetch(group, [A0])):
        with pytest.raises(RequestError) as caught:
            await asking
        assert caught.value.code == ErrorCode.INVALID_GROUP_ID


async def test_without_zookeeper_the_client_asks_again(autojump_clock) -> None:
    zookeeper = SimulatedZooKeeper()
    session = zookeeper.session()
    offsets = ZooKeeperConsumerOffsets(session)
    session.disconnect()
    refused = await offsets.commit("g", {A0: 5})
    assert refused[A0].code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(RequestError) as caught:
        await offsets.fetch("g", [A0])
    assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
