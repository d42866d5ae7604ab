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

from barnabas.cluster.zookeeper import session as ours
from barnabas.cluster.zookeeper.connection import _address
from barnabas.cluster.zookeeper.requests import (
    CREATE_2,
    Many,
    Multi,
    MultiRead,
    Pending,
    Requests,
    WatchCall,
    _settings,
    soon,
    stat_of,
    translated,
)
from barnabas.cluster.zookeeper.session import Stat
from barnabas.cluster.zookeeper.tracked_session import TrackedSession
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
        self._queue: deque[tuple[Any, Any]] = deque()

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


@pytest.mark.parametrize("most", [1, 2, 3])
def test_only_so_many_requests_are_under_way(most: int) -> None:
    traffic = Traffic(most)
    traffic.submit(*"abcde")
    sent = list("abcde"[:most])
    assert traffic.client.names == sent
    for number, name in enumerate("abcde"):
        traffic.answer(name, number)
        traffic.answer(name, "again")  # nothing more comes of it
        sent = list("abcde"[: most + number + 1])
        assert traffic.client.names == sent
    assert traffic.done == [(name, number, "") for number, name in enumerate("abcde")]
    traffic.submit(*"fghi")
    assert traffic.client.names == list("abcde") + list("fghi"[:most]), "there is room again for as many"


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


def test_what_was_asked_without_a_connection_is_lost_and_not_sent_later() -> None:
    traffic, lost = Traffic(1), []

    class Result:
        def set_exception(self, error: BaseException) -> None:
            lost.append(type(error))

    traffic.client._queue.extend([("a", Result()), ("ping", None), ("b", Result())])
    traffic.requests.drop_stale()
    assert lost == [kazoo_errors.ConnectionLoss] * 2
    assert not traffic.client._queue
    traffic.requests.drop_stale()


# --- who waits ----------------------------------------------------------------------------------------------------


async def test_the_first_answer_counts() -> None:
    token = trio.lowlevel.current_trio_token()
    pending = Pending(token)
    error = kazoo_errors.NoNodeError()
    await trio.to_thread.run_sync(pending.done, "fine", None)
    await trio.to_thread.run_sync(pending.done, None, error)
    await pending.answered.wait()
    assert (pending.result, pending.error) == ("fine", None)
    failed = Pending(token)
    failed.finish(None, error)
    failed.finish("fine", None)
    assert (failed.result, failed.error) == (None, error)


@pytest.mark.parametrize(
    ("answers", "results", "error"),
    [
        ([(1, "b", None), (0, "a", None)], ["a", "b"], None),
        ([(0, "a", None), (1, None, kazoo_errors.NoNodeError())], ["a", None], None),
        (
            [(0, None, kazoo_errors.ConnectionLoss()), (1, "b", None)],
            [None, "b"],
            kazoo_errors.ConnectionLoss,
        ),
        ([(1, None, OSError()), (0, None, kazoo_errors.ConnectionLoss())], [None, None], OSError),
        ([(1, None, OSError()), (0, None, kazoo_errors.NoNodeError())], [None, None], OSError),
    ],
)
def test_many_answers_are_handed_over_with_the_last_one(
    answers: list[tuple[int, Any, Any]], results: list[Any], error: type[Exception] | None
) -> None:
    handed: list[tuple[Any, Any]] = []

    class Whole:
        def done(self, result: Any, error: Any) -> None:
            handed.append((result, error))

    many = Many(Whole(), len(answers))  # type: ignore[arg-type]
    for number, (index, result, failure) in enumerate(answers):
        assert len(handed) == (number == len(answers))
        many.done(index)(result, failure)
    [(found, failed)] = handed
    assert found == results
    assert failed is None if error is None else isinstance(failed, error)


async def test_watches_of_the_same_call_are_one_and_are_called_in_the_event_loop() -> None:
    token, called = trio.lowlevel.current_trio_token(), []

    def watch() -> None:
        called.append(threading.current_thread())

    one, same, other = (WatchCall(act, token) for act in (watch, watch, lambda: None))
    assert (one == same, one == other, one == "x") == (True, False, False)
    assert len({one, same, other}) == 2
    await trio.to_thread.run_sync(one, object())
    await trio.testing.wait_all_tasks_blocked()
    assert called == [threading.current_thread()]


def test_what_comes_after_the_end_of_the_event_loop_is_left_out() -> None:
    async def main() -> trio.lowlevel.TrioToken:
        return trio.lowlevel.current_trio_token()

    soon(trio.run(main), print, "nobody hears this")


# --- on the wire --------------------------------------------------------------------------------------------------


def test_the_stat_has_its_fields_in_their_places() -> None:
    assert stat_of(ZNODE) == Stat(15, 11, 12, 18, 20, 13)


def header(kind: int, *, done: bool = False, error: int = -1) -> bytes:
    return struct.pack(">i?i", kind, done, error)


def text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


STAT = packets.stat_struct.pack(*ZNODE)
END = header(-1, done=True)


def test_operations_are_written_together_and_each_has_its_result() -> None:
    operations = [packets.Create2("/a", b"x", [], 1), packets.Delete("/b", 3)]
    parts = b"".join(header(one.type) + one.serialize() for one in operations)
    assert Multi(operations).serialize() == parts + END
    answer = (
        header(CREATE_2) + text(b"/a") + STAT + header(2) + header(5) + STAT + header(13)
        + header(-1, error=-101) + struct.pack(">i", -101) + header(-1) + struct.pack(">i", 0) + END
    )  # fmt: skip
    found = Multi.deserialize(b"??" + answer, 2)
    assert found[:4] == [ZNODE, None, ZNODE, None]
    assert [type(one) for one in found[4:]] == [kazoo_errors.NoNodeError, kazoo_errors.RolledBackError]


def test_znodes_are_read_together_and_those_that_are_not_there_are_none() -> None:
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


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (kazoo_errors.NoNodeError, ours.NoNodeError), (kazoo_errors.NodeExistsError, ours.NodeExistsError),
        (kazoo_errors.BadVersionError, ours.BadVersionError), (kazoo_errors.NotEmptyError, ours.NotEmptyError),
        (kazoo_errors.NoAuthError, ours.NoAuthError), (kazoo_errors.AuthFailedError, ours.NoAuthError),
        (kazoo_errors.InvalidACLError, ours.NoAuthError), (kazoo_errors.SessionExpiredError, ours.SessionExpiredError),
        (kazoo_errors.ConnectionLoss, ours.ConnectionLostError), (kazoo_errors.SessionMovedError, ours.ConnectionLostError),
        (kazoo_errors.OperationTimeoutError, ours.ConnectionLostError), (kazoo_errors.APIError, ours.ZooKeeperError),
    ],
)  # fmt: skip
def test_errors_are_those_of_the_session(theirs: type[Exception], expected: type[Exception]) -> None:
    found = translated(theirs("why"), "/a")
    assert type(found) is expected
    assert "/a" in str(found)


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


@pytest.mark.parametrize(("host", "address"), [("h", "h:1"), ("1.2.3.4", "1.2.3.4:1"), ("::1", "[::1]:1")])
def test_an_address_with_colons_is_bracketed(host: str, address: str) -> None:
    assert _address(host, 1) == address


# --- the state of a session ---------------------------------------------------------------------------------------


async def test_whoever_waits_for_the_connection_is_woken_when_it_is_there() -> None:
    session, heard, woken = TrackedSession(), [], []
    session.watch_session(heard.append)
    session.watch_session(heard.append)

    async def wait() -> None:
        await session.wait_connected()
        woken.append(session.state)

    state = ours.SessionState
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for new in (state.DISCONNECTED, state.EXPIRED):
            session._set_state(new)
            await trio.testing.wait_all_tasks_blocked()
            assert woken == []
        session._set_state(state.CONNECTED)
    assert woken == [state.CONNECTED]
    await session.wait_connected()
    session._set_state(state.DISCONNECTED)
    with trio.move_on_after(0.01) as scope:
        await session.wait_connected()
    assert scope.cancelled_caught
    assert heard == [
        one
        for one in (state.DISCONNECTED, state.EXPIRED, state.CONNECTED, state.DISCONNECTED)
        for _ in (1, 2)
    ]
