"""Routes of v3: settings of the cluster, of brokers and of topics, shown and changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from barnabas.client import ClientError
from barnabas.client.admin import ConfigChange, ConfigEntry, Resource
from barnabas.client.administration.words import DELETE, SET
from barnabas.rest.base import V3, Answer, Call, Fields, Parameter, Route
from barnabas.rest.errors import RestError, failure_of
from barnabas.rest.resources import Segments, at, cluster_of, collection, resource, topic_of
from barnabas.rest.routes.v3_cluster import broker_of

RESOURCES_PER_TURN = 50
CHANGES_MAX = 1_000
SOURCES = {
    "topic": "DYNAMIC_TOPIC_CONFIG", "broker": "DYNAMIC_BROKER_CONFIG", "all brokers": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "file": "STATIC_BROKER_CONFIG", "default": "DEFAULT_CONFIG",
}  # fmt: skip
"""Names of the sources of values in the API, by the client's names."""


class Owner(NamedTuple):
    """An object with settings: for the broker, and as a resource of the API."""

    resource: Resource
    kind: str
    segments: Segments
    """Path of the list of its settings."""
    names: tuple[tuple[str, object], ...]
    fields: dict[str, Any]
    config_name: str = "config"
    """Name of a setting among the names of the resource."""


async def _cluster(call: Call) -> Owner:
    cluster_id = await cluster_of(call)
    return Owner(
        Resource("broker", ""), "KafkaClusterConfig", at(cluster_id, "broker-configs"), (("kafka", cluster_id),),
        {"config_type": "BROKER"}, "broker-config",
    )  # fmt: skip


async def _broker(call: Call) -> Owner:
    cluster_id = await cluster_of(call)
    return _of_broker(cluster_id, (await broker_of(call)).broker_id)


def _of_broker(cluster_id: str, broker_id: int) -> Owner:
    return Owner(
        Resource("broker", str(broker_id)), "KafkaBrokerConfig", at(cluster_id, "brokers", broker_id, "configs"),
        (("kafka", cluster_id), ("broker", broker_id)), {"broker_id": broker_id},
    )  # fmt: skip


async def _topic(call: Call) -> Owner:
    cluster_id = await cluster_of(call)
    return of_topic(cluster_id, (await topic_of(call)).name)


def of_topic(cluster_id: str, name: str) -> Owner:
    """Return a topic as the owner of settings."""
    return Owner(
        Resource("topic", name), "KafkaTopicConfig", at(cluster_id, "topics", name, "configs"),
        (("kafka", cluster_id), ("topic", name)), {"topic_name": name},
    )  # fmt: skip


OwnerOf = Callable[[Call], Awaitable[Owner]]


def config_row(call: Call, cluster_id: str, owner: Owner, entry: ConfigEntry) -> dict[str, Any]:
    """Return a setting as a resource."""
    fields = {
        "cluster_id": cluster_id,
        **owner.fields,
        "name": entry.name,
        "value": entry.value,
        "is_default": entry.source == "default",
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
        "source": SOURCES.get(entry.source, "UNKNOWN"),
        "synonyms": [
            {"name": name, "value": value, "source": SOURCES.get(source, "UNKNOWN")}
            for name, value, source in entry.synonyms
        ],
    }
    names = (*owner.names, (owner.config_name, entry.name))
    return resource(call, owner.kind, (*owner.segments, entry.name), names, fields)


async def _entries(call: Call, owner: Owner, names: list[str] | None = None) -> list[ConfigEntry]:
    entries = (await call.backend.admin.describe_configs([owner.resource], names=names))[owner.resource]
    if isinstance(entries, ClientError):
        raise entries
    return entries


async def _list(call: Call, owner_of: OwnerOf) -> object:
    owner = await owner_of(call)
    cluster_id = call.path["cluster_id"]
    data = [config_row(call, cluster_id, owner, entry) for entry in await _entries(call, owner)]
    return collection(call, owner.kind, owner.segments, data)


async def _show(call: Call, owner_of: OwnerOf) -> object:
    owner = await owner_of(call)
    return config_row(call, call.path["cluster_id"], owner, await _entry(call, owner))


async def _entry(call: Call, owner: Owner) -> ConfigEntry:
    name = call.path["name"]
    for entry in await _entries(call, owner, [name]):
        if entry.name == name:
            return entry
    kind, of = owner.resource.kind, owner.resource.name or "the cluster"
    raise RestError(404, 404, f"there is no setting {name[:80]!r} of {kind} {of!r}")


async def _change(call: Call, owner: Owner, changes: list[ConfigChange], *, only_check: bool = False) -> None:
    outcome = (await call.backend.admin.alter_configs({owner.resource: changes}, only_check=only_check))[
        owner.resource
    ]
    if outcome is not None:
        raise outcome


async def _update(call: Call, owner_of: OwnerOf) -> object:
    owner = await owner_of(call)
    fields = await call.fields("value")
    if owner.resource.name:  # of all brokers, a setting shows once it has a value
        await _entry(call, owner)
    name, value = call.path["name"], fields.get("value", str, None)
    await _change(call, owner, [ConfigChange(name, DELETE if value is None else SET, value)])
    return None


async def _reset(call: Call, owner_of: OwnerOf) -> object:
    owner = await owner_of(call)
    if owner.resource.name:
        await _entry(call, owner)
    await _change(call, owner, [ConfigChange(call.path["name"], DELETE, None)])
    return None


def changes_of(values: list[Any]) -> list[ConfigChange]:
    """Return the changes of a batch. Raises RestError."""
    if len(values) > CHANGES_MAX:
        raise RestError(413, 413, f"a request has at most {CHANGES_MAX} changes")
    changes = []
    for value in values:
        fields = Fields(value, "name", "value", "operation", what="a change")
        operation = fields.get("operation", str, "SET").upper()
        if operation not in ("SET", "DELETE"):
            raise RestError(400, 400, f"operation is SET or DELETE, not {operation[:40]!r}")
        text = fields.get("value", str, None)
        is_set = operation == "SET" and text is not None
        changes.append(ConfigChange(fields.name("name"), SET if is_set else DELETE, text if is_set else None))
    return changes


async def _alter(call: Call, owner_of: OwnerOf) -> object:
    owner = await owner_of(call)
    fields = await call.fields("data", "validate_only")
    changes = changes_of(fields.get("data", list))
    await _change(call, owner, changes, only_check=fields.get("validate_only", bool, False))
    return None


def _routes(path: str, alter_path: str, owner_of: OwnerOf, of_what: str) -> tuple[Route, ...]:
    """Return the routes for the settings of one kind of resource."""

    def bound(act: Callable[[Call, OwnerOf], Awaitable[object]]) -> Callable[[Call], Awaitable[object]]:
        async def handler(call: Call) -> object:
            return await act(call, owner_of)

        return handler

    changes = Parameter("data", "array", "objects with `name`, `value`, and `operation`: SET or DELETE (SET)")
    checks = Parameter("validate_only", "boolean", "true to check, and change nothing (false)")
    value = (Parameter("value", "string", "the value"),)
    return (
        Route("GET", path, bound(_list), f"Settings of {of_what}", V3),
        Route("GET", f"{path}/{{name}}", bound(_show), f"A setting of {of_what}", V3),
        Route("PUT", f"{path}/{{name}}", bound(_update), f"Change a setting of {of_what}", V3, body=value, status=204),
        Route("DELETE", f"{path}/{{name}}", bound(_reset), f"Reset a setting of {of_what}", V3, status=204),
        Route(
            "POST", alter_path, bound(_alter), f"Change several settings of {of_what}", V3, body=(changes, checks),
            status=204,
        ),
    )  # fmt: skip


# --- of all brokers or topics -----------------------------------------------------------------------------------


async def _list_many(call: Call, owners: list[Owner], kind: str, segments: Segments) -> object:
    cluster_id = call.path["cluster_id"]
    data: list[dict[str, Any]] = []
    for begin in range(0, len(owners), RESOURCES_PER_TURN):
        few = owners[begin : begin + RESOURCES_PER_TURN]
        by_resource = await call.backend.admin.describe_configs([owner.resource for owner in few])
        for owner in few:
            entries = by_resource[owner.resource]
            if isinstance(entries, ClientError):
                raise entries
            data += [config_row(call, cluster_id, owner, entry) for entry in entries]
    return collection(call, kind, segments, data)


async def list_of_topics(call: Call) -> object:
    """Return the settings of all topics."""
    cluster_id = await cluster_of(call)
    names: dict[str, None] = {}
    async for page in call.backend.admin.pages():
        names |= dict.fromkeys(topic.name for topic in page)
    owners = [of_topic(cluster_id, name) for name in names]
    if len(owners) > TOPICS_MAX:
        raise RestError(413, 413, f"there are {len(owners)} topics: ask for their settings one by one")
    return await _list_many(call, owners, "KafkaTopicConfig", at(cluster_id, "topics", "-", "configs"))


TOPICS_MAX = 500
"""Largest number of topics with settings in one response: some 30 KB each."""


async def list_of_brokers(call: Call) -> object:
    """Return the settings of all brokers."""
    cluster_id = await cluster_of(call)
    brokers = (await call.backend.admin.describe_cluster()).brokers
    owners = [_of_broker(cluster_id, broker.broker_id) for broker in brokers]
    return await _list_many(call, owners, "KafkaBrokerConfig", at(cluster_id, "brokers", "-", "configs"))


async def alter_many(call: Call) -> object:
    """Change settings of several topics."""
    cluster_id = await cluster_of(call)
    fields = await call.fields("data", "validate_only")
    changes: dict[str, list[ConfigChange]] = {}
    for value in fields.get("data", list):
        entry = Fields(value, "topic_name", "configs", what="a topic")
        changes.setdefault(entry.name("topic_name"), []).extend(changes_of(entry.get("configs", list)))
        if len(changes) > CHANGES_MAX:
            raise RestError(413, 413, f"a request has at most {CHANGES_MAX} topics")
    by_resource = {of_topic(cluster_id, name).resource: change for name, change in changes.items()}
    outcomes = await call.backend.admin.alter_configs(
        by_resource, only_check=fields.get("validate_only", bool, False)
    )
    failures = [
        {"topic_name": changed.name, "error_code": (failure := failure_of(error, "changing")).code, "message": failure.text}
        for changed, error in outcomes.items()
        if error is not None
    ]  # fmt: skip
    return Answer({"failures": failures}, 207) if failures else None


_CLUSTER = "/v3/clusters/{cluster_id}"
ROUTES = (
    Route("GET", f"{_CLUSTER}/brokers/-/configs", list_of_brokers, "Settings of all brokers", V3),
    Route("GET", f"{_CLUSTER}/topics/-/configs", list_of_topics, f"Settings of all topics, {TOPICS_MAX} at most", V3),
    Route(
        "POST", f"{_CLUSTER}/topics/-/configs:alter", alter_many, "Change settings of several topics", V3,
        body=(
            Parameter("data", "array", "objects with `topic_name` and `configs`"),
            Parameter("validate_only", "boolean", "true to check, and change nothing (false)"),
        ), status=204,
    ),
    *_routes(f"{_CLUSTER}/broker-configs", f"{_CLUSTER}/broker-configs:alter", _cluster, "all brokers"),
    *_routes(
        f"{_CLUSTER}/brokers/{{broker_id}}/configs", f"{_CLUSTER}/brokers/{{broker_id}}/configs:alter", _broker,
        "a broker",
    ),
    *_routes(
        f"{_CLUSTER}/topics/{{topic_name}}/configs", f"{_CLUSTER}/topics/{{topic_name}}/configs:alter", _topic, "a topic"
    ),
)  # fmt: skip
