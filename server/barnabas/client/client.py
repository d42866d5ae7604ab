"""A client of a cluster: connections by broker, who leads what, and asking again when that may help.

The rule: metadata is a guess that a broker corrects. An error that says that it was wrong (or a connection that is
lost) makes the client learn it again before it asks again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

from barnabas.client.connection import Connection, Dial, dial_tcp, start_connection
from barnabas.client.errors import ClientError, ConnectionLostError, ResponseError, check
from barnabas.client.settings import ClientSettings, Endpoint, parse_bootstrap
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse

T = TypeVar("T")

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Types of coordinators, as FindCoordinator has them."""
METADATA_VERSION_MAX = 12
_WRONG_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_MANY_KEYS_SINCE = 4


class Client:
    """Lifecycle: `open_client`. Any number of tasks may ask at the same time."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: Iterable[Endpoint], settings: ClientSettings, dial: Dial
    ) -> None:
        self.settings = settings
        self.cluster_id = ""
        self.controller_id = -1
        self.brokers: dict[int, Endpoint] = {}
        """The brokers as the newest metadata has them."""
        self._nursery = nursery
        self._bootstrap = tuple(bootstrap)
        self._dial = dial
        self._connections: dict[Endpoint, Connection] = {}
        self._connecting: dict[Endpoint, trio.Lock] = {}
        self._topics: dict[str, MetadataResponse.MetadataResponseTopic] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    # --- whom to ask ----------------------------------------------------------------------------------------

    async def any_connection(self) -> Connection:
        """Return a connection to some broker, an open one first. Raises ConnectionLostError when none can be reached."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        last: ClientError = ConnectionLostError("no bootstrap servers")
        for endpoint in dict.fromkeys((*self.brokers.values(), *self._bootstrap)):
            try:
                return await self._connection(endpoint)
            except ConnectionLostError as error:
                last = error
        raise last

    async def broker(self, broker_id: int) -> Connection:
        """Return a connection to a broker. Raises ConnectionLostError, also for a broker that is not known."""
        if broker_id not in self.brokers:
            await self.refresh()
        endpoint = self.brokers.get(broker_id)
        if endpoint is None:
            raise ConnectionLostError(f"broker {broker_id} is not in the cluster")
        return await self._connection(endpoint)

    async def leader(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition. Raises ResponseError, ConnectionLostError."""
        doing = f"looking for the leader of {topic}-{partition}"
        known = await self.topic(topic)
        for info in known.partitions:
            if info.partition_index == partition:
                if info.leader_id < 0:
                    self._topics.pop(topic, None)
                    raise ResponseError(info.error_code or ErrorCode.LEADER_NOT_AVAILABLE, doing)
                return info.leader_id
        raise ResponseError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, doing)

    async def topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        """Return what is known of a topic, asking if nothing is. Raises ResponseError, ConnectionLostError."""
        if name not in self._topics:
            await self.refresh([name])
        return self._topics[name]

    async def coordinator(self, key: str, key_type: int = GROUP) -> int:
        """Return the broker that coordinates a group or a transactional id. Raises ResponseError, ConnectionLostError."""
        from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest

        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        connection = await self.any_connection()
        version = connection.version_of(10)
        request = FindCoordinatorRequest(key_type=key_type)
        if version >= _MANY_KEYS_SINCE:
            request.coordinator_keys = [key]
        else:
            request.key = key
        response = await connection.ask(request, version=version)
        found = response.coordinators[0] if version >= _MANY_KEYS_SINCE else response
        check(found.error_code, f"looking for the coordinator of {key!r}", found.error_message)
        self.brokers[found.node_id] = Endpoint(found.host, found.port)
        self._coordinators[key_type, key] = found.node_id
        return int(found.node_id)

    async def refresh(self, topics: Iterable[str] | None = ()) -> None:
        """Ask for the brokers, and for these topics (None: all). Raises ResponseError, ConnectionLostError."""
        names = None if topics is None else list(topics)
        connection = await self.any_connection()
        version = connection.version_of(3, METADATA_VERSION_MAX)
        request = MetadataRequest(allow_auto_topic_creation=version < 4)
        if names is None:
            request.topics = None if version else []
        else:
            if not names and not version:
                names = [""]  # an empty list would mean all
            request.topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        response: MetadataResponse = await connection.ask(request, version=version)
        self.cluster_id = response.cluster_id or ""
        self.controller_id = response.controller_id
        self.brokers = {node.node_id: Endpoint(node.host, node.port) for node in response.brokers}
        for topic in response.topics:
            if topic.name is not None and not topic.error_code:
                self._topics[topic.name] = topic
        for topic in response.topics if names and names != [""] else ():
            if topic.error_code:
                self._topics.pop(topic.name or "", None)
                check(topic.error_code, f"asking for topic {topic.name!r}")

    def forget(self, *topics: str) -> None:
        """Let metadata be learned again: of these topics, or of everything."""
        if not topics:
            self._topics.clear()
            self._coordinators.clear()
        for topic in topics:
            self._topics.pop(topic, None)

    # --- asking ---------------------------------------------------------------------------------------------

    async def ask(self, message: Any, **options: Any) -> Any:
        """Ask any broker; options as of `Connection.ask`. Asks again while that may help."""
        return await self.retrying(lambda: self._ask(self.any_connection(), message, options))

    async def ask_broker(self, broker_id: int, message: Any, **options: Any) -> Any:
        """Ask a certain broker."""
        return await self.retrying(lambda: self._ask(self.broker(broker_id), message, options))

    async def ask_controller(self, message: Any, **options: Any) -> Any:
        """Ask the controller, or any broker where none is told."""

        async def connect() -> Connection:
            if not self.brokers:
                await self.refresh()
            known = self.controller_id in self.brokers
            return await (self.broker(self.controller_id) if known else self.any_connection())

        return await self.retrying(lambda: self._ask(connect(), message, options))

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
            check(error_of(response), f"asking the leader of {topic}-{partition}")
            return response

        return await self.retrying(attempt)

    async def ask_coordinator(
        self,
        key: str,
        message: Any,
        *,
        key_type: int = GROUP,
        error_of: Callable[[Any], int] = lambda response: getattr(response, "error_code", 0),
        **options: Any,
    ) -> Any:
        """Ask the coordinator of a group or transactional id; NOT_COORDINATOR and the like make it look again."""

        async def attempt() -> Any:
            connection = await self.broker(await self.coordinator(key, key_type))
            response = await connection.ask(message, **options)
            code = error_of(response)
            if code in _WRONG_COORDINATOR:
                self._coordinators.pop((key_type, key), None)
            if code in (*_WRONG_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                check(code, f"asking the coordinator of {key!r}")
            return response

        return await self.retrying(attempt)

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Do something until it succeeds, fails for good, or has been tried often enough; metadata is learned again."""
        backoff_s = self.settings.retry_backoff_ms / 1000
        for left in range(self.settings.retries, -1, -1):
            try:
                return await attempt()
            except ClientError as error:
                if not error.is_retriable or not left:
                    raise
            self.forget()
            await trio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, self.settings.retry_backoff_max_ms / 1000)
        raise AssertionError("not reached")

    @staticmethod
    async def _ask(connecting: Awaitable[Connection], message: Any, options: dict[str, Any]) -> Any:
        return await (await connecting).ask(message, **options)

    async def _connection(self, endpoint: Endpoint) -> Connection:
        connection = self._connections.get(endpoint)
        if connection is not None and connection.is_open:
            return connection
        async with self._connecting.setdefault(endpoint, trio.Lock()):
            connection = self._connections.get(endpoint)
            if connection is None or not connection.is_open:
                if connection is not None:
                    await connection.close()
                connection = await start_connection(self._nursery, endpoint, self.settings, dial=self._dial)
                self._connections[endpoint] = connection
            return connection

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            await connection.close()


@asynccontextmanager
async def open_client(
    bootstrap: str | Iterable[Endpoint],
    settings: ClientSettings | None = None,
    *,
    dial: Dial = dial_tcp,
) -> AsyncIterator[Client]:
    """Make a client; connections are opened when they are needed and closed at the end of the block."""
    endpoints = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
    async with trio.open_nursery() as nursery:
        client = Client(nursery, endpoints, settings or ClientSettings(), dial)
        try:
            yield client
        finally:
            with trio.CancelScope(shield=True):
                await client.close()
            nursery.cancel_scope.cancel()
