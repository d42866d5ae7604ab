"""A client asks the right broker, asks again where that may help and nowhere else, and believes the newest metadata."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import (
    Client,
    ClientSettings,
    ClosedError,
    ConnectionLostError,
    Endpoint,
    ResponseError,
    open_client,
)
from barnabas.client.errors import AuthenticationError, ClientError, TimedOutError
from barnabas.client.topics import TopicWatch
from barnabas.wire.generated.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from tests.support.scripted_broker import BOOTSTRAP, VERSIONS, ScriptedCluster

Clock = trio.testing.MockClock
Part = MetadataResponse.MetadataResponsePartition


class Cluster(ScriptedCluster):
    """Keeps the requests for metadata, and answers them with `topics` if there are some."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[MetadataRequest] = []
        self.topics: list[Any] = []
        self.coordinator = 2

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Answer."""
        self.wanted.append(request)
        response = super().metadata(request)
        if self.topics:
            response.topics = self.topics
        return response

    def found(self, key: str = "g") -> FindCoordinatorResponse:
        """Return where a coordinator is."""
        place = self.addresses[self.coordinator]
        return FindCoordinatorResponse(
            coordinators=[FindCoordinatorResponse.Coordinator(key, self.coordinator, *place)]
        )

    def count(self, api: str) -> list[str]:
        """Return the hosts that were asked for something."""
        return [host for host, name in self.asked if name == api]


@asynccontextmanager
async def clients(cluster: ScriptedCluster, **settings: Any) -> AsyncIterator[Client]:
    async with (
        cluster.serving(),
        open_client([BOOTSTRAP], ClientSettings(**settings), dial=cluster.dial) as client,
    ):
        yield client


# --- again ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 1, 4])
async def test_retriable_errors_are_retried_with_growing_pauses(autojump_clock: Clock, retries: int) -> None:
    cluster = Cluster()
    settings = {"retries": retries, "retry_backoff_ms": 100, "retry_backoff_max_ms": 300}
    async with clients(cluster, **settings) as client:
        times: list[float] = []
        await client.topic("t")

        async def attempt() -> None:
            times.append(trio.current_time())
            await client.topic("t")
            raise ConnectionLostError("gone")

        with pytest.raises(ConnectionLostError):
            await client.retrying(attempt)
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert pauses == pytest.approx([0.1, 0.2, 0.3, 0.3][:retries], abs=0.001)
        assert len(cluster.wanted) == 1 + retries, "each time with new metadata"


async def test_an_error_says_whether_it_may_pass() -> None:
    async with clients(Cluster(), retries=1, retry_backoff_ms=0) as client:
        errors: list[tuple[ClientError, bool]] = [
            (ConnectionLostError("gone"), True), (ClosedError("closed"), False), (TimedOutError("late"), False),
            (AuthenticationError("who"), False),
            *((ResponseError(code, "asking"), code.retriable) for code in ErrorCode),
            (ResponseError(9_999, "asking"), False),
        ]  # fmt: skip
        for error, is_retriable in errors:
            attempts = 0

            async def attempt(error: ClientError = error) -> str:
                nonlocal attempts
                attempts += 1
                if attempts == 1:
                    raise error
                return "good"

            if is_retriable:
                assert await client.retrying(attempt) == "good", error
            else:
                with pytest.raises(type(error)):
                    await client.retrying(attempt)
            assert attempts == 1 + is_retriable, error
    assert str(ResponseError(9_999, "asking", "why")) == "asking: error 9999 (why)"


async def test_coordinator_is_forgotten_on_coordinator_errors_only(autojump_clock: Clock) -> None:
    wrong = {
        ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }  # fmt: skip
    cluster = Cluster()
    cluster.versions = {**VERSIONS, 60: (0, 2)}
    async with clients(cluster, retries=1) as client:
        for code in ErrorCode:
            cluster.asked.clear()
            client.forget()
            codes = [code]

            def answer(_: str, request: Any, codes: list[ErrorCode] = codes) -> Any:
                if isinstance(request, FindCoordinatorRequest):
                    return cluster.found()
                return DescribeClusterResponse(error_code=codes.pop() if codes else 0)

            cluster.answer = answer
            response = await client.ask_coordinator("g", DescribeClusterRequest())
            is_wrong = code in wrong
            assert response.error_code == (0 if is_wrong else code), code
            assert len(cluster.count("FindCoordinator")) == 1 + is_wrong, code
            assert cluster.count("DescribeCluster") == ["two"] * (1 + is_wrong), code


async def test_controller_is_forgotten_on_controller_errors_only(autojump_clock: Clock) -> None:
    cluster = Cluster()
    async with clients(cluster, retries=1) as client:
        for code in ErrorCode:
            cluster.asked.clear()
            codes = [code]
            cluster.answer = lambda *_, codes=codes: DescribeClusterResponse(
                error_code=codes.pop() if codes else 0
            )
            is_wrong = code is ErrorCode.NOT_CONTROLLER
            response = await client.ask_controller(DescribeClusterRequest())
            assert response.error_code == (0 if is_wrong else code), code
            assert cluster.count("DescribeCluster") == ["one"] * (1 + is_wrong)
        cluster.answer = lambda *_: DescribeClusterResponse(error_code=ErrorCode.NOT_CONTROLLER)
        with pytest.raises(ResponseError, match="asking the controller: NOT_CONTROLLER"):
            await client.ask_controller(DescribeClusterRequest())


@pytest.mark.parametrize(
    ("controller", "host"), [(1, "one"), (2, "two"), (-1, "bootstrap"), (9, "bootstrap")]
)
async def test_any_broker_is_asked_where_no_controller_is_named(controller: int, host: str) -> None:
    cluster = Cluster()
    cluster.controller = controller
    cluster.answer = lambda *_: DescribeClusterResponse()
    async with clients(cluster) as client:
        await client.ask_controller(DescribeClusterRequest())
        assert cluster.count("DescribeCluster") == [host]


async def test_controller_is_looked_up_again_when_metadata_is_old(autojump_clock: Clock) -> None:
    cluster = Cluster()
    cluster.answer = lambda *_: DescribeClusterResponse()
    async with clients(cluster, metadata_max_age_ms=1_000) as client:
        for pause_s, asked in ((0, 1), (0.9, 1), (0.2, 2)):
            await trio.sleep(pause_s)
            await client.ask_controller(DescribeClusterRequest())
            assert len(cluster.wanted) == asked


# --- metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 3, 4, 9, 12, 13])
@pytest.mark.parametrize("names", [None, [], ["t", "u"]])
@pytest.mark.parametrize("create", [False, True])
async def test_metadata_is_asked_for_as_the_version_has_it(
    version: int, names: list[str] | None, create: bool
) -> None:
    cluster = Cluster()
    cluster.versions = {**VERSIONS, 3: (0, version)}
    async with clients(cluster) as client:
        await client.metadata(names, create=create)
        (sent,) = cluster.wanted
        assert sent.allow_auto_topic_creation is (create or version < 4)
        result = None if sent.topics is None else [entry.name for entry in sent.topics]
        if names is None:
            assert result == (None if version else [])
        else:
            assert result == (names or ([] if version else [""]))
        assert (client.cluster_id, client.controller_id) == (
            "c" if version >= 2 else "",
            1 if version else -1,
        )
        assert client.brokers == {1: Endpoint("one", 1), 2: Endpoint("two", 2)}


def topic(name: str, *parts: Any, topic_id: bytes = b"1" * 16, code: int = 0) -> Any:
    return MetadataResponse.MetadataResponseTopic(code, name, topic_id, False, list(parts))


async def test_what_is_forgotten_is_asked_for_again_and_nothing_else() -> None:
    cluster = Cluster()
    async with clients(cluster) as client:
        for name in ("t", "u"):
            await client.topic(name)
        cluster.wanted.clear()
        client.forget("t", "nothing")
        for name in ("u", "t", "t"):
            await client.topic(name)
        assert [[topic.name for topic in request.topics or ()] for request in cluster.wanted] == [["t"]]
        client.forget()
        for name in ("u", "t"):
            await client.topic(name)
        assert len(cluster.wanted) == 3


# --- metadata of a producer or a consumer -----------------------------------------------------------------------------

PASSES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_REPLICATION_FACTOR,
}  # fmt: skip


async def test_a_topic_is_waited_for_only_where_its_error_may_pass() -> None:
    cluster = Cluster()
    async with clients(cluster) as client:
        for code in ErrorCode:
            if not code:
                continue
            watch = TopicWatch(client)
            watch.watch(["t"])
            cluster.topics = [topic("t", Part(0, 0, 1, 5))]
            assert await watch.refresh()
            assert watch.infos["t"].partitions[0] == (1, 5, ())
            watch.refresh_due = trio.Event()
            cluster.topics = [topic("t", code=code)]
            assert await watch.refresh() is (code not in PASSES), code
            assert watch.refresh_due.is_set() is (code in PASSES), code
            assert ("t" in watch.infos) is (code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), code
            assert (watch.errors, watch.version) == ({"t": code}, 2)


@pytest.mark.parametrize(
    ("failure", "asks_again"),
    [
        (ConnectionLostError("gone"), True),
        (AuthenticationError("who"), False),
        (ClosedError("closed"), False),
    ],
)
async def test_failed_metadata_is_requested_again_if_retriable(
    failure: ClientError, asks_again: bool
) -> None:
    cluster = Cluster()
    async with clients(cluster) as client:
        watch = TopicWatch(client)

        async def fails(*_: Any, **__: Any) -> Any:
            raise failure

        usual, client.metadata = client.metadata, fails  # type: ignore[method-assign]
        assert not await watch.refresh()
        assert (watch.failure, watch.refresh_due.is_set(), watch.version) == (failure, asks_again, 0)
        client.metadata = usual  # type: ignore[method-assign]
        assert await watch.refresh()
        assert (watch.failure, watch.version) == (None, 1)


async def test_metadata_is_kept_fresh_and_asked_for_in_turn(autojump_clock: Clock) -> None:
    cluster = Cluster()
    times: list[float] = []
    settings = {"metadata_max_age_ms": 10_000, "retry_backoff_ms": 100, "retry_backoff_max_ms": 300}
    async with clients(cluster, **settings) as client, trio.open_nursery() as nursery:
        watch = TopicWatch(client, creates_topics=True)
        begun = trio.current_time()
        usual = watch.refresh

        async def attempt() -> bool:
            times.append(round(trio.current_time() - begun, 2))
            return await usual()

        watch.refresh = attempt  # type: ignore[method-assign]
        nursery.start_soon(watch.run)
        await trio.sleep(1)
        assert times == [], "nobody has needed any"
        watch.add("t")
        await trio.sleep(12)
        assert times == [1.0, 11.1], "when it is old"
        assert cluster.wanted[0].allow_auto_topic_creation
        times.clear()
        cluster.topics = [topic("t", code=ErrorCode.LEADER_NOT_AVAILABLE)]
        watch.need()
        await trio.sleep(1.1)
        assert times == [13.0, 13.1, 13.3, 13.6, 13.9], "after longer and longer pauses"
        nursery.cancel_scope.cancel()
