"""The client's side of PLAIN and SCRAM, with the examples of the RFCs."""

from base64 import b64decode

import pytest

from barnabas.client.errors import AuthenticationError
from barnabas.client.sasl import exchange
from barnabas.client.settings import SaslCredentials

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


def test_plain() -> None:
    messages = exchange(SaslCredentials("PLAIN", "user", "secret"), b"")
    assert next(messages) == b"\0user\0secret"
    with pytest.raises(StopIteration):
        messages.send(b"")


def test_a_token_is_sent_with_its_extensions() -> None:
    credentials = SaslCredentials("OAUTHBEARER", tokens=lambda: "t0ken", extensions=(("traceId", "5"),))
    messages = exchange(credentials, b"")
    assert next(messages) == b"n,,\x01auth=Bearer t0ken\x01traceId=5\x01\x01"
    with pytest.raises(StopIteration):
        messages.send(b"")


def test_a_refused_token_is_acknowledged_so_that_the_broker_says_why() -> None:
    messages = exchange(SaslCredentials("OAUTHBEARER", tokens=lambda: "t0ken"), b"")
    next(messages)
    assert messages.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationError, match="invalid_token"):
        messages.send(b"")


def test_oauthbearer_needs_a_source_of_tokens() -> None:
    with pytest.raises(AuthenticationError, match="source of tokens"):
        next(exchange(SaslCredentials("OAUTHBEARER", "u", "p"), b""))
