"""Routes over the broker's contents: topics, records, groups, seeds, and waiting for all of these."""

from __future__ import annotations

from barnabas.tools.control.routes.base import Call, ControlError, Parameter, Route
from barnabas.tools.control.waiting import (
    TIMEOUT_MS,
    NotYetError,
    wait_for_group,
    wait_for_lag,
    wait_for_records,
)
from barnabas.tools.seeding.local_requests import LocalRequests
from barnabas.tools.seeding.looking import Looking, NotThereError
from barnabas.tools.seeding.planting import Planting, error_name
from barnabas.tools.seeding.reading import read_records, read_seeds
from barnabas.tools.seeding.seeds import SeedError

TIMEOUT_MS_MAX = 600_000
RECORDS_MAX = 100_000
_OBJECT = {"type": "object"}
_TIMEOUT = Parameter("timeout_ms", "integer", "for how long to wait, in ms (10000)")
_COMMITTED = Parameter(
    "committed", "boolean", "whether records of aborted and open transactions are left out (true)"
)


def _local(call: Call) -> LocalRequests:
    broker = call.host.broker
    if broker is None:
        raise ControlError(503, "the broker is down")
    return LocalRequests(broker)


def _number(call: Call, name: str, default: int | None, low: int = 0, high: int = 1 << 62) -> int | None:
    text = call.query.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise ControlError(
            400, f"{name}: a whole number from {low} to {high} expected, and there is {text!r}"
        )
    return value


def _flag(call: Call, name: str, *, default: bool) -> bool:
    text = call.query.get(name)
    if text not in (None, "true", "false"):
        raise ControlError(400, f"{name}: true or false expected, and there is {text!r}")
    return default if text is None else text == "true"


async def list_topics(call: Call) -> object:
    """Return all topics."""
    return {"topics": Looking(_local(call)).topics(internal=_flag(call, "internal", default=False))}


async def describe_topic(call: Call) -> object:
    """Return one topic."""
    return Looking(_local(call)).topic(call.path["topic"])


async def create_topic(call: Call) -> object:
    """Make a topic, with its records; 409 where it exists."""
    name = call.path["topic"]
    seeds = read_seeds({"topics": {name: call.body or None}})
    local = _local(call)
    if name in local.services.metadata.image.topics:
        raise ControlError(409, f"topic {name} exists")
    await Planting(local).plant(seeds)
    return Looking(local).topic(name)


async def delete_topic(call: Call) -> None:
    """Delete a topic with its records."""
    from barnabas.wire.generated.delete_topics import DeleteTopicsRequest
    from barnabas.wire.generated.errors import ErrorCode

    name = call.path["topic"]
    response = await _local(call).ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS), 5)
    _check_deleted(f"topic {name}", response.responses[0].error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check_deleted(what: str, code: int, not_there: int) -> None:
    """Raise unless the deletion succeeded: NotThereError if the broker does not know the object, else SeedError."""
    if code == not_there:
        raise NotThereError(f"there is no {what}")
    if code:
        raise SeedError(f"{what}: {error_name(code)}")


async def show_records(call: Call) -> object:
    """Return records as a consumer would be given them."""
    records = await Looking(_local(call)).records(
        call.path["topic"],
        _number(call, "partition", None),
        _number(call, "offset", 0) or 0,
        limit=_number(call, "limit", 100, high=RECORDS_MAX) or 0,
        committed=_flag(call, "committed", default=True),
    )
    return {"records": records}


async def append_records(call: Call) -> object:
    """Append records, and return their partitions and offsets."""
    topic = call.path["topic"]
    local = _local(call)
    Looking(local).topic(topic)
    records = read_records(call.body.get("records"))
    places = await Planting(local).append(topic, records)
    return {"records": [{"partition": partition, "offset": offset} for partition, offset in places]}


async def list_groups(call: Call) -> object:
    """Return all groups."""
    return {"groups": await Looking(_local(call)).groups()}


async def describe_group(call: Call) -> object:
    """Return one group."""
    return await Looking(_local(call)).group(call.path["group"])


async def set_offsets(call: Call) -> object:
    """Set a group's committed offsets."""
    local = _local(call)
    group = call.path["group"]
    await Planting(local).plant(read_seeds({"groups": {group: call.body}}))
    return await Looking(local).group(group)


async def delete_group(call: Call) -> None:
    """Delete a group that has no members."""
    from barnabas.wire.generated.delete_groups import DeleteGroupsRequest
    from barnabas.wire.generated.errors import ErrorCode

    group = call.path["group"]
    response = await _local(call).ask(DeleteGroupsRequest(groups_names=[group]), 2)
    _check_deleted(f"group {group}", response.results[0].error_code, ErrorCode.GROUP_ID_NOT_FOUND)


async def plant_seeds(call: Call) -> object:
    """Put seeds into the broker: records are appended, offsets are set."""
    await Planting(_local(call)).plant(read_seeds(call.body))
    return None


async def wait_records(call: Call) -> object:
    """Wait until a topic holds records."""
    count = _number(call, "count", None)
    if count is None:
        raise ControlError(400, "count is missing")
    return await wait_for_records(
        Looking(_local(call)),
        _needed(call, "topic"),
        count,
        partition=_number(call, "partition", None),
        committed=_flag(call, "committed", default=True),
        timeout_ms=_timeout(call),
    )


async def wait_group(call: Call) -> object:
    """Wait until a group is in a state."""
    return await wait_for_group(
        Looking(_local(call)),
        _needed(call, "group"),
        state=call.query.get("state", "Stable"),
        members=_number(call, "members", None),
        timeout_ms=_timeout(call),
    )


async def wait_lag(call: Call) -> object:
    """Wait until a group has read all records."""
    return await wait_for_lag(
        Looking(_local(call)),
        _needed(call, "group"),
        topic=call.query.get("topic"),
        lag=_number(call, "lag", 0) or 0,
        timeout_ms=_timeout(call),
    )


def _timeout(call: Call) -> int:
    return _number(call, "timeout_ms", TIMEOUT_MS, high=TIMEOUT_MS_MAX) or 0


def _needed(call: Call, name: str) -> str:
    text = call.query.get(name)
    if not text:
        raise ControlError(400, f"{name} is missing")
    return text


_PARTITION = Parameter("partition", "integer", "one partition (all)")
_TOPIC = {
    "type": "object",
    "properties": {
        "partitions": {"type": "integer", "minimum": 1},
        "settings": {"type": "object", "additionalProperties": {"type": "string"}},
        "records": {"type": "array", "items": {}},
    },
    "additionalProperties": False,
}
_RECORDS = {
    "type": "object",
    "properties": {"records": {"type": "array", "items": {}}},
    "required": ["records"],
    "additionalProperties": False,
}

ROUTES = (
    Route("GET", "/v1/topics", list_topics, "All topics",
          query=(Parameter("internal", "boolean", "whether the coordinators' topics are shown too (false)"),)),
    Route("GET", "/v1/topics/{topic}", describe_topic, "A topic, with settings and offsets"),
    Route("POST", "/v1/topics/{topic}", create_topic, "Make a topic, with settings and records", body=_TOPIC),
    Route("DELETE", "/v1/topics/{topic}", delete_topic, "Delete a topic"),
    Route("GET", "/v1/topics/{topic}/records", show_records, "Records, as a consumer is given them",
          query=(_PARTITION, Parameter("offset", "integer", "the first offset (0)"),
                 Parameter("limit", "integer", "how many at most (100)"), _COMMITTED)),
    Route("POST", "/v1/topics/{topic}/records", append_records, "Append records", body=_RECORDS),
    Route("GET", "/v1/groups", list_groups, "All groups"),
    Route("GET", "/v1/groups/{group}", describe_group, "A group: state, members, offsets, lag"),
    Route("PUT", "/v1/groups/{group}/offsets", set_offsets,
          "Set committed offsets: {topic: {partition: offset | earliest | latest}}", body=_OBJECT),
    Route("DELETE", "/v1/groups/{group}", delete_group, "Delete a group without members"),
    Route("POST", "/v1/seeds", plant_seeds, "Topics, records, groups, ACLs, users, quotas", body=_OBJECT),
    Route("GET", "/v1/wait/records", wait_records, "Wait until a topic holds at least so many records",
          query=(Parameter("topic", "string", "the topic"), Parameter("count", "integer", "how many"), _PARTITION,
                 _COMMITTED, _TIMEOUT)),
    Route("GET", "/v1/wait/group", wait_group, "Wait until a group is in a state",
          query=(Parameter("group", "string", "the group"), Parameter("state", "string", "its state (Stable)"),
                 Parameter("members", "integer", "with just so many members (any)"), _TIMEOUT)),
    Route("GET", "/v1/wait/lag", wait_lag, "Wait until a group has committed all that there is",
          query=(Parameter("group", "string", "the group"), Parameter("topic", "string", "one topic, all partitions of it"),
                 Parameter("lag", "integer", "how many records it may be behind (0)"), _TIMEOUT)),
)  # fmt: skip


def status_of(error: Exception) -> int | None:
    """Return the HTTP status for an error of these routes, None for another error."""
    statuses: tuple[tuple[type[Exception], int], ...] = (
        (NotThereError, 404), (SeedError, 400), (NotYetError, 408),
    )  # fmt: skip
    return next((status for kind, status in statuses if isinstance(error, kind)), None)
