"""Settings stored by a cluster: of topics, brokers, their loggers, groups, client metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.client.administration.base import Base, Outcome
from barnabas.client.administration.words import TYPES
from barnabas.client.errors import ClientError, check

NAMES = {number: name for name, number in TYPES.items()}
SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "file",
    5: "default",
    6: "broker-logger",
    7: "client-metrics",
    8: "group",
}
"""Names of the places that a value comes from."""
_LIST_RESOURCES = 74


class Resource(NamedTuple):
    """A resource with settings: its kind, a key of `TYPES`, and its name; a broker without a name means all brokers."""

    kind: str
    name: str


class ConfigEntry(NamedTuple):
    """A setting; `value` is None where it is secret, `synonyms` are (name, value, source) in the order they count."""

    name: str
    value: str | None
    source: str
    is_sensitive: bool
    is_read_only: bool
    documentation: str
    synonyms: tuple[tuple[str, str | None, str], ...]


class ConfigChange(NamedTuple):
    """A change of a setting: SET, DELETE, APPEND or SUBTRACT."""

    name: str
    operation: int
    value: str | None


class Configs(Base):
    """Calls that concern settings."""

    async def describe_configs(
        self,
        resources: Iterable[Resource],
        *,
        names: Iterable[str] | None = None,
        documentation: bool = False,
    ) -> dict[Resource, list[ConfigEntry] | ClientError]:
        """Return settings, all or those with these names."""
        from barnabas.wire.generated.describe_configs import DescribeConfigsRequest as Request

        keys = None if names is None else list(names)

        async def ask(resource: Resource) -> list[ConfigEntry]:
            described = Request.DescribeConfigsResource(TYPES[resource.kind], resource.name, keys)
            connection = await self._place_of(resource)
            version = connection.version_of(32)
            request = Request(
                [described],
                include_synonyms=version >= 1,
                include_documentation=documentation and version >= 3,
            )
            response = await connection.ask(request, version=version)
            (result,) = response.results
            check(result.error_code, f"describing {_text(resource)}", result.error_message)
            return [_entry(config, version) for config in result.configs]

        return await self.client.each(resources, ask)

    async def alter_configs(
        self, changes: Mapping[Resource, Iterable[ConfigChange]], *, only_check: bool = False
    ) -> dict[Resource, Outcome]:
        """Change some settings of resources; the others stay."""
        from barnabas.wire.generated.incremental_alter_configs import (
            IncrementalAlterConfigsRequest as Request,
        )

        async def ask(resource: Resource) -> None:
            altered = [Request.AlterableConfig(*change) for change in changes[resource]]
            request = Request(
                [Request.AlterConfigsResource(TYPES[resource.kind], resource.name, altered)], only_check
            )
            response = await (await self._place_of(resource)).ask(request)
            (result,) = response.responses
            check(result.error_code, f"changing {_text(resource)}", result.error_message)

        return await self.client.each(changes, ask)

    async def config_resources(self, kinds: Iterable[str] = ()) -> list[Resource]:
        """Return the resources with their own settings."""
        from barnabas.wire.generated.list_config_resources import ListConfigResourcesRequest

        types = [TYPES[kind] for kind in kinds]
        if await self._version(_LIST_RESOURCES) < 1:
            types = []  # which means client metrics there
        response = await self.client.ask(ListConfigResourcesRequest(types))
        check(response.error_code, "listing resources with settings")
        return sorted(
            Resource(NAMES.get(resource.resource_type, str(resource.resource_type)), resource.resource_name)
            for resource in response.config_resources
        )

    async def _place_of(self, resource: Resource) -> Any:
        """Return a connection to the broker that has the resource's settings: a broker's, and its loggers', are its own."""
        if resource.kind in ("broker", "broker-logger") and resource.name.isdecimal():
            return await self.client.broker(int(resource.name))
        return await self.client.any_connection()


def _text(resource: Resource) -> str:
    return f"{resource.kind} {resource.name!r}"


def _entry(entry: Any, version: int) -> ConfigEntry:
    source = entry.config_source if version else 5 if entry.is_default else -1
    synonyms = tuple(
        (synonym.name, synonym.value, SOURCES.get(synonym.source, str(synonym.source)))
        for synonym in entry.synonyms
    )
    return ConfigEntry(
        entry.name,
        None if entry.is_sensitive else entry.value,
        SOURCES.get(source, "unknown"),
        entry.is_sensitive,
        entry.read_only,
        entry.documentation or "",
        synonyms,
    )


__all__ = [
    "NAMES", "SOURCES", "ConfigChange", "ConfigEntry", "Configs",
    "Resource",
]  # fmt: skip
