"""Routes over groups of every kind: members, assignments, lag now and over time, reset offsets, deletion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from barnabas.client import ClientError
from barnabas.client.admin import GroupInfo, ListedGroup, Resource
from barnabas.client.administration.words import KINDS, SHARE
from barnabas.client.errors import ResponseError
from barnabas.commands.errors import CommandError
from barnabas.commands.lagging import GroupLag, lags_of
from barnabas.commands.resetting import Target, chosen_partitions, new_offsets
from barnabas.console import paging
from barnabas.console.base import Call, ConsoleError, Parameter, Route
from barnabas.console.outcomes import error_text, settled
from barnabas.wire.generated.errors import ErrorCode

T = TypeVar("T")

_EMPTY = ("", "Empty", "Dead")
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
ORDERS = {
    "name": lambda group: group.group_id,
    "kind": lambda group: (group.kind, group.group_id),
    "state": lambda group: (group.state, group.group_id),
}


async def list_groups(call: Call) -> object:
    """Return a page of groups, with members and lag."""
    kind = call.query.get("kind", "")
    if kind and kind not in KINDS:
        raise ConsoleError(400, f"kind: one of {', '.join(KINDS)} expected")
    listed, failures = await call.backend.admin.list_groups(
        kinds=[kind] if kind else (), states=[call.query["state"]] if call.query.get("state") else ()
    )
    page = paging.page_of(call, listed.values(), ORDERS, lambda group: group.group_id)
    lags = await lags_of(call.backend.admin, {group.group_id: group for group in page.rows})
    history = await call.backend.history()
    rows = []
    for group in page.rows:
        lag = lags[group.group_id]
        info = lag.info
        row = {
            "name": group.group_id,
            "kind": group.kind,
            "state": group.state,
            "coordinator": group.coordinator,
        }
        row |= {"lag": lag.total, "members": None, "topics": len({part.topic for part in lag.partitions})}
        if isinstance(info, ClientError):
            row["error"] = error_text(info)
        else:
            row |= {"state": info.state, "members": len(info.members)}
        if lag.total is not None:
            history.lags.note(group.group_id, lag.total)
        rows.append(row)
    return {
        **page.as_json(rows),
        "failures": {broker: error_text(failure) for broker, failure in failures.items()},
    }


async def _listed(call: Call) -> ListedGroup:
    """Return the group of a path, from the list of groups. Raises ClientError."""
    name = call.path["group"]
    listed, failures = await call.backend.admin.list_groups()
    if name in listed:
        return listed[name]
    settled(failures)
    raise ResponseError(ErrorCode.GROUP_ID_NOT_FOUND, f"looking for group {name!r}")


async def describe_group(call: Call) -> object:
    """Return a group: its members, their assignments, and the lags."""
    listed = await _listed(call)
    lag = (await lags_of(call.backend.admin, {listed.group_id: listed}))[listed.group_id]
    if isinstance(lag.info, ClientError):
        raise lag.info
    page = paging.page_of(
        call,
        lag.partitions,
        {
            "topic": lambda partition: (partition.topic, partition.partition),
            "lag": lambda partition: (partition.lag or 0, partition.topic, partition.partition),
        },
        lambda partition: f"{partition.topic} {partition.client_id}",
    )
    seen = (await call.backend.history()).lags
    history = seen.note(listed.group_id, lag.total) if lag.total is not None else []
    return {
        **_described(lag, lag.info),
        "dead_letter_topic": await _dead_letter_topic(call, lag.info),
        "partitions": page.as_json(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": partition.committed,
                "next": partition.latest,
                "lag": partition.lag,
                "member": partition.member_id,
                "client_id": partition.client_id,
                "host": partition.host,
                "error": error_text(partition.error) if partition.error is not None else None,
            }
            for partition in page.rows
        ),
        "history": [{"at": at, "lag": total} for at, total in history],
    }


async def _dead_letter_topic(call: Call, info: GroupInfo) -> str | None:
    """Return the topic of a share group's dead letter queue; None without one, or if the visitor may not see it."""
    if info.kind != SHARE:
        return None
    group = Resource("group", info.group_id)
    entries = (await call.backend.admin.describe_configs([group], names=[DEAD_LETTER_TOPIC]))[group]
    if isinstance(entries, ClientError):
        return None
    return next((entry.value for entry in entries if entry.value), None)


def _described(lag: GroupLag, info: GroupInfo) -> dict[str, Any]:
    """Return a group, with a limited number of its members' topics and partitions."""
    room = [NAMES_MAX]
    return {
        "name": info.group_id,
        "kind": info.kind,
        "state": info.state,
        "assignor": info.assignor,
        "epoch": info.epoch,
        "coordinator": info.coordinator,
        "lag": lag.total,
        "members": [
            {
                "id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "subscription": (topics := _first(member.subscription, room)),
                "assignment": _by_topic(places := _first(member.assignment, room)),
                "cut": len(topics) + len(places) < len(member.subscription) + len(member.assignment),
            }
            for member in info.members[:MEMBERS_MAX]
        ],
        "members_total": len(info.members),
    }


MEMBERS_MAX = 500
TOPICS_MAX = 1_000
"""Topics and partitions with offsets that one request resets."""
NAMES_MAX = 20_000
"""Topics and partitions of members that are shown, of all members together."""


def _first(names: Sequence[T], room: list[int]) -> list[T]:
    """Return as many names as there is room for, and reduce the room."""
    shown = list(names[: room[0]])
    room[0] -= len(shown)
    return shown


def _by_topic(places: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    partitions: dict[str, list[int]] = {}
    for topic, partition in places:
        partitions.setdefault(topic, []).append(partition)
    return partitions


async def reset_offsets(call: Call) -> object:
    """Return the new offsets of a group, and set them if the body requests it."""
    admin, name = call.backend.admin, call.path["group"]
    listed, _ = await admin.list_groups()
    group = listed.get(name)
    is_done = call.field("execute", bool, False)
    if group is not None and group.state not in _EMPTY and is_done:
        raise ConsoleError(409, f"group {name} is {group.state}: stop its members first")
    is_share = group is not None and group.kind == SHARE
    committed: Any = {}
    if group is not None:
        committed = (await (admin.share_offsets([name]) if is_share else admin.committed([name])))[name]
        if isinstance(committed, ClientError):
            raise committed
    try:
        partitions = await chosen_partitions(admin, _topics(call), committed, target := _target(call))
        rows = await new_offsets(admin, name, partitions, committed, target)
    except CommandError as error:
        raise ConsoleError(409, str(error)) from None
    if is_done:
        call.confirmed(name)
        new = {(row["topic"], row["partition"]): row["new"] for row in rows if row["error"] is None}
        outcomes = (
            await (admin.set_share_offsets if is_share else admin.commit_offsets)(name, new) if new else {}
        )
        for row in rows:
            outcome = outcomes.get((row["topic"], row["partition"]))
            row["error"] = row["error"] if outcome is None else error_text(outcome)
            row["is_done"] = row["error"] is None
    state = group.state if group is not None else ""
    return {"rows": rows, "executed": is_done, "active": state if state not in _EMPTY else None}


def _topics(call: Call) -> list[tuple[str, int | None]]:
    topics: list[tuple[str, int | None]] = []
    names = call.field("topics", list, [])
    if len(names) > TOPICS_MAX:
        raise ConsoleError(400, f"topics: at most {TOPICS_MAX} expected")
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConsoleError(400, "topics: an array of TOPIC or TOPIC:PARTITION expected")
        topic, colon, number = name.rpartition(":")
        topics.append((topic, int(number)) if colon and number.isdecimal() else (name, None))
    return topics


def _target(call: Call) -> Target:
    kind = call.field("to", str)
    if kind in ("earliest", "latest"):
        return Target(time_ms={"earliest": -2, "latest": -1}[kind])
    if kind not in ("offset", "time", "shift"):
        raise ConsoleError(400, "to: earliest, latest, offset, time or shift expected")
    value = call.field("value", int)
    if value < 0 and kind != "shift":
        raise ConsoleError(400, "value: a number from 0 on expected")
    if kind == "time":
        return Target(time_ms=value)
    return Target(offset=value) if kind == "offset" else Target(shift=value)


async def delete_group(call: Call) -> object:
    """Delete a group with its offsets."""
    name = call.path["group"]
    call.confirmed(name)
    settled(await call.backend.admin.delete_groups([name]))
    return None


_CONFIRM = Parameter("confirm", "the group's name, from who is sure")
ROUTES = (
    Route("GET", "/api/groups", list_groups, "A page of groups of every kind: state, members, lag",
          query=(*paging.QUERY, Parameter("kind", f"{', '.join(KINDS)} (all)"), Parameter("state", "as Stable (all)"))),
    Route("GET", "/api/groups/{group}", describe_group, "A group: members, assignments, lag now and over time",
          query=paging.QUERY),
    Route("POST", "/api/groups/{group}/offsets", reset_offsets, "Set a group's offsets anew, or tell what would be set",
          body=(Parameter("to", "earliest, latest, offset, time or shift"),
                Parameter("value", "offset, ms since 1970, or how far"),
                Parameter("topics", f"an array of at most {TOPICS_MAX} TOPIC or TOPIC:PARTITION (what it has committed)"),
                Parameter("execute", "true to do it (false)"), _CONFIRM)),
    Route("DELETE", "/api/groups/{group}", delete_group, "Delete a group without members", body=(_CONFIRM,)),
)  # fmt: skip
