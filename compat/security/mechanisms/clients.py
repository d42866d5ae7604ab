"""The clients' sides of SCRAM and OAUTHBEARER, with everything in them that can be made wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from dataclasses import dataclass, field
from typing import Any

from joserfc import jwt
from joserfc.jwk import RSAKey

SALT = b"the same salt on both sides"
ITERATIONS = 4096
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def salted(mechanism: str, password: str, salt: bytes = SALT) -> bytes:
    """Return the salted password of RFC 5802."""
    return hashlib.pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, ITERATIONS)


@dataclass
class Scram:
    """One login with SCRAM as the client sees it."""

    mechanism: str
    user: str
    password: str
    header: str = "n,,"
    """The GS2 header, with an authorization id if there is one."""
    extensions: str = ""
    nonce: str = field(default_factory=lambda: base64.b64encode(os.urandom(15)).decode())
    _signature: bytes = b""

    @property
    def bare(self) -> str:
        """The first message without its header."""
        return f"n={self.user},r={self.nonce}{self.extensions}"

    def first(self) -> bytes:
        """Return the first message."""
        return f"{self.header}{self.bare}".encode()

    def final(
        self, challenge: bytes, *, nonce: str | None = None, binding: str | None = None, extensions: str = ""
    ) -> bytes:
        """Return the answer to a challenge, right but for what is given."""
        bare = f"c={self.binding if binding is None else binding},r={nonce or self.server_nonce(challenge)}{extensions}"
        return f"{bare},p={base64.b64encode(self.proof(challenge, bare)).decode()}".encode()

    @property
    def binding(self) -> str:
        """The header as the final message repeats it."""
        return base64.b64encode(self.header.encode()).decode()

    def server_nonce(self, challenge: bytes) -> str:
        """Return the nonce of a challenge; the client's own if it is none."""
        return _fields(challenge).get("r", self.nonce)

    def proof(self, challenge: bytes, bare: str) -> bytes:
        """Return the proof for the final message `bare`, and keep what the server must answer."""
        kind = _HASHES[self.mechanism]
        fields = _fields(challenge)
        salt = base64.b64decode(fields.get("s", ""))
        password = hashlib.pbkdf2_hmac(kind, self.password.encode(), salt, int(fields.get("i", "1")))
        client_key = hmac.digest(password, b"Client Key", kind)
        signed = f"{self.bare},{challenge.decode()},{bare}".encode()
        signature = hmac.digest(hashlib.new(kind, client_key).digest(), signed, kind)
        self._signature = hmac.digest(hmac.digest(password, b"Server Key", kind), signed, kind)
        return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))

    # --- what is shown of answers, without what is random ----------------------------------------------------

    def shown_challenge(self, challenge: bytes) -> Any:
        """The content of a challenge."""
        fields = _fields(challenge)
        nonce = fields.pop("r", "")
        if not nonce:
            return challenge
        return {**fields, "nonce": "the client's and more" if _continues(nonce, self.nonce) else nonce}

    def shown_end(self, answer: bytes) -> Any:
        """The content of the last answer."""
        fields = _fields(answer)
        right = base64.b64encode(self._signature).decode()
        return {name: "right" if value == right else value for name, value in fields.items()} or answer


def _continues(nonce: str, begin: str) -> bool:
    return nonce.startswith(begin) and len(nonce) > len(begin) + 15


def _fields(message: bytes) -> dict[str, str]:
    text = message.decode(errors="replace")
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


# --- OAUTHBEARER --------------------------------------------------------------------------------------------------


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a right token for alice, with changes; None takes one away."""
    now = int(time.time())
    usual = {"sub": "alice", "iss": "https://issuer.example", "aud": "kafka", "iat": now, "exp": now + 3600}
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def signed_token(key: RSAKey, payload: dict[str, Any], header: dict[str, Any] | None = None) -> str:
    """Return a token with a signature by this key."""
    head = {"alg": "RS256", "kid": "one"} if header is None else header
    return jwt.encode(head, payload, key, algorithms=["RS256", "RS384", "PS256"])


def unsecured_token(payload: dict[str, Any], header: dict[str, Any] | None = None) -> str:
    """Return a token without a signature."""
    return f"{_part({'alg': 'none'} if header is None else header)}.{_part(payload)}."


def hmac_token(payload: dict[str, Any], secret: bytes) -> str:
    """Return a token with a MAC made of the signer's public key, as an attacker could make it."""
    text = f"{_part({'alg': 'HS256', 'kid': 'one'})}.{_part(payload)}"
    return f"{text}.{_text(hmac.digest(secret, text.encode(), 'sha256'))}"


def bearer(token: str, *, header: str = "n,,", more: str = "") -> bytes:
    """Return the client's message with a token."""
    return f"{header}\x01auth=Bearer {token}{more}\x01\x01".encode()


def _part(values: dict[str, Any]) -> str:
    return _text(json.dumps(values).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
