"""SASL DIGEST-MD5 (RFC 2831), both sides, as ZooKeeper uses it: without a security layer. Pure.

The rule: the server proves in its last message that it knows the password too. The mechanism is weak and obsolete (RFC
6331); it is here because ZooKeeper has no better one with a password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Generator

_DIRECTIVE = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*(?:,|$)')
COUNT = "00000001"
"""Number of uses of the server's nonce: one."""


class DigestError(Exception):
    """The other side requests an unsupported option, or does not know the password; the text is for the log."""


def digest_md5(username: str, password: str, *, uri: str, nonce: str) -> Generator[bytes, bytes, None]:
    """Return the messages of a login; the first one is empty. Raises DigestError during the exchange.

    `uri` is SERVICE/HOST; `nonce` is random text of letters and digits, 128 bits or more.
    """
    first = yield b""
    if not first:
        raise DigestError("the server offers no login by SASL")
    challenge = parse_directives(first)
    if "nonce" not in challenge:
        raise DigestError("the server's challenge has no nonce")
    if "auth" not in challenge.get("qop", "auth").split(","):
        raise DigestError(f"the server demands a security layer (qop={challenge['qop']})")
    realm = challenge.get("realm", "")
    key = _key(username, realm, password, challenge["nonce"], nonce)
    answer = _response(key, challenge["nonce"], nonce, f"AUTHENTICATE:{uri}")
    fields = (
        "charset=utf-8", f"username={_quoted(username)}", f"realm={_quoted(realm)}",
        f"nonce={_quoted(challenge['nonce'])}", f"nc={COUNT}", f'cnonce="{nonce}"', f'digest-uri="{uri}"', "qop=auth",
        f"response={answer}",
    )  # fmt: skip
    proof = parse_directives((yield ",".join(fields).encode())).get("rspauth", "")
    expected = _response(key, challenge["nonce"], nonce, f":{uri}")
    if not hmac.compare_digest(proof.encode(), expected.encode()):
        raise DigestError("the server does not know the password that it checks")


class DigestServer:
    """The server's side of one login: a challenge, the client's answer, the server's proof."""

    def __init__(self, password_of: Callable[[str], str | None], *, realm: str, uri: str, nonce: str) -> None:
        """`password_of` returns None for a user that there is not; `uri` is SERVICE/HOST; `nonce` as for the client."""
        self.username: str | None = None
        """Name of the logged-in user; None before the end."""
        self._password_of = password_of
        self._realm = realm
        self._uri = uri
        self._nonce = nonce
        self._has_begun = False

    def answer(self, message: bytes) -> bytes:
        """Return the reply to a message of the client. Raises DigestError, which ends the login."""
        if self.username is not None:
            raise DigestError("a message after the end of the login")
        if self._has_begun:
            return self._proof(message)
        self._has_begun = True
        if message:
            raise DigestError("DIGEST-MD5 begins with an empty message")
        return f'realm="{self._realm}",nonce="{self._nonce}",qop="auth",charset=utf-8,algorithm=md5-sess'.encode()

    def _proof(self, message: bytes) -> bytes:
        directives = parse_directives(message)
        expected = {"realm": self._realm, "nonce": self._nonce, "nc": COUNT, "qop": "auth"}
        for name, value in expected.items():
            if directives.get(name, "auth" if name == "qop" else "") != value:
                raise DigestError(f"the client's {name} is not the one that is expected")
        uri, username = directives.get("digest-uri", ""), directives.get("username", "")
        own_nonce = directives.get("cnonce", "")
        if uri.lower() != self._uri.lower():
            raise DigestError(f"the client's digest-uri is not {self._uri}")
        if not username or not own_nonce:
            raise DigestError("the client's answer has no username or no cnonce")
        if directives.get("authzid", username) != username:
            raise DigestError("the client wants to act as another user")
        password = self._password_of(username)
        key = _key(username, self._realm, password or "", self._nonce, own_nonce, directives.get("authzid"))
        answer = _response(key, self._nonce, own_nonce, f"AUTHENTICATE:{uri}")
        if (
            not hmac.compare_digest(directives.get("response", "").encode(), answer.encode())
            or password is None
        ):
            raise DigestError("the user or the password is wrong")
        self.username = username
        return f"rspauth={_response(key, self._nonce, own_nonce, f':{uri}')}".encode()


def parse_directives(message: bytes) -> dict[str, str]:
    """Return the directives of a message, the last value of each. Raises DigestError."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise DigestError("a message is not text in UTF-8") from None
    directives: dict[str, str] = {}
    position = 0
    while position < len(text):
        item = _DIRECTIVE.match(text, position)
        if item is None:
            raise DigestError("a message is malformed")
        value = item[3] if item[3] is not None else re.sub(r"\\(.)", r"\1", item[2])
        directives[item[1].lower()] = value
        position = item.end()
    return directives


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()  # the mechanism has it


def _key(
    username: str, realm: str, password: str, nonce: str, own_nonce: str, authorized: str | None = None
) -> str:
    secret = _md5(b":".join(map(_encoded, (username, realm, password))))
    suffix = "" if authorized is None else f":{authorized}"
    return _md5(secret + f":{nonce}:{own_nonce}{suffix}".encode()).hex()


def _encoded(text: str) -> bytes:
    """Return text in ISO 8859-1 if possible, else in UTF-8, as the RFC requires."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _response(key: str, nonce: str, own_nonce: str, action: str) -> str:
    hashed = _md5(action.encode()).hex()
    return _md5(f"{key}:{nonce}:{COUNT}:{own_nonce}:auth:{hashed}".encode()).hex()
