"""Options for the connection to a cluster, the same for every command.

The rule: an option has precedence over `--property`, that over `--client-config`, that over the profile; logins of one
are not combined with addresses of another. A password is prompted for, or read from a file or from BARNABAS_PASSWORD,
and is never an option.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.commands import profiles
from barnabas.commands.errors import CommandError
from barnabas.environment import secret_files

if TYPE_CHECKING:
    from barnabas.client import ClientSettings, Endpoint

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_PORT = 9092
DEFAULT_BOOTSTRAP = f"localhost:{DEFAULT_PORT}"
_IS_HOST = re.compile(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]")
DEFAULT_MECHANISM = "SCRAM-SHA-512"
PASSWORD_VARIABLE = "BARNABAS_PASSWORD"
CONNECT_SECONDS_MAX = 10.0
OWN_SETTINGS = ("bootstrap.servers", "sasl.password.file")
"""Settings of profiles and files that the client itself does not know."""
_PASSWORDS = frozenset(("sasl.password", "sasl.password.file"))


_FILE = click.Path(dir_okay=False)
_BOOTSTRAP = click.option(
    "-b", "--bootstrap", metavar="HOST[:PORT],...", envvar="BARNABAS_BOOTSTRAP",
    help=f"Brokers to ask first, on port {DEFAULT_PORT} unless given. Default: the profile's, else {DEFAULT_BOOTSTRAP}.",
)  # fmt: skip
_OPTIONS = (
    click.option(
        "--profile", metavar="NAME", shell_complete=profiles.complete, envvar="BARNABAS_PROFILE",
        help="Address and login from ~/.config/barnabas/profiles.toml.",
    ),
    click.option("--client-config", metavar="FILE", type=_FILE, help="Settings of clients, one KEY=VALUE a line."),
    click.option("-X", "--property", "properties", metavar="KEY=VALUE", multiple=True, help="One setting of the client."),
    click.option("--tls", is_flag=True, help="Speak TLS."),
    click.option("--ca", metavar="FILE", type=_FILE, help="Certificates that are trusted (PEM); implies --tls."),
    click.option("--cert", metavar="FILE", type=_FILE, help="The client's own certificate; implies --tls."),
    click.option("--cert-key", metavar="FILE", type=_FILE, help="Its key, if it is not in the same file."),
    click.option("--user", metavar="NAME", help=f"Log in; the password is asked for, or in {PASSWORD_VARIABLE}."),
    click.option("--password-file", metavar="FILE", type=_FILE, help="A file with the password."),
    click.option("--mechanism", metavar="NAME", help=f"SASL mechanism. Default with --user: {DEFAULT_MECHANISM}."),
    click.option(
        "--timeout", metavar="SECONDS", type=click.FloatRange(0, 3600, min_open=True), default=20.0,
        show_default=True, help="Timeout of a request in seconds.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)  # fmt: skip
_OF_BROKERS = _OPTIONS[3:10]
"""Options for the connection to a broker."""
NAMES = (
    "bootstrap", "profile", "client_config", "properties", "tls", "ca", "cert", "cert_key", "user", "password_file",
    "mechanism", "timeout", "as_json",
)  # fmt: skip
"""Names of the options, to distinguish them from a command's own parameters."""


@dataclass(frozen=True, slots=True)
class Connecting:
    """Addresses to ask first, and the settings of the client."""

    bootstrap: list[Endpoint]
    settings: ClientSettings
    properties: dict[str, str]
    """The settings by name, as text."""
    typed: dict[str, str] = field(default_factory=dict)
    """Settings given directly on the command line."""


def connection_options(command: F) -> F:
    """Add the options to a command."""
    return _BOOTSTRAP(login_options(command))


def login_options(command: F) -> F:
    """Add the options to a command with separate addresses."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def asking_options(command: F) -> F:
    """Add the options to a command for a server other than a broker: settings, timeout, and JSON."""
    for option in reversed([option for option in _OPTIONS if option not in _OF_BROKERS]):
        command = option(command)
    return command


def connecting_of(options: dict[str, Any], *, may_ask: bool = True) -> Connecting:
    """Return where and how to connect; `may_ask` the user, for a password. Raises CommandError, click.UsageError."""
    from barnabas.client import ClientSettings, parse_bootstrap

    properties, typed = properties_of(options)
    password_file = properties.get("sasl.password.file")
    if password_file:
        properties["sasl.password"] = secret_of_file(password_file)
    if properties.get("security.protocol", "").startswith("SASL") and _lacks_password(properties):
        properties["sasl.password"] = _password(properties.get("sasl.username", ""), may_ask=may_ask)
    bootstrap = options["bootstrap"] or properties.get("bootstrap.servers") or DEFAULT_BOOTSTRAP
    milliseconds = str(int(options["timeout"] * 1000) or 1)
    try:
        endpoints = parse_bootstrap(with_ports(bootstrap))
        settings = ClientSettings.of({**properties, "request.timeout.ms": milliseconds})
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return Connecting(endpoints, settings, properties, typed)


def properties_of(
    options: dict[str, Any], *, uses_default: bool = True
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of profile, file and options, and the typed ones. Raises CommandError, click.UsageError."""
    has_profile = uses_default or options["profile"]
    properties = profiles.read(options["profile"]) if has_profile else {}
    typed = dict(_pair(text, "--property") for text in options["properties"] or ())
    if options["client_config"]:
        properties = _over(properties, _file(options["client_config"]))
    short = _of_options(options, {**properties, **typed})
    return _over(properties, {**typed, **short}), typed


def with_ports(addresses: str) -> str:
    """Return addresses, with Kafka's default port for those without a port."""
    return ",".join(
        f"{address}:{DEFAULT_PORT}" if _IS_HOST.fullmatch(address) else address
        for address in map(str.strip, addresses.split(","))
    )


def _over(below: dict[str, str], above: dict[str, str]) -> dict[str, str]:
    """Return settings with others over them; a password belongs to the user next to it, and to no other."""
    user, other = (settings.get("sasl.username") for settings in (below, above))
    if (user and other and user != other) or _PASSWORDS & above.keys():
        below = {name: text for name, text in below.items() if name not in _PASSWORDS}
    if not any(name.startswith("schema.registry.") for name in above):
        return {**below, **above}
    # the registry's modules are loaded only when one is used
    from barnabas.registry.client_settings import over

    return over(below, above)


def _of_options(options: dict[str, Any], before: dict[str, str]) -> dict[str, str]:
    """Return the short options as settings."""
    names = {
        "ca": "ssl.ca.location",
        "cert": "ssl.certificate.location",
        "cert_key": "ssl.key.location",
        "user": "sasl.username",
        "password_file": "sasl.password.file",
        "mechanism": "sasl.mechanism",
    }
    settings = {setting: options[option] for option, setting in names.items() if options[option]}
    protocol = before.get("security.protocol", "PLAINTEXT").upper()
    has_tls = protocol.endswith("SSL") or options["tls"] or options["ca"] or options["cert"]
    has_login = protocol.startswith("SASL") or options["user"] or options["mechanism"]
    if has_login and "sasl.mechanism" not in {**before, **settings}:
        settings["sasl.mechanism"] = DEFAULT_MECHANISM if options["user"] else "PLAIN"
    settings["security.protocol"] = ("SASL_" if has_login else "") + ("SSL" if has_tls else "PLAINTEXT")
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        settings["security.protocol"] = protocol  # the client reports errors in it
    return settings


def _lacks_password(properties: dict[str, str]) -> bool:
    mechanism = properties.get("sasl.mechanism", "PLAIN").upper()
    return (mechanism == "PLAIN" or mechanism.startswith("SCRAM")) and not properties.get("sasl.password")


def _password(user: str, *, may_ask: bool) -> str:
    """Return a password from the environment or from the terminal. Raises click.UsageError."""
    if password := os.environ.get(PASSWORD_VARIABLE):
        return password
    if not may_ask or not sys.stdin.isatty():
        raise click.UsageError(
            f"no password for {user!r}: give --password-file, or set {PASSWORD_VARIABLE}; standard input is no terminal"
        )
    typed: str = click.prompt(f"Password of {user}", hide_input=True, err=True)
    return typed


def secret_of_file(path: str) -> str:
    """Return the first line of a file. Raises CommandError, also for a file that others may read."""
    try:
        return secret_files.secret_of_file(path)
    except secret_files.SecretError as error:
        raise CommandError(str(error)) from None


def _file(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', error)}") from None
    lines = [line.strip() for line in text.splitlines()]
    return dict(_pair(line, path) for line in lines if line and line[0] not in "#!")


def _pair(text: str, where: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"{where}: {text!r} is not KEY=VALUE")
    return name.strip(), value.strip()
