"""Settings of a new topic in the response to CreateTopics (v5). Pure.

The rule: a setting has the text with which it was set, and the source of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.config import topic as topic_settings
from barnabas.config.loading import DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG, BrokerConfig
from barnabas.config.setting import Setting
from barnabas.wire.generated.create_topics import CreateTopicsResponse

TopicConfig = CreateTopicsResponse.CreatableTopicConfigs


def described_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> list[TopicConfig]:
    """Return all settings of a topic with these own settings."""
    return [
        TopicConfig(name=row.name, value=text, read_only=False, config_source=source, is_sensitive=False)
        for row in topic_settings.ROWS
        if topic_settings.is_shown(row, overrides, config.release)
        for text, source in [_effective(config, row, overrides)]
    ]


def _effective(config: BrokerConfig, row: Setting[Any], overrides: Mapping[str, str]) -> tuple[str, int]:
    """Return a setting's text, and its source."""
    if row.name in overrides:
        return overrides[row.name], DYNAMIC_TOPIC_CONFIG
    value, name = config.topic_default(row)
    if name is None:
        return row.format(value), DEFAULT_CONFIG
    in_other_unit = name.rpartition(".")[2] in topic_settings.UNIT_MS
    text = row.format(value) if in_other_unit else config.texts_of(name)[0][0]
    return text, config.sources[name]
