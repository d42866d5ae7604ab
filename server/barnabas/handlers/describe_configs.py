"""DescribeConfigs v0-v4. Settings of topics, brokers, broker loggers, groups and client metrics, with their sources.

v0 returns only whether a value is the default; v1 adds its source and, on request, its synonyms in order of precedence;
v3 types and, on request, documentation. Values of passwords are never returned, nor are those of settings that
the broker does not know: they may be a plugin's passwords.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.config_description import (
    UNKNOWN_TYPE,
    Described,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from barnabas.cluster.metadata.image import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.config.loading import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    BrokerConfig,
)
from barnabas.errors import RequestError, detached
from barnabas.handlers.shared import broker_loggers
from barnabas.handlers.shared.config_resources import (
    check_broker_name,
    check_type,
    require_on_resource,
)
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

ENTRY_BYTES = 150
"""Approximate memory of a setting in a response, without its documentation."""
ENTRIES = {TOPIC: 35, BROKER: 350, BROKER_LOGGER: 100, GROUP: 20, CLIENT_METRICS: 3}
"""Approximate number of settings of a resource of each type."""


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
        """Describe each resource on its own; a resource that is named repeatedly is looked up and described once."""
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
        """Return the requested settings of a resource, or the error.

        The 350 settings of a broker take 4 ms, so other tasks may run in between.
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
    """The settings of a resource, possibly lazily. Raises RequestError, but never after the first setting."""
    image = metadata.image
    if kind == TOPIC:
        topic_decisions.check_topic_name(name)
        if name not in image.topics:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return describe_topic(image.settings_of(TOPIC, name), config)
    if kind == BROKER:
        check_broker_name(name, broker_id=broker_id)
        return (
            describe_broker(config) if name else describe_all_brokers(image.settings_of(BROKER, ""), config)
        )
    if kind == BROKER_LOGGER:
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the number of a broker is needed")
        check_broker_name(name, broker_id=broker_id)
        return [_logger(logger, level) for logger, level in broker_loggers.levels().items()]
    if kind == GROUP:
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the group id is empty")
        return describe_group(image.settings_of(GROUP, name), config)
    if kind == CLIENT_METRICS:
        if not name:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the name of the subscription is empty")
        return describe_client_metrics(image.settings_of(CLIENT_METRICS, name))
    raise RequestError(ErrorCode.INVALID_REQUEST, f"there are no resources of type {kind}")


def _logger(name: str, level: str) -> Described:
    return Described(
        name=name, value=level, config_source=DYNAMIC_BROKER_LOGGER_CONFIG, config_type=UNKNOWN_TYPE,
        documentation="",
    )  # fmt: skip
