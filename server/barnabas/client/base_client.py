"""A client of a cluster, independent of its transport: brokers, leaders of partitions, and retries where they may help.

The rule: metadata is a guess that a broker corrects. After an error that shows that it was wrong (or a lost connection)
the client refreshes it before it sends the request again. `Client` runs in tasks of Trio, `SocketClient` in
calls that block.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from barnabas.client.base_connection import BaseConnection
from barnabas.client.errors import ClientError, ClosedError, ConnectionLostError, ResponseError, check
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse

C = TypeVar("C", bound=BaseConnection)
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Topic = MetadataResponse.MetadataResponseTopic

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Types of coordinators, as FindCoordinator has them."""
METADATA_VERSION_MAX = 12
_WRONG_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_MANY_KEYS_SINCE = 4
_KEYS_PER_REQUEST = 100


@dataclass(slots=True)
class _Known:
    """The metadata of a topic, and the time in s at which it was received; `learned_at` is -inf if it was wrong."""

    topic: Topic
    learned_at: float
    _by_number: dict[int, MetadataResponse.MetadataResponsePartition] | None = None

    def by_number(self) -> dict[int, MetadataResponse.MetadataResponsePartition]:
        """Return the partitions by their numbers: a scan of all for each of thousands would take long."""
        if self._by_number is None:
            self._by_number = {info.partition_index: info for info in self.topic.partitions}
        return self._by_number


def top_level_error(response: Any) -> int:
    """Return the top-level error code of a response; 0 if it has none."""
    return getattr(response, "error_code", 0)


class BaseClient(Generic[C]):
    """Asks a cluster; its kinds open connections, and wait."""

    def __init__(self, bootstrap: Iterable[Endpoint], settings: ClientSettings) -> None:
        self.settings = settings
        self.cluster_id = ""
        self.controller_id = -1
        self.brokers: dict[int, Endpoint] = {}
        """The brokers as the newest metadata has them."""
        self._bootstrap = tuple(bootstrap)
        self._connections: dict[tuple[Endpoint, str], C] = {}
        self._topics: dict[str, _Known] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._brokers_at = -math.inf
        self._is_closed = False

    # --- what opens connections and waits -----------------------------------------------------------------------

    async def open_connection(self, endpoint: Endpoint, lane: str) -> C:
        """Connect to an address, for the lane's connection. Raises as `BaseConnection.handshake`."""
        raise NotImplementedError

    def now(self) -> float:
        """Return the time of a monotonic clock, s."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        """Wait; with 0, yield to other tasks, if there are any."""
        raise NotImplementedError

    async def in_thread(
        self, work: Callable[[], T], *, limiter: Any = None, may_be_abandoned: bool = False
    ) -> T:
        """Return the result of a function that blocks, or calculates for long."""
        raise NotImplementedError

    async def each(self, keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | ClientError]:
        """Call `ask` for each key concurrently; returns the result or error of each, in the order of `keys`."""
        raise NotImplementedError

    # --- brokers to ask -------------------------------------------------------------------------------------

    async def any_connection(self) -> C:
        """Return a connection to some broker, an open one first.

        Raises ConnectionLostError when none can be reached, AuthenticationError, ClosedError.
        """
        for (_, lane), connection in self._connections.items():
            if connection.is_open and not lane:
                return connection
        last: ClientError = ConnectionLostError("no bootstrap servers")
        for endpoint in dict.fromkeys((*self.brokers.values(), *self._bootstrap)):
            try:
                return await self._connection(endpoint, "")
            except ConnectionLostError as error:
                last = error
        raise last

    async def broker(self, broker_id: int, *, lane: str = "") -> C:
        """Return a connection to a broker. Raises ConnectionLostError, also for an unknown broker.

        Each lane has a separate connection, as a response waits for those of all earlier requests.
        """
        if broker_id not in self.brokers or self._is_old(self._brokers_at):
            await self.refresh()
        endpoint = self.brokers.get(broker_id)
        if endpoint is None:
            raise ConnectionLostError(f"broker {broker_id} is not in the cluster")
        return await self._connection(endpoint, lane)

    async def leader(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition. Raises ResponseError, ConnectionLostError."""
        doing = f"looking for the leader of {topic}-{partition}"
        await self.topic(topic)
        info = self._topics[topic].by_number().get(partition)
        if info is None or info.leader_id < 0:
            self.forget(topic)  # it may have got more partitions
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise ResponseError(
                code if info is None else info.error_code or ErrorCode.LEADER_NOT_AVAILABLE, doing
            )
        return info.leader_id

    async def topic(self, name: str) -> Topic:
        """Return the metadata of a topic, at most `metadata_max_age_ms` old. Raises ResponseError, ConnectionLostError."""
        cached = self._topics.get(name)
        if cached is None or self._is_old(cached.learned_at):
            await self.refresh([name])
            cached = self._topics.get(name)
            if cached is None:
                raise ConnectionLostError(f"the broker's metadata lacks topic {name!r}")
        return cached.topic

    async def coordinator(self, key: str, key_type: int = GROUP) -> int:
        """Return the broker that coordinates a group or a transactional id. Raises ResponseError, ConnectionLostError."""
        from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest

        cached = self._coordinators.get((key_type, key))
        if cached is not None:
            return cached
        connection = await self.any_connection()
        version = connection.version_of(10)
        request = FindCoordinatorRequest(key_type=key_type)
        if version >= _MANY_KEYS_SINCE:
            request.coordinator_keys = [key]
        else:
            request.key = key
        response = await connection.ask(request, version=version)
        doing = f"looking for the coordinator of {key!r}"
        if version >= _MANY_KEYS_SINCE and not response.coordinators:
            raise ResponseError(ErrorCode.COORDINATOR_NOT_AVAILABLE, doing)
        coordinator = response.coordinators[0] if version >= _MANY_KEYS_SINCE else response
        check(coordinator.error_code, doing, coordinator.error_message)
        self.brokers[coordinator.node_id] = Endpoint(coordinator.host, coordinator.port)
        self._coordinators[key_type, key] = coordinator.node_id
        return int(coordinator.node_id)

    async def coordinators(self, group_ids: Iterable[str]) -> dict[int, list[str]]:
        """Return groups by the broker that coordinates them, looked up in batches.

        Groups without a coordinator are excluded. Raises ConnectionLostError.
        """
        from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest

        group_ids = list(group_ids)
        unknown = [group_id for group_id in group_ids if (GROUP, group_id) not in self._coordinators]
        connection = await self.any_connection()
        version = connection.version_of(10)
        for at in range(0, len(unknown) if version >= _MANY_KEYS_SINCE else 0, _KEYS_PER_REQUEST):
            request = FindCoordinatorRequest(
                key_type=GROUP, coordinator_keys=unknown[at : at + _KEYS_PER_REQUEST]
            )
            response = await connection.ask(request, version=version)
            for coordinator in response.coordinators:
                if not coordinator.error_code:
                    self.brokers[coordinator.node_id] = Endpoint(coordinator.host, coordinator.port)
                    self._coordinators[GROUP, coordinator.key] = coordinator.node_id
        by_coordinator: dict[int, list[str]] = {}
        for group_id in group_ids:
            broker_id = self._coordinators.get((GROUP, group_id))
            if broker_id is not None:
                by_coordinator.setdefault(broker_id, []).append(group_id)
        return by_coordinator

    async def refresh(self, topics: Iterable[str] | None = ()) -> None:
        """Ask for the brokers, and for these topics (None: all). Raises ResponseError, ConnectionLostError."""
        names = None if topics is None else list(topics)
        response = await self.metadata(names)
        for topic in response.topics if names else ():
            check(topic.error_code, f"asking for topic {topic.name!r}")

    async def metadata(self, names: list[str] | None, *, create: bool = False) -> MetadataResponse:
        """Request the brokers and these topics (None: all), and keep metadata without errors. Raises
        ConnectionLostError.

        `create`: whether the broker may create missing ones, if it is configured to.
        """
        connection = await self.any_connection()
        version = connection.version_of(3, METADATA_VERSION_MAX)
        request = MetadataRequest(allow_auto_topic_creation=create or version < 4)
        if names is None:
            request.topics = None if version else []
        else:
            asked = names if names or version else [""]  # in version 0 an empty list would mean all
            request.topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in asked]
        response: MetadataResponse = await connection.ask(request, version=version)
        self.cluster_id = response.cluster_id or ""
        self.controller_id = response.controller_id
        self.brokers = {node.node_id: Endpoint(node.host, node.port) for node in response.brokers}
        self._brokers_at = self.now()
        for topic in response.topics:
            if topic.name and not topic.error_code:
                self._learn(topic.name, topic)
            elif names:
                self._topics.pop(topic.name or "", None)
        return response

    def known(self, name: str) -> Topic | None:
        """Return the newest metadata of a topic, however old, without asking for it."""
        cached = self._topics.get(name)
        return None if cached is None else cached.topic

    def _learn(self, name: str, topic: Topic) -> None:
        """Keep newer metadata of a topic: a broker that lags behind names leaders of older epochs (KIP-320)."""
        cached = self._topics.get(name)
        if cached is not None and cached.topic.topic_id == topic.topic_id:
            newer = {info.partition_index: info for info in cached.topic.partitions}
            topic.partitions = [
                newer[info.partition_index]
                if info.partition_index in newer
                and newer[info.partition_index].leader_epoch > info.leader_epoch >= 0
                else info
                for info in topic.partitions
            ]
        self._topics[name] = _Known(topic, self.now())

    def _is_old(self, learned_at: float) -> bool:
        return self.now() - learned_at > self.settings.metadata_max_age_ms / 1000

    def forget(self, *topics: str) -> None:
        """Mark metadata as stale, of these topics or of everything: it is requested again before its next use."""
        for topic in topics or tuple(self._topics):
            if topic in self._topics:
                self._topics[topic].learned_at = -math.inf
        if not topics:
            self._coordinators.clear()
            self._brokers_at = -math.inf

    def forget_coordinator(self, key: str, key_type: int = GROUP) -> None:
        """Drop the cached coordinator of a key; the next request looks it up again."""
        self._coordinators.pop((key_type, key), None)

    # --- asking ---------------------------------------------------------------------------------------------

    async def ask(self, message: Any, **options: Any) -> Any:
        """Send a request to any broker, with the options of `Connection.ask`. Retries while that may help."""

        async def attempt() -> Any:
            return await (await self.any_connection()).ask(message, **options)

        return await self.retrying(attempt)

    async def ask_broker(self, broker_id: int, message: Any, **options: Any) -> Any:
        """Ask a certain broker."""

        async def attempt() -> Any:
            return await (await self.broker(broker_id)).ask(message, **options)

        return await self.retrying(attempt)

    async def ask_controller(
        self, message: Any, *, error_of: Callable[[Any], int] = top_level_error, **options: Any
    ) -> Any:
        """Send a request to the controller, or to any broker if it is unknown; NOT_CONTROLLER leads to a new lookup."""

        async def attempt() -> Any:
            if not self.brokers or self._is_old(self._brokers_at):
                await self.refresh()
            has_controller = self.controller_id in self.brokers
            connection = await (self.broker(self.controller_id) if has_controller else self.any_connection())
            response = await connection.ask(message, **options)
            if error_of(response) == ErrorCode.NOT_CONTROLLER:
                raise ResponseError(ErrorCode.NOT_CONTROLLER, "asking the controller")
            return response

        return await self.retrying(attempt)

    async def ask_leader(
        self,
        topic: str,
        partition: int,
        message: Any,
        *,
        error_of: Callable[[Any], int] = lambda _: 0,
        **options: Any,
    ) -> Any:
        """Ask the leader of a partition; `error_of` finds the error code of a response, to ask again if it may pass."""

        async def attempt() -> Any:
            connection = await self.broker(await self.leader(topic, partition))
            response = await connection.ask(message, **options)
            if response is not None:
                check(error_of(response), f"asking the leader of {topic}-{partition}")
            return response

        return await self.retrying(attempt)

    async def ask_coordinator(
        self,
        key: str,
        message: Any,
        *,
        key_type: int = GROUP,
        error_of: Callable[[Any], int] = top_level_error,
        lane: str = "",
        **options: Any,
    ) -> Any:
        """Send a request to the coordinator of a group or transactional id; it is looked up again after NOT_COORDINATOR."""

        async def attempt() -> Any:
            connection = await self.broker(await self.coordinator(key, key_type), lane=lane)
            response = await connection.ask(message, **options)
            code = error_of(response)
            if code in (*_WRONG_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                self.forget_coordinator(key, key_type)
                raise ResponseError(code, f"asking the coordinator of {key!r}")
            return response

        return await self.retrying(attempt)

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Call `attempt` until it succeeds, fails finally, or has used up the retries, each time with new metadata."""
        backoff_s = self.settings.retry_backoff_ms / 1000
        for retries_remaining in range(self.settings.retries, -1, -1):
            try:
                return await attempt()
            except ClientError as error:
                if not error.is_retriable or not retries_remaining:
                    raise
            self.forget()
            await self.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, self.settings.retry_backoff_max_ms / 1000)
        raise AssertionError("not reached")

    # --- connections ----------------------------------------------------------------------------------------

    async def _connection(self, endpoint: Endpoint, lane: str) -> C:
        connection = self._connections.get((endpoint, lane))
        if connection is not None and connection.is_open:
            return connection
        if self._is_closed:
            raise ClosedError("the client is closed")
        return await self.open_connection(endpoint, lane)

    def close(self) -> None:
        """Close all connections; pending requests raise ConnectionLostError or ClosedError."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
