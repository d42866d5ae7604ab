"""Tokens come from an identity provider on loopback, or from files, or there are none."""

from __future__ import annotations

import json
import threading
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from barnabas.broker.tokens import Expected, UnsecuredTokens
from barnabas.client.errors import AuthenticationError, ClientError, ConnectionLostError
from barnabas.client.settings import ClientSettings, extensions_of
from barnabas.client.tokens import RenewedTokens, tokens_of, unsecured_tokens

NOW = 1_700_000_000


def jwt(expires_s: float, number: int = 0) -> str:
    parts = ({"alg": "RS256"}, {"exp": expires_s, "n": number})
    encoded = (urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return ".".join(encoded) + ".c2ln"


class Provider(HTTPServer):
    """An identity provider that answers with `status` and `body`."""

    status = 200
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.path, self.headers["Authorization"], form))
        self.send_response(self.server.status)
        for name, value in self.server.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_identity_provider_is_asked_with_id_and_secret(provider: Provider) -> None:
    token = jwt(NOW * 2)
    provider.body = json.dumps({"access_token": token, "expires_in": 300}).encode()
    tokens = tokens_of(provider.url, "castle", "a secret:1", "read write")
    assert tokens() == token
    ((path, login, form),) = provider.asked
    assert path == "/token"
    assert b64decode(login.removeprefix("Basic ")) == b"castle:a secret:1"
    assert parse_qs(form) == {"grant_type": ["client_credentials"], "scope": ["read write"]}
    assert tokens() == token
    assert len(provider.asked) == 1  # it is good for a while


def test_id_and_secret_may_be_encoded(provider: Provider) -> None:
    provider.body = json.dumps({"access_token": "t"}).encode()
    tokens_of(provider.url, "a b", "c&d", encodes_header=True)()
    assert b64decode(provider.asked[0][1].removeprefix("Basic ")) == b"a+b:c%26d"


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (401, b'{"error": "invalid_client"}', AuthenticationError, "401 Unauthorized, invalid_client"),
        (400, b"[]", AuthenticationError, "400"),
        (503, b"", ConnectionLostError, "503"),
        (200, b"{}", AuthenticationError, "gives no token"),
        (200, b'{"access_token": "a b"}', AuthenticationError, "gives no token"),
        (200, b'{"access_token": 5}', AuthenticationError, "gives no token"),
        (200, b'"text"', AuthenticationError, "gives no token"),
        (200, b"<html>", AuthenticationError, "gives no token"),
    ],
)
def test_what_an_identity_provider_answers_instead(
    provider: Provider, status: int, body: bytes, kind: type[ClientError], text: str
) -> None:
    provider.status, provider.body = status, body
    with pytest.raises(kind, match=text) as refused:
        tokens_of(provider.url, "castle", "hush")()
    assert "hush" not in str(refused.value)


def test_a_secret_is_not_sent_to_where_a_redirect_leads(provider: Provider) -> None:
    provider.status, provider.headers = 302, (("Location", f"{provider.url}/elsewhere"),)
    with pytest.raises(AuthenticationError, match="302"):
        tokens_of(provider.url, "castle", "hush")()
    assert len(provider.asked) == 1


def test_an_identity_provider_that_is_not_there() -> None:
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        tokens_of("http://127.0.0.1:1/token", "castle", "hush")()


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    tokens = tokens_of(f"file://{tmp_path}/a%20token")
    with pytest.raises(AuthenticationError, match="No such file"):
        tokens()
    for token in ("first", "second"):
        path.write_text(f"{token}\n")
        assert tokens() == token
    path.write_bytes(b"\xff")
    with pytest.raises(AuthenticationError, match="no text"):
        tokens()


@pytest.mark.parametrize("url", ["", "ftp://host/x", "https:", "host:80/token"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"token\.endpoint\.url"):
        tokens_of(url, "a", "b")
    with pytest.raises(ValueError, match="client secret"):
        tokens_of("https://host/token", "a")


def test_an_address_with_a_user_is_refused_without_its_password() -> None:
    with pytest.raises(ValueError, match="names no user") as error:
        tokens_of("https://castle:hush@provider.example/token", "castle", "hush")
    assert "hush" not in str(error.value)


def test_token_is_renewed_before_expiry_and_kept_on_failure() -> None:
    now, fetched = [float(NOW)], [0]
    is_there = [True]

    def fetch() -> str:
        if not is_there[0]:
            raise ConnectionLostError("not there")
        fetched[0] += 1
        return jwt(now[0] + 100, fetched[0])

    tokens = RenewedTokens(fetch, clock_s=lambda: now[0])
    first = tokens()
    now[0] += 79
    assert tokens() == first
    now[0] += 2
    second = tokens()
    assert second != first
    is_there[0] = False
    now[0] += 90
    assert tokens() == second
    now[0] += 11
    with pytest.raises(ConnectionLostError):
        tokens()


def test_what_is_no_jwt_is_asked_for_each_time() -> None:
    arguments = iter(("one", "two", "three.e30.x"))
    tokens = RenewedTokens(lambda: next(arguments))
    assert [tokens(), tokens(), tokens()] == ["one", "two", "three.e30.x"]


async def test_an_unsecured_token_is_what_a_broker_for_tests_takes() -> None:
    check = UnsecuredTokens(Expected(), clock_ms=lambda: NOW * 1000).check
    assert (await check(unsecured_tokens("alice", clock_s=lambda: NOW)())).name == "alice"


def test_settings_of_a_client() -> None:
    base = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    url = "sasl.oauthbearer.token.endpoint.url"
    for names in (
        ("client.id", "client.secret"),
        ("client.credentials.client.id", "client.credentials.client.secret"),
    ):
        result = ClientSettings.of(
            {**base, url: "https://host/token", **{f"sasl.oauthbearer.{name}": "x" for name in names}}
        )
        assert result.sasl is not None
        assert result.sasl.tokens is not None
    unsecured = {"sasl.oauthbearer.config": "principal=alice", "enable.sasl.oauthbearer.unsecure.jwt": "true"}
    result = ClientSettings.of({**base, **unsecured, "sasl.oauthbearer.extensions": "a=1,b=x y"})
    assert result.sasl is not None
    assert result.sasl.extensions == (("a", "1"), ("b", "x y"))
    for wrong in ({}, {url: "https://host"}, {"sasl.oauthbearer.config": "principal=alice"}):
        with pytest.raises(ValueError, match=r"OAUTHBEARER needs|client secret"):
            ClientSettings.of({**base, **wrong})


@pytest.mark.parametrize("text", ["a", "auth=x", "1=2", "a=", "a=\x01"])
def test_extensions_that_cannot_be_sent(text: str) -> None:
    with pytest.raises(ValueError, match="extensions"):
        extensions_of(text)
