"""Keys that sign tokens: a JWKS in a file or behind a URL that the operator has set.

The rule: an address in a client's token is never used. Keys are read in a thread, again after a while, and sooner for an
unknown key; as any client can claim one, at most every ten seconds.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import unquote, urlsplit

BYTES_MAX = 1 << 20
SECONDS_MAX = 10.0
UNKNOWN_KEY_SECONDS = 10.0


class JwksError(Exception):
    """Keys that cannot be had or read."""


class Jwks:
    """The keys of a URL. `read` may block and belongs into a thread."""

    def __init__(self, url: str, refresh_s: float) -> None:
        """Take a URL of https, http or file. Raises JwksError for any other."""
        parts = urlsplit(url)
        if "@" in parts.netloc:
            shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            raise JwksError(f"{shown}: a URL that names no user is expected")
        if parts.scheme not in ("https", "http", "file"):
            raise JwksError(f"{url}: a URL of https, http or file is expected")
        self.url = url
        self.keys: dict[str, Any] | None = None
        self._refresh_s = refresh_s
        self._read_at = 0.0

    @property
    def is_file(self) -> bool:
        """True if the keys are in a file of this machine."""
        return urlsplit(self.url).scheme == "file"

    def is_due(self, now_s: float, *, lacks_key: bool) -> bool:
        """Return whether the keys must be read (again): they are old, or lack the key that a token names."""
        age_s = now_s - self._read_at
        return self.keys is None or age_s > (UNKNOWN_KEY_SECONDS if lacks_key else self._refresh_s)

    def read(self, now_s: float) -> None:
        """Read the keys. Raises JwksError; the keys before stay then."""
        self._read_at = now_s
        try:
            data = self._content()
            keys = json.loads(data)
            if not isinstance(keys, dict) or not isinstance(keys.get("keys"), list):
                raise JwksError(f"{self.url}: there is no JWKS (RFC 7517)")
        except (OSError, ValueError) as error:
            raise JwksError(f"{self.url}: {error}") from error
        self.keys = keys

    def _content(self) -> bytes:
        if self.is_file:
            with open(unquote(urlsplit(self.url).path), "rb") as file:
                data = file.read(BYTES_MAX + 1)
        else:
            request = urllib.request.Request(self.url, headers={"Accept": "application/json"})
            with urllib.request.urlopen(request, timeout=SECONDS_MAX) as response:
                data = response.read(BYTES_MAX + 1)
        if len(data) > BYTES_MAX:
            raise JwksError(f"{self.url}: more than {BYTES_MAX} bytes")
        return bytes(data)
