"""Checks of requests by their host and origin, and response headers that restrict browsers. Pure.

The rule: a page of another site never gets an answer, and cannot change anything: the host must be one of this console's
own, not a foreign name that resolves to this address, and a request with a change must come from its own page.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
    ("Cache-Control", "no-store"),
)
"""Headers of every answer."""
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class Guard:
    """Checks requests; `origins` are those under which a proxy shows the console, for example https://kafka.example."""

    def __init__(
        self, hosts: Iterable[str], origins: Iterable[str] = (), *, is_local: bool, scheme: str = "http"
    ) -> None:
        """`hosts` are names and addresses of this machine; `is_local`: only this machine can connect."""
        self._scheme = scheme
        self._hosts = {host.lower() for host in hosts} | _LOCAL_NAMES
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._proxied = {urlsplit(origin).netloc for origin in self._origins}
        self._is_local = is_local

    def refusal(self, method: str, headers: Mapping[str, str]) -> str:
        """Return the reason for refusing a request; empty if it is accepted. Names of headers are in lower case."""
        host = headers.get("host", "").lower()
        if not self._is_own(host):
            return "this host name is none of the console's: use its address, or give --console-origin"
        site = headers.get("sec-fetch-site", "same-origin")
        if site not in ("same-origin", "none"):
            return "requests of other sites are not answered"
        origin = headers.get("origin")
        if origin is not None and not self._is_same(origin.lower(), host):
            return "requests of other sites are not answered"
        if method not in ("GET", "HEAD") and "origin" not in headers and "sec-fetch-site" in headers:
            return "a browser says where a request comes from"
        return ""

    def _is_own(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, _ = parts.hostname or "", parts.port
        except ValueError:
            return False
        if parts.username is not None or parts.path or not name:
            return False
        return host in self._proxied or name in self._hosts or (not self._is_local and _is_address(name))

    def _is_same(self, origin: str, host: str) -> bool:
        return origin in self._origins or origin == f"{self._scheme}://{host}"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cookie_of(header: str, name: str) -> str:
    """Return a cookie's value; empty without it."""
    for part in header.split(";"):
        key, _, value = part.strip().partition("=")
        if key == name:
            return value
    return ""
