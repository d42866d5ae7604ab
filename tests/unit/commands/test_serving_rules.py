"""Commands that serve: what keeps one from it, how it ends, and the registry that it serves."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.cli import main
from barnabas.client import ClientSettings, ConnectionLostError, Endpoint
from barnabas.client.settings import SaslCredentials
from barnabas.commands import registry, serving
from barnabas.commands.connection import Connecting
from barnabas.commands.errors import CommandError
from barnabas.commands.serving import of_user, serve
from barnabas.network.visitors import AddressError
from barnabas.registry.errors import RegistryError
from tests.support.certificates import written as certificates_in


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Levels of the log that were asked for."""
    asked: list[str] = []
    monkeypatch.setattr(serving.log_lines, "begin", asked.append)
    return asked


def lost() -> ConnectionLostError:
    error = ConnectionLostError("h:1: no")
    error.__cause__ = ConnectionRefusedError()
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AddressError("in use"), "in use"),
        (
            lost(),
            "nothing listens on h:1: start a broker with `barnabas serve`, or give --bootstrap HOST:PORT",
        ),
        (CommandError("cannot"), "cannot"),
        (RegistryError(404, 40401, "not found"), "not found (40401)"),
        (OSError(28, "full"), "[Errno 28] full"),
        (
            ModuleNotFoundError("No module named 'fastavro'", name="fastavro"),
            "the package fastavro is missing, which the extra `registry` brings: pip install 'barnabas[registry]'",
        ),
        (ModuleNotFoundError("No module named 'other'", name="other"), "No module named 'other'"),
    ],
)
def test_what_keeps_it_from_serving_is_one_line(
    levels: list[str], capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    async def start(nursery: trio.Nursery) -> str:
        raise error

    assert serve("thing", start, "info") == 1
    assert capsys.readouterr() == ("", f"barnabas thing: {said}\n")
    assert levels == ["info"]


@pytest.mark.usefixtures("levels")
def test_a_failure_while_it_serves_ends_it_and_a_defect_is_not_hidden(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def start(nursery: trio.Nursery) -> str:
        nursery.start_soon(fail, CommandError("later"))
        return "here"

    assert serve("thing", start, "info") == 1
    assert capsys.readouterr() == ("barnabas thing is ready: here\n", "barnabas thing: later\n")

    async def defect(nursery: trio.Nursery) -> str:
        raise KeyError("x")

    with pytest.raises(ExceptionGroup):
        serve("thing", defect, "info")


@pytest.mark.usefixtures("levels")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_a_clean_end(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[bool] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await trio.sleep_forever()
        finally:
            ended.append(True)

    async def start(nursery: trio.Nursery) -> str:
        nursery.start_soon(work)
        return "here"

    assert serve("thing", start, "info") == 0
    assert capsys.readouterr() == ("barnabas thing is ready: here\n", "")
    assert ended == [True]


def test_a_user_logs_in_as_the_command_would_but_with_a_name_and_a_password_of_its_own() -> None:
    settings = ClientSettings(
        client_id="x", request_timeout_ms=5, sasl=SaslCredentials("PLAIN", "admin", "secret")
    )
    made = of_user(Connecting([Endpoint("h", 1)], settings, {}), "SCRAM-SHA-256")("ann", "pw")
    assert made == ClientSettings(
        client_id="x", request_timeout_ms=5, sasl=SaslCredentials("SCRAM-SHA-256", "ann", "pw")
    )


# --- the registry --------------------------------------------------------------------------------------------------


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Registries that serve nothing, by what they were made and run with."""
    noted: list[tuple[Any, ...]] = []

    class Server:
        url = "http://here:8081"

        def __init__(self, address: Any, *, may_be_reached: bool) -> None:
            noted.append((address, may_be_reached))

        async def run(
            self, bootstrap: Any, settings: Any, logins: Any, topic: str, *, task_status: Any
        ) -> None:
            noted.append((bootstrap, settings.client_id, logins, topic))
            task_status.started()

    monkeypatch.setattr(registry, "RegistryServer", Server)
    monkeypatch.setattr(registry, "Logins", lambda bootstrap, make: (bootstrap, make("ann", "pw").sasl))

    def serve_once(name: str, start: Callable[[trio.Nursery], Awaitable[str]], level: str) -> int:
        async def run() -> None:
            async with trio.open_nursery() as nursery:
                noted.append((name, await start(nursery), level))

        trio.run(run)
        return 0

    monkeypatch.setattr(registry, "serve", serve_once)
    return noted


BOOTSTRAP = [Endpoint("a", 1), Endpoint("b", 2)]


@pytest.mark.parametrize(
    ("options", "may_be_reached", "login", "topic", "level"),
    [
        ("", False, None, "_schemas", "warning"),
        ("--open --topic mine --log-level debug", True, None, "mine", "debug"),
        ("--login SCRAM-SHA-256", True, "SCRAM-SHA-256", "_schemas", "warning"),
    ],
)
def test_a_registry_may_be_reached_from_elsewhere_with_logins_or_where_it_is_open(
    served: list[tuple[Any, ...]],
    options: str,
    may_be_reached: bool,
    login: str | None,
    topic: str,
    level: str,
) -> None:
    arguments = [
        "registry",
        "-b",
        "a:1,b:2",
        "-X",
        "client.id=me",
        "--listen",
        "127.0.0.1:0",
        *options.split(),
    ]
    assert main(arguments) == 0
    (address, reached), (bootstrap, client_id, logins, of_topic), ready = served
    assert (address.host, address.port, reached) == ("127.0.0.1", 0, may_be_reached)
    assert (bootstrap, client_id, of_topic) == (BOOTSTRAP, "me", topic)
    assert logins == (None if login is None else (BOOTSTRAP, SaslCredentials(login, "ann", "pw")))
    assert ready == ("registry", "registry=http://here:8081 bootstrap.servers=a:1,b:2", level)
    assert address.tls is None


def test_a_registry_speaks_tls_with_a_certificate_whose_key_may_be_in_another_file(
    served: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    files = certificates_in(tmp_path)
    listen = ("registry", "--listen", "localhost:0", "--listen-cert")
    assert main([*listen, str(files.client), "--listen-key", str(files.client_key)]) == 0
    assert main([*listen, str(files.broker)]) == 0
    assert [address.tls is not None for address, _ in (served[0], served[3])] == [True, True]


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "NTLM"])
def test_users_of_a_registry_have_names_and_passwords(
    mechanism: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["registry", "--login", mechanism]) == 2
    assert f"'{mechanism}' is not one of" in capsys.readouterr().err
