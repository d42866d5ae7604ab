"""Settings take the values that Kafka's own validators take, by release (compat/configs/validators.py wrote them down)."""

from pathlib import Path

import pytest

from barnabas.config import group, releases, topic
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import CLASS, LIST, LONG_MAX, SettingError
from compat.configs.validators import tried

GOLDEN = Path(__file__).parents[2] / "golden" / "settings"
RELEASES = ("4.4", "4.3", "4.2", "4.1", "4.0", "3.9", "2.6")

# Values that differ from what Kafka's validators say, and why. A row that no setting needs any more fails.
REFUSED_LATER = "Kafka's validator takes it, and its broker does not start with it"
DIFFERENT = {
    "log.segment.bytes": "docs/decisions/0030-defaults.md: small segments are allowed here",
    "max.connections.per.ip.overrides": "refused here when it is set, by Kafka when it is used",
    "max.connection.creation.rate": "0 would let nobody in",
    "num.replica.fetchers": "with 0 or fewer nothing would be replicated", "node.id": REFUSED_LATER,
    "security.inter.broker.protocol": REFUSED_LATER, "compression.type": REFUSED_LATER,
    "log.cleaner.delete.retention.ms": REFUSED_LATER, "log.cleaner.min.cleanable.ratio": REFUSED_LATER,
    "log.cleaner.min.compaction.lag.ms": REFUSED_LATER, "log.cleaner.max.compaction.lag.ms": REFUSED_LATER,
    "log.message.timestamp.difference.max.ms": REFUSED_LATER,
    "leader.imbalance.check.interval.seconds": "with 0 or less it would never be looked at",
    "authorizer.class.name": "only these authorizers can be here",
    "controller.quorum.voters": "not looked at: there is no KRaft",
    "controller.quorum.bootstrap.servers": "not looked at: there is no KRaft",
    "process.roles": "not looked at: there is no KRaft",
    "inter.broker.protocol.version": "looked at when a cluster is joined",
    "log.message.format.version": "not looked at: there is one format on disk",
}  # fmt: skip


def marks_of(release):
    lines = (GOLDEN / f"values-{release}.tsv").read_text().splitlines()
    return {(kind, name): marks for kind, name, marks in (line.split("\t") for line in lines)}


def differences(release, followed):
    """(kind, setting, value) of each value that is taken here and not there, or the other way round."""
    config, marks = BrokerConfig({"kafka.version": followed}), marks_of(release)
    for kind, row, values in tried():
        if (kind, row.name) not in marks:
            continue  # a release without this setting
        here = topic.settings_of(followed)[row.name] if kind == "topic" else config.limited(row)
        for value, mark in zip(values, marks[kind, row.name], strict=True):
            try:
                here.parse(value)
                is_taken = True
            except SettingError:
                is_taken = False
            if is_taken != (mark == "+"):
                yield kind, row, value


def is_known(kind, row, value):
    if row.kind is CLASS:
        return True  # Kafka loads it
    if row.kind is LIST and not value.strip(" ,"):
        return True  # an empty item is none here in all releases, and an empty list is a list
    return kind == "broker" and row.name in DIFFERENT


@pytest.mark.parametrize(("release", "followed"), [*zip(RELEASES, RELEASES, strict=True), ("4.4", "")])
def test_values_are_taken_and_refused_as_by_kafka(release, followed):
    assert len(marks_of(release)) > 200
    differing = [
        (kind, row.name, value)
        for kind, row, value in differences(release, followed)
        if not is_known(kind, row, value)
    ]
    assert differing == []


def test_every_known_difference_is_one():
    differing = {
        row.name
        for release in RELEASES
        for kind, row, _ in differences(release, release)
        if kind == "broker" and row.kind is not CLASS
    }
    assert set(DIFFERENT) <= differing


@pytest.mark.parametrize("name", releases.NAMES)
def test_topic_value_of_any_release_is_readable_under_each(name):
    for row in topic.settings_of(name).values():
        if ".." not in row.allowed:
            continue
        low, _, high = row.allowed.rpartition(", ")[2].partition("..")
        for text in (low, high or str(LONG_MAX if row.kind.name == "long" else 2**31 - 1)):
            row.parse(text)
            BrokerConfig().topic_values({row.name: text})


@pytest.mark.parametrize("release", ["2.8", "4.3", "4.4", ""])
def test_settings_of_kafka_4_4_are_unknown_to_those_before(release):
    is_known = release in ("4.4", "")
    config = BrokerConfig({"kafka.version": release, "max.decompressed.message.bytes": "9"})
    assert config.unknown == ([] if is_known else ["max.decompressed.message.bytes"])
    assert ("errors.deadletterqueue.group.enable" in topic.settings_of(release)) == is_known
    own = {"errors.deadletterqueue.topic.name": "dlq.orders"}
    if is_known:
        group.check(own, config)
    else:
        with pytest.raises(SettingError, match="unknown group setting"):
            group.check(own, config)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("errors.deadletterqueue.topic.name", "__orders"),
        ("streams.assignor.name", "fastest"),
        ("streams.rack.aware.assignment.tags", "zone,zone"),
        ("streams.num.warmup.replicas", "21"),
        ("streams.task.offset.interval.ms", "14999"),
    ],
)
def test_group_settings_of_kafka_4_4_have_its_bounds(name, text):
    with pytest.raises(SettingError, match=name):
        group.check({name: text}, BrokerConfig({"kafka.version": "4.4"}))


def test_dynamic_settings_follow_the_release():
    config = BrokerConfig({"kafka.version": "3.9", "group.share.max.size": "10"})
    with pytest.raises(SettingError, match=r"from 10 to 1000"):
        BrokerConfig({"kafka.version": "3.9", "group.share.max.size": "9"})
    assert config.with_dynamic({}, {}).release == "3.9"
    assert BrokerConfig({"group.share.max.size": "9"}).release == ""
