"""Versions of metadata records by the level of metadata.version, and the first level of each record. Pure.

The rule: a record is written in the version that a Kafka controller writes at the same level, so that every node that
supports the level can read it; a record that the level lacks is a bug of this program.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

SCRAM_LEVEL: Final = 11
TRANSACTIONS_LEVEL: Final = 13
TOKENS_LEVEL: Final = 14
CONTROLLER_REGISTRATION_LEVEL: Final = 15
DIRECTORIES_LEVEL: Final = 17
ELR_LEVEL: Final = 23
CORDONED_LEVEL: Final = 30
NETWORKS_LEVEL: Final = 32
"""From this level on the host of an ACL may be a network (KIP-1276)."""
CONTROLLER_UNREGISTRATION_LEVEL: Final = 33

_VERSIONS: Mapping[str, tuple[tuple[int, int], ...]] = MappingProxyType(
    {
        "RegisterBrokerRecord": ((CORDONED_LEVEL, 4), (DIRECTORIES_LEVEL, 3), (8, 2), (7, 1)),
        "PartitionRecord": ((ELR_LEVEL, 2), (DIRECTORIES_LEVEL, 1)),
        "PartitionChangeRecord": ((ELR_LEVEL, 2), (DIRECTORIES_LEVEL, 1)),
    }
)
"""First levels of a record's versions, the highest first; all other records have version 0."""
_SINCE: Mapping[str, int] = MappingProxyType(
    {
        "UserScramCredentialRecord": SCRAM_LEVEL,
        "RemoveUserScramCredentialRecord": SCRAM_LEVEL,
        "BeginTransactionRecord": TRANSACTIONS_LEVEL,
        "EndTransactionRecord": TRANSACTIONS_LEVEL,
        "AbortTransactionRecord": TRANSACTIONS_LEVEL,
        "DelegationTokenRecord": TOKENS_LEVEL,
        "RemoveDelegationTokenRecord": TOKENS_LEVEL,
        "RegisterControllerRecord": CONTROLLER_REGISTRATION_LEVEL,
        "ClearElrRecord": ELR_LEVEL,
        "UnregisterControllerRecord": CONTROLLER_UNREGISTRATION_LEVEL,
    }
)
_CHANGE_LEVELS: Final = (0, 0, DIRECTORIES_LEVEL, CORDONED_LEVEL)
"""Levels that the versions of BrokerRegistrationChange need."""


def version_of(message: Any, level: int) -> int:
    """Return the version in which a record is written at a level of metadata.version.

    Raises ValueError if the level lacks it.
    """
    name = type(message).__name__
    if name == "BrokerRegistrationChangeRecord":  # like Kafka, in the lowest version that has its fields
        version = _version_of_change(message)
        needed = _CHANGE_LEVELS[version]
    else:
        version = newest_version(name, level)
        needed = _SINCE.get(name, 0)
    if level < needed:
        raise ValueError(f"a {name} needs metadata.version {needed}, and the cluster has {level}")
    return version


def newest_version(name: str, level: int) -> int:
    """Return the version of records of a class at a level, by the name of the class."""
    return next((version for since, version in _VERSIONS.get(name, ()) if level >= since), 0)


def _version_of_change(message: Any) -> int:
    if message.cordoned_log_dirs is not None:
        return 3
    if message.log_dirs:
        return 2
    return 1 if message.in_controlled_shutdown else 0
