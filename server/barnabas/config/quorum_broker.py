"""Settings of a broker in a KRaft quorum, in one value. Pure.

The rule: rules about several settings together are those of Kafka (`KafkaConfig`, KIP-500, KIP-853), checked before
anything is opened; each error names the settings and their allowed values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config import broker as settings
from barnabas.config.controller import controller_settings
from barnabas.config.keeper import Keeper, keeper_of
from barnabas.config.quorum import (
    Address,
    QuorumSettings,
    cordoned_log_dirs,
    protocol_of,
    quorum_of,
)
from barnabas.config.setting import SettingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.config.loading import BrokerConfig


def quorum_settings(config: BrokerConfig) -> QuorumSettings:
    """Return the settings of a broker in a quorum, be the node a controller too or not. Raises SettingError."""
    if keeper_of(config) is Keeper.COMBINED:
        cordoned_log_dirs(config)
        return controller_settings(config).quorum
    quorum = quorum_of(config, "", "")
    _check_node(config, quorum.static_voters)
    cordoned_log_dirs(config)
    listener, protocol = _listener(config)
    return quorum._replace(listener=listener, protocol=protocol)


def _check_node(config: BrokerConfig, voters: Mapping[int, Address]) -> None:
    if not config.is_node_id_set:
        raise SettingError(f"{settings.PROCESS_ROLES.name}=broker needs {settings.NODE_ID.name}")
    node_id = config.get(settings.NODE_ID)
    if node_id in voters:
        raise SettingError(
            f"{settings.NODE_ID.name}={node_id}: {settings.CONTROLLER_QUORUM_VOTERS.name} has a controller of that id; a "
            "broker needs another one"
        )
    if config.get(settings.CONTROLLER_QUORUM_AUTO_JOIN_ENABLE):
        raise SettingError(
            f"{settings.CONTROLLER_QUORUM_AUTO_JOIN_ENABLE.name}=true is for controllers, and "
            f"{settings.PROCESS_ROLES.name}=broker"
        )


def _listener(config: BrokerConfig) -> tuple[str, str]:
    name = settings.CONTROLLER_LISTENER_NAMES.name
    names = [text.strip().upper() for text in config.get(settings.CONTROLLER_LISTENER_NAMES) or ()]
    if not names or not names[0]:
        raise SettingError(
            f"{settings.PROCESS_ROLES.name}=broker needs {name}: the listener of the controllers, as in their files"
        )
    own = {text.partition("://")[0].strip().upper() for text in config.get(settings.LISTENERS)}
    for listener in names:
        if listener in own:
            raise SettingError(f"{name}={listener}: a broker must not have a listener of that name itself")
    return names[0], protocol_of(config, names[0], own)
