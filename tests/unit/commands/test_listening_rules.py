"""Addresses as `barnabas doctor` sees them: names, ports, protocols, certificates, logins."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from cryptography import x509

from barnabas.client import AuthenticationError, ClientError, ClientSettings, ConnectionLostError, Endpoint
from barnabas.client.settings import SaslCredentials
from barnabas.commands import listening
from barnabas.commands.findings import NOTE, OK, PROBLEM, SKIPPED, Findings
from barnabas.commands.listening import (
    OTHER,
    TLS,
    Seen,
    _offered,
    connect,
    look_at,
    peer_certificate,
    spoken,
    try_login,
)
from tests.support.certificates import Files
from tests.support.certificates import written as certificates_in

HERE = Endpoint("broker.test", 9093)


@pytest.fixture
def findings() -> Findings:
    return Findings(lambda _: None)


def brief(findings: Findings) -> list[tuple[str, str, str]]:
    return [(finding.check, finding.status, finding.text) for finding in findings.all]


# --- names and ports -----------------------------------------------------------------------------------------------


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Outcomes of connections by address: None for one that is made."""
    outcomes: dict[str, Any] = {}

    async def open_tcp_stream(address: str, port: int) -> Any:
        assert port == 9093
        if outcomes[address] is trio.TooSlowError:
            await trio.sleep_forever()
        if outcomes[address] is not None:
            raise outcomes[address]
        return SimpleNamespace(aclose=trio.lowlevel.checkpoint)

    async def aclose(_: Any) -> None:
        pass

    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    monkeypatch.setattr(trio, "aclose_forcefully", aclose)
    return outcomes


def refused() -> OSError:
    """An error as Trio raises it, with that of the socket as its cause."""
    error = OSError("all attempts failed")
    error.__cause__ = ExceptionGroup("", [ConnectionRefusedError(errno.ECONNREFUSED, "x")])
    return error


async def test_port_is_a_problem_only_if_closed_on_all_addresses(
    findings: Findings, ports: dict[str, Any]
) -> None:
    ports |= {"a": refused(), "b": None, "c": None}
    assert await connect(HERE, ["a", "b", "c"], findings) == ["b", "c"]
    assert brief(findings) == [
        ("port", NOTE, "a does not accept connections: connection refused"),
        ("port", OK, "b, c accepts connections"),
    ]
    ports["b"] = OSError("odd")
    assert await connect(HERE, ["a", "b"], findings) == []
    assert brief(findings)[2:] == [
        ("port", PROBLEM, "nothing listens on a port 9093: connection refused"),
        ("port", PROBLEM, "nothing listens on b port 9093: odd"),
    ]
    assert "barnabas serve" in findings.all[2].advice


# --- protocols -----------------------------------------------------------------------------------------------------


async def test_nothing_is_spoken_where_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert await spoken("127.0.0.1", port) == OTHER
    assert await peer_certificate("127.0.0.1", port, "localhost") is None


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return certificates_in(tmp_path_factory.mktemp("certificates"))


@contextmanager
def tls_server(files: Files, *, wants_certificate: bool = False) -> Iterator[int]:
    """A server of TLS, which closes after the handshake; its port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.broker)
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # it refuses within the handshake

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


async def test_a_port_of_tls_shows_its_certificate_unverified(files: Files) -> None:
    with tls_server(files) as port:
        data = await peer_certificate("127.0.0.1", port, "other.name")
        assert await spoken("127.0.0.1", port) == TLS
    assert data
    expected = x509.load_pem_x509_certificates(files.broker.read_bytes())[0]
    assert x509.load_der_x509_certificate(data) == expected


async def test_a_port_that_wants_our_certificate_speaks_tls(files: Files) -> None:
    with tls_server(files, wants_certificate=True) as port:
        assert await peer_certificate("127.0.0.1", port, "localhost") == b""
        assert await spoken("127.0.0.1", port) == TLS


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Steps of looking at an address, and what each sees."""
    answers: dict[str, Any] = {
        "resolve": ["::1", "::2"], "connect": ["::2", "::1"], "spoken": TLS, "peer_certificate": b"certificate",
        "_offered": ("PLAIN",), "asked": [],
    }  # fmt: skip

    def stand_in(name: str) -> Callable[..., Any]:
        async def answered(*args: Any) -> Any:
            answers["asked"].append((name, *(arg for arg in args if isinstance(arg, str | int | list))))
            return answers[name]

        return answered

    for name in ("resolve", "connect", "spoken", "peer_certificate", "_offered"):
        monkeypatch.setattr(listening, name, stand_in(name))
    judged = lambda data, *_: answers["asked"].append(("judge", data))  # noqa: E731
    monkeypatch.setattr(listening, "judge_certificate", judged)
    return answers


TLS_SETTINGS = ClientSettings(tls=ssl.create_default_context())


async def test_an_address_that_works_is_asked_what_it_speaks(
    findings: Findings, seen: dict[str, Any]
) -> None:
    assert await look_at(HERE, TLS_SETTINGS, findings) == Seen(TLS, ("PLAIN",))
    assert [call for call in seen["asked"] if call[0] != "_offered"] == [
        ("resolve",), ("connect", ["::1", "::2"]), ("spoken", "::2", 9093),
        ("peer_certificate", "::2", 9093, "broker.test"), ("judge", b"certificate"),
    ]  # fmt: skip
    assert brief(findings) == [("protocol", OK, "Kafka over TLS, as the settings ask")]


# --- logins --------------------------------------------------------------------------------------------------------

ANN = SaslCredentials("SCRAM-SHA-512", "ann", "secret")


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A connection that answers so; an error is raised when it is opened."""

    async def ask(request: Any, *, version_max: int) -> Any:
        created.asked.append((type(request).__name__, version_max))
        return created.answer

    created = SimpleNamespace(
        versions={17: (0, 1)}, ask=ask, asked=[], answer=None, error=None, settings=None
    )

    @asynccontextmanager
    async def opened(endpoint: Endpoint, settings: ClientSettings) -> AsyncIterator[Any]:
        created.settings = settings
        assert endpoint == HERE
        if created.error is not None:
            raise created.error
        yield created

    monkeypatch.setattr(listening, "open_connection", opened)
    return created


@pytest.mark.parametrize(
    ("sasl", "mechanisms", "told", "advice"),
    [
        (ANN, ("PLAIN", "SCRAM-SHA-512"), [], ""),
        (None, ("PLAIN", "GSSAPI"), ["the listener wants a login, and the settings have none; it offers PLAIN, GSSAPI"],
         "give --user NAME --mechanism PLAIN"),
        (None, (), ["the listener wants a login, and the settings have none; it offers none"],
         "give --user NAME --mechanism ..."),
        (ANN, ("PLAIN", "GSSAPI"), ["it offers PLAIN, GSSAPI, not SCRAM-SHA-512"],
         "give --mechanism PLAIN, or add it to sasl.enabled.mechanisms"),
        (ANN, (), ["it offers none, not SCRAM-SHA-512"], "give --mechanism ..., or add it to sasl.enabled.mechanisms"),
    ],
)  # fmt: skip
async def test_a_listener_offers_the_mechanism_of_the_settings_or_not(
    findings: Findings,
    connection: SimpleNamespace,
    sasl: SaslCredentials | None,
    mechanisms: tuple[str, ...],
    told: list[str],
    advice: str,
) -> None:
    connection.answer = SimpleNamespace(error_code=33, mechanisms=list(mechanisms))
    assert await _offered(HERE, ClientSettings(sasl=sasl), findings) == mechanisms
    assert brief(findings) == [("login", PROBLEM, text) for text in told]
    assert [finding.advice for finding in findings.all] == [advice] * len(told)
    assert connection.settings == ClientSettings(), "it is asked before any login"
    assert connection.asked == [("SaslHandshakeRequest", 1)]


@pytest.mark.parametrize(("settings", "check"), [(ClientSettings(), "protocol"), (TLS_SETTINGS, "TLS")])
async def test_a_listener_that_does_not_speak_with_us_is_a_problem(
    findings: Findings, connection: SimpleNamespace, settings: ClientSettings, check: str
) -> None:
    connection.error = ClientError("no")
    assert await _offered(HERE, settings, findings) is None
    assert brief(findings) == [(check, PROBLEM, "no")]


@pytest.mark.parametrize(
    ("sasl", "finding"),
    [
        (ANN, ("login", OK, "logged in with SCRAM-SHA-512")),
        (None, ("login", SKIPPED, "the listener wants none")),
    ],
)
async def test_a_login_is_tried_with_the_settings(
    findings: Findings,
    connection: SimpleNamespace,
    sasl: SaslCredentials | None,
    finding: tuple[str, str, str],
) -> None:
    settings = ClientSettings(sasl=sasl)
    result: Any = await try_login(HERE, settings, findings)
    assert result is connection
    assert connection.settings is settings
    assert connection.asked == [("MetadataRequest", 12)]
    assert brief(findings) == [finding]


@pytest.mark.parametrize(
    ("error", "text", "advises"),
    [
        (AuthenticationError("who is ann?"), "who is ann?", True),
        (
            ConnectionLostError("h:1: closed the connection"),
            "h:1 closed the connection: it may want TLS",
            False,
        ),
        (ClientError("odd"), "odd", False),
    ],
)
async def test_a_login_that_fails_is_a_problem(
    findings: Findings, connection: SimpleNamespace, error: Exception, text: str, advises: bool
) -> None:
    connection.error = error
    assert await try_login(HERE, ClientSettings(sasl=ANN), findings) is None
    ((check, status, told),) = brief(findings)
    assert (check, status, told.startswith(text)) == ("login", PROBLEM, True)
    assert ("barnabas users list" in findings.all[0].advice) == advises
