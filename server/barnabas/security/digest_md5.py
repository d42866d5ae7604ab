"""SASL DIGEST-MD5 (RFC 2831), the client's side, as ZooKeeper uses it: without a security layer. Pure.

The rule: the server proves in its last message that it knows the password too. The mechanism is weak and obsolete (RFC
6331); it is here because ZooKeeper has no better one with a password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Generator

_DIRECTIVE = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*(?:,|$)')
COUNT = "00000001"
"""So many times the server's nonce has been used: once."""


class DigestError(Exception):
    """The server asks for what is not here, or does not know the password; the text is for the log."""


def digest_md5(username: str, password: str, *, uri: str, nonce: str) -> Generator[bytes, bytes, None]:
    """Return the messages of a login; the first one is empty. Raises DigestError on its way.

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


def parse_directives(message: bytes) -> dict[str, str]:
    """Return the directives of a message; of those that come twice, the last. Raises DigestError."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise DigestError("a message of the server is no text in UTF-8") from None
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        item = _DIRECTIVE.match(text, position)
        if item is None:
            raise DigestError("a message of the server is malformed")
        value = item[3] if item[3] is not None else re.sub(r"\\(.)", r"\1", item[2])
        found[item[1].lower()] = value
        position = item.end()
    return found


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{escaped}"'


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()  # the mechanism has it


def _key(username: str, realm: str, password: str, nonce: str, own_nonce: str) -> str:
    secret = _md5(b":".join(map(_encoded, (username, realm, password))))
    return _md5(secret + f":{nonce}:{own_nonce}".encode()).hex()


def _encoded(text: str) -> bytes:
    """Return text in ISO 8859-1 if it can be written so, as the RFC has it."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _response(key: str, nonce: str, own_nonce: str, action: str) -> str:
    hashed = _md5(action.encode()).hex()
    return _md5(f"{key}:{nonce}:{COUNT}:{own_nonce}:auth:{hashed}".encode()).hex()
