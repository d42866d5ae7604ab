"""Users of the REST API: each has a client with the user's login, kept while the user sends requests.

The rule: memory and work are bounded for any number of users and of guessed passwords; a successful login is repeated
from time to time, so that a removed user loses access. Passwords are kept only in memory.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import trio

from barnabas.client import (
    AuthenticationError,
    Client,
    ClientError,
    Producer,
    ProducerSettings,
    open_client,
    open_producer,
)
from barnabas.client.admin import Admin
from barnabas.network.http import basic_credentials
from barnabas.network.turns import Logins
from barnabas.rest.errors import SCHEMA_SERIALIZATION, UNAUTHENTICATED, RestError, failure_of

if TYPE_CHECKING:
    from barnabas.client import ClientSettings, Endpoint
    from barnabas.registry.client import RegistryClient
    from barnabas.registry.client_settings import RegistryAt
    from barnabas.registry.decoding import Deserializer
    from barnabas.sandbox.pool import Sandbox

log = logging.getLogger(__name__)

CLIENT_ID = "barnabas-http"
USERS_MAX = 64
"""Users that have a client at the same time."""
IDLE_SECONDS_MAX = 300.0
"""Time without a request after which a user's client is closed."""
CHECK_SECONDS = 5.0
LOGIN_SECONDS = 20.0
"""Age of a login at which it is tried anew."""
REFUSED_SECONDS = 1.0
"""Seconds until the answer to a wrong password."""
PRODUCING = ProducerSettings(max_block_ms=10_000, delivery_timeout_ms=30_000, buffer_bytes=16 << 20)
OWNER_REQUESTS_MAX = 64
"""Concurrent requests of one user, if users log in."""

Login = tuple[str, str]
SettingsOf = Callable[[str, str], "ClientSettings"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Kafka, the settings of its clients, and the schema registry of its records, if any.

    `settings_of` returns the client settings for the login of a user with a password; None without logins.
    """

    bootstrap: tuple[Endpoint, ...]
    settings: ClientSettings
    settings_of: SettingsOf | None = None
    registry: RegistryAt | None = None


class Backend:
    """A user's access to the cluster. Lifecycle: created and closed by `Users`."""

    def __init__(
        self,
        client: Client,
        bootstrap: Sequence[Endpoint],
        nursery: trio.Nursery,
        sandbox: Sandbox,
        owner: Hashable,
        registry: RegistryClient | None,
    ) -> None:
        """`owner` has one call of the sandbox at a time."""
        self.client = client
        self.admin = Admin(client)
        self.bootstrap = tuple(bootstrap)
        self.nursery = nursery
        self.sandbox = sandbox
        self.owner = owner
        self._registry = registry
        self._deserializer: Deserializer | None = None
        self._producer: Producer | None = None
        self._opening = trio.Lock()
        self._cluster_id = ""

    @property
    def settings(self) -> ClientSettings:
        """Settings of the user's clients."""
        return self.client.settings

    def registry(self) -> RegistryClient:
        """Return the client of the schema registry. Raises RestError without a registry."""
        if self._registry is None:
            raise RestError(
                422, SCHEMA_SERIALIZATION, "there is no schema registry here: start with --registry for one"
            )
        return self._registry

    def deserializer(self) -> Deserializer:
        """Return the registry's deserializer. Raises RestError without a registry."""
        if self._deserializer is None:
            from barnabas.registry.decoding import Deserializer

            self._deserializer = Deserializer(self.registry(), self.sandbox)
        return self._deserializer

    async def cluster_id(self) -> str:
        """Return the cluster's id. Raises ClientError."""
        if not self._cluster_id:
            self._cluster_id = (await self.admin.describe_cluster()).cluster_id
        return self._cluster_id

    async def producer(self) -> Producer:
        """Return the producer of the user, opened by the first use. Raises ClientError."""
        if self._producer is not None:
            return self._producer
        async with self._opening:
            if self._producer is None:
                self._producer = await self.nursery.start(self._produce)
            return self._producer

    def drop_producer(self, producer: Producer) -> None:
        """Discard a failed producer: the next request opens another."""
        if self._producer is producer:
            self._producer = None

    async def _produce(self, *, task_status: trio.TaskStatus[Producer]) -> None:
        opened: Producer | None = None
        try:
            async with open_producer(self.bootstrap, PRODUCING, client_settings=self.settings) as producer:
                opened = producer
                task_status.started(producer)
                while self._producer in (None, producer):
                    await trio.sleep(CHECK_SECONDS)
        except Exception as error:
            failure_of(error, "a producer")  # logs an unexpected error; each record has its own outcome
        finally:
            if self._producer is opened:
                self._producer = None


@dataclass(eq=False, slots=True)
class _User:
    """A user's client, while it is kept."""

    login: Login
    scope: trio.CancelScope
    used_at_s: float
    proven_at_s: float
    requests: set[trio.CancelScope] = field(default_factory=set)
    """Requests in progress, which end with it."""
    backend: Backend | None = None

    @property
    def uses(self) -> int:
        """Number of requests that are being answered."""
        return len(self.requests)


class Users:
    """Clients of all users. Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self,
        cluster: Cluster,
        sandbox: Sandbox,
        nursery: trio.Nursery,
        *,
        open_client: Callable[..., AbstractAsyncContextManager[Client]] = open_client,
    ) -> None:
        """`nursery` has the tasks of all clients, which `open_client` opens."""
        self._open_client = open_client
        self._nursery = nursery
        self._cluster = cluster
        self._sandbox = sandbox
        self._users: dict[Login, _User] = {}
        self._logins = Logins()
        self._opening: dict[Login, trio.Lock] = {}
        self._requests: Counter[Login] = Counter()

    @property
    def log_in(self) -> bool:
        """True where users log in."""
        return self._cluster.settings_of is not None

    async def run(self) -> None:
        """Close clients that have had no request for long, or have lost their login, until cancelled."""
        while True:
            await trio.sleep(CHECK_SECONDS)
            now = trio.current_time()
            for user in [*self._users.values()]:
                if not user.uses and now - user.used_at_s > IDLE_SECONDS_MAX:
                    self._end(user)
                elif user.uses and self.log_in and now - user.proven_at_s > LOGIN_SECONDS:
                    self._nursery.start_soon(self._prove_quietly, user)

    @asynccontextmanager
    async def backend(self, authorization: bytes, address: str) -> AsyncIterator[Backend]:
        """Open the client of a request's user for a block, which is cancelled if the login ends.

        `authorization` is the header of the request, `address` that of the peer. Raises RestError, ClientError.
        """
        login = basic_credentials(authorization) if self.log_in else ("", "")
        if login is None:
            raise _refused()
        if self.log_in and self._requests[login] >= OWNER_REQUESTS_MAX:
            raise RestError(429, 42901, f"{OWNER_REQUESTS_MAX} requests of this user are answered already")
        self._requests[login] += 1
        try:
            user = await self._user(login, address)
            assert user.backend is not None
            scope = trio.CancelScope()
            user.requests.add(scope)
            try:
                with scope:
                    yield user.backend
                if scope.cancelled_caught:
                    raise RestError(503, 503, "the login of this request has ended")
            finally:
                user.requests.discard(scope)
                user.used_at_s = trio.current_time()
        finally:
            self._requests[login] -= 1
            if not self._requests[login]:
                del self._requests[login]

    async def _user(self, login: Login, address: str) -> _User:
        """Return the client of a login, opened and proven as need be. Raises RestError, ClientError."""
        user = self._users.get(login)
        if user is not None and not (self.log_in and trio.current_time() - user.proven_at_s > LOGIN_SECONDS):
            return user
        lock = self._opening.setdefault(login, trio.Lock())
        try:
            async with lock:
                user = self._users.get(login)
                if user is None:
                    return await self._open(login, address)
                await self._prove(user)
                return user
        finally:
            if not lock.statistics().tasks_waiting:
                self._opening.pop(login, None)

    async def _open(self, login: Login, address: str) -> _User:
        if not self.log_in:
            return await self._begin(login)
        async with self._logins.of(login[0], address):
            try:
                async with self._logins.trying(address):
                    return await self._begin(login)
            except AuthenticationError:
                await trio.sleep(REFUSED_SECONDS)
                raise _refused() from None

    async def _begin(self, login: Login) -> _User:
        self._make_room()
        now = trio.current_time()
        user = _User(login, trio.CancelScope(), now, now)
        result: Exception | None = await self._nursery.start(self._keep, user)
        if result is not None:
            raise result
        self._users[login] = user
        return user

    def _make_room(self) -> None:
        """End the client that is idle for longest, if there are many. Raises RestError where all are used."""
        if len(self._users) < USERS_MAX:
            return
        idle = [user for user in self._users.values() if not user.uses]
        if not idle:
            raise RestError(503, 503, f"{USERS_MAX} users are being served: try again later")
        self._end(min(idle, key=lambda user: user.used_at_s))

    def _end(self, user: _User) -> None:
        if self._users.get(user.login) is user:
            del self._users[user.login]
        user.scope.cancel()
        for scope in user.requests:
            scope.cancel()

    def _settings(self, login: Login) -> ClientSettings:
        cluster = self._cluster
        settings = cluster.settings if cluster.settings_of is None else cluster.settings_of(*login)
        return replace(
            settings, client_id=CLIENT_ID, request_timeout_ms=15_000, retries=2, retry_backoff_ms=50
        )

    async def _keep(self, user: _User, *, task_status: trio.TaskStatus[Exception | None]) -> None:
        """Keep a user's client open until it is ended."""
        cluster = self._cluster
        try:
            with user.scope:
                async with self._open_client(cluster.bootstrap, self._settings(user.login)) as client:
                    await client.any_connection()
                    registry = None if cluster.registry is None else cluster.registry.client_of(*user.login)
                    async with trio.open_nursery() as nursery:
                        owner = f"user {user.login[0]}" if self.log_in else None
                        user.backend = Backend(
                            client, cluster.bootstrap, nursery, self._sandbox, owner, registry
                        )
                        task_status.started(None)
                        await trio.sleep_forever()
        except Exception as error:
            if user.backend is None:
                task_status.started(error)
            else:
                log.exception("the client of a user has ended")
        finally:
            if self._users.get(user.login) is user:
                self._end(user)

    async def _prove(self, user: _User) -> None:
        """Check that the broker still accepts a login; closes the client if not. Raises RestError."""
        if trio.current_time() - user.proven_at_s < LOGIN_SECONDS:
            return
        user.proven_at_s = trio.current_time()
        try:
            async with self._open_client(self._cluster.bootstrap, self._settings(user.login)) as client:
                await client.any_connection()
        except AuthenticationError:
            self._end(user)
            raise _refused() from None
        except ClientError as error:
            log.debug("repeating the login of %s failed: %s", user.login[0], error)

    async def _prove_quietly(self, user: _User) -> None:
        with suppress(RestError):
            await self._prove(user)


def _refused() -> RestError:
    return RestError(
        401, UNAUTHENTICATED, "log in with the name and the password of a user of the broker (HTTP Basic)"
    )
