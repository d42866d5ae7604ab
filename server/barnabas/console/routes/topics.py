"""Routes that show topics: pages of all, and one in detail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from barnabas.client import ClientError
from barnabas.client.admin import Acl, Resource, TopicInfo
from barnabas.commands.lagging import lags_of
from barnabas.console import paging
from barnabas.console.base import Call, Parameter, Route
from barnabas.console.measuring import COLUMNS, Led, bounds_and_sizes, sums_of
from barnabas.console.outcomes import error_text, good
from barnabas.console.routes.access import acl_page
from barnabas.console.routes.cluster import settings_of
from barnabas.console.topic_index import ORDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.console.backend import Backend
    from barnabas.console.topic_index import TopicRow

MEASURED_MAX = 2_000
"""Partitions of a page for which offsets and sizes are requested."""
UNKNOWN = dict.fromkeys(COLUMNS)


async def list_topics(call: Call) -> object:
    """Return a page of topics, with the sizes of their partitions."""
    backend = call.backend
    history = await backend.history()
    history.begin()
    lags = history.lags.by_topic
    rows = await backend.topics.rows()
    if not call.flag("internal"):
        rows = [row for row in rows if not row.is_internal]
    if call.flag("unhealthy"):
        rows = [row for row in rows if row.under_replicated or row.offline]
    sort = call.query.get("sort", "")
    sorted_by = await backend.measured.get(sort) if sort in COLUMNS else {}
    await trio.lowlevel.checkpoint()  # to sort many takes a turn of the event loop
    orders = {column: lambda row: (sorted_by.get(row.name, -1), row.name) for column in COLUMNS}
    orders["lag"] = lambda row: (lags.get(row.name, -1), row.name)
    page = paging.page_of(call, rows, {**ORDERS, **orders}, lambda row: row.name)
    await trio.lowlevel.checkpoint()
    measured = await measure(backend, [row for row in page.rows if row.partitions])
    if sort in COLUMNS:  # the page is in order, as read
        for name in measured.keys() & sorted_by.keys():
            measured[name][sort] = sorted_by[name]
    return page.as_json(
        {
            "name": row.name,
            "partitions": row.partitions,
            "replication": row.replication,
            "under_replicated": row.under_replicated,
            "offline": row.offline,
            "internal": row.is_internal,
            "lag": lags.get(row.name),
            **measured.get(row.name, UNKNOWN),
        }
        for row in page.rows
    )


async def measure(backend: Backend, rows: Sequence[TopicRow]) -> dict[str, dict[str, Any]]:
    """Return records, bytes and records a second of topics, as far as known; none if there are too many partitions."""
    records, held, ends = await sums_of(backend.admin, rows, MEASURED_MAX)
    return {
        row.name: {
            "records": records.get(row.name),
            "bytes": held.get(row.name),
            "rate": backend.rate(row.name, ends[row.name]) if row.name in ends else None,
        }
        for row in rows
    }


async def topic_of(call: Call) -> TopicInfo:
    """Return the topic of a path. Raises ResponseError."""
    name = call.path["topic"]
    topic = (await call.backend.admin.topics([name]))[name]
    if isinstance(topic, ClientError):
        raise topic
    return topic


async def describe_topic(call: Call) -> object:
    """Return a topic with a page of its partitions, and the sums over all of them unless they are too many."""
    info = await topic_of(call)
    page = paging.page_of(
        call,
        info.partitions,
        {"number": lambda partition: partition.number},
        lambda partition: str(partition.number),
    )
    is_whole = len(info.partitions) <= MEASURED_MAX
    led: Led = {}
    for partition in info.partitions if is_whole else page.rows:
        if partition.leader >= 0:
            led.setdefault(partition.leader, {}).setdefault(info.name, []).append(partition.number)
    firsts, lasts, sizes = await bounds_and_sizes(call.backend.admin, led)
    rows: list[dict[str, Any]] = []
    for partition in page.rows:
        place = info.name, partition.number
        first, last = firsts.get(place), lasts.get(place)
        rows.append(
            {
                "partition": partition.number,
                "leader": partition.leader,
                "epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
                "offline": list(partition.offline),
                "first": first,
                "next": last,
                "records": last - first if first is not None and last is not None else None,
                "bytes": sizes.get(place),
            }
        )
    return {
        "name": info.name,
        "id": info.id,
        "internal": info.is_internal,
        "partitions": page.as_json(rows),
        "records": sum(last - firsts[place] for place, last in lasts.items() if place in firsts)
        if is_whole
        else None,
        "bytes": sum(sizes.values()) if is_whole and sizes else None,
        "rate": call.backend.rate(info.name, sum(lasts.values())) if is_whole else None,
    }


async def topic_settings(call: Call) -> object:
    """Return a topic's settings."""
    return await settings_of(call, Resource("topic", call.path["topic"]))


async def topic_producers(call: Call) -> object:
    """Return the producers of a topic's partitions, those with an open transaction first."""
    info = await topic_of(call)
    led = [(info.name, partition.number) for partition in info.partitions if partition.leader >= 0]
    producers = await call.backend.admin.producers(led[:MEASURED_MAX])
    rows = [
        {
            "partition": place[1],
            "producer_id": state.producer_id,
            "epoch": state.producer_epoch,
            "last_sequence": state.last_sequence,
            "last_at_ms": state.last_at_ms,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_offset": state.transaction_offset if state.transaction_offset >= 0 else None,
        }
        for place, states in producers.items()
        for state in good(states) or ()
    ]
    rows.sort(key=lambda row: (row["transaction_offset"] is None, -row["last_at_ms"]))
    failures = [error_text(producer) for producer in producers.values() if isinstance(producer, ClientError)]
    return {
        "producers": rows[: paging.SIZE_MAX],
        "total": len(rows),
        "error": failures[0] if failures else None,
    }


async def topic_groups(call: Call) -> object:
    """Return the groups that read a topic or have committed offsets of it, that with the largest lag first."""
    name, admin = call.path["topic"], call.backend.admin
    listed, _ = await admin.list_groups()
    groups = dict(list(listed.items())[:GROUPS_MAX])
    rows: list[dict[str, Any]] = []
    for group_id, lag in (await lags_of(admin, groups, name)).items():
        if not lag.partitions:
            continue
        lags = [partition.lag for partition in lag.partitions if partition.lag is not None]
        errors = [partition.error for partition in lag.partitions if partition.error is not None]
        rows.append(
            {
                "group": group_id,
                "kind": lag.listed.kind,
                "state": lag.listed.state if isinstance(lag.info, ClientError) else lag.info.state,
                "partitions": len(lag.partitions),
                "members": len({partition.member_id for partition in lag.partitions} - {""}),
                "lag": sum(lags) if lags else None,
                "error": error_text(errors[0]) if errors else None,
            }
        )
    rows.sort(key=lambda row: (-(row["lag"] or 0), row["group"]))
    return {"groups": rows, "looked_at": len(groups), "total": len(listed)}


async def topic_acls(call: Call) -> object:
    """Return a page of the ACLs that a topic is under: by its name, by how that begins, or by *."""
    filter_ = Acl(resource_type="topic", resource_name=call.path["topic"], pattern_type="match")
    return acl_page(call, await call.backend.admin.acls(filter_))


GROUPS_MAX = 200
"""Groups that are asked for their subscriptions and commits, to find those of one topic."""
ROUTES = (
    Route("GET", "/api/topics", list_topics, "A page of topics: partitions, records, bytes, rates, health",
          query=(*paging.QUERY, Parameter("internal", "true to show internal topics (false)"),
                 Parameter("unhealthy", "true for those alone that lack replicas or leaders (false)"))),
    Route("GET", "/api/topics/{topic}", describe_topic, "A topic: partitions, leaders, ISR, offsets, bytes",
          query=paging.QUERY),
    Route("GET", "/api/topics/{topic}/settings", topic_settings, "Settings of a topic, and where each comes from"),
    Route("GET", "/api/topics/{topic}/producers", topic_producers, "Producers of a topic, open transactions first"),
    Route("GET", "/api/topics/{topic}/groups", topic_groups, "Groups that read a topic: lag in it, the largest first"),
    Route("GET", "/api/topics/{topic}/acls", topic_acls, "A page of the ACLs that a topic is under, also by prefix or *",
          query=paging.QUERY),
)  # fmt: skip
