"""Connections to the brokers of the cluster by broker id, this one included.

The rule: a request is sent once. If its connection is lost its effect is unknown, so only the sender can decide
whether to repeat it; requests to the controller may be repeated, and are repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from barnabas.client import (
    ClientError,
    ClientSettings,
    Connection,
    Endpoint,
    UnsupportedVersionError,
)
from barnabas.client.base_client import top_level_error
from barnabas.client.connection import start_connection
from barnabas.wire import registry
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, Delta
    from barnabas.network.transport import Network

BACKOFF_MS_MIN = 50
"""The first wait after a failed connection, twice as long after each further one (Kafka's reconnect.backoff.ms)."""
BACKOFF_MS_MAX = 1_000
IDLE_MS_MAX = 540_000
"""Idle time after which a connection is closed: just before the other broker does it (connections.max.idle.ms)."""
SWEEP_SECONDS = 30.0
CONTROLLER_RETRY_SECONDS = 0.1
TIMEOUT_SECONDS = 30.0


class PeerUnavailableError(Exception):
    """A broker has not answered: not in the cluster, not reached, connection lost, timeout, or no common version.

    Unless `lacks_version`, the same request may succeed later, and may have had an effect.
    """

    def __init__(self, message: str, *, lacks_version: bool = False) -> None:
        super().__init__(message)
        self.lacks_version = lacks_version


class VersionedRequest(NamedTuple):
    """A request that depends on the version that both brokers know."""

    key: int
    make: Callable[[int], Any]
    """Makes the request for a version."""


@dataclass(slots=True)
class _Link:
    """The connection to a broker, or its last failure; times are trio's (s)."""

    connection: Connection | None = None
    target: BrokerInfo | None = None
    used_at: float = 0.0
    failures: int = 0
    again_at: float = 0.0
    lock: trio.Lock = field(default_factory=trio.Lock)


_NEW = _Link()


class Peers:
    """Asks other brokers. Lifecycle: `run` in a task; requests before it runs wait for it.

    Requests on one connection are answered in their order, so a sender of requests with late answers (a fetch that waits
    for records) names a separate `channel`, and gets a separate connection. Implements
    `cluster.metadata.store.Subscriber`: connections to brokers that are removed, move or register again are closed.
    """

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        listener: str,
        network: Network,
        client_settings: ClientSettings,
    ) -> None:
        """`listener` is the name of the listener of each broker that is dialled."""
        self._image = image
        self._listener = listener
        self._network = network
        self._settings = client_settings
        self._links: dict[tuple[int, str], _Link] = {}
        self._nursery: trio.Nursery | None = None
        self._has_begun = trio.Event()

    async def run(self) -> None:
        """Keep connections until cancelled, and close unused ones."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._has_begun.set()
            try:
                while True:
                    await trio.sleep(SWEEP_SECONDS)
                    self._close_idle()
            finally:
                self._nursery = None
                self._has_begun = trio.Event()
                for key in tuple(self._links):
                    self.close(*key)

    # --- asking ---------------------------------------------------------------------------------------------

    async def ask(
        self,
        broker_id: int,
        request: Any,
        *,
        version: int | None = None,
        version_max: int | None = None,
        timeout_s: float = TIMEOUT_SECONDS,
        channel: str = "",
    ) -> Any:
        """Return a broker's response to a message, or to a `VersionedRequest`.

        The version is the newest that both support, at most `version_max`, or that of the `VersionedRequest`. The
        time-out counts for connecting and answering together; it ends the connection, for all that share it. Raises
        PeerUnavailableError.
        """
        deadline = trio.current_time() + timeout_s
        connection = await self._connection(broker_id, channel, deadline)
        link = self._links.get((broker_id, channel))
        try:
            if isinstance(request, VersionedRequest):
                if version is None:
                    version = connection.version_of(request.key, version_max)
                request = request.make(version)
            left_s = max(deadline - trio.current_time(), 0.001)
            response = await connection.ask(
                request, version=version, version_max=version_max, timeout_ms=left_s * 1000
            )
        except ClientError as error:
            raise _unavailable(broker_id, error) from error
        if link is not None:
            link.used_at = trio.current_time()
            link.failures = 0
        return response

    async def version_of(
        self,
        broker_id: int,
        key: int,
        *,
        version_max: int | None = None,
        timeout_s: float = TIMEOUT_SECONDS,
        channel: str = "",
    ) -> int:
        """Return the newest version of an API that both brokers know. Raises PeerUnavailableError."""
        connection = await self._connection(broker_id, channel, trio.current_time() + timeout_s)
        try:
            return connection.version_of(key, version_max)
        except UnsupportedVersionError as error:
            raise _unavailable(broker_id, error) from error

    async def ask_controller(
        self,
        request: Any,
        *,
        version: int | None = None,
        version_max: int | None = None,
        timeout_s: float = TIMEOUT_SECONDS,
        error_of: Callable[[Any], int] = top_level_error,
        channel: str = "controller",
    ) -> Any:
        """Return the response of the controller in the image at the time of the answer.

        `error_of` returns the error code of a whole response. After NOT_CONTROLLER, or if the controller cannot be reached,
        the request is sent again until `timeout_s` is over, so it must be one that may be repeated. Raises
        PeerUnavailableError.
        """
        deadline = trio.current_time() + timeout_s
        failure: PeerUnavailableError | None = None
        while (left_s := deadline - trio.current_time()) > 0:
            controller_id = self.controller_id
            if controller_id < 0:
                failure = failure or PeerUnavailableError("no controller is elected")
            elif self._links.get((controller_id, channel), _NEW).again_at <= trio.current_time():
                try:
                    response = await self.ask(
                        controller_id,
                        request,
                        version=version,
                        version_max=version_max,
                        timeout_s=left_s,
                        channel=channel,
                    )
                except PeerUnavailableError as error:
                    if error.lacks_version:
                        raise
                    failure = error
                else:
                    if error_of(response) != ErrorCode.NOT_CONTROLLER:
                        return response
                    failure = PeerUnavailableError(f"broker {controller_id} is not the controller")
            await trio.sleep(min(CONTROLLER_RETRY_SECONDS, max(deadline - trio.current_time(), 0)))
        raise failure or PeerUnavailableError("the controller has not answered in time")

    @property
    def controller_id(self) -> int:
        """The id of the controller, -1 while none is known."""
        return self._image().controller_id

    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        """Return the versions of each API that the controller serves; None while no connection to it is open."""
        controller_id = self.controller_id
        return next(
            (
                link.connection.versions
                for (broker_id, _), link in self._links.items()
                if broker_id == controller_id and link.connection is not None and link.connection.is_open
            ),
            None,
        )

    # --- connections ----------------------------------------------------------------------------------------

    async def _connection(self, broker_id: int, channel: str, deadline: float) -> Connection:
        link = self._links.setdefault((broker_id, channel), _Link())
        link.used_at = trio.current_time()
        if link.connection is not None and link.connection.is_open:
            return link.connection
        with trio.move_on_at(deadline):
            async with link.lock:  # tasks that wait for it get the connection that the first has opened
                if link.connection is not None and link.connection.is_open:
                    return link.connection
                await self._has_begun.wait()
                await trio.sleep_until(link.again_at)
                return await self._open(broker_id, link)
        raise PeerUnavailableError(f"broker {broker_id}: no connection in time")

    async def _open(self, broker_id: int, link: _Link) -> Connection:
        target = self._image().brokers.get(broker_id)
        if target is None:
            raise PeerUnavailableError(f"broker {broker_id} is not in the cluster")
        address = target.endpoints.get(self._listener)
        if address is None:
            raise PeerUnavailableError(f"broker {broker_id} has no listener {self._listener}")
        assert self._nursery is not None
        try:
            connection = await start_connection(
                self._nursery, Endpoint(*address), self._settings, dial=self._dial
            )
        except ClientError as error:
            self._delay(link)
            raise _unavailable(broker_id, error) from error
        except trio.Cancelled:  # it took too long, or is no longer needed
            self._delay(link)
            raise
        if not self._is_same(broker_id, target):
            connection.close()
            raise PeerUnavailableError(f"broker {broker_id} has moved or registered again")
        link.connection, link.target = connection, target
        return connection

    async def _dial(self, endpoint: Endpoint) -> trio.abc.Stream:
        return await self._network.dial(endpoint.host, endpoint.port)

    @staticmethod
    def _delay(link: _Link) -> None:
        backoff_ms = min(BACKOFF_MS_MIN << min(link.failures, 10), BACKOFF_MS_MAX)
        link.failures += 1
        link.again_at = trio.current_time() + backoff_ms / 1000

    def _is_same(self, broker_id: int, target: BrokerInfo) -> bool:
        """Return whether a broker is still where it was, in the same registration."""
        broker = self._image().brokers.get(broker_id)
        return (
            broker is not None
            and broker.epoch == target.epoch
            and broker.endpoints.get(self._listener) == target.endpoints.get(self._listener)
        )

    def close(self, broker_id: int, channel: str = "") -> None:
        """Close a connection; waiting requests on it get PeerUnavailableError."""
        link = self._links.get((broker_id, channel))
        if link is not None:
            if link.connection is not None:
                link.connection.close()
                link.connection = None
            if not link.lock.locked():
                del self._links[broker_id, channel]

    def _close_idle(self) -> None:
        now = trio.current_time()
        for key, link in tuple(self._links.items()):
            is_idle = now - link.used_at > IDLE_MS_MAX / 1000
            is_gone = link.connection is None or not link.connection.is_open
            if not link.lock.locked() and (is_idle or (is_gone and now > link.again_at + SWEEP_SECONDS)):
                self.close(*key)

    # --- following the image --------------------------------------------------------------------------------

    async def prepare(self, delta: Delta) -> None:
        """Do nothing: connections are opened when they are needed."""

    def publish(self, delta: Delta) -> None:
        """Close connections to brokers that were removed, have moved, or have registered again."""
        if delta.old.brokers is delta.new.brokers:
            return
        for (broker_id, channel), link in tuple(self._links.items()):
            if link.target is not None and not self._is_same(broker_id, link.target):
                self.close(broker_id, channel)
            link.again_at = 0.0

    async def clean_up(self, delta: Delta) -> None:
        """Do nothing."""


def _unavailable(broker_id: int, error: ClientError) -> PeerUnavailableError:
    return PeerUnavailableError(
        f"broker {broker_id}: {error}", lacks_version=isinstance(error, UnsupportedVersionError)
    )


def api_key(request: type) -> int:
    """Return the key of a request's class, for `VersionedRequest`."""
    return registry.key_of(request.__name__.removesuffix("Request"))
