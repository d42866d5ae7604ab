"""Sessions of visitors: a user, a client with the user's login, and the token for changes.

The rule: a session is identified by a cookie that no script can read, and changes require a token that no other site
can know. Passwords are kept in memory only, for as long as the session lasts, and sent only to the broker and to the
registry that accepts the broker's users.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from barnabas.client import AuthenticationError, ClientError, open_client
from barnabas.console.backend import Backend, opened
from barnabas.console.base import ConsoleError
from barnabas.console.history import History, Sample, measure
from barnabas.console.turns import Reads
from barnabas.network.turns import Logins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.client import Client, ClientSettings
    from barnabas.console.connect_client import ConnectClient
    from barnabas.console.live import Live
    from barnabas.console.target import Target, WhereNow
    from barnabas.registry.client import RegistryClient
    from barnabas.registry.client_settings import RegistryAt
    from barnabas.sandbox.pool import Sandbox

log = logging.getLogger(__name__)

SESSIONS_MAX = 64
IDLE_SECONDS_MAX = 30 * 60.0
LIFE_SECONDS_MAX = 12 * 3600.0
CHECK_SECONDS = 10.0
USER_SESSIONS_MAX = 8
"""Sessions of one user: a new one replaces the least recently used."""
LOGIN_SECONDS = 20.0
"""Age of a login at which it is tried anew, so that the session of a removed user ends."""
REFUSED_SECONDS = 1.0
"""Seconds until the answer to a wrong password or token."""


@dataclass(eq=False)
class Session:
    """A visitor; `user` is empty where there are no logins."""

    target: Target
    user: str
    settings: ClientSettings
    identity: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    began_at: float = field(default_factory=trio.current_time)
    used_at: float = field(default_factory=trio.current_time)
    requests: set[trio.CancelScope] = field(default_factory=set)
    """Requests in progress, which end with the session."""
    proven_at: float = field(default_factory=trio.current_time)
    """When the broker last took the login."""
    backend: Backend | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Of the client that is open, a new one for each."""
    has_ended: bool = False
    opening: trio.Lock = field(default_factory=trio.Lock)

    @property
    def uses(self) -> int:
        """Number of requests that are being answered."""
        return len(self.requests)

    @property
    def owner(self) -> str:
        """Key of bounds for each visitor: the user, or the session where there are no logins."""
        return f"user {self.user}" if self.user else self.identity

    @property
    def is_over(self) -> bool:
        """True if it has not been used for long, or has lasted for long."""
        now = trio.current_time()
        is_idle = not self.uses and now - self.used_at > IDLE_SECONDS_MAX
        return is_idle or now - self.began_at > LIFE_SECONDS_MAX

    @contextmanager
    def in_use(self) -> Iterator[trio.CancelScope]:
        """Prevent the end of the session during a request, and cancel the request if the session is closed."""
        scope = trio.CancelScope()
        self.requests.add(scope)
        try:
            with scope:
                yield scope
        finally:
            self.requests.discard(scope)
            self.used_at = trio.current_time()


class Sessions:
    """Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self,
        where: WhereNow,
        token: str,
        live: Live | None,
        registry: RegistryAt | None,
        sandbox: Sandbox,
        *,
        connects: Mapping[str, ConnectClient] | None = None,
        reads: Reads | None = None,
        keeps_history: bool = False,
        open_backend: Callable[..., AbstractAsyncContextManager[Backend]] = opened,
        open_client: Callable[..., AbstractAsyncContextManager[Client]] = open_client,
    ) -> None:
        """`token` is a secret that visitors need in addition to their password; empty for none.

        `open_backend` opens the client of a session, `open_client` one that only logs in.
        """
        self._open_backend = open_backend
        self._open_client = open_client
        self.sandbox = sandbox
        """Child processes in which content of visitors and producers is looked at."""
        self._where = where
        self._token = token.encode()
        self._live = live
        self._registry = registry
        self._sessions: dict[str, Session] = {}
        self._logins = Logins()
        self.connects = connects or {}
        """Clusters of Kafka Connect, by their names."""
        self._reads = reads or Reads()
        self._keeps_history = keeps_history
        self._history = History(self._measure)
        """Of all sessions without a user; where users log in, of the console's own, for those with the right to see it."""
        self._nursery: trio.Nursery | None = None
        self._anonymous: Session | None = None
        self._own: Session | None = None
        """The console's own, by which it keeps the history where users log in."""

    @property
    def needs_token(self) -> bool:
        """True if visitors have to know a token."""
        return bool(self._token)

    @property
    def has_registry(self) -> bool:
        """True if a schema registry is configured."""
        return self._registry is not None

    def mechanisms(self) -> tuple[str, ...]:
        """Return the SASL mechanisms of the cluster; empty without logins. Raises ConsoleError."""
        return self._where().mechanisms

    async def run(self) -> None:
        """Maintain sessions, and close expired ones, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._history.attach(nursery)
            if self._keeps_history:
                self._history.begin()
            if self._keeps_history and self._live is not None:
                self._live.metrics_history.attach(nursery)
                self._live.metrics_history.begin()
            while True:
                await trio.sleep(CHECK_SECONDS)
                for session in [session for session in self._sessions.values() if session.is_over]:
                    self.end(session)
                if self._anonymous is not None and self._anonymous.is_over:
                    self.end(self._anonymous)
                    self._anonymous = None
                if self._own is not None and self._own.is_over:
                    self.end(self._own)
                    self._own = None
                for session in [session for session in self._sessions.values() if session.uses]:
                    with suppress(ConsoleError):
                        await self.prove(session)

    @property
    def users(self) -> tuple[Session, ...]:
        """The sessions of users, in the order in which they began."""
        return tuple(self._sessions.values())

    def find(self, identity: str) -> Session | None:
        """Return the session of a cookie; None if it is unknown or has ended."""
        session = self._sessions.get(identity) if identity else None
        if session is None or session.is_over:
            return None
        session.used_at = trio.current_time()
        return session

    async def anonymous(self) -> Session:
        """Return the session that requests without one share, where there are no logins. Raises ConsoleError."""
        if self._anonymous is None or self._anonymous.is_over:
            target = self._where()
            self._anonymous = Session(target, "", target.settings())
        self._anonymous.used_at = trio.current_time()
        return self._anonymous

    def is_token(self, text: str) -> bool:
        """Return whether a text is the token, or none is needed."""
        return not self._token or hmac.compare_digest(text.encode(), self._token)

    async def begin(
        self, token: str = "", user: str = "", password: str = "", mechanism: str = "", *, address: str = ""
    ) -> Session:
        """Log a visitor in, from an address. Raises ConsoleError, ClientError."""
        async with self._logins.of(user, address):
            if not self.is_token(token):
                await trio.sleep(REFUSED_SECONDS)
                raise ConsoleError(401, "the token is wrong")
            session = self._new(user, password, mechanism)
            if session.user:
                try:
                    async with self._logins.trying(address):
                        await self.open(session)
                except ClientError:
                    await trio.sleep(REFUSED_SECONDS)
                    raise
        self._make_room(session.user)
        self._sessions[session.identity] = session
        return session

    def _new(self, user: str, password: str, mechanism: str) -> Session:
        """Return a new session, without a user if there are no logins. Raises ConsoleError."""
        target = self._where()
        if not target.mechanisms:
            return Session(target, "", target.settings())
        mechanism = mechanism or target.mechanisms[0]
        if mechanism not in target.mechanisms:
            raise ConsoleError(400, f"mechanism: one of {', '.join(target.mechanisms)} expected")
        if not user or not password:
            raise ConsoleError(401, "a user and a password are needed")
        return Session(target, user, target.settings(user, password, mechanism))

    def _make_room(self, user: str) -> None:
        """End the session that is idle for longest: of this user, or where all are many, of the user with most."""
        users = Counter(session.user for session in self._sessions.values())
        if user and users[user] >= USER_SESSIONS_MAX:
            self._end_oldest(user)
        elif len(self._sessions) >= SESSIONS_MAX:
            self._end_oldest(users.most_common(1)[0][0])

    def _end_oldest(self, user: str) -> None:
        own = [session for session in self._sessions.values() if session.user == user]
        idle = [session for session in own if not session.uses] or own
        self.end(min(idle, key=lambda session: session.used_at))

    def end(self, session: Session) -> None:
        """Log a visitor out."""
        self._sessions.pop(session.identity, None)
        session.has_ended = True
        session.scope.cancel()
        for scope in session.requests:
            scope.cancel()

    async def open(self, session: Session) -> Backend:
        """Return the client of a session, opened by its first use, after the broker has moved, and after a failure.

        Raises ClientError, ConsoleError.
        """
        async with session.opening:
            target = self._where()
            if session.backend is not None and target.bootstrap == session.target.bootstrap:
                return session.backend
            if session.has_ended:
                raise ConsoleError(503, "the session has ended")
            session.scope.cancel()  # of a client to a broker that was started anew, on other ports
            session.scope = trio.CancelScope()
            session.target = target
            nursery = self._nursery
            if nursery is None:
                raise ConsoleError(503, "the console is stopping")
            backend: Backend | Exception = await nursery.start(self._keep, session)
            if isinstance(backend, Exception):
                raise backend
            session.backend = backend
            return backend

    async def prove(self, session: Session) -> None:
        """Check that the broker still accepts an older login; closes the session if not.

        Raises ConsoleError.
        """
        if not session.user or trio.current_time() - session.proven_at < LOGIN_SECONDS:
            return
        async with session.opening:
            if session.has_ended or trio.current_time() - session.proven_at < LOGIN_SECONDS:
                return
            target = self._where()
            try:
                async with self._open_client(target.bootstrap, session.settings, dial=target.dial) as client:
                    await client.any_connection()
            except AuthenticationError:
                self.end(session)
                raise ConsoleError(401, "the broker no longer accepts this login: log in again") from None
            except ClientError as error:
                log.debug("repeating the login of %s failed: %s", session.user, error)
            session.proven_at = trio.current_time()

    async def _measure(self) -> Sample:
        """Return a sample of the cluster, as the console itself sees it. Raises ClientError, ConsoleError."""
        target = self._where()
        if not target.mechanisms:
            return await measure(await self.open(await self.anonymous()))
        if target.own is None:
            raise ConsoleError(403, "visitors log in: each has a history of their own")
        if self._own is None:
            self._own = Session(target, "", target.own_settings())
        self._own.used_at = trio.current_time()
        return await measure(await self.open(self._own))

    def _shared_history(self, session: Session) -> History | None:
        """Return the history that a session shares: all without users, and those with the right to see it."""
        has_own = session.user and session.target.own is not None
        return self._history if has_own or not session.user else None

    def _registry_client(self, session: Session) -> RegistryClient | None:
        """Return a client of the registry for a session; a login is sent only to the broker's own registry."""
        if self._registry is None:
            return None
        sasl = session.settings.sasl
        if not session.user or sasl is None:
            return self._registry.client()
        return self._registry.client_of(sasl.username, sasl.password)

    async def _keep(
        self,
        session: Session,
        *,
        task_status: trio.TaskStatus[Backend | Exception] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep a session's client open until the session ends."""
        backend: Backend | None = None
        scope = session.scope
        try:
            with scope:
                registry = self._registry_client(session)
                async with self._open_backend(
                    session.target,
                    session.settings,
                    self._live,
                    registry,
                    self.sandbox,
                    session.owner,
                    self._reads,
                    self.connects,
                    self._shared_history(session),
                ) as backend:
                    task_status.started(backend)
                    await trio.sleep_forever()
            failure: Exception = ConsoleError(503, "the session has ended")
        except Exception as error:
            failure = error
        if backend is None:
            task_status.started(failure)
        elif session.backend is backend:
            session.backend = None
