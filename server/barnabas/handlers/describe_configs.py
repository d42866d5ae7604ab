"""DescribeConfigs v0-v4. Settings of topics, brokers and broker loggers, with where each value comes from.

v0 tells only whether a value is the default; v1 adds its source and, when asked, the synonyms that it could have come
from; v3 types and, when asked, documentation.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from barnabas.cluster.image import BROKER, GROUP, TOPIC
from barnabas.config import broker as broker_settings
from barnabas.config import group as group_settings
from barnabas.config import topic as topic_settings
from barnabas.config.loading import (
    DEFAULT_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    GROUP_CONFIG,
)
from barnabas.config.setting import Setting
from barnabas.errors import RequestError
from barnabas.handlers.config_resources import BROKER_LOGGER, check_broker_name, value_of_topic_setting
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext

Described = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym

DYNAMIC_BROKER_LOGGER_CONFIG = 6
STRING_TYPE = 2


async def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource on its own."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        results.append(result)
        try:
            described = _describe(context, request, resource.resource_type, resource.resource_name)
        except RequestError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        wanted = resource.configuration_keys
        # Before v1 clients sent an empty list where later ones send null.
        everything = wanted is None or (context.api_version == 0 and not wanted)
        for entry in described:
            entry.is_default = context.api_version == 0 and entry.config_source == DEFAULT_CONFIG
        result.configs = [entry for entry in described if everything or entry.name in (wanted or ())]
    return DescribeConfigsResponse(results=results)


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, kind: int, name: str
) -> list[Described]:
    if kind == TOPIC:
        if name not in context.broker.metadata.image.topics:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return [_topic_setting(context, request, name, row) for row in topic_settings.ROWS]
    if kind == BROKER:
        check_broker_name(context, name)
        if not name:
            return _settings_of_all_brokers(context)
        return [_broker_setting(context, request, row) for row in broker_settings.SETTINGS.values()]
    if kind == GROUP:
        return _group_settings(context, request, name)
    if kind == BROKER_LOGGER:
        check_broker_name(context, name)
        return _loggers()
    raise RequestError(ErrorCode.INVALID_REQUEST, f"resources of type {kind} have no settings here")


def _topic_setting(
    context: RequestContext, request: DescribeConfigsRequest, topic: str, row: Setting[Any]
) -> Described:
    config = context.broker.config
    overrides = context.broker.metadata.image.settings_of(TOPIC, topic)
    value, source = value_of_topic_setting(config, row, overrides)
    entry = _entry(request, row, value, source)
    if request.include_synonyms:
        if row.name in overrides:
            entry.synonyms.append(
                Synonym(name=row.name, value=overrides[row.name], source=DYNAMIC_TOPIC_CONFIG)
            )
        for other in row.broker_names:
            if config.is_set(other):
                text = broker_settings.SETTINGS[other].format(config.value_of(other))
                entry.synonyms.append(Synonym(name=other, value=text, source=config.sources[other]))
        # Where several broker settings mean the same in different units, Kafka shows no default: the first has none.
        if len(row.broker_names) == 1:
            entry.synonyms.append(
                Synonym(name=row.broker_names[0], value=row.format(row.default), source=DEFAULT_CONFIG)
            )
    return entry


def _broker_setting(context: RequestContext, request: DescribeConfigsRequest, row: Setting[Any]) -> Described:
    config = context.broker.config
    source = config.sources.get(row.name, DEFAULT_CONFIG)
    entry = _entry(request, row, config.value_of(row.name), source)
    entry.read_only = not row.dynamic
    if request.include_synonyms:
        if source != DEFAULT_CONFIG:
            entry.synonyms.append(Synonym(name=row.name, value=entry.value, source=source))
        if row.default is not None:
            entry.synonyms.append(
                Synonym(name=row.name, value=row.format(row.default), source=DEFAULT_CONFIG)
            )
    return entry


def _group_settings(
    context: RequestContext, request: DescribeConfigsRequest, group_id: str
) -> list[Described]:
    """A group's settings, whether there is such a group or not (KIP-1043)."""
    if not group_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the group id is empty")
    config = context.broker.config
    own = context.broker.metadata.image.settings_of(GROUP, group_id)
    values = group_settings.values(own, config)
    entries = []
    for row in group_settings.ROWS:
        name, default = row.setting.name, row.default.name
        source = GROUP_CONFIG if name in own else config.sources.get(default, DEFAULT_CONFIG)
        entry = _entry(request, row.setting, values[name], source)
        if request.include_synonyms:
            if name in own:
                entry.synonyms.append(Synonym(name=name, value=own[name], source=GROUP_CONFIG))
            if config.is_set(default):
                text = row.default.format(config.get(row.default))
                entry.synonyms.append(Synonym(name=default, value=text, source=config.sources[default]))
            entry.synonyms.append(
                Synonym(name=default, value=row.default.format(row.default.default), source=DEFAULT_CONFIG)
            )
        entries.append(entry)
    return entries


def _settings_of_all_brokers(context: RequestContext) -> list[Described]:
    settings = context.broker.metadata.image.settings_of(BROKER, "")
    return [
        Described(
            name=name, value=value, config_source=DYNAMIC_DEFAULT_BROKER_CONFIG, config_type=STRING_TYPE
        )
        for name, value in settings.items()
    ]


def _loggers() -> list[Described]:
    names = sorted(name for name in logging.root.manager.loggerDict if name.startswith("barnabas"))
    return [
        Described(
            name=name,
            value=logging.getLevelName(logging.getLogger(name).getEffectiveLevel()),
            config_source=DYNAMIC_BROKER_LOGGER_CONFIG,
            config_type=STRING_TYPE,
        )
        for name in names
    ]


def _entry(request: DescribeConfigsRequest, row: Setting[Any], value: Any, source: int) -> Described:
    return Described(
        name=row.name,
        value=None if value is None else row.format(value),
        config_source=source,
        config_type=row.kind.code,
        documentation=row.doc if request.include_documentation else None,
    )
