"""Routes that show topics: pages of all, and one in detail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from barnabas.client import ClientError
from barnabas.client.admin import EARLIEST, LATEST, OffsetAt, Resource, TopicInfo
from barnabas.console import paging
from barnabas.console.base import Call, Parameter, Route
from barnabas.console.outcomes import error_text, good
from barnabas.console.routes.cluster import admin_log_dirs, settings_of
from barnabas.console.topic_index import ORDERS

MEASURED_MAX = 2_000
"""Partitions of a page whose offsets and sizes are asked for."""
Partition = tuple[str, int]


async def list_topics(call: Call) -> object:
    """Return a page of topics, with what their partitions hold."""
    rows = await call.backend.topics.rows()
    if not call.flag("internal"):
        rows = [row for row in rows if not row.is_internal]
    if call.flag("unhealthy"):
        rows = [row for row in rows if row.under_replicated or row.offline]
    page = paging.page_of(call, rows, ORDERS, lambda row: row.name)
    measured = await measure(call, [row.name for row in page.rows if row.partitions])
    return page.as_json(
        {
            "name": row.name,
            "partitions": row.partitions,
            "replication": row.replication,
            "under_replicated": row.under_replicated,
            "offline": row.offline,
            "internal": row.is_internal,
            **measured.get(row.name, {"records": None, "bytes": None, "rate": None}),
        }
        for row in page.rows
    )


async def measure(call: Call, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return records, bytes and records a second of topics; nothing where they have too many partitions."""
    infos = {
        name: one
        for name, one in (await call.backend.admin.topics(names)).items()
        if isinstance(one, TopicInfo)
    }
    partitions = _led(infos.values())
    if not partitions or len(partitions) > MEASURED_MAX:
        return {}
    bounds, sizes = await _bounds_and_sizes(call, infos, partitions)
    found: dict[str, dict[str, Any]] = {}
    for name, info in infos.items():
        parts = [(name, one.number) for one in info.partitions]
        ends = [bounds[1].get(one) for one in parts]
        starts = [bounds[0].get(one) for one in parts]
        known = [
            (first, last)
            for first, last in zip(starts, ends, strict=True)
            if first is not None and last is not None
        ]
        found[name] = {
            "records": sum(last - first for first, last in known),
            "bytes": sum(sizes.get(one, 0) for one in parts) if sizes else None,
            "rate": call.backend.rate(name, sum(last for _, last in known)),
        }
    return found


async def _bounds_and_sizes(
    call: Call, infos: dict[str, TopicInfo], partitions: list[Partition]
) -> tuple[tuple[dict[Partition, int], dict[Partition, int]], dict[Partition, int]]:
    """Return first and next offsets of partitions, and the bytes of their leaders."""
    bounds: dict[int, dict[Partition, int]] = {}
    sizes: dict[Partition, int] = {}

    async def look_up(time_ms: int) -> None:
        found = await call.backend.admin.offsets(dict.fromkeys(partitions, time_ms))
        bounds[time_ms] = {place: one.offset for place, one in found.items() if isinstance(one, OffsetAt)}

    async def weigh() -> None:
        sizes.update(await sizes_of(call, infos.values()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_up, EARLIEST)
        nursery.start_soon(look_up, LATEST)
        nursery.start_soon(weigh)
    return (bounds[EARLIEST], bounds[LATEST]), sizes


async def sizes_of(call: Call, infos: Iterable[TopicInfo]) -> dict[Partition, int]:
    """Return the bytes of partitions on their leaders, as far as those tell them."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for info in infos:
        for one in info.partitions:
            if one.leader >= 0:
                by_leader.setdefault(one.leader, {}).setdefault(info.name, []).append(one.number)
    found: dict[Partition, int] = {}

    async def ask(broker: int) -> None:
        try:
            for log_dir in await admin_log_dirs(call, broker, by_leader[broker]):
                for one in log_dir.replicas:
                    if not one.is_future:
                        found[one.topic, one.partition] = one.size_bytes
        except ClientError:
            return  # a broker that is down, or a visitor who may not see the cluster

    async with trio.open_nursery() as nursery:
        for broker in by_leader:
            nursery.start_soon(ask, broker)
    return found


def _led(infos: Iterable[TopicInfo]) -> list[Partition]:
    return [(info.name, one.number) for info in infos for one in info.partitions if one.leader >= 0]


async def topic_of(call: Call) -> TopicInfo:
    """Return the topic of a path. Raises ResponseError."""
    name = call.path["topic"]
    found = (await call.backend.admin.topics([name]))[name]
    if isinstance(found, ClientError):
        raise found
    return found


async def describe_topic(call: Call) -> object:
    """Return a topic with a page of its partitions."""
    info = await topic_of(call)
    page = paging.page_of(
        call, info.partitions, {"number": lambda one: one.number}, lambda one: str(one.number)
    )
    shown = TopicInfo(info.name, info.id, info.is_internal, tuple(page.rows))
    partitions = _led([shown])
    bounds, sizes = await _bounds_and_sizes(call, {info.name: shown}, partitions)
    rows: list[dict[str, Any]] = []
    for one in page.rows:
        place = info.name, one.number
        first, last = bounds[0].get(place), bounds[1].get(place)
        rows.append(
            {
                "partition": one.number,
                "leader": one.leader,
                "epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "in_sync": list(one.in_sync),
                "offline": list(one.offline),
                "first": first,
                "next": last,
                "records": last - first if first is not None and last is not None else None,
                "bytes": sizes.get(place),
            }
        )
    ends = [row["next"] for row in rows if row["next"] is not None]
    is_whole = page.total == len(rows)
    return {
        "name": info.name,
        "id": info.id,
        "internal": info.is_internal,
        "partitions": page.as_json(rows),
        "rate": call.backend.rate(info.name, sum(ends)) if is_whole else None,
    }


async def topic_settings(call: Call) -> object:
    """Return a topic's settings."""
    return await settings_of(call, Resource("topic", call.path["topic"]))


async def topic_producers(call: Call) -> object:
    """Return the producers that a topic's partitions know, with those whose transaction is open first."""
    info = await topic_of(call)
    found = await call.backend.admin.producers(_led([info])[:MEASURED_MAX])
    rows = [
        {
            "partition": place[1],
            "producer_id": one.producer_id,
            "epoch": one.producer_epoch,
            "last_sequence": one.last_sequence,
            "last_at_ms": one.last_at_ms,
            "coordinator_epoch": one.coordinator_epoch,
            "transaction_offset": one.transaction_offset if one.transaction_offset >= 0 else None,
        }
        for place, states in found.items()
        for one in good(states) or ()
    ]
    rows.sort(key=lambda row: (row["transaction_offset"] is None, -row["last_at_ms"]))
    failures = [error_text(one) for one in found.values() if isinstance(one, ClientError)]
    return {
        "producers": rows[: paging.SIZE_MAX],
        "total": len(rows),
        "error": failures[0] if failures else None,
    }


async def topic_groups(call: Call) -> object:
    """Return the groups that have committed offsets of a topic."""
    name, admin = call.path["topic"], call.backend.admin
    listed, _ = await admin.list_groups()
    wanted = [one for one in listed.values() if one.kind != "share"][:GROUPS_MAX]
    committed = await admin.committed(one.group_id for one in wanted)
    rows = []
    for one in wanted:
        places = {place for place in good(committed[one.group_id]) or () if place[0] == name}
        if places:
            rows.append(
                {"group": one.group_id, "kind": one.kind, "state": one.state, "partitions": len(places)}
            )
    return {"groups": rows, "looked_at": len(wanted), "total": len(listed)}


GROUPS_MAX = 200
"""Groups that are asked what they have committed, to find those of one topic."""
ROUTES = (
    Route("GET", "/api/topics", list_topics, "A page of topics: partitions, records, bytes, rates, health",
          query=(*paging.QUERY, Parameter("internal", "true to show internal topics (false)"),
                 Parameter("unhealthy", "true for those alone that lack replicas or leaders (false)"))),
    Route("GET", "/api/topics/{topic}", describe_topic, "A topic: partitions, leaders, ISR, offsets, bytes",
          query=paging.QUERY),
    Route("GET", "/api/topics/{topic}/settings", topic_settings, "Settings of a topic, and where each comes from"),
    Route("GET", "/api/topics/{topic}/producers", topic_producers, "Producers of a topic, open transactions first"),
    Route("GET", "/api/topics/{topic}/groups", topic_groups, "Groups that read a topic"),
)  # fmt: skip
