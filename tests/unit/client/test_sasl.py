"""The client's side of PLAIN and SCRAM, with the examples of the RFCs."""

from base64 import b64decode
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.errors import AuthenticationError, ConnectionLostError
from barnabas.client.gssapi import gssapi
from barnabas.client.sasl import exchange
from barnabas.client.settings import SaslCredentials
from barnabas.network.kerberos import KerberosError

# RFC 7677, section 3
NONCE = b64decode("rOprNGfwEbeRWgbNEkqO")
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_sha_256_as_in_the_rfc() -> None:
    messages = exchange(SaslCredentials("SCRAM-SHA-256", "user", "pencil"), NONCE)
    assert next(messages) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert messages.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        messages.send(SERVER_FINAL)


@pytest.mark.parametrize(
    ("first", "final", "why"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", "another nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", "another nonce"),
        (b"e=unknown-user", b"", "malformed"),
        (b"\xff", b"", "no text"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095", b"", "iterations"),
        (SERVER_FIRST, b"\xff", "no text"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096", b"", "malformed"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1000001", b"", "iterations"),
        (b"r=xrOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", "another nonce"),
        (SERVER_FIRST, b"e=invalid-proof", "invalid-proof"),
        (SERVER_FIRST, b"v=AAAA", "does not know the password"),
        (SERVER_FIRST, b"", "does not know the password"),
    ],
)
def test_what_the_broker_gets_wrong(first: bytes, final: bytes, why: str) -> None:
    messages = exchange(SaslCredentials("SCRAM-SHA-256", "user", "pencil"), NONCE)
    next(messages)
    with pytest.raises(AuthenticationError, match=why):  # noqa: PT012
        messages.send(first)
        messages.send(final)


def test_names_are_escaped() -> None:
    messages = exchange(SaslCredentials("SCRAM-SHA-512", "a,b=c", "x"), b"0" * 18)
    assert next(messages).startswith(b"n,,n=a=2Cb=3Dc,r=")


def test_a_token_is_sent_with_its_extensions() -> None:
    credentials = SaslCredentials("OAUTHBEARER", tokens=lambda: "t0ken", extensions=(("traceId", "5"),))
    messages = exchange(credentials, b"")
    assert next(messages) == b"n,,\x01auth=Bearer t0ken\x01traceId=5\x01\x01"
    with pytest.raises(StopIteration):
        messages.send(b"")


def test_refused_token_is_acknowledged_to_get_the_reason() -> None:
    messages = exchange(SaslCredentials("OAUTHBEARER", tokens=lambda: "t0ken"), b"")
    next(messages)
    assert messages.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="invalid_token"):
        messages.send(b"")


def test_oauthbearer_needs_a_source_of_tokens() -> None:
    with pytest.raises(AuthenticationError, match="source of tokens"):
        next(exchange(SaslCredentials("OAUTHBEARER", "u", "p"), b""))


class Context:
    """A context of Kerberos that needs so many tokens of the broker."""

    def __init__(self, tokens: int, *, is_mutual: bool = True) -> None:
        self.is_mutual = is_mutual
        self.given: list[bytes | None] = []
        self._left = tokens

    @property
    def is_established(self) -> bool:
        return len(self.given) > self._left

    def step(self, token: bytes | None) -> bytes | None:
        self.given.append(token)
        return None if self.is_established else b"token %d" % len(self.given)

    def unwrap(self, data: bytes) -> bytes:
        return data.removeprefix(b"wrapped ")

    def wrap(self, data: bytes) -> bytes:
        return b"wrapped " + data


def kerberos(context: Any) -> Any:
    tickets: Any = SimpleNamespace(login=SimpleNamespace(service="kafka"), context=lambda host: context)
    return gssapi(tickets, "broker.example")


def test_gssapi_proves_both_and_chooses_no_layer() -> None:
    """RFC 4752, section 3.1: tokens, then the layers that the broker offers, of which none is the first bit."""
    context = Context(2)
    messages = kerberos(context)
    assert next(messages) == b"token 1"
    assert messages.send(b"answer 1") == b"token 2"
    assert messages.send(b"answer 2") == b"", "nothing is left to say"
    assert messages.send(b"wrapped \x07\x00\x10\x00") == b"wrapped \x01\x00\x00\x00"
    with pytest.raises(StopIteration):
        messages.send(b"")
    assert context.given == [None, b"answer 1", b"answer 2"]


@pytest.mark.parametrize("layers", [b"\x06\x01\x10\x00", b"\x01", b""])
def test_a_broker_that_demands_a_security_layer_is_refused(layers: bytes) -> None:
    messages = kerberos(Context(1))
    next(messages)
    messages.send(b"answer")
    with pytest.raises(AuthenticationError, match="demands a security layer"):
        messages.send(b"wrapped " + layers)


def test_a_broker_that_has_not_proved_itself_is_refused() -> None:
    messages = kerberos(Context(1, is_mutual=False))
    next(messages)
    with pytest.raises(AuthenticationError, match="has not proved"):
        messages.send(b"answer")


@pytest.mark.parametrize(
    ("is_transient", "kind"), [(True, ConnectionLostError), (False, AuthenticationError)]
)
def test_an_error_of_kerberos_is_told_with_its_service(is_transient: bool, kind: type[Exception]) -> None:
    class Broken(Context):
        def step(self, token: bytes | None) -> bytes | None:
            error = KerberosError("clock skew")
            error.is_transient = is_transient
            raise error

    with pytest.raises(kind, match=r"login to kafka/broker\.example with Kerberos fails: .*clock skew"):
        next(kerberos(Broken(1)))
