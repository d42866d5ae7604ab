"""Versions of metadata records: those in logs of Kafka, and those of each level."""

from pathlib import Path

import pytest

from barnabas.cluster.kraft.controller.versions import newest_version, version_of
from barnabas.cluster.kraft.directory import END, MetadataLog
from barnabas.cluster.kraft.image import METADATA_VERSION
from barnabas.log.disk import OsDisk
from barnabas.wire.metadata_records import record_codec, record_keys, record_name

RELEASES = sorted((Path(__file__).resolve().parents[4] / "golden" / "metadata").glob("kafka-*"))
CLASSES = {record_name(key): record_codec(key).message for key in record_keys()}
OBSOLETE = {"FenceBroker", "UnfenceBroker", "ZkMigrationState"}
LEVELS = range(7, 34)


@pytest.mark.parametrize("golden", RELEASES, ids=lambda path: path.name)
def test_versions_are_those_that_kafka_has_written(golden):
    level = 0
    kinds = set()
    for step in MetadataLog(OsDisk(read_only=True), str(golden)).steps(END):
        if step.version < 0:
            continue
        if getattr(step.message, "name", None) == METADATA_VERSION:
            level = step.message.feature_level
        written_at = level or 33  # the transaction begins before the record of the level
        assert version_of(step.message, written_at) == step.version, (step.offset, step.name)
        kinds.add(step.name)
    assert len(kinds) >= 15


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("RegisterBroker", {7: 1, 8: 2, 16: 2, 17: 3, 29: 3, 30: 4, 33: 4}),
        ("Partition", {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 33: 2}),
        ("PartitionChange", {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 33: 2}),
        ("Topic", {7: 0, 33: 0}),
    ],
)
def test_version_of_a_record_grows_with_the_level(name, versions):
    assert {level: newest_version(f"{name}Record", level) for level in versions} == versions
    assert {level: version_of(CLASSES[name](), level) for level in versions} == versions


@pytest.mark.parametrize(
    ("fields", "version", "level"),
    [
        ({"fenced": 1}, 0, 7),
        ({"in_controlled_shutdown": 1}, 1, 7),
        ({"log_dirs": [bytes(16)], "fenced": -1}, 2, 17),
        ({"cordoned_log_dirs": []}, 3, 30),
    ],
)
def test_broker_change_has_the_version_of_its_fields(fields, version, level):
    change = CLASSES["BrokerRegistrationChange"](**fields)
    assert {version_of(change, later) for later in LEVELS if later >= level} == {version}
    for earlier in range(7, level):
        with pytest.raises(ValueError, match=f"needs metadata.version {level}"):
            version_of(change, earlier)


@pytest.mark.parametrize(
    ("name", "since"),
    [
        ("UserScramCredential", 11),
        ("RemoveUserScramCredential", 11),
        ("BeginTransaction", 13),
        ("EndTransaction", 13),
        ("AbortTransaction", 13),
        ("DelegationToken", 14),
        ("RemoveDelegationToken", 14),
        ("RegisterController", 15),
        ("ClearElr", 23),
        ("UnregisterController", 33),
        *(
            (name, 7)
            for name in ("Config", "Topic", "AccessControlEntry", "ClientQuota", "FeatureLevel", "NoOp")
        ),
    ],
)
def test_record_that_came_later_is_refused_before(name, since):
    record = CLASSES[name]()
    assert all(version_of(record, level) == 0 for level in LEVELS if level >= since)
    for level in range(7, since):
        with pytest.raises(
            ValueError, match=f"a {name}Record needs metadata.version {since}, and .* {level}"
        ):
            version_of(record, level)


def test_no_version_is_beyond_what_the_codec_has():
    for key in record_keys():
        if record_name(key) not in OBSOLETE:
            for level in LEVELS:
                name = record_codec(key).message.__name__
                record_codec(key).encode_bytes(record_codec(key).message(), newest_version(name, level))
