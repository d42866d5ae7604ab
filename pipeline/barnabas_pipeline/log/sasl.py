"""Logging in to a broker: SASL PLAIN (RFC 4616) and SCRAM (RFC 5802) as a Kafka client does them (KIP-43, KIP-152).

The rule: nothing is sent twice, and the server must prove that it knows the password, too.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest
from barnabas_pipeline.errors import UsageError

if TYPE_CHECKING:
    from barnabas_pipeline.log.connection import Connection

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


def authenticate(connection: Connection, settings: Mapping[str, str]) -> None:
    """Log in with `sasl.mechanism`, `sasl.username`, `sasl.password`. Raises UsageError if refused."""
    mechanism = settings.get("sasl.mechanism", "PLAIN").upper()
    user, password = settings.get("sasl.username", ""), settings.get("sasl.password", "")
    request = SaslHandshakeRequest()
    request.mechanism = mechanism
    response = connection.call(SASL_HANDSHAKE, request, version=1)
    if response.error_code:
        raise UsageError(f"{connection.peer} offers {', '.join(response.mechanisms)}, not {mechanism}")
    if mechanism == "PLAIN":
        _send(connection, f"\0{user}\0{password}".encode())
    elif mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        _scram(connection, mechanism.removeprefix("SCRAM-").replace("-", "").lower(), user, password)
    else:
        raise UsageError(f"sasl.mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, not {mechanism}")


def _send(connection: Connection, data: bytes) -> bytes:
    request = SaslAuthenticateRequest()
    request.auth_bytes = data
    response = connection.call(SASL_AUTHENTICATE, request, version=connection.best(SASL_AUTHENTICATE, 1))
    if response.error_code:
        raise UsageError(f"{connection.peer} refuses the login: {response.error_message}")
    return bytes(response.auth_bytes)


def _scram(connection: Connection, algorithm: str, user: str, password: str) -> None:
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={b64encode(os.urandom(18)).decode()}"
    server_first = _send(connection, f"n,,{first}".encode()).decode()
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    if not fields["r"].startswith(first.split("r=")[1]):
        raise UsageError(f"{connection.peer} answered with another nonce")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), b64decode(fields["s"]), int(fields["i"]))
    without_proof = f"c=biws,r={fields['r']}"
    message = f"{first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), message, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = _send(connection, f"{without_proof},p={b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), message, algorithm)
    if not hmac.compare_digest(final.removeprefix("v="), b64encode(expected).decode()):
        raise UsageError(f"{connection.peer} does not know the password it checks")
