"""A client sends its requests to the right broker, and asks for metadata again: with a scripted cluster."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import Client, ClientSettings, ClosedError, Endpoint, ResponseError, open_client
from barnabas.client.admin import Admin
from barnabas.client.administration.access import Principal, Token
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.generated.describe_delegation_token import DescribeDelegationTokenResponse
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.find_coordinator import FindCoordinatorResponse
from barnabas.wire.generated.list_offsets import ListOffsetsResponse
from tests.support.scripted_broker import BOOTSTRAP, VERSIONS, ScriptedCluster

UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE = 3, 5
NOT_LEADER, NOT_CONTROLLER = 6, 41


class Cluster(ScriptedCluster):
    @asynccontextmanager
    async def client(self, **settings: Any) -> AsyncIterator[Client]:
        async with trio.open_nursery() as nursery:
            self.spawn = nursery.start_soon
            async with open_client([BOOTSTRAP], ClientSettings(**settings), dial=self.dial) as client:
                yield client
            nursery.cancel_scope.cancel()


async def fetch(client: Client) -> Any:
    return await client.ask_leader("t", 0, FetchRequest(), error_of=lambda response: response.error_code)


async def test_a_leader_that_has_changed_is_found(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()

    def answer(host: str, request: Any) -> FetchResponse:
        if host == "one":
            cluster.leader, cluster.epoch = 2, 6
            return FetchResponse(error_code=NOT_LEADER)
        return FetchResponse(session_id=7)

    cluster.answer = answer
    async with cluster.client() as client:
        assert (await fetch(client)).session_id == 7
        assert [host for host, api in cluster.asked if api == "Fetch"] == ["one", "two"]


async def test_leaderless_and_missing_partitions_are_errors(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()
    cluster.leader = -1
    async with cluster.client() as client:
        for partition, code in ((0, LEADER_NOT_AVAILABLE), (1, UNKNOWN_TOPIC_OR_PARTITION)):
            with pytest.raises(ResponseError, match=f"looking for the leader of t-{partition}") as raised:
                await client.leader("t", partition)
            assert raised.value.code == code
            assert raised.value.is_retriable
        cluster.leader = 2
        assert await client.leader("t", 0) == 2, "it is asked for again at once"


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5, 6])
async def test_coordinator_is_requested_by_version(version: int) -> None:
    cluster = Cluster()
    cluster.versions = {**VERSIONS, 10: (0, version)}
    requests: list[Any] = []

    def answer(host: str, request: Any) -> FindCoordinatorResponse:
        requests.append(request)
        if version < 4:
            return FindCoordinatorResponse(node_id=2, host="two", port=2)
        result = FindCoordinatorResponse.Coordinator("g", 2, "two", 2)
        return FindCoordinatorResponse(coordinators=[result] if len(requests) > 1 else [])

    cluster.answer = answer
    async with cluster.client() as client:
        if version >= 4:
            with pytest.raises(ResponseError, match="COORDINATOR_NOT_AVAILABLE"):
                await client.coordinator("g")
        assert [await client.coordinator("g"), await client.coordinator("g")] == [2, 2]
    assert len(requests) == 1 + (version >= 4), "it is remembered"
    assert (requests[-1].key, requests[-1].coordinator_keys) == (("g", []) if version < 4 else ("", ["g"]))


async def test_metadata_of_an_older_leader_epoch_is_not_believed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = Cluster()
    async with cluster.client() as client:
        assert await client.leader("t", 0) == 1
        cluster.leader, cluster.epoch = 2, 4
        client.forget("t")
        assert await client.leader("t", 0) == 1
        cluster.epoch = 6
        client.forget()
        assert await client.leader("t", 0) == 2


async def test_a_broker_that_came_back_at_another_address_is_found(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = Cluster()
    async with cluster.client() as client:
        await client.refresh()
        assert client.brokers[2].host == "two"
        cluster.addresses[2] = Endpoint("moved", 2)
        await client.ask_broker(2, FetchRequest())
        assert ("moved", "Fetch") in cluster.asked


async def test_a_controller_that_has_changed_is_found(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()

    def answer(host: str, request: Any) -> DescribeClusterResponse:
        if host == "one":
            cluster.controller = 2
            return DescribeClusterResponse(error_code=NOT_CONTROLLER)
        return DescribeClusterResponse(cluster_id="c")

    cluster.answer = answer
    async with cluster.client() as client:
        assert (await client.ask_controller(DescribeClusterRequest())).cluster_id == "c"
        assert ("two", "DescribeCluster") in cluster.asked


async def test_closing_while_somebody_asks(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster()
    silent = trio.Event()

    def answer(host: str, request: Any) -> FetchResponse | None:
        silent.set()
        return FetchResponse()

    cluster.answer = answer
    async with trio.open_nursery() as nursery:
        async with cluster.client() as client:
            await client.refresh()

            async def ask_forever() -> None:
                while True:
                    await client.ask_broker(1, FetchRequest())

            async def ask() -> None:
                with pytest.raises(ClosedError):
                    await ask_forever()

            nursery.start_soon(ask)
            await silent.wait()
        with pytest.raises(ClosedError):
            await client.ask(FetchRequest())


async def test_delegation_tokens_are_told_with_each_of_their_times() -> None:
    created = DescribeDelegationTokenResponse.DescribedDelegationToken
    renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer("User", "ren")
    cluster = Cluster()
    cluster.versions = {**VERSIONS, 41: (1, 3)}
    token = created(
        principal_type="User", principal_name="ann", token_requester_principal_type="User",
        token_requester_principal_name="admin", issue_timestamp=1, expiry_timestamp=2, max_timestamp=3, token_id="id",
        hmac=b"secret", renewers=[renewer],
    )  # fmt: skip
    cluster.answer = lambda host, request: DescribeDelegationTokenResponse(tokens=[token])
    async with cluster.client() as client:
        ann, admin, ren = (Principal("User", name) for name in ("ann", "admin", "ren"))
        assert await Admin(client).tokens() == [Token("id", ann, admin, (ren,), 1, 2, 3, b"secret")]


async def test_failing_leaders_are_retried_with_growing_pauses(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 1.0)
    cluster = Cluster()
    cluster.versions = {**VERSIONS, 2: (1, 7)}
    asked: list[float] = []

    def answer(host: str, request: Any) -> ListOffsetsResponse:
        asked.append(trio.current_time())
        part = ListOffsetsResponse.ListOffsetsPartitionResponse(
            0, NOT_LEADER if len(asked) < 6 else 0, offset=9
        )
        return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse("t", [part])])

    cluster.answer = answer
    async with cluster.client(retries=9, retry_backoff_ms=100, retry_backoff_max_ms=500) as client:
        result: Any = await Admin(client).offsets({("t", 0): -1})
    assert result["t", 0].offset == 9
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5], abs=0.01)
