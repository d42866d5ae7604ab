"""Settings of logs: shared by topics with the same settings of their own, and made anew when those of the broker change."""

from __future__ import annotations

from barnabas.broker import storage_parts
from barnabas.broker.storage_parts import LogConfigs
from barnabas.config.loading import BrokerConfig


def test_topics_without_settings_share_one_object():
    configs = LogConfigs(BrokerConfig())
    assert configs.of({}) is configs.of({})
    assert configs.of({}).retention_bytes == -1


def test_settings_in_another_order_are_the_same():
    configs = LogConfigs(BrokerConfig())
    first = configs.of({"retention.ms": "5", "cleanup.policy": "compact"})
    assert configs.of({"cleanup.policy": "compact", "retention.ms": "5"}) is first
    assert (first.retention_ms, first.is_compacted) == (5, True)


def test_other_settings_are_another_object():
    configs = LogConfigs(BrokerConfig())
    assert configs.of({"retention.ms": "5"}).retention_ms == 5
    assert configs.of({"retention.ms": "6"}).retention_ms == 6
    assert configs.of({}).retention_ms == 7 * 86_400_000


def test_a_dynamic_setting_of_the_broker_is_obeyed():
    config = BrokerConfig()
    configs = LogConfigs(config)
    before = configs.of({"segment.ms": "7"})
    config.set_dynamic({"log.retention.bytes": "1000"}, {})
    assert configs.of({"segment.ms": "7"}).retention_bytes == 1000
    config.set_dynamic({}, {})
    assert configs.of({"segment.ms": "7"}) == before


def test_very_many_different_settings_are_not_remembered(monkeypatch):
    monkeypatch.setattr(storage_parts, "CONFIGS_SHARED_MAX", 3)
    configs = LogConfigs(BrokerConfig())
    for bytes_max in range(1, 10):
        assert configs.of({"retention.bytes": str(bytes_max)}).retention_bytes == bytes_max
