"""Client of Kafka Connect's REST interface, which masks secrets of configs.

The rule: a value that may be a password is never sent to a page: a returned mask means the former value.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from barnabas.registry.errors import RegistryError
from barnabas.registry.rest import RestClient

DEFAULT_NAME = "connect"
NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")
"""Names of clusters in an address of the console."""
NAME_RULE = "up to 60 letters, digits, dots, dashes and underscores"
CONNECTS_MAX = 16
PLUGINS_MAX = 200
"""Plugins with remembered password settings of a client."""
TIMEOUT_S = 12.0
"""Timeout of a worker's response; during a rebalance it takes longer."""
MASK = "********"
"""Stands for a value that is not shown, and, in a config that is saved, for the value that there is."""
_SECRET = re.compile(
    r"passw|secret|token|credential|api\.?key|private|jaas|access\.?key|auth\.user\.info", re.I
)
_REFERENCE = re.compile(r"\$\{[^}:]*:[^}]*\}\Z")
"""A value that a config provider of the workers looks up: no secret itself."""
_LOGIN = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)")


Passwords = frozenset[str]
"""Names of settings that a plugin calls passwords, beside those with a telling name."""
NONE: Passwords = frozenset()


class ConnectClient(RestClient):
    """A client of the workers of one Connect cluster, through one of them. Raises RegistryError for refused requests."""

    service = "a Kafka Connect worker"
    answer_bytes_max = 16 << 20

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None) -> None:
        """Create a client without a connection yet. Raises ValueError for an invalid URL."""
        super().__init__(url, tls=tls, timeout_s=TIMEOUT_S)
        self._passwords: dict[str, frozenset[str]] = {}

    async def passwords(self, plugin: str) -> frozenset[str]:
        """Return the settings of a plugin that have the type password; empty if the worker does not report them."""
        if plugin not in self._passwords:
            try:
                settings = await self.ask("GET", f"/connector-plugins/{quote(plugin, safe='')}/config")
            except RegistryError:  # before Kafka 3.2, or of a removed plugin
                return frozenset()
            rows = settings if isinstance(settings, list) else []
            names = [
                row.get("name") for row in rows if isinstance(row, dict) and row.get("type") == "PASSWORD"
            ]
            if len(self._passwords) >= PLUGINS_MAX:
                del self._passwords[next(iter(self._passwords))]
            self._passwords[plugin] = frozenset(name for name in names if isinstance(name, str))
        return self._passwords[plugin]


def connects_of(texts: Sequence[str], tls: ssl.SSLContext | None = None) -> dict[str, ConnectClient]:
    """Return clusters by their names of `[NAME=]URL`; the name is `connect` by default. Raises ValueError."""
    connects: dict[str, ConnectClient] = {}
    for text in texts:
        name, equals, url = text.partition("=")
        if not equals or "/" in name:
            name, url = DEFAULT_NAME, text
        if not NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not a name: {NAME_RULE}")
        if name in connects:
            raise ValueError(f"two clusters of Kafka Connect are called {name!r}: give NAME=URL")
        if len(connects) == CONNECTS_MAX:
            raise ValueError(f"more than {CONNECTS_MAX} clusters of Kafka Connect")
        try:
            connects[name] = ConnectClient(url, tls=tls)
        except ValueError as error:
            raise ValueError(str(error).replace("a registry", "a Kafka Connect worker")) from None
    return connects


def is_secret(name: str, passwords: Passwords = NONE) -> bool:
    """Return whether the value of a setting with this name may be a password."""
    return name in passwords or _SECRET.search(name) is not None


def masked(config: Mapping[str, object], passwords: Passwords = NONE) -> dict[str, str | None]:
    """Return a config with possible passwords masked."""
    return {name: masked_value(name, value, passwords) for name, value in config.items()}


def masked_value(name: str, value: object, passwords: Passwords = NONE) -> str | None:
    """Return the value of a setting, masked where it may be a password."""
    if value is None:
        return None
    text = str(value)
    if is_secret(name, passwords) and text and not _REFERENCE.match(text):
        return MASK
    return _LOGIN.sub(MASK, text)


def without_secrets(text: str, config: Mapping[str, object], passwords: Passwords = NONE) -> str:
    """Return a text of a worker without values of a config that may be passwords, and without logins in addresses."""
    for name, value in config.items():
        if value and masked_value(name, value, passwords) == MASK:
            text = text.replace(str(value), MASK)
    return _LOGIN.sub(MASK, text)


def unmasked(
    config: Mapping[str, str], before: Mapping[str, object], passwords: Passwords = NONE
) -> dict[str, str]:
    """Return a config with the values of `before` in place of the mask. Raises ValueError if a value is missing."""
    result = {}
    for name, text in config.items():
        old = before.get(name)
        if MASK in text:
            if old is None or masked_value(name, old, passwords) != text:
                raise ValueError(f"{name}: the value is masked, and there is none to keep: type it")
            text = str(old)
        result[name] = text
    return result
