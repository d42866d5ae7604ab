"""Profiles: addresses and logins of clusters under names chosen by the user, in a TOML file.

    default = "local"                       # without --profile and BARNABAS_PROFILE

    [production]
    bootstrap.servers = "kafka-1:9093,kafka-2:9093"
    security.protocol = "SASL_SSL"
    ssl.ca.location = "~/ca.pem"
    sasl.mechanism = "SCRAM-SHA-512"
    sasl.username = "ann"
    sasl.password.file = "~/.ann"           # or sasl.password
    schema.registry.url = "https://registry:8081"

The rule: names are those of clients' settings (`client.settings`, `registry.client_settings`). A file with a secret that
others may read is refused.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from barnabas.commands.errors import CommandError

if TYPE_CHECKING:
    import click

SECRETS = ("password", "client.secret", "credentials.secret", "auth.user.info", "auth.token")
DEFAULT = "default"
EXAMPLE = """\
# Clusters under names, for --profile. Settings are those of Kafka's clients.
default = "local"

[local]
bootstrap.servers = "localhost:9092"
"""
_OTHERS = stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH


def path() -> str:
    """Return the path of the user's file."""
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return os.path.join(os.path.expanduser(config), "barnabas", "profiles.toml")


def read(name: str | None) -> dict[str, str]:
    """Return the settings of a profile; without a name those of the file's default, for an empty name no settings.

    Raises CommandError for a file that is invalid or readable by others, and for an unknown name.
    """
    profiles, default = every()
    chosen = default if name is None else name
    if not chosen:
        return {}
    if chosen not in profiles:
        names = ", ".join(sorted(profiles)) or "none"
        raise CommandError(f"{path()} has no profile {chosen!r}; it has {names}")
    return profiles[chosen]


def names() -> list[str]:
    """Return the names in the file, nothing where it cannot be read."""
    try:
        return sorted(every()[0])
    except CommandError:
        return []


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """Return the profiles that begin so, for completion."""
    return [name for name in names() if name.startswith(incomplete)]


def every() -> tuple[dict[str, dict[str, str]], str]:
    """Return all profiles, and the name of the default. Raises CommandError."""
    file = path()
    try:
        with open(file, encoding="utf-8") as opened:
            text, mode = opened.read(), os.fstat(opened.fileno()).st_mode
    except FileNotFoundError:
        return {}, ""
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file}: {getattr(error, 'strerror', error)}") from None
    profiles, default = parsed(text, file)
    if mode & _OTHERS and any(
        _holds_secret(*pair) for profile in profiles.values() for pair in profile.items()
    ):
        raise CommandError(f"{file} holds a password and others may read or change it: chmod 600 {file}")
    return profiles, default


def parsed(text: str, file: str) -> tuple[dict[str, dict[str, str]], str]:
    """Return the profiles in the text of a file, and the name of the default. Raises CommandError."""
    import tomllib

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CommandError(f"{file}: {error}") from None
    default = content.pop(DEFAULT, "")
    profiles = {}
    for name, table in content.items():
        if not isinstance(table, dict):
            raise CommandError(f"{file}: {name} is no profile: [{name}] and its settings are expected")
        profiles[name] = _flat(table)
    return profiles, str(default)


def is_secret(name: str) -> bool:
    """Return whether the value of a setting is a secret."""
    return name.endswith(SECRETS)


def _holds_secret(name: str, text: str) -> bool:
    """Return whether a setting is a secret, or an address with a user and a password in it."""
    return is_secret(name) or (name.endswith("url") and "@" in text)


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested tables as dotted names: `a.b = 1` and `[a] b = 1` are the same."""
    settings: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            settings |= _flat(value, f"{prefix}{key}.")
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            is_path = f"{prefix}{key}".endswith((".location", ".file", ".keytab"))
            settings[prefix + key] = os.path.expanduser(text) if is_path else text
    return settings
