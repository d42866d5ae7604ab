"""Settings in the form of DescribeConfigs: values, and all their possible sources. Pure.

The rule: this module decides which of several settings determines a topic's or a broker's value, as in Kafka. Values of
passwords are never shown, nor those of unknown settings, which may be a plugin's passwords.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.config import client_metrics, releases, tables
from barnabas.config import group as group_settings
from barnabas.config import topic as topic_settings
from barnabas.config.keeper import is_on_zookeeper
from barnabas.config.loading import (
    CLIENT_METRICS_CONFIG,
    DEFAULT_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    GROUP_CONFIG,
    BrokerConfig,
)
from barnabas.config.setting import Setting
from barnabas.wire.generated.describe_configs import DescribeConfigsResponse

Described = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym

UNKNOWN_TYPE = 0

_FAMILIES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
"""Groups of broker settings of which the first that is set counts."""


def value_of_topic_setting(
    config: BrokerConfig, row: Setting[Any], overrides: Mapping[str, str]
) -> tuple[Any, int]:
    """Return the effective value of a topic's setting with these overrides, and its source in Kafka's terms.

    A default from a setting in another unit (log.retention.hours) counts as a default.
    """
    text = overrides.get(row.name)
    if text is not None:
        return topic_settings.stored(row.name).parse(text), DYNAMIC_TOPIC_CONFIG
    synonyms = synonyms_of_broker_setting(config, row.broker_names[0]) if row.broker_names else []
    return config.topic_default(row)[0], synonyms[0][2] if synonyms else DEFAULT_CONFIG


def synonyms_of_broker_setting(config: BrokerConfig, name: str) -> list[tuple[str, str, int]]:
    """Return (name, text, source) of all possible sources of the value, in order of precedence; none if it is unset."""
    family = next((names for names in _FAMILIES if name in names), (name,))
    if name.startswith("listener.name."):
        family = (name, tables.setting(name).base)
    synonyms = [(other, text, source) for other in family for text, source in config.texts_of(other)]
    synonyms.sort(key=lambda synonym: synonym[2])
    for other in family:
        row = tables.setting(other)
        default = config.default_of(other)
        if default is not None:
            synonyms.append((other, row.format(default), DEFAULT_CONFIG))
    first = next((index for index, synonym in enumerate(synonyms) if synonym[0] == name), len(synonyms))
    return synonyms[first:]


def describe_topic(overrides: Mapping[str, str], config: BrokerConfig) -> list[Described]:
    """Describe the settings of a topic, with these own settings."""
    entries = []
    for row in topic_settings.SETTINGS.values():
        if not topic_settings.is_shown(row, overrides, config.release):
            continue
        value, _ = value_of_topic_setting(config, row, overrides)
        synonyms = [
            Synonym(name=other, value=text, source=source)
            for primary in row.broker_names[:1]
            for other, text, source in synonyms_of_broker_setting(config, primary)
        ]
        text = row.format(value)
        if row.name in overrides:
            text = topic_settings.stored(row.name).normal(overrides[row.name])
            synonyms.insert(0, Synonym(name=row.name, value=text, source=DYNAMIC_TOPIC_CONFIG))
        entries.append(_entry(row, text, synonyms))
    return entries


def describe_broker(config: BrokerConfig) -> Iterator[Described]:
    """Describe all settings of this node, one by one: they are some 350."""
    listed = [
        name
        for name in tables.listed(in_cluster=is_on_zookeeper(config))
        if releases.has_setting(config.release, name)
    ]
    return (_of_broker(config, name) for name in dict.fromkeys([*listed, *config.names_set()]))


def _of_broker(config: BrokerConfig, name: str) -> Described:
    row = config.find(name)
    if row is None or tables.is_gone(row, in_cluster=is_on_zookeeper(config)):
        return _unknown(name, [source for _, source in config.texts_of(name)])
    synonyms = [
        Synonym(name=other, value=None if row.sensitive else text, source=source)
        for other, text, source in synonyms_of_broker_setting(config, name)
    ]
    value = config.value_of(name)
    entry = _entry(row, None if value is None or row.sensitive else row.format(value), synonyms)
    entry.read_only = not row.dynamic or bool(row.base)
    return entry


def _unknown(name: str, sources: list[int]) -> Described:
    """A setting that the broker does not know, or no longer; it may be a plugin's password."""
    return Described(
        name=name,
        value=None,
        read_only=True,
        config_source=sources[0],
        is_sensitive=True,
        config_type=UNKNOWN_TYPE,
        documentation=None,
        synonyms=[Synonym(name=name, value=None, source=source) for source in sources],
    )


def describe_all_brokers(own: Mapping[str, str], config: BrokerConfig) -> list[Described]:
    """Describe the settings that are set for all brokers, and no others."""
    entries = []
    for name, text in {**config.kept_for_all, **own}.items():
        row = config.find(name)
        if row is None or tables.is_gone(row, in_cluster=is_on_zookeeper(config)):
            entries.append(_unknown(name, [DYNAMIC_DEFAULT_BROKER_CONFIG]))
            continue
        shown = None if row.sensitive else text
        entry = _entry(row, shown, [Synonym(name=name, value=shown, source=DYNAMIC_DEFAULT_BROKER_CONFIG)])
        entry.read_only = not row.dynamic or bool(row.base)
        entries.append(entry)
    return entries


def describe_group(own: Mapping[str, str], config: BrokerConfig) -> list[Described]:
    """Describe the settings of a group, with these own settings, whether the group exists or not (KIP-1043)."""
    values = group_settings.values(own, config)
    entries = []
    for name, bounded in group_settings.rows().items():
        row = bounded.setting
        default = row.broker_names[0] if row.broker_names else ""
        is_shown = row.changes != "internal" and releases.has_setting(config.release, name)
        if not is_shown and name not in own and not config.is_set(default):
            continue
        if default:
            synonyms = [
                Synonym(name=other, value=text, source=source)
                for other, text, source in synonyms_of_broker_setting(config, default)
            ]
        else:
            synonyms = [Synonym(name=name, value=row.format(row.default), source=DEFAULT_CONFIG)]
        if name in own:
            synonyms.insert(0, Synonym(name=name, value=own[name], source=GROUP_CONFIG))
        entries.append(_entry(row, row.format(values[name]), synonyms))
    return entries


def describe_client_metrics(own: Mapping[str, str]) -> list[Described]:
    """Describe the settings of a client metrics subscription."""
    entries = []
    for row in client_metrics.ROWS:
        synonyms = []
        if row.name in own:
            text = row.normal(own[row.name])
            synonyms = [Synonym(name=row.name, value=text, source=CLIENT_METRICS_CONFIG)]
        entries.append(
            _entry(row, row.normal(own[row.name]) if row.name in own else row.format(row.default), synonyms)
        )
    return entries


def _entry(row: Setting[Any], text: str | None, synonyms: list[Synonym]) -> Described:
    """A described setting; its source is that of the first synonym."""
    return Described(
        name=row.name,
        value=text,
        config_source=synonyms[0].source if synonyms else DEFAULT_CONFIG,
        is_sensitive=row.sensitive,
        config_type=row.kind.code,
        documentation=row.doc,
        synonyms=synonyms,
    )
