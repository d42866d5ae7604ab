"""Routes of our own: records as server-sent events, and the description of all routes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import trio

from barnabas.client import Consumer, TopicPartition, open_consumer
from barnabas.rest import openapi
from barnabas.rest.base import INT64_MAX, OURS, Answer, Call, Events, Parameter, Route, Send
from barnabas.rest.batches import View
from barnabas.rest.errors import PARTITION_NOT_FOUND, RestError, failure_of
from barnabas.rest.formats import BINARY, OF_TYPES, STRING, WITH_SCHEMAS
from barnabas.rest.reading import READING, Source
from barnabas.rest.routes.v2_topics import topic_of

KEEP_ALIVE_SECONDS = 15.0
"""Time without a record after which a comment is sent."""
EVENTS_PER_PIECE = 100
FORMATS = (*OF_TYPES, STRING)
PARTITIONS_MAX = 10_000


async def follow(call: Call) -> object:
    """Send records of a topic as they arrive, until the client disconnects."""
    topic = await topic_of(call, call.path["topic"])
    format_name = call.query.get("format") or BINARY
    if format_name not in FORMATS:
        raise RestError(400, 400, f"format is one of {', '.join(FORMATS)}")
    if format_name in WITH_SCHEMAS:
        call.backend.registry()
    numbers = [partition.number for partition in topic.partitions]
    if text := call.query.get("partition"):
        number = call.whole("partition", 0)
        if number not in numbers:
            raise RestError(404, PARTITION_NOT_FOUND, f"topic {topic.name!r} has no partition {text[:40]}")
        numbers = [number]
    if len(numbers) > PARTITIONS_MAX:
        raise RestError(413, 413, f"at most {PARTITIONS_MAX} partitions are followed: choose one")
    where = call.query.get("from") or "latest"
    if where not in ("latest", "earliest"):
        call.whole("from", 0)  # an offset, of each partition
    positions = _positions(call.last_event_id)
    view = View(format_name, has_all=True)

    async def work(send: Send) -> None:
        async with open_consumer(
            call.backend.bootstrap, settings=READING, client_settings=call.backend.settings
        ) as consumer:
            places = [TopicPartition(topic.name, number) for number in numbers]
            await _begin(consumer, places, where, positions)
            await send(b": following\n\n")
            try:
                await _send_all(Source(call.backend, consumer, view), send, dict(positions))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise
            except Exception as error:
                failure = failure_of(error, "following a topic")
                text = json.dumps({"error_code": failure.code, "message": failure.text})
                await send(f"event: failed\ndata: {text}\n\n".encode())

    return Events(work)


async def _begin(
    consumer: Consumer, places: list[TopicPartition], where: str, positions: Mapping[int, int]
) -> None:
    """Make a consumer read partitions from the client's last position, else from the requested one."""
    consumer.assign(places)
    for place in places:
        if place.partition in positions:
            consumer.seek(place, positions[place.partition])
        elif where == "latest":
            consumer.seek_to_end(place)
        elif where == "earliest":
            consumer.seek_to_beginning(place)
        else:
            consumer.seek(place, int(where))
    for place in places:
        await consumer.position(place)  # records produced from now on are sent


def _positions(text: str) -> dict[int, int]:
    """Return the offsets to continue at by partition, from an event's id; empty for an invalid id."""
    positions = {}
    for part in text.split(",")[:PARTITIONS_MAX]:
        number, colon, offset = part.partition(":")
        if colon and number.isdecimal() and offset.isdecimal() and len(part) < 40:
            positions[int(number)] = min(int(offset), INT64_MAX)
    return positions


async def _send_all(source: Source, send: Send, positions: dict[int, int]) -> None:
    """Send records in few pieces; the id of each piece's last event has the positions of all partitions."""
    while True:
        row = await source.peek(deadline=trio.current_time() + KEEP_ALIVE_SECONDS)
        if row is None:
            await send(b": waiting\n\n")
            continue
        pieces: list[bytes] = []
        while source.rows and len(pieces) < EVENTS_PER_PIECE:
            row = source.rows.popleft()
            positions[row.partition] = row.offset + 1
            if row.problem:
                skipped = {"partition": row.partition, "offset": row.offset, "message": row.problem}
                pieces.append(f"event: unreadable\ndata: {json.dumps(skipped)}\n".encode())
            else:
                pieces.append(b"event: record\ndata: %s\n" % row.content)
        identity = ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items()))
        pieces[-1] += f"id: {identity}\n".encode()
        await send(b"\n".join([*pieces, b""]))


async def show_openapi(call: Call) -> object:
    """Return the description of all routes."""
    return openapi.document(call.base_url)


async def show_page(_: Call) -> object:
    """Return a page of all routes."""
    return Answer(openapi.page(), content_type="text/html; charset=utf-8")


ROUTES = (
    Route(
        "GET", "/topics/{topic}/events", follow, "Records as server-sent events", OURS, (
            Parameter("from", "string", "latest, earliest, or an offset (latest); a Last-Event-ID goes first"),
            Parameter("partition", "integer", "one partition (all)"),
            Parameter("format", "string", f"of keys and values: one of {', '.join(FORMATS)} (binary)"),
        ),
    ),
    Route("GET", "/openapi.json", show_openapi, "All routes, as OpenAPI 3.1 describes them", OURS),
    Route("GET", "/openapi", show_page, "All routes, as a page", OURS),
)  # fmt: skip
