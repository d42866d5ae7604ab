"""Options of `barnabas serve` on the command line and in its file, as settings.

The rule: an option takes precedence over the file, and each setting has its origin, for messages.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.config import broker, releases, tables
from barnabas.config.loading import parse_pairs, protocols_of
from barnabas.config.setting import SettingError

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

SET_OPTION = "--set"
DEMO_OPTION = "--demo-security"
WORKER_DIRECTORY = "worker-"
"""Beginning of the names of workers' directories in each log dir, before the worker's number."""
REGISTRY_URL = "console.registry.url"
WITHOUT_FILE = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
"""Settings without a file: the first member of a group does not wait for others, as in Kafka's example configuration."""
DEFAULT_NAME = "PLAINTEXT"
"""The name of a listener that is given as HOST:PORT."""


def check_workers(log_dirs: Sequence[str], workers: int, *, is_clustered: bool) -> None:
    """Raise SettingError unless log dirs are new, or were used by as many workers, or by fewer of several."""
    if workers > 1 and is_clustered:
        raise SettingError(
            f"--workers {workers}: workers are a cluster of their own; for another one start each broker by itself"
        )
    for path in log_dirs:
        count = 0
        while os.path.isdir(os.path.join(path, f"{WORKER_DIRECTORY}{count + 1}")):
            count += 1
        if workers > 1 and not count and os.path.exists(os.path.join(path, "meta.properties")):
            raise SettingError(
                f"--workers {workers}: {path} holds the data of one broker; give the workers a directory of their own, "
                "or start without --workers"
            )
        if count > workers:
            raise SettingError(
                f"{path} holds the data of {count} workers: start with --workers {count}, or with more"
            )


def has_metadata_log(config: BrokerConfig) -> bool:
    """Return whether the dir of the metadata was formatted for a controller; that of a broker that is alone never is."""
    if not config.get(broker.PROCESS_ROLES):
        return False
    from barnabas.log.format.names import BOOTSTRAP_CHECKPOINT  # of a node that has roles alone

    path = config.get(broker.METADATA_LOG_DIR) or config.log_dirs[0]
    return os.path.exists(os.path.join(path, BOOTSTRAP_CHECKPOINT))


class CollectedSettings:
    """Settings as text by name, and for each name where it was set (`--set`, `FILE:LINE`)."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.origins: dict[str, str] = {}

    def set(self, name: str, text: str, origin: str) -> None:
        """Set a setting, overriding the file's. Raises SettingError if --set gives another value beside the option."""
        if self.origins.get(name) == SET_OPTION != origin and self.settings[name] != text:
            raise SettingError(
                f"{origin} sets {name}={text}, and {SET_OPTION} {name}={self.settings[name]}: give one of them"
            )
        self.settings[name] = text
        self.origins[name] = origin


def collect(options: argparse.Namespace, demo: Mapping[str, str] | None = None) -> CollectedSettings:
    """Return all settings of the options and their file, or those of a demonstration. Raises SettingError."""
    collected = CollectedSettings()
    if options.config is not None:
        _read_file(options.config, collected)
    else:
        collected.settings.update(WITHOUT_FILE)
    for name, value in (demo or {}).items():
        collected.set(name, value, DEMO_OPTION)
    pairs = parse_pairs(options.set)
    _leave_registry(collected, options.console_registry or pairs.get(REGISTRY_URL))
    for name, value in pairs.items():
        collected.set(name, value, SET_OPTION)
    if options.listen:
        _listen(options.listen, collected)
    if options.advertise:
        _advertise(options.advertise, collected)
    if options.metrics is not None:
        collected.set("metrics.listener", _not_empty("--metrics", options.metrics, "HOST:PORT"), "--metrics")
    for name, option, text in (
        ("zookeeper.connect", "--zookeeper", options.zookeeper),
        ("broker.id", "--broker-id", options.broker_id),
        ("broker.rack", "--rack", options.rack),
        ("kafka.version", "--as-version", _release(options.as_version)),
        ("control.listener", "--control", options.control),
        ("registry.listener", "--registry", options.registry),
        ("http.listener", "--http", options.http),
        ("console.listener", "--console", options.console),
        ("console.origins", "--console-origin", ",".join(options.console_origin) or None),
        (REGISTRY_URL, "--console-registry", options.console_registry),
        ("console.connect.urls", "--console-connect", ",".join(options.console_connect) or None),
        ("faults.file", "--faults", options.faults),
        ("faults.seed", "--fault-seed", options.fault_seed),
        ("clock.virtual", "--virtual-clock", "true" if options.virtual_clock else None),
    ):
        if text is not None:
            collected.set(name, _not_empty(option, text, "a value"), option)
    if options.console_token_file is not None:
        option = "--console-token-file"
        collected.set("console.token", _secret_of(options.console_token_file, option), option)
    if options.console_client_config is not None:
        _log_console_in(options.console_client_config, collected)
    if collected.settings.get("console.listener") and not collected.settings.get("metrics.listener"):
        origin = collected.origins["console.listener"]
        collected.set("metrics.listener", "127.0.0.1:0", origin)  # which it plots
        if "telemetry.enable" not in collected.settings:  # clients' metrics were not asked for
            collected.set("telemetry.enable", "false", origin)
    if not options.ephemeral:
        _place_data(options.data, collected)
    return collected


def _leave_registry(collected: CollectedSettings, url: str | None) -> None:
    """Drop the file's login for the console's registry, if the command line names another registry."""
    if url is None or REGISTRY_URL not in collected.settings:
        return
    from barnabas.registry.client_settings import CONSOLE_PREFIX, over

    kept = over(collected.settings, {REGISTRY_URL: url}, CONSOLE_PREFIX)
    for name in collected.settings.keys() - kept.keys():
        del collected.settings[name], collected.origins[name]


def _log_console_in(path: str, collected: CollectedSettings) -> None:
    """Take the login of the console from a file of client settings. Raises SettingError."""
    from barnabas.config.properties import parse_lines
    from barnabas.environment.secret_files import SecretError, text_of_secret_file

    option = "--console-client-config"
    try:
        lines = {name: value for _, name, value in parse_lines(text_of_secret_file(path))}
    except SecretError as error:
        raise SettingError(f"{option} {error}") from error
    for name in ("sasl.username", "sasl.password"):
        if not lines.get(name):
            raise SettingError(f"{option} {path}: {name} is missing")
    for name in ("sasl.mechanism", "sasl.username", "sasl.password"):
        if name in lines:
            collected.set(f"console.{name}", lines[name], option)


def _secret_of(path: str, option: str) -> str:
    """Return the first line of a file. Raises SettingError."""
    from barnabas.environment.secret_files import SecretError, secret_of_file

    try:
        return _not_empty(option, secret_of_file(path), "a token in its first line")
    except SecretError as error:
        raise SettingError(f"{option} {error}") from error


def _release(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return releases.named(text)
    except ValueError as error:
        raise SettingError(f"--as-version: {error}") from error


def collect_stored(file: str | None, data: str | None, pairs: Sequence[str]) -> CollectedSettings:
    """Return the settings of a command that has a file, a data directory and `--set` alone. Raises SettingError."""
    collected = collect_shared(file, pairs)
    _place_data(data, collected)
    return collected


def collect_shared(file: str | None, pairs: Sequence[str]) -> CollectedSettings:
    """Return the settings of a file and of `--set`, which must not name data directories. Raises SettingError."""
    collected = CollectedSettings()
    if file is not None:
        _read_file(file, collected)
    for name, value in parse_pairs(pairs).items():
        collected.set(name, value, SET_OPTION)
    return collected


def _read_file(path: str, collected: CollectedSettings) -> None:
    from barnabas.config.properties import parse_lines  # of a node that has a file alone

    try:
        with open(_not_empty("--config", path, "a file"), "rb") as file:
            content = file.read()
    except OSError as error:
        raise SettingError(f"--config {path}: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = 1 + before.count(b"\n")
        column = error.start - before.rfind(b"\n")
        raise SettingError(
            f"{path}:{line}: byte {content[error.start]:#04x} in column {column} is not UTF-8; save the file as UTF-8, "
            "or write the character as \\uXXXX"
        ) from error
    try:
        for number, name, value in parse_lines(text):
            collected.set(name, value, f"{path}:{number}")
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from error


def _listen(addresses: list[str], collected: CollectedSettings) -> None:
    """Set the addresses of --listen; a name without a protocol gets PLAINTEXT, the default."""
    named = [_with_name(address, DEFAULT_NAME) for address in addresses]
    collected.set("listeners", ",".join(named), "--listen")
    protocol_map = _text_of(collected, "listener.security.protocol.map")
    missing = sorted({_name_of(address) for address in named} - protocols_of(protocol_map).keys())
    if missing and all(name.replace("_", "").replace("-", "").isalnum() for name in missing):
        pairs = [protocol_map, *(f"{name}:PLAINTEXT" for name in missing)]
        protocols = ",".join(pair for pair in pairs if pair)  # including settings of --set
        name = "listener.security.protocol.map"
        collected.set(
            name, protocols, collected.origins.get(name, "--listen")
        )  # inserted at the place of the setting that it extends


def _advertise(addresses: list[str], collected: CollectedSettings) -> None:
    """Set the addresses of --advertise; one without a name is for the listener without a name, or for the only listener."""
    controllers = {
        name.strip().upper() for name in collected.settings.get("controller.listener.names", "").split(",")
    }
    listeners = [_name_of(text) for text in _text_of(collected, "listeners").split(",")]
    listeners = [name for name in listeners if name not in controllers]
    name = listeners[0] if len(listeners) == 1 else DEFAULT_NAME
    if name not in listeners and not all("://" in address for address in addresses):
        raise SettingError(
            f"--advertise: say for which listener, NAME://HOST:PORT; the listeners are {', '.join(listeners)}"
        )
    advertised = [_with_name(address, name) for address in addresses]
    collected.set("advertised.listeners", ",".join(advertised), "--advertise")


def _place_data(data: str | None, collected: CollectedSettings) -> None:
    """Set the log dirs as absolute paths: those of --data, of the settings, or the user's own."""
    if data is not None:
        collected.set("log.dirs", os.path.abspath(_not_empty("--data", data, "a directory")), "--data")
        return
    name = "log.dirs" if "log.dirs" in collected.settings else "log.dir"
    text = collected.settings.get(name)
    if text is None:
        collected.settings["log.dirs"] = _state_directory()
        return
    paths = [os.path.abspath(path.strip()) for path in text.split(",") if path.strip()]
    if not paths:
        raise SettingError(
            f"{collected.origins[name]}: {name} is empty; name a directory, or leave the setting out"
        )
    collected.set("log.dirs", ",".join(paths), collected.origins[name])


def _not_empty(option: str, text: str, expected: str) -> str:
    if not text.strip():
        raise SettingError(f"{option} is empty; {expected} expected")
    return text


def _text_of(collected: CollectedSettings, name: str) -> str:
    """Return the text of a setting, or of its default."""
    row = tables.setting(name)
    return collected.settings.get(name, row.format(row.default))


def _with_name(address: str, name: str) -> str:
    return address if "://" in address else f"{name}://{address}"


def _name_of(address: str) -> str:
    return address.partition("://")[0].strip().upper()


def _state_directory() -> str:
    """Return the directory for persistent data of this user's programs: $XDG_STATE_HOME, or ~/.local/state."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "barnabas")
