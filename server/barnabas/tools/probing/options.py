"""Options that name a broker and how it is reached; shared by the commands that ask brokers."""

from __future__ import annotations

import argparse

from barnabas.client.settings import ClientSettings, parse_bootstrap
from barnabas.tools.probing.exchanges import Target


class OptionError(Exception):
    """An option is invalid; the message is for the user of the command."""


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add ADDR, --client-config, --property and --timeout."""
    parser.add_argument("address", metavar="ADDR", help="the broker, as HOST:PORT")
    parser.add_argument(
        "--client-config", metavar="FILE",
        help="settings of clients, one KEY=VALUE a line, in librdkafka's names: security.protocol, ssl.ca.location, "
        "sasl.mechanism, sasl.username, sasl.password, ...",
    )  # fmt: skip
    parser.add_argument(
        "--property",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one such setting; may be repeated",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=20.0,
        help="how long an answer may take (default: 20)",
    )


def target_of(options: argparse.Namespace) -> Target:
    """Return the broker that the options name. Raises OptionError."""
    settings: dict[str, str] = {}
    if options.client_config is not None:
        try:
            with open(options.client_config, encoding="utf-8") as file:
                lines = [line.strip() for line in file]
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"--client-config {options.client_config}: {error}") from None
        settings |= dict(_pair(line, options.client_config) for line in lines if line and line[0] not in "#!")
    settings |= dict(_pair(text, "--property") for text in options.property)
    try:
        [endpoint, *others] = parse_bootstrap(options.address)
        client_settings = ClientSettings.of(settings)
    except ValueError as error:
        raise OptionError(str(error)) from None
    if others:
        raise OptionError(f"{options.address}: one broker is asked at a time")
    return Target(endpoint, client_settings, options.timeout)


def _pair(text: str, where: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"{where}: {text!r} is not KEY=VALUE")
    return name.strip(), value.strip()


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: a number of seconds expected")
    return value
