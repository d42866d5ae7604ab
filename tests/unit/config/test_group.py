"""The settings of single groups, with bounds and defaults from the broker's."""

from __future__ import annotations

import pytest

from barnabas.config import broker, group
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError


def test_what_a_group_does_not_set_is_the_brokers() -> None:
    config = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    values = group.values({"consumer.heartbeat.interval.ms": "6000"}, config)
    assert values["consumer.session.timeout.ms"] == 50_000
    assert values["consumer.heartbeat.interval.ms"] == 6_000
    assert values["streams.num.standby.replicas"] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "44999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.heartbeat.interval.ms", "4999"),
        ("consumer.heartbeat.interval.ms", "soon"),
        ("streams.num.standby.replicas", "3"),
        ("streams.num.standby.replicas", "-1"),
        ("no.such.setting", "1"),
    ],
)
def test_values_out_of_bounds_are_refused(name: str, value: str) -> None:
    with pytest.raises(SettingError):
        group.check({name: value}, BrokerConfig())


def test_a_session_must_outlast_a_heartbeat() -> None:
    config = BrokerConfig(
        {
            broker.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS.name: "100",
            broker.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS.name: "60000",
        }
    )
    group.check({"consumer.session.timeout.ms": "5001"}, config)
    with pytest.raises(SettingError, match="must be larger"):
        group.check({"consumer.session.timeout.ms": "5000"}, config)


def test_every_row_of_a_group_has_its_default_and_bounds_among_the_brokers() -> None:
    for row in group.ROWS:
        assert row.setting.default == row.default.default
        assert broker.SETTINGS[row.default.name] is row.default
        assert broker.SETTINGS[row.largest.name] is row.largest
        assert row.least is None or broker.SETTINGS[row.least.name] is row.least
