"""Settings of a controller, a voter of a KRaft quorum, in one value. Pure.

The rule: rules about several settings together are those of Kafka (`KafkaConfig`, KIP-500, KIP-853), checked before
anything is opened; each error names the settings and their allowed values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker as settings
from barnabas.config.keeper import is_controller
from barnabas.config.quorum import Address, QuorumSettings, protocol_of, quorum_of
from barnabas.config.setting import SettingError

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

ROLE = f"{settings.PROCESS_ROLES.name}=controller"


class ControllerSettings(NamedTuple):
    """Settings of a voter; times in ms."""

    quorum: QuorumSettings
    """Addresses of the other controllers, and settings of the log."""
    protocols: dict[str, str]
    """Security protocol by listener, in the order of `controller.listener.names`."""
    election_timeout_ms: int
    election_backoff_max_ms: int
    append_linger_ms: int
    """Time for which a leader gathers records before it writes them."""
    joins_by_itself: bool
    """True if a controller that is no voter asks the leader to add it (KIP-853)."""


def controller_settings(config: BrokerConfig) -> ControllerSettings:
    """Return the settings of a controller. Raises SettingError."""
    if not config.is_node_id_set:
        raise SettingError(f"{ROLE} needs {settings.NODE_ID.name}")
    protocols = _protocols(config)
    listener, protocol = next(iter(protocols.items()))
    quorum = quorum_of(config, listener, protocol)
    node_id, voters = quorum.node_id, quorum.static_voters
    if voters and node_id not in voters:
        raise SettingError(
            f"{settings.NODE_ID.name}={node_id}: {settings.CONTROLLER_QUORUM_VOTERS.name} has no controller of that id; "
            "a controller must be among its voters"
        )
    for name, (host, _) in advertised_controllers(config).items():
        if host == "0.0.0.0":
            raise SettingError(
                f"{settings.ADVERTISED_LISTENERS.name}: nodes cannot connect to {host}; name an address or host of this "
                f"machine for {name} that they can reach"
            )
    joins_by_itself = config.get(settings.CONTROLLER_QUORUM_AUTO_JOIN_ENABLE)
    if joins_by_itself and voters:
        raise SettingError(
            f"{settings.CONTROLLER_QUORUM_AUTO_JOIN_ENABLE.name}=true: with {settings.CONTROLLER_QUORUM_VOTERS.name} the "
            f"voters are fixed; set {settings.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS.name} in its place"
        )
    return ControllerSettings(
        quorum,
        protocols,
        election_timeout_ms=config.get(settings.CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS),
        election_backoff_max_ms=config.get(settings.CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS),
        append_linger_ms=config.get(settings.CONTROLLER_QUORUM_APPEND_LINGER_MS),
        joins_by_itself=joins_by_itself,
    )


def advertised_controllers(config: BrokerConfig) -> dict[str, Address]:
    """Return the advertised host and port of each listener of a controller, in the order of `listeners`.

    An empty host means this machine's name, port 0 the bound port. Raises SettingError.
    """
    addresses: dict[str, Address] = {}
    controllers = config.controller_listener_names()
    own, advertised = config.get(settings.LISTENERS), config.get(settings.ADVERTISED_LISTENERS) or ()
    for setting, texts in ((settings.LISTENERS.name, own), (settings.ADVERTISED_LISTENERS.name, advertised)):
        for text in texts:
            name, _, address = text.strip().partition("://")
            if name.upper() not in controllers and not is_controller(config):
                continue
            host, _, port = address.rpartition(":")
            if not port.isdecimal() or int(port) > 65535:
                raise SettingError(f"{setting}: {text.strip()!r} is not of the form NAME://HOST:PORT")
            if texts is advertised and name.upper() not in addresses:
                raise SettingError(
                    f"{setting}={text}: {settings.LISTENERS.name} has no listener of that name"
                )
            addresses[name.upper()] = host.removeprefix("[").removesuffix("]"), int(port)
    return addresses


def _protocols(config: BrokerConfig) -> dict[str, str]:
    """Return the security protocol of each listener."""
    name = settings.CONTROLLER_LISTENER_NAMES.name
    names = [text.strip().upper() for text in config.get(settings.CONTROLLER_LISTENER_NAMES) or ()]
    if not names or not names[0]:
        raise SettingError(f"{ROLE} needs {name}: which of its listeners are for controllers and brokers")
    if not config.is_set(settings.LISTENERS.name):
        raise SettingError(f"{ROLE} needs {settings.LISTENERS.name}={names[0]}://HOST:PORT")
    own = [text.partition("://")[0].strip().upper() for text in config.get(settings.LISTENERS)]
    for listener in own:
        if listener not in names and is_controller(config):
            raise SettingError(
                f"{settings.LISTENERS.name} has {listener}, which is not among {name}={','.join(names)}: a controller has "
                "no listener for clients"
            )
    for listener in names:
        if listener not in own:
            raise SettingError(f"{name}={listener}: {settings.LISTENERS.name} has no listener of that name")
    return {listener: protocol_of(config, listener, own) for listener in names}
