"""Settings of a broker in a KRaft quorum, in one value. Pure.

The rule: rules about several settings together are those of Kafka (`KafkaConfig`, KIP-500, KIP-853), checked before
anything is opened; each error names the settings and what they may be.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker as settings
from barnabas.config.setting import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.config.loading import BrokerConfig

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_VOTER = re.compile(r"(\d+)@(.+)")


class QuorumSettings(NamedTuple):
    """Addresses of controllers and the listener by which they are reached."""

    bootstrap: tuple[tuple[str, int], ...]
    """Host and port of each of `controller.quorum.bootstrap.servers`, else of the voters."""
    voters: Mapping[int, tuple[str, int]]
    """Host and port of static voters by id; empty for a dynamic quorum."""
    listener: str
    """The first of `controller.listener.names`."""
    protocol: str
    """Security protocol of that listener."""
    metadata_dir: str
    """The log dir with `__cluster_metadata-0`."""


def quorum_settings(config: BrokerConfig) -> QuorumSettings:
    """Read the settings of a broker in a quorum. Raises SettingError."""
    texts: tuple[str, ...] = config.get(settings.CONTROLLER_QUORUM_VOTERS)
    voters = _voters(texts)
    bootstrap_name = settings.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS.name
    servers = config.get(settings.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS) or ()
    bootstrap = tuple(_address(bootstrap_name, text) for text in servers)
    if not voters and not bootstrap:
        raise SettingError(
            f"{settings.PROCESS_ROLES.name}=broker needs the controllers of its cluster: set "
            f"{bootstrap_name}=HOST:PORT,... or {settings.CONTROLLER_QUORUM_VOTERS.name}=ID@HOST:PORT,..."
        )
    _check_node(config, voters)
    listener, protocol = _listener(config)
    return QuorumSettings(
        bootstrap or tuple(voters.values()), voters, listener, protocol, _metadata_dir(config)
    )


def _check_node(config: BrokerConfig, voters: Mapping[int, tuple[str, int]]) -> None:
    if not config.is_node_id_set:
        raise SettingError(f"{settings.PROCESS_ROLES.name}=broker needs {settings.NODE_ID.name}")
    node_id = config.get(settings.NODE_ID)
    if node_id in voters:
        raise SettingError(
            f"{settings.NODE_ID.name}={node_id}: {settings.CONTROLLER_QUORUM_VOTERS.name} has a controller of that id; a "
            "broker needs another one"
        )
    if config.value_of("controller.quorum.auto.join.enable"):
        raise SettingError(
            f"controller.quorum.auto.join.enable=true is for controllers, and {settings.PROCESS_ROLES.name}=broker"
        )


def _listener(config: BrokerConfig) -> tuple[str, str]:
    name = settings.CONTROLLER_LISTENER_NAMES.name
    names = [text.strip().upper() for text in config.get(settings.CONTROLLER_LISTENER_NAMES) or ()]
    if not names or not names[0]:
        raise SettingError(
            f"{settings.PROCESS_ROLES.name}=broker needs {name}: the listener of the controllers, as in their files"
        )
    own = {text.partition("://")[0].strip().upper() for text in config.listeners()}
    for listener in names:
        if listener in own:
            raise SettingError(f"{name}={listener}: a broker must not have a listener of that name itself")
    protocols = config.listener_security_protocols()
    protocol = protocols.get(names[0], names[0])
    if protocol not in PROTOCOLS and _has_default_protocols(config, own):
        protocol = "PLAINTEXT"
    if protocol not in PROTOCOLS:
        raise SettingError(
            f"{name}={names[0]}: add {names[0]}:PLAINTEXT, or another protocol, to "
            f"{settings.LISTENER_SECURITY_PROTOCOL_MAP.name}"
        )
    return names[0], protocol


def _has_default_protocols(config: BrokerConfig, own: set[str]) -> bool:
    """Say whether Kafka takes controllers' listeners for PLAINTEXT: no map is set, and no own listener has TLS or SASL."""
    secured = set(PROTOCOLS) - {"PLAINTEXT"}
    return not config.is_set(settings.LISTENER_SECURITY_PROTOCOL_MAP.name) and not own & secured


def _metadata_dir(config: BrokerConfig) -> str:
    directory = config.get(settings.METADATA_LOG_DIR)
    return directory or config.log_dirs[0]


def _voters(texts: Sequence[str]) -> dict[int, tuple[str, int]]:
    name = settings.CONTROLLER_QUORUM_VOTERS.name
    voters = {}
    for text in texts:
        match = _VOTER.fullmatch(text.strip())
        if match is None:
            raise SettingError(f"{name}={','.join(texts)}: {text.strip()!r} is not of the form ID@HOST:PORT")
        voters[int(match[1])] = _address(name, match[2])
    return voters


def _address(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SettingError(f"{name}: {text.strip()!r} is not of the form HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
