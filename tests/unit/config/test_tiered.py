"""Settings of topics with tiered storage: what Kafka refuses, with its texts."""

import pytest

from barnabas.cluster.metadata.topic_decisions import check_settings
from barnabas.config.loading import BrokerConfig
from barnabas.config.tiered import metadata_topic, store_settings
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

SYSTEM, FOR = "remote.log.storage.system.enable", "for configuration"
TIERED, ON = BrokerConfig({SYSTEM: "true", "rsm.config.dir": "/d"}), {"remote.storage.enable": "true"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cleanup.policy": "compact"}, "only supports topics with cleanup.policy=delete"),
        ({"cleanup.policy": "compact,delete"}, "only supports topics with cleanup.policy=delete"),
        ({"local.retention.ms": "11", "retention.ms": "10"},
         f"Invalid value 11 {FOR} local.retention.ms: Value must not be more than retention.ms property value: 10"),
        ({"local.retention.bytes": "-1", "retention.bytes": "10"},
         f"Invalid value -1 {FOR} local.retention.bytes: Value must not be -1 as retention.bytes value is set as 10."),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "5"},
         "the `local.retention.bytes` and `retention.bytes` must be set to the identical value"),
        ({"remote.copy.lag.ms": "11", "local.retention.ms": "10"},
         f"Invalid value 11 {FOR} remote.copy.lag.ms: Value must not exceed local.retention.ms (effective value: 10)"),
        ({"remote.copy.lag.bytes": "11", "retention.bytes": "10"},
         "Value must not exceed local.retention.bytes (effective value: 10)"),
    ],
)  # fmt: skip
def test_settings_that_tiering_excludes_are_refused(settings, text):
    with pytest.raises(RequestError) as refused:
        check_settings({**ON, **settings}, TIERED)
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    assert text in refused.value.message


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"local.retention.ms": "10", "retention.ms": "10"},
        {"local.retention.ms": "-1", "retention.ms": "-1"},
        {"remote.log.copy.disable": "true", "local.retention.ms": "-2"},
    ],
)
def test_settings_that_go_with_tiering_are_taken(settings):
    check_settings({**ON, **settings}, TIERED)


def test_topic_cannot_be_tiered_by_a_broker_that_is_not():
    with pytest.raises(RequestError, match="Tiered Storage functionality is disabled in the broker"):
        check_settings(ON, BrokerConfig())


def test_switching_off_without_deletion_is_refused():
    with pytest.raises(RequestError, match="It is invalid to disable remote storage without deleting"):
        check_settings({}, TIERED, ON)
    check_settings({"remote.log.delete.on.disable": "true"}, TIERED, ON)


@pytest.mark.parametrize(
    ("settings", "before", "text"),
    [
        ({**ON, "remote.log.copy.disable": "true"}, ON, "under Zookeeper's mode"),
        ({"remote.log.delete.on.disable": "true"}, {}, "under Zookeeper's mode"),
        ({}, ON, "delete the topic"),
    ],
)
def test_switching_off_on_zookeeper_is_refused(settings, before, text):
    with pytest.raises(RequestError, match=text):
        check_settings(settings, BrokerConfig({SYSTEM: "true", "zookeeper.connect": "z:2181"}), before)


def test_settings_of_store_and_metadata_are_read_by_prefix():
    config = BrokerConfig(
        {"rsm.config.dir": "/d", "rlmm.config.remote.log.metadata.topic.num.partitions": "5"}
    )
    assert store_settings(config) == {"dir": "/d"}
    assert metadata_topic(config) == (5, 3, 2, -1)
