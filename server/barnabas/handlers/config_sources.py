"""Where a setting's value comes from, in DescribeConfigs' terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import Setting

DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5


def source_of_topic_setting(
    config: BrokerConfig, row: Setting[Any], overrides: Mapping[str, str]
) -> tuple[Any, int]:
    """The value that a topic with these settings of its own obeys, and its source."""
    text = overrides.get(row.name)
    if text is not None:
        return row.parse(text), DYNAMIC_TOPIC_CONFIG
    value, name = config.topic_default(row)
    return value, DEFAULT_CONFIG if name is None else STATIC_BROKER_CONFIG
