"""`inter.broker.protocol.version`: the versions of requests between brokers. Pure.

The rule: a version is compared by its parts; a release without a revision (`2.4`) means its last revision.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.broker import INTER_BROKER_PROTOCOL_VERSION
from barnabas.config.features import RecordVersions

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

LAST_REVISION = 99
_TEXT = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)?(?:-IV(\d+))?")


class ProtocolVersion(NamedTuple):
    """A version, in order: `0.10.2-IV0` is (0, 10, 2, 0), `2.4-IV1` is (2, 4, 0, 1)."""

    major: int
    minor: int
    patch: int = 0
    revision: int = LAST_REVISION

    @classmethod
    def parse(cls, text: str) -> ProtocolVersion:
        """Parse a version as Kafka writes it; from 1.0 on the rest after the release is ignored. Raises ValueError."""
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no version of Kafka, as 3.9-IV0 is one")
        major, minor, patch, revision = match.groups()
        if major != "0":
            patch = None
        return cls(
            int(major), int(minor), int(patch or 0), LAST_REVISION if revision is None else int(revision)
        )


def protocol_of(config: BrokerConfig) -> ProtocolVersion:
    """Return the version of Kafka with the requests and znodes that all brokers of the cluster know."""
    return ProtocolVersion.parse(config.get(INTER_BROKER_PROTOCOL_VERSION))


V0_9_0 = ProtocolVersion(0, 9, 0, 0)
V0_10_0_IV1 = ProtocolVersion(0, 10, 0, 1)
V0_10_1_IV0 = ProtocolVersion(0, 10, 1, 0)
V0_10_2_IV0 = ProtocolVersion(0, 10, 2, 0)
V1_0_IV0 = ProtocolVersion(1, 0, 0, 0)
V2_1_IV0 = ProtocolVersion(2, 1, 0, 0)
V2_1_IV1 = ProtocolVersion(2, 1, 0, 1)
V2_0_IV1 = ProtocolVersion(2, 0, 0, 1)
V2_2_IV0 = ProtocolVersion(2, 2, 0, 0)
V2_3_IV0 = ProtocolVersion(2, 3, 0, 0)
V2_4_IV0 = ProtocolVersion(2, 4, 0, 0)
V2_4_IV1 = ProtocolVersion(2, 4, 0, 1)
V2_6_IV0 = ProtocolVersion(2, 6, 0, 0)
V2_7_IV0 = ProtocolVersion(2, 7, 0, 0)
V2_7_IV2 = ProtocolVersion(2, 7, 0, 2)
V2_8_IV0 = ProtocolVersion(2, 8, 0, 0)
V2_8_IV1 = ProtocolVersion(2, 8, 0, 1)
V3_2_IV0 = ProtocolVersion(3, 2, 0, 0)
V3_3_IV0 = ProtocolVersion(3, 3, 0, 0)
V3_4_IV0 = ProtocolVersion(3, 4, 0, 0)
V3_9_IV0 = ProtocolVersion(3, 9, 0, 0)
"""The newest that a cluster on ZooKeeper has."""


def record_versions(protocol: ProtocolVersion, newest: RecordVersions) -> RecordVersions:
    """Return the versions of group records that every broker with this protocol reads, `newest` at most."""
    if protocol < V0_10_1_IV0:
        group = 0
    elif protocol < V2_1_IV0:
        group = 1
    else:
        group = 2 if protocol < V2_3_IV0 else newest.group_metadata
    if protocol < V2_1_IV1:
        offset = 1 if protocol < V2_1_IV0 else 2
    else:
        offset = newest.offset_commit
    return newest._replace(
        group_metadata=min(group, newest.group_metadata),
        offset_commit=min(offset, newest.offset_commit),
    )
