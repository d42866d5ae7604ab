"""Tokens for OAUTHBEARER: from a file, from an identity provider (RFC 6749, client credentials), or unsecured for tests.

The rule: a source is called in a thread and may wait for a network; no message contains a token or a secret. A token is
replaced after 80 % of its lifetime, as in Apache Kafka (`sasl.login.refresh.window.factor`).
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from barnabas.client.errors import AuthenticationError, ConnectionLostError

Tokens = Callable[[], str]
"""Returns a token that is good now. Raises AuthenticationError, ConnectionLostError where asking again may help."""

RENEWED_AFTER = 0.8
"""The part of its life after which a token is replaced."""
ANSWER_BYTES_MAX = 64 * 1024
SECONDS_MAX = 10.0
UNSECURED_LIFE_S = 3600
_TOKEN = re.compile(r"[-_~+/.A-Za-z0-9]+=*")  # b64token of RFC 6750
_SERVER_ERRORS = 500


class RenewedTokens:
    """Caches a token until most of its lifetime is over. May be called from any thread."""

    def __init__(self, fetch: Tokens, *, clock_s: Callable[[], float] = time.time) -> None:
        """`fetch` gets a new token; `clock_s` is the time since 1970."""
        self._fetch = fetch
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at_s = 0.0
        self._expires_s = 0.0

    def __call__(self) -> str:
        """Return a token. Raises AuthenticationError, ConnectionLostError, if the last one is no longer valid."""
        with self._lock:
            now_s = self._clock_s()
            if now_s >= self._renew_at_s:
                try:
                    self._token = self._fetch()
                except (AuthenticationError, ConnectionLostError):
                    if now_s >= self._expires_s:
                        raise
                else:
                    self._expires_s = _expiry_s(self._token, now_s)
                    self._renew_at_s = now_s + (self._expires_s - now_s) * RENEWED_AFTER
            return self._token


def tokens_of(
    url: str,
    client_id: str = "",
    client_secret: str = "",
    scope: str = "",
    *,
    tls: ssl.SSLContext | None = None,
    encodes_header: bool = False,
) -> Tokens:
    """Return a source of tokens: a file (`file:`) that is read each time, or an identity provider (`https:`, `http:`).

    `encodes_header`: whether id and secret are URL-encoded, as RFC 6749 demands and many providers do not expect
    (Kafka's `sasl.oauthbearer.header.urlencode`). Raises ValueError.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = unquote(parts.path)
        return lambda: _from_file(path)
    if parts.scheme not in ("https", "http") or not parts.netloc:
        raise ValueError("sasl.oauthbearer.token.endpoint.url is a URL of https, http or file")
    if "@" in parts.netloc:
        raise ValueError(
            "sasl.oauthbearer.token.endpoint.url names no user: the client id and secret are settings"
        )
    if not client_id or not client_secret:
        raise ValueError("an identity provider wants a client id and a client secret")
    if encodes_header:
        client_id, client_secret = quote_plus(client_id), quote_plus(client_secret)
    login = b64encode(f"{client_id}:{client_secret}".encode()).decode()
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    request = urllib.request.Request(
        url,
        urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": f"Basic {login}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Cache-Control": "no-cache",
        },
    )
    opener = urllib.request.build_opener(_NoRedirect(), urllib.request.HTTPSHandler(context=tls))
    return RenewedTokens(lambda: _from_provider(opener, request))


def unsecured_tokens(principal: str, *, clock_s: Callable[[], float] = time.time, **claims: object) -> Tokens:
    """Return a source of tokens without a signature (RFC 7515, appendix A.5), which only brokers for tests accept."""

    def make() -> str:
        now_s = int(clock_s())
        token_claims = {"sub": principal, "iat": now_s, "exp": now_s + UNSECURED_LIFE_S, **claims}
        parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, token_claims))
        return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."

    return make


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: they would carry the secret elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        """Return nothing, upon which the answer is an error."""


def _from_file(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return _checked(file.read(ANSWER_BYTES_MAX).strip(), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise AuthenticationError(f"no token can be read from {path}: {reason}") from None


def _from_provider(opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> str:
    where = request.full_url
    try:
        with opener.open(request, timeout=SECONDS_MAX) as response:
            data = response.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            text = f"{where} answers {error.code} {error.reason}{_said(error)}"
        kind = ConnectionLostError if error.code >= _SERVER_ERRORS else AuthenticationError
        raise kind(text) from None
    except (OSError, ValueError) as error:
        raise ConnectionLostError(f"{where}: {getattr(error, 'reason', error)}") from None
    try:
        answer = json.loads(data)
        token = answer.get("access_token") or answer.get("id_token")
    except (ValueError, AttributeError):
        token = None
    return _checked(token, where)


def _said(error: urllib.error.HTTPError) -> str:
    """Return the error of an identity provider (RFC 6749, section 5.2)."""
    try:
        answer = json.loads(error.read(ANSWER_BYTES_MAX))
        parts = [answer[name] for name in ("error", "error_description") if answer.get(name)]
    except (OSError, ValueError, AttributeError, TypeError):
        return ""
    return "".join(f", {part}" for part in parts)[:200]


def _checked(token: object, where: str) -> str:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise AuthenticationError(f"{where} gives no token")
    return token


def _expiry_s(token: str, now_s: float) -> float:
    """Return the expiry of a JWT, in s since 1970; the present time if it has none, or is invalid."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return max(float(claims["exp"]), now_s)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError):
        return now_s
