"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side. Pure.

The rule: the final message must contain the whole nonce of this exchange (CVE-2024-56128) and the channel binding of the
first one; an unknown user gets a challenge like any other, so that only the last answer refuses.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.security.sasl.mechanism import Identity, LoginFailedError
from barnabas.security.scram import MECHANISMS, ScramCredential, decoy

if TYPE_CHECKING:
    from barnabas.security.credentials import Credentials

_USER_TYPE = "User:"
_NO_BINDING = b"n,,"

_FIRST = re.compile(
    r"(?P<gs2>n,(?:a=(?P<authzid>[^,\0]+))?,)"
    r"(?P<bare>n=(?P<user>[^,\0]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_FINAL = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,\0]+)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramExchange:
    """Two messages: the user, and the proof. The server proves in its last answer that it knows the password too."""

    def __init__(
        self, mechanism: str, credentials: Credentials, *, nonce: Callable[[], str], secret: bytes
    ) -> None:
        """`nonce` returns random text without a comma; `secret` is the key for the challenges of unknown users."""
        self._mechanism = MECHANISMS[mechanism]
        self._credentials = credentials
        self._new_nonce = nonce
        self._secret = secret
        self._first: _First | None = None
        self._is_over = False
        self.identity: Identity | None = None

    async def step(self, message: bytes) -> bytes:
        """Answer the first message with a challenge, the second with the server's signature. Raises LoginFailedError."""
        if self._is_over:
            raise LoginFailedError("a message after the end of the exchange")
        self._is_over = True  # unless this step says otherwise
        if self._first is None:
            self._first = await self._begun(message)
            self._is_over = False
            return self._first.challenge.encode()
        return self._finished(self._first, message)

    # --- the first message --------------------------------------------------------------------------------------

    async def _begun(self, message: bytes) -> _First:
        parsed = _FIRST.fullmatch(_text(message))
        if parsed is None:
            raise LoginFailedError("the first message is not that of SCRAM")
        user = _unescaped(parsed["user"])
        extensions = dict(part.split("=", 1) for part in parsed["extensions"].split(",")[1:])
        if "m" in extensions:
            raise LoginFailedError("a mandatory extension is not known")
        is_by_token = extensions.get("tokenauth", "").lower() == "true"
        if parsed["authzid"] and _unescaped(parsed["authzid"]) != user:
            text = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise LoginFailedError(text, shown=text)
        credential, identity = await (self._of_token(user) if is_by_token else self._of_user(user))
        is_known = credential is not None and identity is not None
        if credential is None or identity is None:
            credential = decoy(self._mechanism, user, self._secret)
            identity = Identity(user)
        nonce = parsed["nonce"] + self._new_nonce()
        challenge = f"r={nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        return _First(
            parsed["gs2"].encode(), parsed["bare"], nonce, challenge, credential, identity, is_known
        )

    async def _of_user(self, user: str) -> tuple[ScramCredential | None, Identity | None]:
        return self._credentials.scram(self._mechanism.name, user), Identity(user)

    async def _of_token(self, token_id: str) -> tuple[ScramCredential | None, Identity | None]:
        token = self._credentials.token(token_id)
        credential = await self._credentials.token_scram(self._mechanism.name, token_id)
        if token is None or not token.owner.startswith(_USER_TYPE):
            return None, None
        return credential, Identity(token.owner.removeprefix(_USER_TYPE), token.expires_ms, is_by_token=True)

    # --- the second message -------------------------------------------------------------------------------------

    def _finished(self, first: _First, message: bytes) -> bytes:
        parsed = _FINAL.fullmatch(_text(message))
        if parsed is None:
            raise LoginFailedError(f"the final message of user {first.identity.name[:100]!r} is malformed")
        if not hmac.compare_digest(parsed["nonce"], first.nonce):
            raise LoginFailedError("the final message has the nonce of another exchange")
        if _bytes(parsed["binding"]) not in (first.gs2, _NO_BINDING):
            raise LoginFailedError("the final message has another channel binding than the first")
        algorithm, credential = self._mechanism.algorithm, first.credential
        signed = f"{first.bare},{first.challenge},{parsed['bare']}".encode()
        signature = hmac.digest(credential.stored_key, signed, algorithm)
        proof = _bytes(parsed["proof"])
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        is_right = len(proof) == len(signature) and hmac.compare_digest(
            hashlib.new(algorithm, key).digest(), credential.stored_key
        )
        if not is_right or not first.is_known:
            reason = "wrong password" if first.is_known else "unknown user or token"
            raise LoginFailedError(f"{reason} {first.identity.name[:100]!r}")
        self.identity = first.identity
        return b"v=" + b64encode(hmac.digest(credential.server_key, signed, algorithm))


class _First:
    """The client's first message, its answer, and the credential it is checked by."""

    __slots__ = ("bare", "challenge", "credential", "gs2", "identity", "is_known", "nonce")

    def __init__(
        self,
        gs2: bytes,
        bare: str,
        nonce: str,
        challenge: str,
        credential: ScramCredential,
        identity: Identity,
        is_known: bool,
    ) -> None:
        self.gs2 = gs2
        self.bare = bare
        self.nonce = nonce
        self.challenge = challenge
        self.credential = credential
        self.identity = identity
        self.is_known = is_known


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginFailedError("a message is not text in UTF-8") from None


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise LoginFailedError("a field is not in base64") from None


def _unescaped(name: str) -> str:
    """Return a name without the escapes for comma and equals sign."""
    if re.search(r"=(?!2C|3D)", name):
        raise LoginFailedError("the user's name has = without 2C or 3D behind it")
    return name.replace("=2C", ",").replace("=3D", "=")
