"""Values of the image of a KRaft quorum, with the fields of the records. Pure.

The rule: values are immutable and keep the numbers of the records for protocols and types, which newer releases may
extend; a `repr` has no secrets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

UNASSIGNED: Final = bytes(15) + b"\1"
"""Log dir of a replica that is not chosen yet (KIP-858)."""
LOST: Final = bytes(15) + b"\2"
"""Log dir of a replica in an unknown dir that is offline."""
MIGRATING: Final = bytes(16)
"""Log dir of a replica from before log dirs had ids."""
NO_LEADER: Final = -1
RECOVERED, RECOVERING = 0, 1
"""Leader recovery states (KIP-704): a leader from the ISR, and a leader of an unclean election that has not recovered yet.
"""


class Endpoint(NamedTuple):
    """Address of a node by one of its listeners; the protocol is 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str
    host: str
    port: int
    security_protocol: int


class LevelRange(NamedTuple):
    """Levels of a feature that a node supports, inclusive."""

    lowest: int
    highest: int


class Broker(NamedTuple):
    """A broker's registration, with later changes by the controller; log dirs by id, in Kafka's order."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, LevelRange], ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    is_migrating_zk_broker: bool = False


class Controller(NamedTuple):
    """A controller as it has registered (KIP-919)."""

    id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, LevelRange], ...] = ()
    zk_migration_ready: bool = False


class Topic(NamedTuple):
    """A topic; the image has its partitions separately."""

    name: str
    id: bytes


class Partition(NamedTuple):
    """A partition. `directories` has the log dir of each replica, in the order of the replicas."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    directories: tuple[bytes, ...] = ()
    elr: tuple[int, ...] = ()
    """Eligible leader replicas: outside of the ISR, with all committed records (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()


class Acl(NamedTuple):
    """An ACL, with the numbers of the wire for types, operation and permission."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class Credential:
    """Salted keys of a user's password for one SCRAM mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


class Voter(NamedTuple):
    """A voter of the quorum (KIP-853)."""

    id: int
    directory_id: bytes = MIGRATING
    endpoints: tuple[tuple[str, str, int], ...] = ()
    """Listener, host and port; empty for a static voter: its address is a setting."""
    kraft_versions: LevelRange = LevelRange(0, 0)
