"""Commands in this process, against brokers in threads of it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli import main
from barnabas.client import admin as administration
from barnabas.client import sockets
from barnabas.testing import KafkaBroker, start_thread

USERS = {
    "listeners": "USERS://127.0.0.1:0",
    "listener.security.protocol.map": "USERS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.users.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_admin="secret" user_ann="other";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "delegation.token.secret.key": "0123456789abcdef",
}


class Commands:
    """Runs commands against one broker."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str], *options: str) -> None:
        self.address = address
        self._capsys = capsys
        self._options = options

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run one; returns what it says on standard output and on standard error."""
        ended_with = main([*arguments, "--bootstrap", self.address, *self._options])
        output = self._capsys.readouterr()
        assert ended_with == code, output
        assert "Traceback" not in output.err
        return output.out, output.err

    def rows(self, key: str, *arguments: str, code: int = 0) -> Any:
        """Run one with --json; returns what its object has under a key."""
        return json.loads(self(*arguments, "--json", code=code)[0])[key]


class StandIn(Commands):
    """Runs commands against an administration that answers as a test says, and keeps what it was asked.

    So a cluster can have several brokers, and failures that a broker alone does not have.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__("127.0.0.1:1", capsys)
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[Any, ...]] = []
        """Name, arguments by position, and by name if there are any, of each call."""

    def asked_for(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of each call of this name."""
        return [arguments for call, *arguments in self.asked if call == name]

    def __getattr__(self, name: str) -> Any:
        async def answered(*arguments: Any, **named: Any) -> Any:
            values = [list(argument) if hasattr(argument, "__next__") else argument for argument in arguments]
            self.asked.append((name, *values, named) if named else (name, *values))
            answer = self.answers[name]
            if callable(answer):
                answer = answer(*values, **named)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return answered


@pytest.fixture
def cluster(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> StandIn:
    @contextmanager
    def opened(*_: Any) -> Iterator[Any]:
        async def any_connection() -> None:
            pass

        yield SimpleNamespace(any_connection=any_connection)

    created = StandIn(capsys)
    monkeypatch.setattr(sockets, "socket_client", opened)
    monkeypatch.setattr(administration, "Admin", lambda _: created)
    return created


@pytest.fixture(autouse=True)
def _nobody_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, set_environment: Callable[..., None], tmp_path: Any
) -> None:
    """Have no terminal to ask at, and no profiles and variables of the user that runs the tests."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    set_environment(XDG_CONFIG_HOME=str(tmp_path / "config"))
    for name in ("BARNABAS_BOOTSTRAP", "BARNABAS_PROFILE", "BARNABAS_PASSWORD", "BARNABAS_REGISTRY"):
        set_environment(**{name: None})


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have a user at a terminal that answers so."""

    def answer(text: str) -> None:
        terminal = io.StringIO(text)
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", terminal)

    return answer


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    started = start_thread({"num.partitions": "1"})
    yield started
    started.close()


@pytest.fixture(scope="module")
def secured() -> Iterator[KafkaBroker]:
    """A broker with an authorizer, and users that log in."""
    started = start_thread(USERS)
    yield started
    started.close()


@pytest.fixture
def run(broker: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(broker.bootstrap, capsys)


@pytest.fixture
def admin(
    secured: KafkaBroker, capsys: pytest.CaptureFixture[str], set_environment: Callable[..., None]
) -> Commands:
    """Commands of the administrator of a secured broker."""
    set_environment(BARNABAS_PASSWORD="secret")
    return Commands(secured.bootstrap, capsys, "--user", "admin", "--mechanism", "PLAIN")
