"""A broker's registration in ZooKeeper: its id, its ephemeral znode, its epoch.

The rule: a broker has its id for as long as its session lives, and no other broker has it meanwhile. Each registration
has a new epoch, the czxid of the znode (KIP-380).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.session import (
    ConnectionLostError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    Stat,
    ZooKeeper,
)
from barnabas.cluster.zookeeper.znodes import BrokerRegistration

log = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_SECONDS = 60.0
"""Longest wait of a broker for the end of a former session with its id and its address."""


class IdTakenError(Exception):
    """Another broker has this id; the message names it, and the way out."""


async def until_answered(zookeeper: ZooKeeper, request: Callable[[], Awaitable[T]]) -> T:
    """Repeat a request until it is answered, in any session; only for requests that may take effect twice.

    Raises the request's errors; lost connections and sessions are retried until the session is closed.
    """
    while True:
        try:
            return await request()
        except (ConnectionLostError, SessionExpiredError):
            if zookeeper.is_closed:
                raise
        await zookeeper.wait_connected()


async def generated_broker_id(zookeeper: ZooKeeper, reserved_max: int) -> int:
    """Return an id above `reserved.broker.max.id` that no broker has had. Raises ZooKeeperError."""
    while True:
        try:
            stat = await until_answered(zookeeper, lambda: zookeeper.set(znodes.BROKER_SEQUENCE, b""))
        except NoNodeError:
            await make_persistent(zookeeper, znodes.BROKER_SEQUENCE)
            continue
        return reserved_max + stat.version


async def make_persistent(zookeeper: ZooKeeper, path: str, data: bytes = b"") -> bool:
    """Create a znode and those above it, unless it exists; returns whether it was created. Raises ZooKeeperError."""
    try:
        await until_answered(zookeeper, lambda: zookeeper.create(path, data, parents=True))
    except NodeExistsError:
        return False
    return True


class Registration:
    """Keeps a broker registered. Lifecycle: `register` once per session."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        broker_id: int,
        broker: BrokerRegistration,
        *,
        version: int = 5,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """`version` is that of the JSON, which depends on `inter.broker.protocol.version`."""
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._broker = broker
        self._data = znodes.encode_broker(broker, version)
        self._wait_seconds = wait_seconds
        self._own_sessions: set[int] = set()
        self.session_id = 0
        """The session that the broker is registered in, 0 for none."""

    async def register(self) -> int:
        """Register in the session of now; returns the broker epoch. Raises IdTakenError, ZooKeeperError."""
        path = znodes.broker_path(self._broker_id)
        deadline = trio.current_time() + self._wait_seconds
        while True:
            session_id = self._zookeeper.session_id
            try:
                stat = await self._try(path, deadline)
            except (ConnectionLostError, SessionExpiredError):
                if self._zookeeper.is_closed:
                    raise
                self._own_sessions.add(session_id)
                await self._zookeeper.wait_connected()
                continue
            except NoNodeError:
                await make_persistent(self._zookeeper, znodes.BROKER_IDS)
                continue
            if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
                break
        self.session_id = stat.ephemeral_owner
        self._own_sessions.add(self.session_id)
        log.info("registered as broker %d, with broker epoch %d", self._broker_id, stat.created)
        return stat.created

    async def wait_until_free(self) -> None:
        """Wait until this broker's id is free. Raises IdTakenError, ZooKeeperError."""
        path = znodes.broker_path(self._broker_id)
        deadline = trio.current_time() + self._wait_seconds
        while await until_answered(self._zookeeper, lambda: self._zookeeper.exists(path)) is not None:
            try:
                if await self._found(path, deadline) is not None:
                    return
            except (ConnectionLostError, SessionExpiredError):
                if self._zookeeper.is_closed:
                    raise
            except NoNodeError:
                continue

    async def _try(self, path: str, deadline: float) -> Stat | None:
        """Create the znode; None if its owner's session may have ended by now."""
        try:
            _, stat = await self._zookeeper.create(path, self._data, ephemeral=True)
        except NodeExistsError:
            return await self._found(path, deadline)
        return stat

    async def _found(self, path: str, deadline: float) -> Stat | None:
        gone = trio.Event()
        stat = await self._zookeeper.exists(path, gone.set)
        if stat is None:
            return None
        data, stat = await self._zookeeper.get(path)
        if stat.ephemeral_owner == self._zookeeper.session_id:
            return stat  # made by a request with an answer that was lost
        if stat.ephemeral_owner in self._own_sessions:
            await self._zookeeper.delete(path)  # of a session of ours that has ended (KAFKA-7165)
            return None
        other = self._other(data)
        if other is None:
            raise IdTakenError(self._taken(f"its registration cannot be read: {data[:200]!r}"))
        if not _share_address(other, self._broker):
            raise IdTakenError(self._taken(_addresses(other)))
        if trio.current_time() >= deadline:
            raise IdTakenError(self._taken(f"{_addresses(other)}, as this one, and does not end"))
        log.warning(
            "broker %d is registered at %s by an earlier session; waiting until that has expired",
            self._broker_id, _addresses(other),
        )  # fmt: skip
        with trio.move_on_at(deadline):
            await gone.wait()
        return None

    def _other(self, data: bytes) -> BrokerRegistration | None:
        try:
            return znodes.decode_broker(self._broker_id, data)
        except ZnodeError as error:
            log.error("%s", error)
            return None

    def _taken(self, why: str) -> str:
        return (
            f"broker.id={self._broker_id}: a broker with this id is registered in ZooKeeper ({why}). Give this broker an "
            "id of its own, or stop the other one and wait until its session has expired (zookeeper.session.timeout.ms)"
        )


def _share_address(registration: BrokerRegistration, other: BrokerRegistration) -> bool:
    return bool(
        {(e.host, e.port) for e in registration.endpoints} & {(e.host, e.port) for e in other.endpoints}
    )


def _addresses(broker: BrokerRegistration) -> str:
    return ", ".join(f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints) or "without endpoints"
