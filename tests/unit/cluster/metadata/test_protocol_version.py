"""`inter.broker.protocol.version` decides on the format of groups and on how the ISR changes."""

import pytest

from barnabas.cluster.metadata.protocol_version import V2_7_IV2, ProtocolVersion, record_versions
from barnabas.config.features import RecordVersions


@pytest.mark.parametrize(
    ("protocol", "group", "offset"),
    [
        ("0.10.0", 0, 1),
        ("0.10.1-IV0", 1, 1),
        ("2.0", 1, 1),
        ("2.1-IV0", 2, 2),
        ("2.2", 2, 3),
        ("2.3-IV0", 3, 3),
        ("3.9", 3, 3),
    ],
)
def test_groups_are_written_for_the_oldest_broker(protocol: str, group: int, offset: int) -> None:
    versions = record_versions(ProtocolVersion.parse(protocol), RecordVersions())
    assert (versions.group_metadata, versions.offset_commit) == (group, offset)


@pytest.mark.parametrize(
    ("text", "proposes"), [("2.6", False), ("2.7-IV1", False), ("2.7-IV2", True), ("2.7", True)]
)
def test_leaders_propose_changes_of_the_isr_since_2_7(text: str, proposes: bool) -> None:
    assert (ProtocolVersion.parse(text) >= V2_7_IV2) is proposes
