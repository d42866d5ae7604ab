"""Routes of v2: consumer instances, their records and their commits."""

from __future__ import annotations

from typing import Any

from barnabas.client import OffsetAndMetadata
from barnabas.rest.base import INT32_MAX, INT64_MAX, V2, Answer, Call, Fields, Parameter, Route, checked_name
from barnabas.rest.errors import (
    FORMAT_MISMATCH,
    INVALID_CONSTRAINT,
    INVALID_CONSUMER,
    PARTITION_NOT_FOUND,
    RestError,
)
from barnabas.rest.formats import BINARY, OF_TYPES, WITH_SCHEMAS, timestamp_of
from barnabas.rest.instances import (
    REQUEST_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS_MAX,
    RESPONSE_BYTES_MAX,
    Instance,
    InstanceSettings,
)
from barnabas.rest.routes.v2_topics import format_of_answer, rows_of

PARTITIONS_MAX = 2_000
BYTES_MIN_MAX = 10_000_000
_RESETS = ("latest", "earliest", "none")
_NAMES = (
    "id", "name", "format", "auto.offset.reset", "auto.commit.enable", "fetch.min.bytes", "responseMinBytes",
    "consumer.request.timeout.ms", "requestWaitMs",
)  # fmt: skip


def _instance(call: Call) -> Instance:
    return call.instances.find(call.backend, call.path["group"], call.path["instance"])


async def create(call: Call) -> object:
    """Create a consumer instance in a group."""
    fields = await call.fields(*_NAMES, optional=True)
    settings = _settings_of(fields)
    name = fields.name("id", "") or fields.name("name", "")
    if settings.format_name in WITH_SCHEMAS:
        call.backend.registry()  # so that a missing registry fails early
    group = call.path["group"]
    name = await call.instances.create(call.backend, group, name, settings)
    return {"instance_id": name, "base_uri": call.url("consumers", group, "instances", name)}


def _settings_of(fields: Fields) -> InstanceSettings:
    format_name = fields.get("format", str, BINARY).lower()
    if format_name not in OF_TYPES:
        raise RestError(422, 422, f"format is one of {', '.join(OF_TYPES)}, not {format_name[:80]!r}")
    reset = fields.get("auto.offset.reset", str, "latest")
    if reset not in _RESETS:
        raise RestError(422, INVALID_CONSUMER, f"auto.offset.reset is one of {', '.join(_RESETS)}")
    commits = fields.any("auto.commit.enable")
    text = str(True if commits is None else commits).lower()
    if text not in ("true", "false"):
        raise RestError(422, INVALID_CONSUMER, "auto.commit.enable is true or false")
    bytes_min = _number(fields, "fetch.min.bytes", "responseMinBytes")
    if bytes_min is not None and not -1 <= bytes_min <= BYTES_MIN_MAX:
        raise RestError(422, INVALID_CONSTRAINT, f"fetch.min.bytes is a number from -1 to {BYTES_MIN_MAX}")
    timeout_ms = _number(fields, "consumer.request.timeout.ms", "requestWaitMs")
    timeout_ms = REQUEST_TIMEOUT_MS if timeout_ms is None else timeout_ms
    if not 0 <= timeout_ms <= REQUEST_TIMEOUT_MS_MAX:
        raise RestError(
            422,
            INVALID_CONSUMER,
            f"consumer.request.timeout.ms is a number from 0 to {REQUEST_TIMEOUT_MS_MAX}",
        )
    return InstanceSettings(
        format_name, reset, text == "true", None if bytes_min in (None, -1) else bytes_min, timeout_ms
    )


def _number(fields: Fields, *names: str) -> int | None:
    """Return a number, which may be written as a text. Raises RestError."""
    value = next((fields.any(name) for name in names if fields.any(name) is not None), None)
    if value is None:
        return None
    try:
        if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 20:
            raise ValueError
        return int(value)
    except ValueError:
        raise RestError(400, 400, f"{names[0]} is a whole number") from None


async def delete(call: Call) -> object:
    """Delete a consumer instance."""
    call.instances.delete(call.backend, call.path["group"], call.path["instance"])
    return None


async def subscribe(call: Call) -> object:
    """Subscribe to topics, by name or by a pattern."""
    instance = _instance(call)
    fields = await call.fields("topics", "topic_pattern")
    topics, pattern = fields.get("topics", list, []), fields.get("topic_pattern", str, "")
    if bool(topics) == bool(pattern) or not all(isinstance(topic, str) and topic for topic in topics):
        raise RestError(422, 422, "topics is an array of names; topic_pattern goes without them")
    if len(topics) > PARTITIONS_MAX:
        raise RestError(413, 413, f"a subscription has at most {PARTITIONS_MAX} topics")
    names = [checked_name(topic, "a topic") for topic in topics]
    await instance.subscribe(tuple(dict.fromkeys(names)), pattern)
    return None


async def show_subscription(call: Call) -> object:
    """Return the topics that an instance has subscribed to."""
    return {"topics": await _instance(call).subscription()}


async def unsubscribe(call: Call) -> object:
    """End the subscription of an instance."""
    await _instance(call).unsubscribe()
    return None


def _places(values: Any, *names: str) -> list[tuple[tuple[str, int], Fields]]:
    """Return the partitions of an array, with the other fields of each. Raises RestError."""
    if not isinstance(values, list):
        raise RestError(422, 422, "an array of partitions is expected")
    if len(values) > PARTITIONS_MAX:
        raise RestError(413, 413, f"a request has at most {PARTITIONS_MAX} partitions")
    places = []
    for value in values:
        fields = Fields(value, "topic", "partition", *names, what="a partition")
        topic = fields.name("topic")
        if not topic:
            raise RestError(422, 422, "topic is not empty")
        places.append(((topic, fields.whole("partition", most=INT32_MAX)), fields))
    return places


async def assign(call: Call) -> object:
    """Assign partitions explicitly."""
    instance = _instance(call)
    fields = await call.fields("partitions")
    await instance.assign([place for place, _ in _places(fields.get("partitions", list))])
    return None


async def show_assignment(call: Call) -> object:
    """Return the partitions that an instance has."""
    places = sorted((await _instance(call).consumer()).assignment)
    return {"partitions": [{"topic": topic, "partition": number} for topic, number in places]}


async def seek(call: Call) -> object:
    """Read on at offsets, or at times."""
    instance = _instance(call)
    fields = await call.fields("offsets", "timestamps")
    offsets: dict[tuple[str, int], int | str] = {
        place: more.whole("offset", most=INT64_MAX)
        for place, more in _places(fields.get("offsets", list, []), "offset", "metadata")
    }
    times = {
        place: more.get("timestamp", str)
        for place, more in _places(fields.get("timestamps", list, []), "timestamp", "metadata")
    }
    if times:
        consumer = await instance.consumer()
        offsets_at = await consumer.offsets_for_times(
            {place: timestamp_of(text) for place, text in times.items()}
        )
        for place, at in offsets_at.items():
            offsets[place] = "latest" if at is None else at.offset
    await instance.seek(offsets)
    return None


async def _seek_all(call: Call, where: str) -> object:
    instance = _instance(call)
    fields = await call.fields("partitions")
    await instance.seek({place: where for place, _ in _places(fields.get("partitions", list))})
    return None


async def seek_to_beginning(call: Call) -> object:
    """Read on at the first offsets."""
    return await _seek_all(call, "earliest")


async def seek_to_end(call: Call) -> object:
    """Read on at the ends."""
    return await _seek_all(call, "latest")


async def read_records(call: Call) -> object:
    """Return the next records of an instance."""
    instance = _instance(call)
    settings = instance.settings
    accepted = format_of_answer(call)
    if accepted is not None and accepted != settings.format_name:
        raise RestError(
            406, FORMAT_MISMATCH, f"the instance reads {settings.format_name}, and Accept asks for {accepted}"
        )
    timeout_ms = call.whole("timeout", -1, least=-INT64_MAX)
    timeout_ms = settings.timeout_ms if timeout_ms <= 0 else min(timeout_ms, settings.timeout_ms)
    bytes_max = call.whole("max_bytes", -1, least=-INT64_MAX)
    bytes_max = RESPONSE_BYTES_MAX if bytes_max <= 0 else min(bytes_max, RESPONSE_BYTES_MAX)
    contents = await instance.records(timeout_ms, bytes_max)
    return Answer(rows_of(contents), content_type=f"application/vnd.kafka.{settings.format_name}.v2+json")


async def commit(call: Call) -> object:
    """Commit all that was read, or the offsets of records that are done with."""
    instance = _instance(call)
    value = await call.json()
    if value is None:
        await instance.commit(None)
        return []
    fields = Fields(value, "offsets")
    offsets = {}
    for place, more in _places(fields.get("offsets", list), "offset", "metadata"):
        offset = more.whole("offset", most=INT64_MAX - 1)
        offsets[place] = OffsetAndMetadata(offset + 1, metadata=more.name("metadata", ""))
    await instance.commit(offsets)
    return []


async def show_committed(call: Call) -> object:
    """Return the group's committed offsets of partitions."""
    instance = _instance(call)
    value = await call.json()
    if value is None:
        raise RestError(404, PARTITION_NOT_FOUND, "the body names the partitions: an object of partitions")
    places = [place for place, _ in _places(Fields(value, "partitions").get("partitions", list))]
    committed = await (await instance.consumer()).committed(places)
    return {
        "offsets": [
            {"topic": topic, "partition": number, "offset": at.offset, "metadata": at.metadata}
            for (topic, number), at in committed.items()
            if at is not None
        ]
    }


_AT = "/consumers/{group}/instances/{instance}"
_PARTITIONS = (Parameter("partitions", "array", "objects with `topic` and `partition`"),)
_OFFSETS = Parameter(
    "offsets", "array", "objects with `topic`, `partition`, `offset`, and perhaps `metadata`"
)
ROUTES = (
    Route(
        "POST", "/consumers/{group}", create, "Create a consumer instance", V2,
        body=(
            Parameter("name", "string", "its name (a new one)"),
            Parameter("format", "string", f"one of {', '.join(OF_TYPES)} (binary)"),
            Parameter("auto.offset.reset", "string", "latest, earliest or none (latest)"),
            Parameter("auto.commit.enable", "string", "whether offsets are committed by themselves (true)"),
            Parameter("fetch.min.bytes", "integer", "bytes that a read waits for (-1: what comes in its time)"),
            Parameter("consumer.request.timeout.ms", "integer", f"time that a read waits ({REQUEST_TIMEOUT_MS})"),
        ), has_formats=True,
    ),
    Route("DELETE", _AT, delete, "Delete an instance", V2, status=204, has_formats=True),
    Route(
        "POST", f"{_AT}/subscription", subscribe, "Subscribe to topics", V2, status=204, has_formats=True,
        body=(
            Parameter("topics", "array", "names"),
            Parameter("topic_pattern", "string", "or a regular expression, as Java has them"),
        ),
    ),
    Route("GET", f"{_AT}/subscription", show_subscription, "Topics of the subscription", V2, has_formats=True),
    Route("DELETE", f"{_AT}/subscription", unsubscribe, "End the subscription", V2, status=204, has_formats=True),
    Route(
        "POST", f"{_AT}/assignments", assign, "Assign partitions by hand", V2, body=_PARTITIONS, status=204,
        has_formats=True,
    ),
    Route("GET", f"{_AT}/assignments", show_assignment, "Partitions that it has", V2, has_formats=True),
    Route(
        "POST", f"{_AT}/positions", seek, "Read on at offsets", V2, status=204, has_formats=True,
        body=(_OFFSETS, Parameter("timestamps", "array", "objects with `topic`, `partition` and `timestamp` (ISO 8601)")),
    ),
    Route(
        "POST", f"{_AT}/positions/beginning", seek_to_beginning, "Read on at the first offsets", V2, body=_PARTITIONS,
        status=204, has_formats=True,
    ),
    Route(
        "POST", f"{_AT}/positions/end", seek_to_end, "Read on at the ends", V2, body=_PARTITIONS, status=204,
        has_formats=True,
    ),
    Route(
        "GET", f"{_AT}/records", read_records, "The next records", V2, (
            Parameter("timeout", "integer", "ms to wait, at most the instance's"),
            Parameter("max_bytes", "integer", f"bytes of keys and values ({RESPONSE_BYTES_MAX})"),
        ), has_formats=True,
    ),
    Route(
        "POST", f"{_AT}/offsets", commit, "Commit what was read, or offsets of records that are done with", V2,
        body=(_OFFSETS,), has_formats=True,
    ),
    Route(
        "GET", f"{_AT}/offsets", show_committed, "What the group has committed, of the body's partitions", V2,
        body=_PARTITIONS, has_formats=True,
    ),
)  # fmt: skip
