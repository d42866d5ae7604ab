"""Bounds of the REST API: objects of a stream, users and their clients, consumer instances, bodies."""

from __future__ import annotations

from base64 import b64encode
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import AuthenticationError, ClientSettings, Endpoint
from barnabas.rest import backend as backends
from barnabas.rest.backend import IDLE_SECONDS_MAX, LOGIN_SECONDS, USERS_MAX, Cluster, Users
from barnabas.rest.errors import RestError
from barnabas.rest.formats import timestamp_of
from barnabas.rest.instances import OWNER_INSTANCES_MAX, Instances, InstanceSettings
from barnabas.rest.objects import ObjectError, Objects
from barnabas.testing import start_thread
from tests.support.hosted import QUICK_GROUPS
from tests.support.rest import JSON_V2, world

OBJECTS = [b"{}", b'{"a":"}{\\"\\\\"}', b'{"b":[{"c":"]"}]}']


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize(
    "text", [b" ".join(OBJECTS), b"".join(OBJECTS), b"[" + b" , ".join(OBJECTS) + b"]\n"]
)
def test_objects_are_cut_wherever_pieces_end(text: bytes, size: int) -> None:
    objects = Objects(100)
    assert [
        part for at in range(0, len(text), size) for part in objects.feed(text[at : at + size])
    ] == OBJECTS
    objects.finish()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"{}x", 1),
        (b"1", 0),
        (b"{}[{}]", 1),
        (b"[{}]{}", 1),
        (b'{"a":' + b'"x' * 99, 0),
        (b"{", 0),
        (b"[{},", 1),
        (b"]", 0),
    ],
)
def test_what_is_no_sequence_of_objects_is_refused(text: bytes, count: int) -> None:
    objects = Objects(100)
    seen: list[bytes] = []

    def cut() -> None:
        seen.extend(objects.feed(text))
        objects.finish()

    with pytest.raises(ObjectError):
        cut()
    assert len(seen) == count


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-31T12:00:00Z", 1769860800000),
        ("2026-01-31T13:00:00+01:00", 1769860800000),
        (1.5, 1500),
        (7, 7000),
    ],
)
def test_times_are_read_as_java_writes_them(value: Any, expected: int) -> None:
    assert timestamp_of(value) == expected


@pytest.mark.parametrize("value", ["yesterday", True, float("nan"), -1, [], 10**30])
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(RestError):
        timestamp_of(value)


class Broker:
    """A broker that takes logins with one password, and counts them."""

    def __init__(self) -> None:
        self.password = "right"
        self.logins = 0

    def open_client(self, _: Any, settings: ClientSettings, **__: Any) -> Any:
        return self

    async def __aenter__(self) -> Any:
        async def any_connection() -> None:
            self.logins += 1
            if self.password != "right":
                raise AuthenticationError("no")

        return SimpleNamespace(any_connection=any_connection, settings=ClientSettings())

    async def __aexit__(self, *_: object) -> None:
        return None


def login(user: str) -> bytes:
    return b"Basic " + b64encode(f"{user}:secret".encode())


@pytest.fixture
def broker() -> Broker:
    return Broker()


def users_of(broker: Broker, nursery: trio.Nursery) -> Users:
    cluster = Cluster((Endpoint("h", 1),), ClientSettings(), lambda user, password: ClientSettings())
    users = Users(cluster, SimpleNamespace(), nursery, open_client=broker.open_client)  # type: ignore[arg-type]
    nursery.start_soon(users.run)
    return users


async def test_a_client_is_kept_proven_anew_and_closed(
    broker: Broker, nursery: trio.Nursery, autojump_clock: object
) -> None:
    users = users_of(broker, nursery)
    for _ in range(3):
        async with users.backend(login("ann"), "a"):
            pass
    assert broker.logins == 1
    await trio.sleep(LOGIN_SECONDS + 1)
    async with users.backend(login("ann"), "a"):
        assert broker.logins == 2
    await trio.sleep(IDLE_SECONDS_MAX + 20)

    async def outlive() -> None:
        async with users.backend(login("ann"), "a"):
            assert broker.logins == 3, "a new client"
            broker.password = "changed"
            await trio.sleep(LOGIN_SECONDS * 2)

    with pytest.raises(RestError) as ended:
        await outlive()
    assert ended.value.status == 503, "requests end with the login"
    began = trio.current_time()
    with pytest.raises(RestError) as refused:
        async with users.backend(login("ann"), "a"):
            pass
    assert (refused.value.code, trio.current_time() - began) == (40101, 1.0)


async def test_users_and_their_requests_are_bounded(
    broker: Broker, nursery: trio.Nursery, autojump_clock: object
) -> None:
    users = users_of(broker, nursery)
    for number in range(USERS_MAX + 5):
        async with users.backend(login(f"user {number}"), "a"):
            pass
    assert broker.logins == USERS_MAX + 5, "idle ones have made room"
    waiting = trio.Event()

    async def hold() -> None:
        async with users.backend(login("ann"), "a"):
            await waiting.wait()

    async with trio.open_nursery() as holding:
        for _ in range(backends.OWNER_REQUESTS_MAX):
            holding.start_soon(hold)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RestError) as refused:
            async with users.backend(login("ann"), "a"):
                pass
        assert refused.value.status == 429
        async with users.backend(login("bob"), "a"):
            waiting.set()


async def test_instances_are_bounded_and_expire() -> None:
    started = start_thread(settings=QUICK_GROUPS)
    try:
        async with trio.open_nursery() as nursery:
            client = SimpleNamespace(settings=ClientSettings())
            backend = backends.Backend(
                client,
                [Endpoint(*started.bootstrap.split(":"))],
                nursery,
                SimpleNamespace(),
                "user ann",
                None,  # type: ignore[arg-type]
            )
            instances = Instances(seconds_max=0.5)
            for number in range(OWNER_INSTANCES_MAX):
                await instances.create(backend, "g", str(number), InstanceSettings("json"))
            with pytest.raises(RestError) as refused:
                await instances.create(backend, "g", "", InstanceSettings("json"))
            assert refused.value.code == 42901
            nursery.start_soon(instances.run)
            with trio.fail_after(60):
                while len(instances):
                    await trio.sleep(0.1)
            with pytest.raises(RestError) as gone:
                instances.find(backend, "g", "0")
            assert gone.value.code == 40403
            nursery.cancel_scope.cancel()
    finally:
        started.close()


async def test_large_bodies_and_long_names_are_refused() -> None:
    async with world(has_registry=False) as (server, cluster, _):
        for method, path, body, content_type, expected in (
            ("POST", "/topics/t", b"[" * 9_000_000, JSON_V2, (413, 413)),
            ("POST", "/topics/t", {"records": [{"value": [1] * 60_000}]}, JSON_V2, (413, 413)),
            ("POST", "/topics/t", {"records": [{"value": 1}] * 10_001}, JSON_V2, (413, 413)),
            ("POST", f"{cluster}/topics", {"topic_name": "x" * 9_000}, "application/json", (400, 400)),
            ("POST", f"{cluster}/topics", {"topic_name": "\ud800"}, "application/json", (400, 400)),
            ("GET", f"/consumers/{'g' * 9_000}/instances/i/records", None, "", (414, 414)),
            ("GET", "/topics/%ff", None, "", (400, 400)),
        ):
            answer = await server.ask(method, path, body, content_type=content_type)
            assert answer.code == expected, path
        streamed = await server.ask("POST", f"{cluster}/topics/t/records", b'{"value":"' + b"x" * 3_000_000)
        assert streamed.json["error_code"] == 400
