"""Resources of v3: a kind, links to themselves and to others, and their fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from barnabas.client import ClientError
from barnabas.client.admin import PartitionInfo, TopicInfo
from barnabas.rest.base import Call
from barnabas.rest.errors import RestError

Segments = tuple[object, ...]


async def cluster_of(call: Call) -> str:
    """Return the cluster id in the path. Raises RestError if it is not this cluster's, ClientError."""
    cluster_id = await call.backend.cluster_id()
    if call.path["cluster_id"] != cluster_id:
        raise RestError(404, 404, f"there is no cluster {call.path['cluster_id'][:80]!r} here")
    return cluster_id


def at(cluster_id: str, *segments: object) -> Segments:
    """Return the path segments of an object of a cluster."""
    return ("v3", "clusters", cluster_id, *segments)


def related(call: Call, *segments: object) -> dict[str, str]:
    """Return a link to another resource."""
    return {"related": call.url(*segments)}


def resource(
    call: Call, kind: str, segments: Segments, names: Sequence[tuple[str, object]], fields: dict[str, Any]
) -> dict[str, Any]:
    """Return a resource; `names` are pairs for its parents and itself, the cluster first."""
    name = "/".join(
        f"{part}={quote(str(value), safe='')}" if value is not None else part for part, value in names
    )
    metadata = {"self": call.url(*segments), "resource_name": f"crn:///{name}"}
    return {"kind": kind, "metadata": metadata, **fields}


def collection(
    call: Call, kind: str, segments: Segments, data: list[dict[str, Any]], **query: str
) -> dict[str, Any]:
    """Return a list of resources."""
    metadata = {"self": call.url(*segments, **query), "next": None}
    return {"kind": f"{kind}List", "metadata": metadata, "data": data}


async def topic_of(call: Call) -> TopicInfo:
    """Return the topic of the path. Raises ClientError."""
    name = call.path["topic_name"]
    described = (await call.backend.admin.topics([name])).get(name)
    if described is None:
        raise RestError(404, 40403, f"there is no topic {name[:80]!r}")
    if isinstance(described, ClientError):
        raise described
    return described


async def partition_of(call: Call) -> PartitionInfo:
    """Return the partition of the path. Raises RestError, ClientError."""
    number = call.number("partition_id")
    topic = await topic_of(call)
    for partition in topic.partitions:
        if partition.number == number:
            return partition
    raise RestError(404, 404, f"topic {topic.name!r} has no partition {number}")
