"""The client that blocks: the same answers as the Trio client's, the same errors, and no event loop."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import trio

from barnabas.client import (
    AuthenticationError,
    ClientSettings,
    ConnectionLostError,
    Endpoint,
    ResponseError,
    open_client,
)
from barnabas.client.admin import LATEST, Admin, NewTopic
from barnabas.client.base_connection import ANCIENT_VERSIONS
from barnabas.client.settings import SaslCredentials
from barnabas.client.sockets import SocketClient, finished, socket_client
from barnabas.testing import KafkaBroker, start_thread
from barnabas.testing.running import import_path

USERS = {
    "listeners": "USERS://127.0.0.1:0",
    "listener.security.protocol.map": "USERS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.users.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="secret";'
    ),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    started = start_thread({})
    yield started
    started.close()


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaBroker]:
    started = start_thread(USERS)
    yield started
    started.close()


def both(bootstrap: str, call: Callable[[Admin], Any]) -> tuple[Any, Any]:
    """Return what a call answers on each of the two clients."""

    async def in_trio() -> Any:
        async with open_client(bootstrap) as client:
            return await call(Admin(client))

    with socket_client(bootstrap) as client:
        return finished(call(Admin(client))), trio.run(in_trio)


async def log_dirs(admin: Admin) -> object:
    """The log dirs, but for the free bytes of a disk that others write to."""
    return {
        broker: [log_dir._replace(usable_bytes=0) for log_dir in dirs]
        for broker, dirs in (await admin.log_dirs()).items()
    }


CALLS: dict[str, Callable[[Admin], Any]] = {
    "topics": lambda admin: admin.topics(),
    "a topic that is not there": lambda admin: admin.topics(["nothing", "b"]),
    "groups": lambda admin: admin.list_groups(),
    "cluster": lambda admin: admin.describe_cluster(),
    "offsets": lambda admin: admin.offsets({("b", 0): LATEST, ("b", 1): LATEST, ("c", 0): LATEST}),
    "settings": lambda admin: admin.describe_configs([]),
    "groups that are not there": lambda admin: admin.describe_groups({"x": "classic", "y": "classic"}),
    "log dirs": lambda admin: log_dirs(admin),
}


@pytest.mark.parametrize("name", CALLS)
def test_both_clients_give_the_same_answers(broker: KafkaBroker, name: str) -> None:
    with socket_client(broker.bootstrap) as client:
        finished(Admin(client).create_topics([NewTopic("b", 2), NewTopic("c", 1)]))
    blocking, in_trio = both(broker.bootstrap, CALLS[name])
    assert repr(blocking) == repr(in_trio)


@pytest.mark.parametrize(("password", "fails"), [("secret", False), ("wrong", True)])
def test_login_works_or_is_refused(secured: KafkaBroker, password: str, fails: bool) -> None:
    settings = ClientSettings(sasl=SaslCredentials("PLAIN", "ann", password))
    with socket_client(secured.bootstrap, settings) as client:
        if fails:
            with pytest.raises(AuthenticationError, match="refuses the login"):
                finished(client.any_connection())
        else:
            finished(Admin(client).set_password("bob", "pass", mechanism="SCRAM-SHA-512"))
            scram = ClientSettings(sasl=SaslCredentials("SCRAM-SHA-512", "bob", "pass"))
            with socket_client(secured.bootstrap, scram) as bob:
                assert finished(Admin(bob).topics()) == {}


# --- brokers that fail ---------------------------------------------------------------------------------------------


@contextmanager
def peer(*scripts: Callable[[socket.socket], None]) -> Iterator[Endpoint]:
    """A listener that plays one script for each connection, the last one for all that follow."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        remaining = list(scripts)
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    (remaining.pop(0) if len(remaining) > 1 else remaining[0])(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield Endpoint(*listener.getsockname()[:2])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def answering(data: bytes) -> Callable[[socket.socket], None]:
    def play(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(data)
        connection.recv(1000)

    return play


def ancient(connection: socket.socket) -> None:
    """A broker before 0.10: it closes on ApiVersions, and answers Fetch v0, with its id and no topics."""
    request = connection.recv(1000)
    if request[4:6] == b"\0\1":
        connection.sendall(b"\0\0\0\x08" + request[8:12] + bytes(4))
        connection.recv(1000)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (answering(b""), "no answer to ApiVersions in 0.3 s"),
        (lambda connection: connection.recv(1000), "closed the connection"),
        (answering(b"\xff\xff\xff\xff"), "makes no sense"),
        (answering(b"\0\0\0\x04\0\0\0\x63"), "makes no sense"),
        (answering(b"\0\0"), "no answer to ApiVersions in 0.3 s"),
    ],
    ids=["silent", "closed", "no size", "another id", "half"],
)
def test_broker_that_fails_is_told(script: Callable[[socket.socket], None], text: str) -> None:
    with (
        peer(script) as endpoint,
        socket_client([endpoint], ClientSettings(request_timeout_ms=300)) as client,
        pytest.raises(ConnectionLostError, match=text),
    ):
        finished(client.any_connection())


def test_broker_before_versions_is_asked_in_its_first() -> None:
    with peer(ancient) as endpoint, socket_client([endpoint]) as client:
        assert finished(client.any_connection()).versions == ANCIENT_VERSIONS


def test_next_address_is_tried_where_nothing_listens(broker: KafkaBroker) -> None:
    with socket_client(f"127.0.0.1:1,{broker.bootstrap}") as client:
        assert finished(client.any_connection()).is_open
        with pytest.raises(ConnectionLostError, match="is not in the cluster"):
            finished(client.broker(99))


# --- several at a time ---------------------------------------------------------------------------------------------


def test_keys_are_asked_at_the_same_time_and_fail_alone() -> None:
    together = threading.Barrier(3)

    async def ask(key: int) -> int:
        if key < 3:
            together.wait(30)
        if key == 1:
            raise ResponseError(3, "asking")
        if key == 7:
            raise KeyError(key)
        return key

    client = SocketClient([], ClientSettings())
    answers = finished(client.each([0, 1, 2], ask))
    assert (answers[0], type(answers[1]), answers[2]) == (0, ResponseError, 2)
    assert finished(client.each(range(100, 200), ask)) == {key: key for key in range(100, 200)}
    with pytest.raises(KeyError):
        finished(client.each([7, 8, 9], ask))


def test_coroutine_that_waits_for_a_loop_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="event loop"):
        finished(_suspended())


async def _suspended() -> None:
    class Never:
        def __await__(self) -> Iterator[None]:
            yield

    await Never()


@pytest.mark.parametrize(
    "command", [["topics", "list"], ["groups", "list"], ["topics", "--help"], ["consume", "--help"]]
)
def test_commands_load_no_event_loop(broker: KafkaBroker, command: list[str]) -> None:
    words = command if command[-1] == "--help" else [*command, "-b", broker.bootstrap]
    program = (
        f"import sys\nfrom barnabas.cli import main\nassert main({words!r}) == 0\n"
        "print([name for name in ('trio._core', 'ssl', 'tomllib') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": import_path(), "HOME": "/nonexistent"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "[]\n")
