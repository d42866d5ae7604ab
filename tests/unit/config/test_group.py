"""The settings of single groups, with bounds and defaults from the broker's."""

from __future__ import annotations

import pytest

from barnabas.config import group, tables
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


def test_a_setting_of_groups_is_found_by_its_name() -> None:
    setting = group.find("share.auto.offset.reset")
    assert setting is not None
    assert (setting.name, setting.default) == ("share.auto.offset.reset", "latest")
    assert group.find("no.such.setting") is None


def test_each_group_setting_has_its_broker_default_and_bounds() -> None:
    for bounded in group.rows().values():
        for name in bounded.setting.broker_names:
            default = tables.setting(name)
            if name == "group.streams.assignors":  # the first of these
                assert default.default[0] == bounded.setting.default
                continue
            assert (default.kind, default.default) == (bounded.setting.kind, bounded.setting.default)
        for bound in (bounded.least, bounded.largest):
            assert bound is None or bound.kind is bounded.setting.kind


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_a_session_of_each_kind_must_outlast_its_heartbeat(kind: str) -> None:
    names = {
        "heartbeat.interval": "1", "min.heartbeat.interval": "1", "min.session.timeout": "1",
        "session.timeout": "10",
    }  # fmt: skip
    config = BrokerConfig({f"group.{kind}.{name}.ms": text for name, text in names.items()})
    group.check({f"{kind}.session.timeout.ms": "2"}, config)
    group.check({f"{kind}.heartbeat.interval.ms": "9"}, config)
    words = f"{kind}.session.timeout.ms must be larger than {kind}.heartbeat.interval.ms"
    for own in ({f"{kind}.session.timeout.ms": "1"}, {f"{kind}.heartbeat.interval.ms": "10"}):
        with pytest.raises(SettingError, match=words):
            group.check(own, config)


@pytest.mark.parametrize(
    "text", ["P1DT2H", "PT0.5S", "p2d", "PT1H61M", "PT10.123456789S", "PT-1H61M", "-PT-1S"]
)
def test_a_share_group_can_begin_some_time_ago(text: str) -> None:
    group.check({"share.auto.offset.reset": f"by_duration:{text}"}, BrokerConfig())


@pytest.mark.parametrize(
    "text", ["", "none", "EARLIEST", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1DT",
             "by_duration:P1Y", "by_duration:-PT1S", "P1D"],
)  # fmt: skip
def test_where_a_share_group_cannot_begin(text: str) -> None:
    with pytest.raises(SettingError, match=r"share\.auto\.offset\.reset"):
        group.check({"share.auto.offset.reset": text}, BrokerConfig())
