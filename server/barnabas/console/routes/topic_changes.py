"""Routes that change topics: create, add partitions, configure, trim, delete.

The rule: an action that destroys records first reports their number, and is executed if the body names the topic.
"""

from __future__ import annotations

from typing import Any

from barnabas.client import ClientError
from barnabas.client.admin import EARLIEST, LATEST, NewTopic, OffsetAt, Resource, partitions_of
from barnabas.console.base import Call, ConsoleError, Parameter, Route
from barnabas.console.outcomes import error_text, settled
from barnabas.console.routes.cluster import CHANGES, change_settings
from barnabas.console.routes.topics import topic_of

CHECK = Parameter("check", "true to have the broker only check it (false)")


async def create_topic(call: Call) -> object:
    """Make a topic."""
    name = call.field("name", str)
    configs = call.field("settings", dict, {})
    if not all(isinstance(value, str) for value in configs.values()):
        raise ConsoleError(400, "settings: names with texts expected")
    topic = NewTopic(name, call.field("partitions", int, -1), call.field("replication", int, -1), configs)
    is_check = call.field("check", bool, False)
    settled(await call.backend.admin.create_topics([topic], only_check=is_check))
    if not is_check:
        call.backend.topics.forget()
    return {"name": name}


async def grow_topic(call: Call) -> object:
    """Give a topic more partitions."""
    name, count = call.path["topic"], call.field("count", int)
    is_check = call.field("check", bool, False)
    settled(await call.backend.admin.create_partitions({name: count}, only_check=is_check))
    if not is_check:
        call.backend.topics.forget()
    return {"name": name, "partitions": count}


async def configure_topic(call: Call) -> object:
    """Change settings of a topic."""
    await change_settings(call, Resource("topic", call.path["topic"]))
    return None


async def trim_topic(call: Call) -> object:
    """Delete the records before offsets, all that there are without them."""
    info = await topic_of(call)
    admin = call.backend.admin
    places = partitions_of({info.name: info})
    first = await admin.offsets(dict.fromkeys(places, EARLIEST))
    last = await admin.offsets(dict.fromkeys(places, LATEST))
    before = call.field("before", dict, {})
    offsets: dict[tuple[str, int], int] = {}
    rows: list[dict[str, Any]] = []
    for place in places:
        start, end = first[place], last[place]
        if not isinstance(start, OffsetAt) or not isinstance(end, OffsetAt):
            continue
        offset = before.get(str(place[1]), None if before else end.offset)
        if offset is None:
            continue
        if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= end.offset:
            raise ConsoleError(
                400, f"before: partition {place[1]} ends at {end.offset}; give an offset up to that"
            )
        if offset > start.offset:
            offsets[place] = offset
            rows.append(
                {
                    "partition": place[1],
                    "first": start.offset,
                    "before": offset,
                    "records": offset - start.offset,
                }
            )
    if call.field("check", bool, False):
        return {"rows": rows, "records": sum(row["records"] for row in rows), "done": False}
    call.confirmed(info.name)
    outcomes = await admin.delete_records(offsets) if offsets else {}
    for row in rows:
        outcome = outcomes[info.name, row["partition"]]
        row["error"] = error_text(outcome) if isinstance(outcome, ClientError) else None
    return {"rows": rows, "records": sum(row["records"] for row in rows if not row["error"]), "done": True}


async def delete_topic(call: Call) -> object:
    """Delete a topic."""
    name = call.path["topic"]
    call.confirmed(name)
    settled(await call.backend.admin.delete_topics([name]))
    call.backend.topics.forget()
    return None


_CONFIRM = Parameter("confirm", "the topic's name, from who is sure")
ROUTES = (
    Route("POST", "/api/topics", create_topic, "Make a topic",
          body=(Parameter("name", "its name"), Parameter("partitions", "how many; -1 for the broker's default (-1)"),
                Parameter("replication", "replicas of each; -1 for the broker's default (-1)"),
                Parameter("settings", "an object: texts by name"), CHECK)),
    Route("POST", "/api/topics/{topic}/partitions", grow_topic, "Give a topic more partitions",
          body=(Parameter("count", "how many it has then, in all"), CHECK)),
    Route("PATCH", "/api/topics/{topic}/settings", configure_topic, "Change settings of a topic", body=CHANGES),
    Route("POST", "/api/topics/{topic}/trim", trim_topic, "Delete the records before offsets",
          body=(Parameter("before", 'an object: offsets by partition, as {"0": 100} (all records)'),
                Parameter("check", "true to only tell what would go (false)"), _CONFIRM)),
    Route("DELETE", "/api/topics/{topic}", delete_topic, "Delete a topic with all that it holds", body=(_CONFIRM,)),
)  # fmt: skip
