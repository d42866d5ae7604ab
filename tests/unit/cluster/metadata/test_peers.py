"""Requests to other brokers: which they reach, how long they take, what becomes of connections; with scripted brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import ClientSettings, Endpoint
from barnabas.cluster.metadata.changes import BrokerRegistered, BrokerUnregistered, ControllerChanged
from barnabas.cluster.metadata.image import BrokerInfo, Change, ClusterImage, Delta
from barnabas.cluster.metadata.peers import Peers, PeerUnavailableError, VersionedRequest, api_key
from barnabas.wire.generated.alter_partition import AlterPartitionRequest
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from tests.support.scripted_broker import SILENCE, ScriptedCluster

NOT_CONTROLLER = 41


class Cluster(ScriptedCluster):
    """Scripted brokers 1 and 2, as the network that `Peers` dials; the image is changed by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage("c").apply(
            [
                *(BrokerRegistered(BrokerInfo(id_, None, {"IN": at}, 1)) for id_, at in self.addresses.items()),
                ControllerChanged(1, 1),
            ]
        )  # fmt: skip
        self.silent = False
        self.attempts: list[str] = []

    async def dial(self, host: Any, port: int | None = None) -> trio.abc.Stream:
        self.attempts.append(host)
        if self.silent:
            await trio.sleep_forever()
        return await super().dial(host if port is None else Endpoint(host, port))

    def change(self, *changes: Change) -> None:
        old, self.image = self.image, self.image.apply(changes)
        self.peers.publish(Delta.of(old, self.image, changes))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Peers]:
        async with trio.open_nursery() as nursery:
            self.spawn = nursery.start_soon
            self.peers = Peers(lambda: self.image, "IN", self, ClientSettings())  # type: ignore[arg-type]
            nursery.start_soon(self.peers.run)
            yield self.peers
            nursery.cancel_scope.cancel()


async def test_connections_are_opened_once_and_used_again(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()
    async with cluster.running() as peers:
        async with trio.open_nursery() as nursery:
            for broker_id in (1, 2, 1, 2):
                nursery.start_soon(peers.ask, broker_id, FetchRequest())
        assert sorted(cluster.dialled) == ["one", "two"]
        await peers.ask(1, FetchRequest(), channel="fetcher")
        assert cluster.dialled.count("one") == 2


async def test_the_version_is_chosen_by_what_both_know(autojump_clock: trio.testing.MockClock) -> None:
    cluster, versions = Cluster(), []

    def make(version: int) -> FetchRequest:
        versions.append(version)
        return FetchRequest()

    async with cluster.running() as peers:
        await peers.ask(1, VersionedRequest(api_key(FetchRequest), make))
        await peers.ask(1, VersionedRequest(api_key(FetchRequest), make), version_max=11)
        await peers.ask(1, VersionedRequest(api_key(FetchRequest), make), version=4)
        assert versions == [17, 11, 4]
        assert await peers.version_of(1, 1) == 17
        for ask in (peers.ask, lambda _, request: peers.ask_controller(request)):
            with pytest.raises(PeerUnavailableError) as caught:
                await ask(1, AlterPartitionRequest())
            assert caught.value.lacks_version


async def test_a_broker_that_does_not_answer_fails_in_time(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()
    async with cluster.running() as peers:
        cluster.silent = True
        with pytest.raises(PeerUnavailableError):
            await peers.ask(1, FetchRequest(), timeout_s=2)
        assert trio.current_time() <= 2
        cluster.silent = False
        assert isinstance(await peers.ask(1, FetchRequest()), FetchResponse)


async def test_reconnects_back_off_until_the_broker_moves(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()
    async with cluster.running() as peers:
        address = cluster.addresses.pop(1)
        times = []
        for _ in range(7):
            with pytest.raises(PeerUnavailableError, match="nobody at"):
                await peers.ask(1, FetchRequest())
            times.append(round(trio.current_time(), 3))
        assert [round(b - a, 3) for a, b in pairwise(times)] == [
            0.05, 0.1, 0.2, 0.4, 0.8, 1.0,
        ]  # fmt: skip
        cluster.addresses[3] = Endpoint("moved", 3)
        cluster.change(BrokerRegistered(BrokerInfo(1, None, {"IN": ("moved", 3)}, 2)))
        before = trio.current_time()
        await peers.ask(1, FetchRequest())
        assert trio.current_time() == before
        assert address.host not in cluster.asked


@pytest.mark.parametrize(
    "change",
    [
        BrokerUnregistered(1),
        BrokerRegistered(BrokerInfo(1, None, {"IN": ("one", 1)}, 2)),
        BrokerRegistered(BrokerInfo(1, None, {"IN": ("elsewhere", 1)}, 1)),
    ],
)
async def test_who_waits_for_a_broker_that_goes_hears_of_it(
    autojump_clock: trio.testing.MockClock, change: Change
) -> None:
    cluster = Cluster()
    errors = []

    async def wait() -> None:
        with pytest.raises(PeerUnavailableError) as caught:
            await cluster.peers.ask(1, FetchRequest())
        errors.append(caught.value)

    async with cluster.running() as peers:
        await peers.ask(2, FetchRequest())
        cluster.answer = lambda host, request: SILENCE
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            cluster.change(change)
        assert len(errors) == 1
        assert not errors[0].lacks_version
        cluster.answer = lambda host, request: FetchResponse()
        await peers.ask(2, FetchRequest())
        assert cluster.dialled.count("two") == 1


async def test_a_broker_that_is_not_there_is_named(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()
    async with cluster.running() as peers:
        with pytest.raises(PeerUnavailableError, match="broker 7 is not in the cluster"):
            await peers.ask(7, FetchRequest())
        cluster.change(BrokerRegistered(BrokerInfo(7, None, {"OUT": ("seven", 7)})))
        with pytest.raises(PeerUnavailableError, match="broker 7 has no listener IN"):
            await peers.ask(7, FetchRequest())


async def test_the_controller_is_followed_until_one_answers(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()
    asked = []

    def answer(host: str, request: Any) -> Any:
        asked.append(host)
        if len(asked) == 2:
            return None  # the connection is lost
        if host == "one":
            cluster.change(ControllerChanged(1 if len(asked) < 2 else 2, 2))
            return DescribeClusterResponse(error_code=NOT_CONTROLLER)
        return DescribeClusterResponse(cluster_id="two")

    cluster.answer = answer
    async with cluster.running() as peers:
        response = await peers.ask_controller(DescribeClusterRequest(), version=0)
        assert response.cluster_id == "two"
        assert asked == ["one", "one", "one", "two"]
        cluster.change(ControllerChanged(-1))
        before = trio.current_time()
        with pytest.raises(PeerUnavailableError, match="no controller"):
            await peers.ask_controller(DescribeClusterRequest(), timeout_s=5)
        assert 4.8 < trio.current_time() - before <= 5.001


async def test_next_controller_does_not_wait_for_the_last_ones_pause(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = Cluster()
    cluster.answer = lambda *_: DescribeClusterResponse(cluster_id="two")
    async with cluster.running() as peers:
        del cluster.addresses[1]
        answered_at = []

        async def ask() -> None:
            await peers.ask_controller(DescribeClusterRequest(), version=0)
            answered_at.append(trio.current_time())

        cluster.spawn(ask)
        await trio.sleep(10)  # pauses before the next connection are 1 s by now
        began = trio.current_time()
        cluster.change(ControllerChanged(2, 2))
        await trio.sleep(1)
        assert answered_at
        assert answered_at[0] - began < 0.2


async def test_connections_that_nobody_uses_are_closed(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()
    async with cluster.running() as peers:
        await peers.ask(1, FetchRequest())
        for _ in range(3):
            await trio.sleep(400)
            await peers.ask(2, FetchRequest())
        await peers.ask(1, FetchRequest())
        assert cluster.dialled == ["one", "two", "one"]
