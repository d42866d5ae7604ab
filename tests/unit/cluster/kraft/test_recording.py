"""Changes of a broker's image as records: what is made of each, in which version, and that it is read as the same."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.kraft.controller.versions import version_of
from barnabas.cluster.kraft.image import EMPTY, Position, diff
from barnabas.cluster.kraft.own_metadata import image_alone
from barnabas.cluster.kraft.recording import Recorder, partition_of
from barnabas.cluster.kraft.replay import Replay
from barnabas.cluster.kraft.translation import partition_info, translate
from barnabas.cluster.kraft.values import RECOVERING, UNASSIGNED, Broker
from barnabas.cluster.metadata.access_changes import AclAdded, AclRemoved, ClientQuotaChanged
from barnabas.cluster.metadata.changes import ConfigChanged, EpochBegun, LogDirsRegistered, PartitionChanged
from barnabas.cluster.metadata.image import TOPIC, Change, ClusterImage, Draft, PartitionInfo
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.own_stores import ALICE, BOB, CAROL, DIRECTORY_ID, GROUPS, PART, kept, topic

BROKER = Broker(1, 5, DIRECTORY_ID, ())


def recorded(*changes: Change, before: tuple[Change, ...] = (), level: int = 30, **options: Any) -> list[Any]:
    """The records of changes that are made together, after others."""
    recorder = Recorder(BROKER, level, **options)
    draft = Draft(ClusterImage("c").apply(before))
    records: list[Any] = []
    for change in changes:
        recorder.check(change)
        records += recorder.records(draft, change, 40)
        draft.add(change)
    assert all(version_of(record, level) >= 0 for record in records)
    return records


def test_records_of_all_changes_lead_to_their_image() -> None:
    replay, recorder = Replay(), Recorder(BROKER, 30)
    image, quorum_image = ClusterImage("c"), EMPTY
    for offset, group in enumerate(GROUPS):
        draft = Draft(image)
        for change in group:
            for record in recorder.records(draft, change, offset):
                replay.apply(record)
            draft.add(change)
        before, quorum_image = quorum_image, replay.publish(Position(offset, 1, 0))
        image = draft.image()
        assert kept(image_alone(quorum_image)) == kept(image)
        # a broker of a quorum follows the same log, change by change
        followed = image_alone(before).apply(
            change
            for change in translate(image_alone(before), diff(before, quorum_image), quorum_image)
            if type(change).__name__ not in ("BrokerFenced", "FeaturesChanged")
        )
        topics = {name: info._replace(partitions=()) for name, info in followed.topics.items()}
        assert topics == {name: info._replace(partitions=()) for name, info in image.topics.items()}
        others = {"topics": 0, "next_producer_id": 0}  # ids of producers are the controller's alone
        assert {**kept(followed), **others} == {**kept(image), **others}


@pytest.mark.parametrize("epoch", [1, 2])
def test_next_epoch_of_all_partitions_is_in_short_records(epoch: int) -> None:
    created = topic("t", 3)
    records = recorded(EpochBegun(epoch), before=(created,))
    assert {type(record).__name__ for record in records} == {
        "PartitionChangeRecord" if epoch == 1 else "PartitionRecord"
    }
    assert [record.partition_id for record in records] == [0, 1, 2]


def test_settings_that_stay_are_not_written_again() -> None:
    before = (topic("t"), ConfigChanged(TOPIC, "t", (("a", "1"), ("b", "2"), ("c", "3"))))
    records = recorded(ConfigChanged(TOPIC, "t", (("a", "1"), ("b", "9"), ("d", "4"))), before=before)
    assert [(record.name, record.value) for record in records] == [("c", None), ("b", "9"), ("d", "4")]


def test_quotas_that_stay_are_not_written_again() -> None:
    before = (ClientQuotaChanged(ALICE, (("a", 1.0), ("b", 2.0))),)
    records = recorded(ClientQuotaChanged(ALICE, (("a", 1.0), ("c", 3.0))), before=before)
    assert [(record.key, record.value, record.remove) for record in records] == [
        ("b", 0.0, True),
        ("c", 3.0, False),
    ]


def test_acl_has_the_id_of_the_log_or_one_that_follows_from_it() -> None:
    added = recorded(AclAdded(BOB), AclAdded(CAROL), acl_ids={BOB: b"k" * 16})
    assert added[0].id == b"k" * 16
    assert added[1].id not in (added[0].id, bytes(16))
    removed = recorded(
        AclRemoved(BOB), AclRemoved(CAROL), before=(AclAdded(BOB), AclAdded(CAROL)), acl_ids={BOB: b"k" * 16}
    )
    assert [record.id for record in removed] == [record.id for record in added]


def test_registration_has_its_offset_as_epoch_and_sorted_dirs() -> None:
    (record,) = recorded(LogDirsRegistered(1, frozenset({b"b" * 16, b"a" * 16})))
    assert (record.broker_id, record.broker_epoch, record.log_dirs) == (1, 40, [b"a" * 16, b"b" * 16])
    assert record.fenced


@pytest.mark.parametrize(("level", "version"), [(7, 0), (16, 0), (17, 1), (22, 1), (23, 2), (30, 2)])
def test_partition_is_written_in_the_version_of_the_level(level: int, version: int) -> None:
    records = recorded(topic("t"), PartitionChanged("t", 0, PART._replace(leader_epoch=4)), level=level)
    assert [version_of(record, level) for record in records] == [0, version, version]


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: type(group[0]).__name__)
@pytest.mark.parametrize("level", [7, 10, 11, 13, 14])
def test_change_without_a_record_at_a_level_is_refused(level: int, group: tuple[Change, ...]) -> None:
    recorder = Recorder(BROKER, level)
    kind = type(group[0]).__name__
    needed = {"ScramCredentialChanged": 11, "DelegationTokenChanged": 14, "DelegationTokenRemoved": 14}.get(
        kind, 0
    )
    if level >= needed:
        recorder.check(group[0])
        return
    with pytest.raises(RequestError) as refusal:
        recorder.check(group[0])
    assert refusal.value.code == ErrorCode.UNSUPPORTED_VERSION
    assert f"this needs metadata.version {needed}, and the metadata log has {level}" in str(refusal.value)


@pytest.mark.parametrize(
    "info",
    [
        PART,
        PartitionInfo(-1, (1, 2), (), 5, 6),
        PartitionInfo(
            2, (1, 2), (2,), 5, 6, adding=(2,), removing=(1,), recovering=True, elr=(1,), last_known_elr=(1,)
        ),
        PartitionInfo(1, (1, 2), (1, 2), directories=(b"a" * 16, b"b" * 16)),
    ],
)
def test_partition_in_a_record_is_that_of_the_image(info: PartitionInfo) -> None:
    partition = partition_of(info)
    assert (partition.leader_recovery_state == RECOVERING) == info.recovering
    if info.directories:
        assert partition_info(partition) == info
    else:
        assert partition.directories == (UNASSIGNED,) * len(info.replicas)
        assert partition_info(partition)._replace(directories=()) == info
