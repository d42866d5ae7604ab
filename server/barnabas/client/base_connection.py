"""Common part of every connection to a broker, whatever its transport: versions, the first requests, the login.

The rule: nothing here waits for a network except by `ask` and `ask_in_turn`, which the transports implement: `Connection`
in tasks of Trio, `SocketConnection` in a call that blocks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    UnsupportedVersionError,
    check,
)
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.wire import registry
from barnabas.wire.errors import DecodeError, EncodeError
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import API_VERSIONS, decode_response, encode_request
from barnabas.wire.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.client.login import Login

RESPONSE_BYTES_MAX = 2**31 - 1
SET_ASIDE_BYTES = 16 << 20
"""The most that is set aside for a response before any of its bytes have come."""
PRODUCE, SASL_HANDSHAKE, SASL_AUTHENTICATE = 0, 17, 36
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")

# A broker older than 0.10 closes the connection on ApiVersions; these it has.
ANCIENT_VERSIONS = dict.fromkeys((0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14), (0, 0))

T = TypeVar("T")
Versions = dict[int, tuple[int, int]]
"""First and last version by API key."""


class NoVersionsError(ConnectionLostError):
    """The broker closed the connection on the first request, as brokers before 0.10 do."""


class BaseConnection:
    """An open connection, with the versions and features of its broker."""

    def __init__(self, peer: Endpoint, settings: ClientSettings) -> None:
        self.peer = peer
        self.versions: Versions = {}
        """Versions that the broker serves: (first, last version) by API key; empty until `handshake`."""
        self.features: dict[str, int] = {}
        """Levels of features that the cluster works with, by name (KIP-584)."""
        self._settings = settings
        self._last_id = 0
        self._failure = ""
        self._was_closed_by_peer = False
        self._login = self._login_of(settings)

    @property
    def is_open(self) -> bool:
        """True while a request can still be sent."""
        return not self._failure

    def version_of(self, key: int, version_max: int | None = None) -> int:
        """Return the newest stable version that both know, `version_max` at most. Raises UnsupportedVersionError."""
        low, high = self.versions.get(key, (0, -1))
        info = registry.info(key)
        version = min(high, info.max_stable_version)
        if version_max is not None:
            version = min(version, version_max)
        if version < max(low, info.request_min_version):
            raise UnsupportedVersionError(f"{self.peer} serves no usable version of {info.name}")
        return version

    # --- what moves bytes ---------------------------------------------------------------------------------------

    async def ask(
        self,
        message: Any,
        *,
        version: int | None = None,
        version_max: int | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """Send a request and return its response; None for Produce with acks=0, which has none.

        Raises ConnectionLostError, UnsupportedVersionError, EncodeError.
        """
        raise NotImplementedError

    async def ask_in_turn(self, message: Any, version: int) -> Any:
        """Send a request of the login and wait for its response. Raises ConnectionLostError."""
        raise NotImplementedError

    async def in_thread(
        self, work: Callable[[], T], *, limiter: Any = None, may_be_abandoned: bool = False
    ) -> T:
        """Return the result of a function that blocks, or calculates for long."""
        raise NotImplementedError

    def now(self) -> float:
        """Return the time of a monotonic clock, s."""
        raise NotImplementedError

    def fail(self, reason: str) -> None:
        """Record why the connection ended; the first reason counts."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection; pending requests raise ConnectionLostError."""
        self.fail("closed")

    def lost(self) -> ConnectionLostError:
        """Return the error of a request on a connection that has ended."""
        return ConnectionLostError(f"{self.peer}: {self._failure}")

    # --- requests and responses as bytes --------------------------------------------------------------------------

    def next_id(self) -> int:
        """Return the correlation id of the next request."""
        self._last_id = (self._last_id + 1) & 0x7FFFFFFF
        return self._last_id

    def encoded(self, key: int, version: int, correlation_id: int, message: Any) -> bytes:
        """Return an encoded request, with its size. Raises EncodeError."""
        chunks = encode_request(key, version, correlation_id, self._settings.client_id, message)
        return b"".join(map(_as_bytes, chunks))

    # --- the first requests -----------------------------------------------------------------------------------------

    async def set_up(self, versions: Versions | None) -> None:
        """Run the handshake, or use `versions` as the broker's; the connection is closed if that fails.

        Raises as `handshake`.
        """
        try:
            if versions is None:
                await self.handshake()
            else:
                self.versions = dict(versions)
        except BaseException:
            self.close()
            raise

    async def handshake(self) -> None:
        """Determine the versions, and log in if configured.

        Raises ConnectionLostError, AuthenticationError, UnsupportedVersionError, ResponseError.
        """
        await self._learn_versions()
        if self._login is not None:
            await self._first_login()

    async def _first_login(self) -> None:
        await self._log_in()

    async def _learn_versions(self) -> None:
        request = ApiVersionsRequest(
            client_software_name=self._settings.software_name,
            client_software_version=self._settings.software_version,
        )
        try:
            response = await self.ask(request, version=3)
        except ConnectionLostError as error:
            if self._was_closed_by_peer:
                raise NoVersionsError(str(error)) from error
            raise
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # An older broker answers in version 0, with the versions of ApiVersions at least (KIP-511).
            response = await self.ask(ApiVersionsRequest(), version=0)
        check(response.error_code, f"asking {self.peer} for its versions")
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        self.features = {
            finalized_feature.name: finalized_feature.max_version_level
            for finalized_feature in response.finalized_features
        }

    def _login_of(self, settings: ClientSettings) -> Login | None:
        if settings.sasl is None:
            return None
        from barnabas.client.login import Login

        return Login(settings.sasl, self.peer)

    async def _log_in(self) -> None:
        """Log in, for the first time or again; nothing else may be sent meanwhile."""
        if self._login is None:
            return
        if self.versions.get(SASL_HANDSHAKE, (0, 0))[1] < 1:
            raise UnsupportedVersionError(f"{self.peer} has no SaslHandshake v1 (KIP-152, Apache Kafka 1.0)")
        is_done = False
        try:
            await self._login.run(self.ask_in_turn, self.version_of(SASL_AUTHENTICATE, 2), self)
            is_done = True
        except AuthenticationError as error:
            self.fail(str(error))
            raise
        finally:
            if not is_done:  # also when cancelled: the broker's state of the login is unknown
                self.fail("a login was broken off")


C = TypeVar("C", bound=BaseConnection)
Start = Callable[[Versions | None], Awaitable[C]]
"""Connects and logs in; does not ask for versions that are given. Raises as `BaseConnection.handshake`."""


async def start_of_any_age(
    start: Start[C], settings: ClientSettings, is_ancient: Callable[[], Awaitable[bool]]
) -> C:
    """Connect to a broker of any release. Raises as `BaseConnection.handshake`."""
    try:
        return await start(None)
    except NoVersionsError as error:
        if settings.sasl is not None or not await is_ancient():
            raise ConnectionLostError(str(error)) from error
    return await start(ANCIENT_VERSIONS)


async def closes_on_versions(start: Start[C]) -> bool:
    """Return whether the broker is alive and yet closes connections on ApiVersions, as those before 0.10 do.

    A restarting broker, or a proxy in front of one, closes connections too: if it counted as an old one, versions
    would be used that, for example, lack transactions.
    """
    from barnabas.wire.generated.fetch import FetchRequest

    try:
        probe = await start(ANCIENT_VERSIONS)
        await probe.ask(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0), version=0)
        probe.close()
        again = await start(None)
        again.close()
    except NoVersionsError:
        return True
    except ClientError:
        return False
    return False


def decoded(frame: memoryview, key: int, version: int, correlation_id: int) -> Any:
    """Return the response in a frame. Raises DecodeError, also for the response to another request."""
    if key == API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
        version = 0  # whatever version was requested (KIP-511)
    answered_id, response = decode_response(frame, key, version)
    if answered_id != correlation_id:
        raise DecodeError(f"is {answered_id}, not {correlation_id}", "correlation id", 0)
    return response


def _as_bytes(chunk: object) -> bytes | bytearray | memoryview:
    if isinstance(chunk, FileRegion):
        raise EncodeError("a request cannot hold a region of a file")
    assert isinstance(chunk, bytes | bytearray | memoryview)
    return chunk
