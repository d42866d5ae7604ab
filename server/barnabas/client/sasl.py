"""Logging in: the client's side of SASL PLAIN (RFC 4616), SCRAM (RFC 5802, RFC 7677) and OAUTHBEARER (RFC 7628). Pure.

The rule: a mechanism is a generator of messages that receives the broker's answers; it ends only when the broker has
proved, if the mechanism has a proof, that it knows the password too.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Generator

from barnabas.client.errors import AuthenticationError
from barnabas.client.settings import SaslCredentials

Exchange = Generator[bytes, bytes, None]
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 1_000_000
"""With fewer (Kafka's limit too) a password is easily guessed from the proof; more keep a client busy for seconds."""


def exchange(credentials: SaslCredentials, nonce: bytes, host: str = "") -> Exchange:
    """Return the messages of a login to the broker on `host`. `nonce` is random, 16 bytes or more.

    Raises AuthenticationError.
    """
    if credentials.mechanism == "PLAIN":
        return _plain(credentials)
    if credentials.mechanism == "OAUTHBEARER":
        return _bearer(credentials)
    if credentials.mechanism == "GSSAPI":
        from barnabas.client.gssapi import gssapi

        if credentials.tickets is None:
            raise AuthenticationError("GSSAPI needs tickets")
        return gssapi(credentials.tickets, host)
    return _scram(credentials, b64encode(nonce).decode())


def _plain(credentials: SaslCredentials) -> Exchange:
    yield f"\0{credentials.username}\0{credentials.password}".encode()


def _bearer(credentials: SaslCredentials) -> Exchange:
    if credentials.tokens is None:
        raise AuthenticationError("OAUTHBEARER needs a source of tokens")
    extensions = "".join(f"{name}={value}\x01" for name, value in credentials.extensions)
    answer = yield f"n,,\x01auth=Bearer {credentials.tokens()}\x01{extensions}\x01".encode()
    if answer:
        yield b"\x01"  # upon which the broker refuses in its own words
        raise AuthenticationError(f"the broker refuses the token: {answer[:200]!r}")


def _scram(credentials: SaslCredentials, nonce: str) -> Exchange:
    algorithm = credentials.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    name = credentials.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    server_first = _text((yield f"n,,{first}".encode()))
    fields = _fields(server_first)
    try:
        server_nonce, salt, iterations = fields["r"], b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError, Base64Error):
        raise AuthenticationError(f"the broker's challenge is malformed: {server_first!r}") from None
    if not server_nonce.startswith(nonce) or len(server_nonce) == len(nonce):
        raise AuthenticationError("the broker answered with another nonce")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise AuthenticationError(f"the broker asks for {iterations} iterations")
    salted = hashlib.pbkdf2_hmac(algorithm, credentials.password.encode(), salt, iterations)
    without_proof = f"c=biws,r={server_nonce}"
    message = f"{first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = _fields(_text((yield f"{without_proof},p={b64encode(proof).decode()}".encode())))
    if "e" in final:
        raise AuthenticationError(f"the broker refuses the login: {final['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    if not hmac.compare_digest(final.get("v", "").encode(), b64encode(expected)):
        raise AuthenticationError("the broker does not know the password that it checks")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationError(f"the broker's message is no text: {message[:100]!r}") from None


def _fields(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(","))
