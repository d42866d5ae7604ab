"""Requests on their way to ZooKeeper: so many at once, in their order, and what becomes of each answer and each break."""

from __future__ import annotations

import struct
import threading
from collections import deque
from typing import Any

import pytest
import trio
import trio.testing
from kazoo import exceptions as kazoo_errors
from kazoo.protocol import serialization as packets
from kazoo.protocol.states import ZnodeStat

from barnabas.cluster.zookeeper.requests import MultiRead, Requests, WatchCall, _settings, stat_of
from barnabas.config.cluster import StoreFile

ZNODE = ZnodeStat(
    czxid=11, mzxid=12, ctime=13, mtime=14, version=15, cversion=16, aversion=17, ephemeralOwner=18, dataLength=19,
    numChildren=20, pzxid=21,
)  # fmt: skip


# --- how many, and in which order ---------------------------------------------------------------------------------


class Client:
    """Kazoo's client: notes what is sent, and keeps what takes the answers."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []
        self._queue = self.queue = deque[tuple[Any, Any]]()

    def _call(self, request: Any, result: Any) -> None:
        self.sent.append((request, result))

    @property
    def names(self) -> list[Any]:
        return [request for request, _ in self.sent]


class Traffic:
    """Requests over a client, and what came of them."""

    def __init__(self, most: int) -> None:
        self.client = Client()
        self.requests = Requests(self.client, most)  # type: ignore[arg-type]
        self.done: list[tuple[str, Any, str]] = []

    def submit(self, *names: str) -> None:
        for name in names:
            self.requests.submit(name, lambda value, error, name=name: self.note(name, value, error))

    def note(self, name: str, value: Any, error: BaseException | None) -> None:
        self.done.append((name, value, type(error).__name__ if error is not None else ""))

    def answer(self, name: str, value: Any = "fine") -> None:
        dict(self.client.sent)[name].set(value)

    def fail(self, name: str, error: BaseException) -> None:
        dict(self.client.sent)[name].set_exception(error)


@pytest.mark.parametrize("error", [kazoo_errors.NoNodeError, kazoo_errors.BadVersionError])
def test_a_request_that_is_refused_makes_room(error: type[Exception]) -> None:
    traffic = Traffic(1)
    traffic.submit(*"abc")
    traffic.fail("a", error())
    traffic.fail("a", kazoo_errors.ConnectionLoss())
    assert traffic.client.names == ["a", "b"]
    assert traffic.done == [("a", None, error.__name__)]


@pytest.mark.parametrize(
    "error",
    [
        kazoo_errors.ConnectionLoss,
        kazoo_errors.SessionExpiredError,
        OSError,
        kazoo_errors.ConnectionClosedError,
    ],
)
def test_with_the_connection_what_waits_is_lost_too(error: type[Exception]) -> None:
    traffic = Traffic(2)
    traffic.submit(*"abcd")
    traffic.fail("a", error())
    name = error.__name__
    assert traffic.client.names == ["a", "b"]
    assert traffic.done == [("c", None, name), ("d", None, name), ("a", None, name)]
    traffic.fail("b", error())
    traffic.submit(*"efg")
    assert traffic.client.names == [*"abef"], "there is room again for as many"


def test_requests_without_a_connection_are_not_sent_later() -> None:
    traffic, lost = Traffic(1), []

    class Result:
        def set_exception(self, error: BaseException) -> None:
            lost.append(type(error))

    traffic.client.queue.extend([("a", Result()), ("ping", None), ("b", Result())])
    traffic.requests.drop_stale()
    assert lost == [kazoo_errors.ConnectionLoss] * 2
    assert not traffic.client.queue
    traffic.requests.drop_stale()


# --- who waits ----------------------------------------------------------------------------------------------------


async def test_equal_watches_are_one_called_in_the_event_loop() -> None:
    token, called = trio.lowlevel.current_trio_token(), []

    def watch() -> None:
        called.append(threading.current_thread())

    call, same, other = (WatchCall(act, token) for act in (watch, watch, lambda: None))
    assert (call == same, call == other, call == "x") == (True, False, False)
    assert len({call, same, other}) == 2
    await trio.to_thread.run_sync(call, object())
    await trio.testing.wait_all_tasks_blocked()
    assert called == [threading.current_thread()]


# --- on the wire --------------------------------------------------------------------------------------------------


def header(kind: int, *, done: bool = False, error: int = -1) -> bytes:
    return struct.pack(">i?i", kind, done, error)


def text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


STAT = packets.stat_struct.pack(*ZNODE)
END = header(-1, done=True)


def test_znodes_are_read_together_and_missing_ones_are_none() -> None:
    reads = b"".join(header(4) + text(path) + b"\0" for path in (b"/a", b"/b"))
    assert MultiRead(["/a", "/b"]).serialize() == reads + END
    answer = (
        header(4) + text(b"xy") + STAT + header(-1) + struct.pack(">i", -101)
        + header(4) + struct.pack(">i", -1) + STAT + END
    )  # fmt: skip
    stat = stat_of(ZNODE)
    assert MultiRead.deserialize(b"?" + answer, 1) == [(b"xy", stat), None, (b"", stat)]
    refused = header(-1) + struct.pack(">i", -102) + END
    with pytest.raises(kazoo_errors.NoAuthError):
        MultiRead.deserialize(refused, 0)


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "kind", "password", "key_password"),
    [
        ("zookeeper.ssl.keystore", "PEM", None, "secret"), ("zookeeper.ssl.keystore", "pem", None, "secret"),
        ("zookeeper.ssl.truststore", "PEM", "secret", "secret"), ("zookeeper.ssl.keystore", "JKS", "secret", None),
        ("zookeeper.ssl.truststore", "PKCS12", "secret", None),
    ],
)  # fmt: skip
def test_a_stores_password_is_the_keys_for_pem(
    setting: str, kind: str, password: str | None, key_password: str | None
) -> None:
    store = _settings(StoreFile(setting, kind, "/file", "secret"))
    assert (store.password, store.key_password) == (password, key_password)
