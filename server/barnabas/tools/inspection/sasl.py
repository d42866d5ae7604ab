"""Tokens of SASL logins: the user and the step of the login, with every secret masked.

Sources: RFC 4616 (PLAIN), RFC 5802 (SCRAM), RFC 7628 (OAUTHBEARER), KIP-48 (tokenauth), KIP-342 (extensions).
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from barnabas.tools.inspection.messages import MASK

GSSAPI_START = b"\x60"
"""With which the first token of GSSAPI begins (RFC 2743, 3.1)."""
_SCRAM_NAMES = {
    "n": "user", "r": "nonce", "c": "channel_binding", "p": "proof", "s": "salt", "i": "iterations",
    "v": "server_signature", "e": "error", "a": "authorization_id", "m": "mandatory_extension",
}  # fmt: skip
_SCRAM_SHOWN = frozenset("nieam")
_CLAIMS = ("sub", "iss", "aud", "scope", "scp", "azp", "client_id", "iat", "exp")


def describe(mechanism: str | None, token: bytes, *, from_client: bool) -> dict[str, Any]:
    """Return the content of a token as JSON, secrets masked. `mechanism` is None where it is not known."""
    name = (mechanism or "").upper()
    shown: dict[str, Any] = {"mechanism": mechanism or "unknown", "bytes": len(token)}
    if not token:
        shown["token"] = "empty"
        return shown
    if name == "PLAIN":
        if from_client:
            parts = token.split(b"\0")
            if len(parts) == 3:
                if parts[0]:
                    shown["authorization_id"] = parts[0].decode("utf-8", "replace")
                shown["user"] = parts[1].decode("utf-8", "replace")
                shown["password"] = MASK
            else:
                shown["problem"] = "not of the form [authorization id] NUL user NUL password"
    elif name.startswith("SCRAM-"):
        shown.update(_scram(token))
    elif name == "OAUTHBEARER":
        shown.update(_bearer(token, from_client=from_client))
    elif name == "GSSAPI" or token[:1] == GSSAPI_START:
        shown["mechanism"] = "GSSAPI"
        shown["token"] = "opaque"
    return shown


def user_of(shown: dict[str, Any]) -> str | None:
    """Return the user that a described token names."""
    for name in ("user", "sub"):
        user = shown.get(name)
        if isinstance(user, str):
            return user
    return None


def _scram(token: bytes) -> dict[str, Any]:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return {"problem": "not UTF-8"}
    if text.startswith(("n,", "y,", "p=")):  # the header before the client's first message
        _, _, rest = text.partition(",")
        authorization, _, text = rest.partition(",")
        shown: dict[str, Any] = (
            {"authorization_id": authorization.removeprefix("a=")} if authorization else {}
        )
    else:
        shown = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            return {"problem": "not of the form name=value,..."}
        shown[_SCRAM_NAMES.get(key, key)] = (
            value.replace("=2C", ",").replace("=3D", "=") if key in _SCRAM_SHOWN or len(key) > 1 else MASK
        )
    return shown


def _bearer(token: bytes, *, from_client: bool) -> dict[str, Any]:
    if not from_client:
        try:
            answer = json.loads(token)
        except ValueError:
            return {"problem": "an answer that is no JSON"}
        return {"answer": answer}
    if token == b"\x01":
        return {"token": "the client acknowledges the failure"}
    shown: dict[str, Any] = {}
    for part in token.split(b"\x01")[1:]:
        key, equals, value = part.decode("utf-8", "replace").partition("=")
        if not equals:
            continue
        if key == "auth":
            scheme, _, text = value.partition(" ")
            shown["scheme"] = scheme
            shown["token"] = MASK
            shown.update(_claims(text))
        else:
            shown.setdefault("extensions", {})[key] = value
    return shown


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a signed token; none for other texts."""
    parts = token.split(".")
    if len(parts) < 2:
        return {}
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = json.loads(text)
    except (ValueError, binascii.Error):
        return {}
    if not isinstance(claims, dict):
        return {}
    return {name: claims[name] for name in _CLAIMS if name in claims}
