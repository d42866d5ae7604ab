"""DescribeConfigs v0-v4. Settings of topics, brokers, broker loggers, groups and client metrics, and where they are from.

v0 tells only whether a value is the default; v1 adds its source and, when asked, the synonyms that it could have come
from; v3 types and, when asked, documentation. Values of passwords are never returned, and nor are those of settings that
the broker does not know: they may be a plugin's passwords.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.config import client_metrics, tables
from barnabas.config import group as group_settings
from barnabas.config import topic as topic_settings
from barnabas.config.cluster import is_on_zookeeper
from barnabas.config.loading import (
    CLIENT_METRICS_CONFIG,
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    GROUP_CONFIG,
    BrokerConfig,
)
from barnabas.config.setting import Setting
from barnabas.errors import RequestError, detached
from barnabas.handlers.shared import broker_loggers
from barnabas.handlers.shared.config_resources import (
    check_broker_name,
    check_type,
    require_on_resource,
    synonyms_of_broker_setting,
    value_of_topic_setting,
)
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Described = DescribeConfigsResponse.DescribeConfigsResourceResult
Synonym = DescribeConfigsResponse.DescribeConfigsSynonym

UNKNOWN_TYPE = 0
ENTRY_BYTES = 150
"""About so much does a setting take in an answer, without its documentation."""
ENTRIES = {TOPIC: 35, BROKER: 350, BROKER_LOGGER: 100, GROUP: 20, CLIENT_METRICS: 3}
"""About so many settings does a resource of each type have."""


@dataclass(eq=False)
class DescribeConfigs:
    """Handler of DescribeConfigs."""

    metadata: MetadataStore
    config: BrokerConfig
    budget: LoopBudget
    broker_id: int

    async def handle(
        self, context: RequestContext, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        """Describe each resource on its own; one that is named often is looked up once, and described once."""
        entry_bytes = ENTRY_BYTES * (4 if request.include_documentation else 1)
        resources: dict[Hashable, DescribeConfigsRequest.DescribeConfigsResource] = {}
        entries = 0
        for resource in request.resources:
            keys = resource.configuration_keys
            asked = resource.resource_type, resource.resource_name, None if keys is None else tuple(keys)
            if resources.setdefault(asked, resource) is resource:
                entries += ENTRIES.get(resource.resource_type, 0)
            await self.budget.checkpoint()
        await context.reserve(entries * entry_bytes)
        response = DescribeConfigsResponse()
        described: dict[tuple[int, str], list[Described] | RequestError] = {}
        for resource in resources.values():
            key = resource.resource_type, resource.resource_name
            if key not in described:
                described[key] = await self._entries(context, request, *key)
            response.results.append(await self._result(resource, described[key]))
            await self.budget.checkpoint()
        return response

    async def _entries(
        self, context: RequestContext, request: DescribeConfigsRequest, kind: int, name: str
    ) -> list[Described] | RequestError:
        """A resource's settings as this request wants them, or why they cannot be described.

        The 350 of a broker take 4 ms, so others may run in between.
        """
        try:
            check_type(kind, self.config)
            require_on_resource(context, Operation.DESCRIBE_CONFIGS, kind, name)
            described = _describe(
                kind, name, metadata=self.metadata, config=self.config, broker_id=self.broker_id
            )
        except RequestError as error:
            return detached(error)
        entries = []
        for entry in described:
            entry.is_default = context.api_version == 0 and entry.config_source == DEFAULT_CONFIG
            if not request.include_synonyms:
                entry.synonyms = []
            if not request.include_documentation and entry.config_source != DYNAMIC_BROKER_LOGGER_CONFIG:
                entry.documentation = None
            entries.append(entry)
            await self.budget.checkpoint()
        return entries

    async def _result(
        self,
        resource: DescribeConfigsRequest.DescribeConfigsResource,
        described: list[Described] | RequestError,
    ) -> DescribeConfigsResponse.DescribeConfigsResult:
        result = DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        if isinstance(described, RequestError):
            result.error_code, result.error_message = described.code, described.message
            return result
        keys: set[str] = set()
        for name in resource.configuration_keys or ():
            keys.add(name)
            await self.budget.checkpoint()
        result.configs = [entry for entry in described if entry.name in keys] if keys else described
        return result


def _describe(
    kind: int, name: str, *, metadata: MetadataStore, config: BrokerConfig, broker_id: int
) -> Iterable[Described]:
    """A resource's settings, perhaps made one by one. Raises RequestError, and nothing once the first is there."""
    if kind == TOPIC:
        return _topic(name, metadata=metadata, config=config)
    if kind == BROKER:
        check_broker_name(name, broker_id=broker_id)
        return _broker(config=config) if name else _all_brokers(metadata=metadata, config=config)
    if kind == BROKER_LOGGER:
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the number of a broker is needed")
        check_broker_name(name, broker_id=broker_id)
        return [_logger(logger, level) for logger, level in broker_loggers.levels().items()]
    if kind == GROUP:
        return _group(name, metadata=metadata, config=config)
    if kind == CLIENT_METRICS:
        return _client_metrics(name, metadata=metadata)
    raise RequestError(ErrorCode.INVALID_REQUEST, f"there are no resources of type {kind}")


def _topic(name: str, *, metadata: MetadataStore, config: BrokerConfig) -> list[Described]:
    topic_decisions.check_topic_name(name)
    image = metadata.image
    if name not in image.topics:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    overrides = image.settings_of(TOPIC, name)
    entries = []
    for row in topic_settings.SETTINGS.values():
        if not topic_settings.is_shown(row, overrides):
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


def _broker(*, config: BrokerConfig) -> Iterator[Described]:
    listed = tables.listed(in_cluster=is_on_zookeeper(config))
    return (_of_broker(config, name) for name in dict.fromkeys([*listed, *config.names_set()]))


def _of_broker(config: BrokerConfig, name: str) -> Described:
    row = tables.find(name)
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


def _all_brokers(*, metadata: MetadataStore, config: BrokerConfig) -> list[Described]:
    """Describe the settings that are set for all brokers, and no others."""
    entries = []
    for name, text in {**config.kept_for_all, **metadata.image.settings_of(BROKER, "")}.items():
        row = tables.find(name)
        if row is None or tables.is_gone(row, in_cluster=is_on_zookeeper(config)):
            entries.append(_unknown(name, [DYNAMIC_DEFAULT_BROKER_CONFIG]))
            continue
        shown = None if row.sensitive else text
        entry = _entry(row, shown, [Synonym(name=name, value=shown, source=DYNAMIC_DEFAULT_BROKER_CONFIG)])
        entry.read_only = not row.dynamic or bool(row.base)
        entries.append(entry)
    return entries


def _logger(name: str, level: str) -> Described:
    return Described(
        name=name, value=level, config_source=DYNAMIC_BROKER_LOGGER_CONFIG, config_type=UNKNOWN_TYPE,
        documentation="",
    )  # fmt: skip


def _group(group_id: str, *, metadata: MetadataStore, config: BrokerConfig) -> list[Described]:
    """A group's settings, whether there is such a group or not (KIP-1043)."""
    if not group_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the group id is empty")
    own = metadata.image.settings_of(GROUP, group_id)
    values = group_settings.values(own, config)
    entries = []
    for name, bounded in group_settings.rows().items():
        row = bounded.setting
        default = row.broker_names[0] if row.broker_names else ""
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


def _client_metrics(name: str, *, metadata: MetadataStore) -> list[Described]:
    if not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the name of the subscription is empty")
    own = metadata.image.settings_of(CLIENT_METRICS, name)
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
