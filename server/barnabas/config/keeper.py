"""The keeper of the metadata of a node's cluster: the broker itself, ZooKeeper, or a KRaft quorum. Pure.

The rule: it follows from the settings and from the log dirs alone, before anything is opened.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from barnabas.config import broker as settings

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig


class Keeper(Enum):
    """Keeper of the metadata of the broker's cluster."""

    ITSELF = "itself"
    """The broker is a cluster by itself, and has a journal."""
    ZOOKEEPER = "zookeeper"
    QUORUM = "quorum"
    """Controllers in a KRaft quorum; this node is no controller."""
    CONTROLLER = "controller"
    """This node, a controller in a KRaft quorum, with the others."""
    COMBINED = "combined"
    """This node, a controller in a KRaft quorum and a broker under it."""


def keeper_of(config: BrokerConfig) -> Keeper:
    """Return the store of the cluster's metadata."""
    if config.get(settings.ZOOKEEPER_CONNECT):
        return Keeper.ZOOKEEPER
    roles = frozenset(role.strip() for role in config.get(settings.PROCESS_ROLES) or ())
    keeper = _KEEPERS.get(roles, Keeper.ITSELF)
    if keeper is Keeper.COMBINED and not config.has_metadata_log and not _names_others(config):
        return Keeper.ITSELF
    return keeper


_KEEPERS = {
    frozenset(["broker"]): Keeper.QUORUM,
    frozenset(["controller"]): Keeper.CONTROLLER,
    frozenset(["broker", "controller"]): Keeper.COMBINED,
}


def _names_others(config: BrokerConfig) -> bool:
    """Return whether the settings name a controller other than this node."""
    voters: tuple[str, ...] = config.get(settings.CONTROLLER_QUORUM_VOTERS)
    node = str(config.get(settings.NODE_ID))
    return (
        any(voter.partition("@")[0].strip() != node for voter in voters)
        or len(config.get(settings.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS)) > 1
    )


def is_clustered(config: BrokerConfig) -> bool:
    """Return whether the broker belongs to a cluster with other nodes."""
    return keeper_of(config) is not Keeper.ITSELF


def is_on_zookeeper(config: BrokerConfig) -> bool:
    """Return whether the broker belongs to a cluster on ZooKeeper."""
    return keeper_of(config) is Keeper.ZOOKEEPER


def is_in_quorum(config: BrokerConfig) -> bool:
    """Return whether the broker belongs to the cluster of a KRaft quorum."""
    return keeper_of(config) in (Keeper.QUORUM, Keeper.COMBINED)


def is_controller(config: BrokerConfig) -> bool:
    """Return whether this node is a controller of a KRaft quorum, and no broker."""
    return keeper_of(config) is Keeper.CONTROLLER
