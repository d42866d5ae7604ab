"""Settings of a registry's client, under the names of Confluent's clients.

    schema.registry.url = "https://registry.example:8081"
    schema.registry.ssl.ca.location = "~/ca.pem"
    schema.registry.ssl.certificate.location = "~/me.pem"      # optional: ssl.key.location, ssl.key.password
    schema.registry.basic.auth.user.info = "USER:PASSWORD"     # or bearer.auth.token

The rule: all clients of registries use these settings; any other name with this prefix is a ValueError. Credentials for
a registry are sent to no other.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barnabas.client.settings import tls_context
from barnabas.registry.addresses import origin_of

if TYPE_CHECKING:
    from barnabas.registry.client import RegistryClient

PREFIX = "schema.registry."
CONSOLE_PREFIX = "console.registry."
"""Beginning of the same settings of a broker, for its console."""
URL = f"{PREFIX}url"
USER_INFO, TOKEN = "basic.auth.user.info", "bearer.auth.token"
CA, CERTIFICATE, KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
TLS = (CA, CERTIFICATE, KEY, "ssl.key.password")
_NAMES = ("url", USER_INFO, TOKEN, *TLS)


@dataclass(frozen=True, slots=True)
class RegistryAt:
    """A registry, the way to it, and the login that its settings have for it."""

    url: str = field(repr=False)
    """Its address, with a user and a password if need be."""
    tls: ssl.SSLContext | None = None
    """Trusted certificates and the client's own one; None: the certificates that this machine trusts."""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    is_of_the_broker: bool = False
    """True for a registry with the users of the broker: it alone is sent a login that is meant for the broker."""

    @classmethod
    def of(cls, settings: Mapping[str, str], url: str = "") -> RegistryAt | None:
        """Parse `schema.registry.*`; `url` takes precedence, and without any URL the result is None. Raises ValueError."""
        values = {
            name.removeprefix(PREFIX): text for name, text in settings.items() if name.startswith(PREFIX)
        }
        unknown = sorted(values.keys() - set(_NAMES))
        if unknown:
            raise ValueError(
                f"{PREFIX}{unknown[0]} is not a setting; there are: {', '.join(PREFIX + setting for setting in _NAMES)}"
            )
        url = url or values.get("url", "")
        if not url:
            return None
        user, colon, password = values.get(USER_INFO, "").partition(":")
        if user and not colon:
            raise ValueError(f"{PREFIX}{USER_INFO} is USER:PASSWORD")
        if user and values.get(TOKEN):
            raise ValueError(f"{PREFIX}{USER_INFO} and {TOKEN} exclude each other")
        tls = {name: values[name] for name in TLS if values.get(name)}
        if tls and urlsplit(url).scheme == "http":
            raise ValueError(f"{PREFIX}{next(iter(tls))} needs an address with https://")
        try:
            context = tls_context(tls) if tls else None
        except ValueError as error:
            raise ValueError(f"{PREFIX}{error}") from None
        registry = cls(url, context, user, password, values.get(TOKEN, ""))
        registry.client()  # so that an invalid address fails early
        return registry

    def client(self) -> RegistryClient:
        """Return a client with the login that there is in the settings, if any. Raises ValueError."""
        from barnabas.registry.client import RegistryClient

        return RegistryClient(
            self.url, user=self.user, password=self.password, token=self.token, tls=self.tls
        )

    def client_of(self, user: str, password: str) -> RegistryClient:
        """Return a client for a user of the broker: with their login where the registry is the broker's own."""
        if not self.is_of_the_broker:
            return self.client()
        from barnabas.registry.client import RegistryClient

        return RegistryClient(self.url, user=user, password=password, tls=self.tls)


def over(below: Mapping[str, str], above: Mapping[str, str], prefix: str = PREFIX) -> dict[str, str]:
    """Return `below` overridden by `above`; if `above` names another registry, settings below with the prefix are dropped.

    A login and certificates belong to an address: another scheme, host or port is another registry.
    """
    url, other = (settings.get(f"{prefix}url") for settings in (below, above))
    if url and other and not is_same(url, other):
        below = {name: text for name, text in below.items() if not name.startswith(prefix)}
    return {**below, **above}


def is_same(url: str, other: str) -> bool:
    """Return whether two addresses are of the same registry, so that credentials for the one may be sent to the other."""
    try:
        return origin_of(url) == origin_of(other)
    except ValueError:
        return url == other
