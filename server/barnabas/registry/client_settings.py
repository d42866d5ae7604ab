"""Settings of a registry's client, by the names that Confluent's clients give them.

    schema.registry.url = "https://registry.example:8081"
    schema.registry.ssl.ca.location = "~/ca.pem"
    schema.registry.ssl.certificate.location = "~/me.pem"      # with ssl.key.location and ssl.key.password if need be
    schema.registry.basic.auth.user.info = "USER:PASSWORD"     # or bearer.auth.token

The rule: the same for whoever asks a registry; a name that begins so and is none of these is a ValueError.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barnabas.client.settings import tls_context

if TYPE_CHECKING:
    from barnabas.registry.client import RegistryClient

PREFIX = "schema.registry."
URL = f"{PREFIX}url"
USER_INFO, TOKEN = "basic.auth.user.info", "bearer.auth.token"
CA, CERTIFICATE, KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
TLS = (CA, CERTIFICATE, KEY, "ssl.key.password")
_NAMES = ("url", USER_INFO, TOKEN, *TLS)


@dataclass(frozen=True, slots=True)
class RegistryAt:
    """A registry and the way to it; without a login of its own it is asked with that of whoever asks."""

    url: str = field(repr=False)
    """Its address, with a user and a password if need be."""
    tls: ssl.SSLContext | None = None
    """Whom to trust, and who we are; None for whom this machine trusts."""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, str], url: str = "") -> RegistryAt | None:
        """Read `schema.registry.*`; `url` goes first, and None is returned where there is none. Raises ValueError."""
        given = {
            name.removeprefix(PREFIX): text for name, text in settings.items() if name.startswith(PREFIX)
        }
        unknown = sorted(given.keys() - set(_NAMES))
        if unknown:
            raise ValueError(
                f"{PREFIX}{unknown[0]} is no setting: {', '.join(PREFIX + one for one in _NAMES)}"
            )
        url = url or given.get("url", "")
        if not url:
            return None
        user, colon, password = given.get(USER_INFO, "").partition(":")
        if user and not colon:
            raise ValueError(f"{PREFIX}{USER_INFO} is USER:PASSWORD")
        if user and given.get(TOKEN):
            raise ValueError(f"{PREFIX}{USER_INFO} and {TOKEN} do not go together")
        tls = {name: given[name] for name in TLS if given.get(name)}
        if tls and urlsplit(url).scheme == "http":
            raise ValueError(f"{PREFIX}{next(iter(tls))} needs an address with https://")
        try:
            context = tls_context(tls) if tls else None
        except ValueError as error:
            raise ValueError(f"{PREFIX}{error}") from None
        found = cls(url, context, user, password, given.get(TOKEN, ""))
        found.client()  # to have an address that is none told at once
        return found

    @property
    def has_login(self) -> bool:
        """True if it is asked with a login of its own, whoever asks."""
        return bool(self.user or self.token or "@" in self.url)

    def client(self, user: str = "", password: str = "") -> RegistryClient:
        """Return a client that logs in as this user, unless there is a login of its own. Raises ValueError."""
        from barnabas.registry.client import RegistryClient

        if self.has_login:
            user, password = self.user, self.password
        return RegistryClient(self.url, user=user, password=password, token=self.token, tls=self.tls)
