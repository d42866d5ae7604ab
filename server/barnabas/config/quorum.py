"""Settings of a node in a KRaft quorum, in one value. Pure.

The rule: rules about several settings together are those of Kafka (`KafkaConfig`, KIP-500, KIP-853), checked before
anything is opened; each error names the settings and their allowed values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker as settings
from barnabas.config.listeners import PROTOCOLS
from barnabas.config.metadata_log import LogSettings, log_settings
from barnabas.config.setting import SettingError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from barnabas.config.loading import BrokerConfig

Address = tuple[str, int]
"""Host and port."""
_VOTER = re.compile(r"(\d+)@(.+)")


class QuorumSettings(NamedTuple):
    """Addresses of controllers, the listener by which they are reached, and how their log is copied; times in ms."""

    node_id: int
    log_dir: str
    """The log dir with `__cluster_metadata-0`."""
    bootstrap: tuple[Address, ...]
    """Host and port of each of `controller.quorum.bootstrap.servers`, else of the voters."""
    static_voters: Mapping[int, Address]
    """Host and port of the voters of `controller.quorum.voters`, by id: they say where a leader is."""
    fetch_timeout_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    fetch_bytes_max: int
    snapshot_bytes_max: int
    log: LogSettings
    listener: str = "CONTROLLER"
    """The first of `controller.listener.names`."""
    protocol: str = "PLAINTEXT"
    """Security protocol of that listener."""


def quorum_of(config: BrokerConfig, listener: str, protocol: str) -> QuorumSettings:
    """Return the settings of any node of a quorum, with the listener by which it reaches controllers.

    Raises SettingError.
    """
    texts: tuple[str, ...] = config.get(settings.CONTROLLER_QUORUM_VOTERS)
    voters = _voters(texts)
    bootstrap_name = settings.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS.name
    servers = config.get(settings.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS)
    bootstrap = tuple(_address(bootstrap_name, text) for text in servers)
    if not voters and not bootstrap:
        roles: tuple[str, ...] | None = config.get(settings.PROCESS_ROLES)
        role = ",".join(roles or ())
        raise SettingError(
            f"{settings.PROCESS_ROLES.name}={role} needs the controllers of its cluster: set "
            f"{bootstrap_name}=HOST:PORT,... or {settings.CONTROLLER_QUORUM_VOTERS.name}=ID@HOST:PORT,..."
        )
    return QuorumSettings(
        node_id=config.get(settings.NODE_ID),
        log_dir=(config.get(settings.METADATA_LOG_DIR) or config.log_dirs[0]).rstrip("/"),
        bootstrap=bootstrap or tuple(voters.values()),
        static_voters=voters,
        fetch_timeout_ms=config.get(settings.CONTROLLER_QUORUM_FETCH_TIMEOUT_MS),
        request_timeout_ms=config.get(settings.CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS),
        retry_backoff_ms=config.get(settings.CONTROLLER_QUORUM_RETRY_BACKOFF_MS),
        fetch_bytes_max=config.get(settings.CONTROLLER_QUORUM_FETCH_MAX_BYTES),
        snapshot_bytes_max=config.get(settings.CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES),
        log=log_settings(config),
        listener=listener,
        protocol=protocol,
    )


def cordoned_log_dirs(config: BrokerConfig) -> frozenset[str]:
    """Return the log dirs that get no new partitions (KIP-1066), as paths. Raises SettingError."""
    words: tuple[str, ...] = config.get(settings.CORDONED_LOG_DIRS)
    return check_cordoned(words, config.log_dirs)


def check_cordoned(words: Collection[str], log_dirs: Iterable[str]) -> frozenset[str]:
    """Return the log dirs in a value of `cordoned.log.dirs`. Raises SettingError for a path that is no log dir."""
    own = frozenset(path.rstrip("/") for path in log_dirs)
    if "*" in words:
        return own
    paths = frozenset(path.rstrip("/") for path in words)
    if not paths <= own:
        raise SettingError(
            f"{settings.CORDONED_LOG_DIRS.name}: {', '.join(sorted(paths - own))} is not among {settings.LOG_DIRS.name}"
        )
    return paths


def protocol_of(config: BrokerConfig, listener: str, own: Collection[str]) -> str:
    """Return the security protocol of a listener of controllers; `own` are the names of all of this node.

    As in Kafka, PLAINTEXT is the default if no map is set and no own listener has TLS or SASL. Raises SettingError.
    """
    protocol = config.listener_security_protocols().get(listener, listener)
    if protocol in PROTOCOLS:
        return protocol
    setting = settings.LISTENER_SECURITY_PROTOCOL_MAP.name
    if config.is_set(setting) or any(name in PROTOCOLS and name != "PLAINTEXT" for name in own):
        raise SettingError(
            f"{settings.CONTROLLER_LISTENER_NAMES.name}={listener}: add {listener}:PLAINTEXT, or another protocol, to "
            f"{setting}"
        )
    return "PLAINTEXT"


def _voters(texts: Sequence[str]) -> dict[int, Address]:
    name = settings.CONTROLLER_QUORUM_VOTERS.name
    voters = {}
    for text in texts:
        match = _VOTER.fullmatch(text.strip())
        if match is None:
            raise SettingError(f"{name}={','.join(texts)}: {text.strip()!r} is not of the form ID@HOST:PORT")
        voters[int(match[1])] = _address(name, match[2])
    return voters


def _address(name: str, text: str) -> Address:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SettingError(f"{name}: {text.strip()!r} is not of the form HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
