"""Sessions of visitors: who has logged in, in which client of the cluster, and with which token they change things.

The rule: a session is found by a cookie that no script can read, and changes something only with a token that no other site
can know. Passwords are kept in memory alone, for as long as the session lasts, and sent to nobody but the broker and the
registry that knows the broker's users.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from barnabas.client import ClientError
from barnabas.console.backend import Backend, opened
from barnabas.console.base import ConsoleError

if TYPE_CHECKING:
    from barnabas.client import ClientSettings
    from barnabas.console.live import Live
    from barnabas.console.target import Target, WhereNow
    from barnabas.registry.client import RegistryClient
    from barnabas.registry.client_settings import RegistryAt

SESSIONS_MAX = 64
IDLE_SECONDS_MAX = 30 * 60.0
LIFE_SECONDS_MAX = 12 * 3600.0
CHECK_SECONDS = 10.0
LOGINS_MAX = 4
"""Logins that are tried at the same time."""
REFUSED_SECONDS = 1.0
"""Time that a wrong password or token costs whoever has given it."""


@dataclass(eq=False)
class Session:
    """A visitor; `user` is empty where nobody logs in."""

    target: Target
    user: str
    settings: ClientSettings
    identity: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    began_at: float = field(default_factory=trio.current_time)
    used_at: float = field(default_factory=trio.current_time)
    uses: int = 0
    """Requests that are being answered."""
    backend: Backend | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Of the client that is open, a new one for each."""
    has_ended: bool = False
    opening: trio.Lock = field(default_factory=trio.Lock)

    @property
    def is_over(self) -> bool:
        """True if it has not been used for long, or has lasted for long."""
        now = trio.current_time()
        is_idle = not self.uses and now - self.used_at > IDLE_SECONDS_MAX
        return is_idle or now - self.began_at > LIFE_SECONDS_MAX


class Sessions:
    """Lifecycle: `run` in a task, until cancelled."""

    def __init__(self, where: WhereNow, token: str, live: Live | None, registry: RegistryAt | None) -> None:
        """`token` is what visitors have to know beside their password; empty for nothing."""
        self._where = where
        self._token = token.encode()
        self._live = live
        self._registry = registry
        self._sessions: dict[str, Session] = {}
        self._logins = trio.CapacityLimiter(LOGINS_MAX)
        self._nursery: trio.Nursery | None = None
        self._anonymous: Session | None = None

    @property
    def needs_token(self) -> bool:
        """True if visitors have to know a token."""
        return bool(self._token)

    @property
    def has_registry(self) -> bool:
        """True if a registry of schemas is known."""
        return self._registry is not None

    def mechanisms(self) -> tuple[str, ...]:
        """Return the logins that the cluster takes; none where nobody logs in. Raises ConsoleError."""
        return self._where().mechanisms

    async def run(self) -> None:
        """Keep sessions, and end those that are over, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                await trio.sleep(CHECK_SECONDS)
                for session in [one for one in self._sessions.values() if one.is_over]:
                    self.end(session)
                if self._anonymous is not None and self._anonymous.is_over:
                    self.end(self._anonymous)
                    self._anonymous = None

    def find(self, identity: str) -> Session | None:
        """Return the session of a cookie; None where there is none, or not any more."""
        session = self._sessions.get(identity) if identity else None
        if session is None or session.is_over:
            return None
        session.used_at = trio.current_time()
        return session

    async def anonymous(self) -> Session:
        """Return the session of all who look without one, where nobody logs in. Raises ConsoleError."""
        if self._anonymous is None or self._anonymous.is_over:
            target = self._where()
            self._anonymous = Session(target, "", target.settings())
        self._anonymous.used_at = trio.current_time()
        return self._anonymous

    def is_token(self, text: str) -> bool:
        """Say whether a text is the token, or none is needed."""
        return not self._token or hmac.compare_digest(text.encode(), self._token)

    async def begin(
        self, token: str = "", user: str = "", password: str = "", mechanism: str = ""
    ) -> Session:
        """Let a visitor in. Raises ConsoleError, ClientError."""
        async with self._logins:
            if not self.is_token(token):
                await trio.sleep(REFUSED_SECONDS)
                raise ConsoleError(401, "the token is wrong")
            target = self._where()
            if target.mechanisms:
                mechanism = mechanism or target.mechanisms[0]
                if mechanism not in target.mechanisms:
                    raise ConsoleError(400, f"mechanism: one of {', '.join(target.mechanisms)} expected")
                if not user or not password:
                    raise ConsoleError(401, "a user and a password are needed")
            else:
                user = ""
            session = Session(target, user, target.settings(user, password, mechanism))
            if target.mechanisms:
                try:
                    await self.open(session)
                except ClientError:
                    await trio.sleep(REFUSED_SECONDS)
                    raise
        self._make_room()
        self._sessions[session.identity] = session
        return session

    def _make_room(self) -> None:
        """End the session that has not been used for the longest time, where there are many."""
        if len(self._sessions) >= SESSIONS_MAX:
            idle = [one for one in self._sessions.values() if not one.uses] or list(self._sessions.values())
            self.end(min(idle, key=lambda one: one.used_at))

    def end(self, session: Session) -> None:
        """Log a visitor out."""
        self._sessions.pop(session.identity, None)
        session.has_ended = True
        session.scope.cancel()

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
                raise ConsoleError(503, "the console ends")
            found: Backend | Exception = await nursery.start(self._keep, session)
            if isinstance(found, Exception):
                raise found
            session.backend = found
            return found

    def _registry_client(self, session: Session) -> RegistryClient | None:
        """Return a client of the registry for a session; a login goes to the broker's own registry alone."""
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
                async with opened(session.target, session.settings, self._live, registry) as backend:
                    task_status.started(backend)
                    await trio.sleep_forever()
            failure: Exception = ConsoleError(503, "the session has ended")
        except Exception as error:
            failure = error
        if backend is None:
            task_status.started(failure)
        elif session.backend is backend:
            session.backend = None
