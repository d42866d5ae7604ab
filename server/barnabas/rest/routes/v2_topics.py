"""Routes of v2: topics, partitions, brokers, records that are produced, and records of a partition without a consumer."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.client import ClientError, ResponseError, TopicPartition, open_consumer
from barnabas.client.admin import EARLIEST, LATEST, OffsetAt, PartitionInfo, Resource, TopicInfo
from barnabas.rest.base import V2, Answer, Call, Parameter, Route, Rows
from barnabas.rest.batches import View
from barnabas.rest.errors import (
    FORBIDDEN,
    PARTITION_NOT_FOUND,
    SERIALIZATION,
    TOPIC_NOT_FOUND,
    UNAUTHENTICATED,
    RestError,
)
from barnabas.rest.formats import BINARY, OF_TYPES, V2_TYPES, Batch, batch_of
from barnabas.rest.producing import produce_batch
from barnabas.rest.reading import READING, Source
from barnabas.sandbox.bodies import AT_ONCE_BYTES_MAX, VALUES_MAX, TooManyValuesError
from barnabas.wire.generated.errors import ErrorCode

COUNT_MAX = 1_000
"""Records of a partition in one response."""
READ_SECONDS = 5.0


async def root(_: Call) -> object:
    """Return an empty object, which shows that the server is alive."""
    return {}


async def list_topics(call: Call) -> object:
    """Return the names of all topics."""
    names: dict[str, None] = {}
    async for page in call.backend.admin.pages():
        names |= dict.fromkeys(topic.name for topic in page)
    return list(names)


async def topic_of(call: Call, name: str) -> TopicInfo:
    """Return a topic. Raises RestError, ClientError."""
    described = (await call.backend.admin.topics([name])).get(name)
    if isinstance(described, ResponseError) and described.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise RestError(404, TOPIC_NOT_FOUND, f"there is no topic {name[:80]!r}")
    if isinstance(described, ClientError):
        raise described
    if described is None:
        raise RestError(404, TOPIC_NOT_FOUND, f"there is no topic {name[:80]!r}")
    return described


async def partition_of(call: Call) -> PartitionInfo:
    """Return the partition of the path. Raises RestError, ClientError."""
    number = call.number("partition")
    topic = await topic_of(call, call.path["topic"])
    for partition in topic.partitions:
        if partition.number == number:
            return partition
    raise RestError(404, PARTITION_NOT_FOUND, f"topic {topic.name!r} has no partition {number}")


def _partition(partition: PartitionInfo) -> dict[str, Any]:
    return {
        "partition": partition.number,
        "leader": partition.leader,
        "replicas": [
            {
                "broker": broker,
                "leader": broker == partition.leader,
                "in_sync": broker in partition.in_sync,
            }
            for broker in partition.replicas
        ],
    }


async def show_topic(call: Call) -> object:
    """Return a topic with its settings and partitions."""
    topic = await topic_of(call, call.path["topic"])
    resource = Resource("topic", topic.name)
    entries = (await call.backend.admin.describe_configs([resource]))[resource]
    if isinstance(entries, ClientError):
        raise entries
    return {
        "name": topic.name,
        "configs": {entry.name: entry.value for entry in entries},
        "partitions": [_partition(partition) for partition in topic.partitions],
    }


async def list_partitions(call: Call) -> object:
    """Return the partitions of a topic."""
    topic = await topic_of(call, call.path["topic"])
    return [_partition(partition) for partition in topic.partitions]


async def show_partition(call: Call) -> object:
    """Return a partition."""
    return _partition(await partition_of(call))


async def bounds_of(call: Call, topic: str, number: int) -> tuple[int, int]:
    """Return the first offset of a partition, and that after its last record. Raises ClientError."""
    bounds = []
    for time in (EARLIEST, LATEST):
        offset = (await call.backend.admin.offsets({(topic, number): time}))[topic, number]
        if not isinstance(offset, OffsetAt):
            raise offset
        bounds.append(offset.offset)
    return bounds[0], bounds[1]


async def show_offsets(call: Call) -> object:
    """Return the start offset and the end offset of a partition."""
    partition = await partition_of(call)
    beginning, end = await bounds_of(call, call.path["topic"], partition.number)
    return {"beginning_offset": beginning, "end_offset": end}


async def list_messages(call: Call) -> object:
    """Return records of a partition from an offset on, without a consumer."""
    partition = await partition_of(call)
    topic, number = call.path["topic"], partition.number
    count = call.whole("count", 1, least=1, most=COUNT_MAX)
    beginning, end = await bounds_of(call, topic, number)
    offset = max(call.whole("offset", beginning), beginning)
    format_name = format_of_answer(call) or BINARY
    contents: list[bytes] = []
    if offset < end:
        async with open_consumer(
            call.backend.bootstrap, settings=READING, client_settings=call.backend.settings
        ) as consumer:
            place = TopicPartition(topic, number)
            consumer.assign([place])
            consumer.seek(place, offset)
            source = Source(call.backend, consumer, View(format_name))
            deadline = trio.current_time() + READ_SECONDS
            while len(contents) < count:
                row = await source.peek(deadline=deadline, ends={place: min(end, offset + count)})
                if row is None or (row.problem and contents):
                    break
                if row.problem:
                    raise RestError(408, SERIALIZATION, f"offset {row.offset}: {row.problem}")
                source.rows.popleft()
                contents.append(row.content)
    return Answer(rows_of(contents), content_type=f"application/vnd.kafka.{format_name}.v2+json")


def rows_of(contents: list[bytes]) -> Rows:
    """Return an array of records that are JSON already."""
    pieces = [b"["]
    for number, content in enumerate(contents):
        pieces += [content] if number == 0 else [b",", content]
    return Rows([*pieces, b"]"])


def format_of_answer(call: Call) -> str | None:
    """Return the format that the client accepts; None where it names none."""
    return next((V2_TYPES[name] for name in call.accepted if name in V2_TYPES), None)


async def list_brokers(call: Call) -> object:
    """Return the ids of all brokers."""
    cluster = await call.backend.admin.describe_cluster()
    return {"brokers": sorted(broker.broker_id for broker in cluster.brokers)}


# --- produce --------------------------------------------------------------------------------------------------


async def produce(call: Call) -> object:
    """Send records to a topic, or to one of its partitions; the content type is the format of keys and values."""
    format_name = V2_TYPES.get(call.content_type)
    if format_name is None:
        raise RestError(
            415,
            415,
            f"Content-Type is application/vnd.kafka.FORMAT.v2+json, FORMAT one of {', '.join(OF_TYPES)}",
        )
    partition = call.number("partition") if "partition" in call.path else None
    if not call.body:
        raise RestError(422, 422, "the request needs a body: an object with records")
    batch = await _batch(call, format_name)
    value = await produce_batch(call.backend, call.path["topic"], partition, format_name, batch)
    codes = {offset["error_code"] for offset in value["offsets"]}
    status = 401 if UNAUTHENTICATED in codes else 403 if FORBIDDEN in codes else 200
    return Answer(value, status)


async def _batch(call: Call, format_name: str) -> Batch:
    try:
        if len(call.body) <= AT_ONCE_BYTES_MAX:
            return batch_of(call.body, format_name)
        return await call.backend.sandbox.call(batch_of, call.body, format_name, owner=call.backend.owner)
    except (ValueError, RecursionError) as error:
        raise RestError(400, 400, f"the body is not JSON: {error}") from None
    except TooManyValuesError:
        raise RestError(413, 413, f"a body has at most {VALUES_MAX} values") from None


_BODY = (
    Parameter("records", "array", "objects with `value`, and perhaps `key` and `partition`"),
    Parameter("key_schema", "string", "the schema of keys, which is registered"),
    Parameter("key_schema_id", "integer", "or its id"),
    Parameter("value_schema", "string", "the schema of values, which is registered"),
    Parameter("value_schema_id", "integer", "or its id"),
)
ROUTES = (
    Route("GET", "/", root, "Nothing, which says that the server is there", V2),
    Route("POST", "/", root, "The same", V2),
    Route("GET", "/topics", list_topics, "Names of all topics", V2),
    Route("GET", "/topics/{topic}", show_topic, "A topic, its settings and its partitions", V2),
    Route(
        "POST", "/topics/{topic}", produce, "Produce records", V2, body=_BODY, has_formats=True
    ),
    Route("GET", "/topics/{topic}/partitions", list_partitions, "Partitions of a topic", V2),
    Route("GET", "/topics/{topic}/partitions/{partition}", show_partition, "A partition", V2),
    Route(
        "POST", "/topics/{topic}/partitions/{partition}", produce, "Produce records to a partition", V2, body=_BODY,
        has_formats=True,
    ),
    Route(
        "GET", "/topics/{topic}/partitions/{partition}/offsets", show_offsets, "The first offset, and that after the last",
        V2,
    ),
    Route(
        "GET", "/topics/{topic}/partitions/{partition}/messages", list_messages, "Records without a consumer, as in v1",
        V2, (
            Parameter("offset", "integer", "the first one (the first there is)"),
            Parameter("count", "integer", f"how many, at most {COUNT_MAX} (1)"),
        ), has_formats=True,
    ),
    Route("GET", "/brokers", list_brokers, "Ids of all brokers", V2),
)  # fmt: skip
