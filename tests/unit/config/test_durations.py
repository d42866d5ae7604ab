"""Durations as java.time reads them: what is one, and how long it is."""

from __future__ import annotations

import pytest

from barnabas.config import group
from barnabas.config.durations import duration_ms
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import SettingError


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1DT2H", 93_600_000),
        ("p2d", 172_800_000),
        ("PT0S", 0),
        ("-PT0S", 0),
        ("PT10.123456789S", 10_123),
        ("PT1,5S", 1_500),
        ("PT1.S", 1_000),
        ("PT-1H61M", 60_000),
        ("-PT-1S", 1_000),
        ("-PT-0.5S", 500),
        ("+PT+1S", 1_000),
        ("PT2S", 2_000),
        ("P1DT-0.001S", 86_399_999),
        ("P106751991167D", 106_751_991_167 * 86_400_000),
    ],
)
def test_a_duration_is_so_long(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    ["P", "PT", "P1DT", "P1H", "PT1D", "PT1M1H", "P1M", "PT1.2.3S", "PT-1S", "-PT1S", "PT1SS", "PT-0.001S",
     "PT1.0000000001S", "1h", "P106751991168D", f"P{'9' * 400}D", f"P{'9' * 5000}D", "PT²S", "PT1S "],
)  # fmt: skip
def test_invalid_duration_is_refused_even_where_a_group_begins(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_ms(text)
    with pytest.raises(SettingError, match="a duration such as P1DT2H expected"):
        group.check({"share.auto.offset.reset": f"by_duration:{text}"}, BrokerConfig())
