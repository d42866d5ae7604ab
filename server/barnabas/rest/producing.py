"""Producing of requests' records: serialized by their schemas, sent, acknowledged.

The rule: a record has its own outcome; an invalid record does not prevent others from being sent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from barnabas.client import ClientError, ResponseError, TimedOutError
from barnabas.registry.errors import RegistryError, SchemaError
from barnabas.registry.schemas import Schema
from barnabas.rest.errors import (
    INVALID_SCHEMA,
    KEY_SCHEMA_MISSING,
    PARTITION_NOT_FOUND,
    TOPIC_NOT_FOUND,
    VALUE_SCHEMA_MISSING,
    RestError,
)
from barnabas.rest.formats import (
    BINARY,
    BY_REGISTRYS,
    WITH_SCHEMAS,
    Batch,
    Data,
    Unwritten,
    V3Data,
    V3Record,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client import Delivery, Producer, RecordMetadata
    from barnabas.registry.encoding import Serializer
    from barnabas.rest.backend import Backend


class Sent(NamedTuple):
    """A record that was sent."""

    delivery: Delivery
    key_size: int
    value_size: int


class Written(NamedTuple):
    """A key or value as bytes, the format, and the schema that has written it, if any: subject, id, version."""

    data: bytes | None
    format_name: str
    subject: str = ""
    schema_id: int | None = None
    version: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return its v3 result."""
        described: dict[str, Any] = {"type": self.format_name.upper(), "size": len(self.data or b"")}
        if self.schema_id is not None:
            described |= {
                "subject": self.subject, "schema_id": self.schema_id, "schema_version": self.version,
            }  # fmt: skip
        return described


async def send(
    backend: Backend,
    topic: str,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp_ms: int | None = None,
) -> Delivery:
    """Enqueue a record. Raises RestError, ClientError."""
    producer = await backend.producer()
    try:
        return await producer.send(
            topic, value, key=key, headers=list(headers), partition=partition, timestamp_ms=timestamp_ms
        )
    except ValueError:
        raise RestError(404, PARTITION_NOT_FOUND, f"topic {topic!r} has no partition {partition}") from None
    except TimedOutError as error:
        raise await _missing(backend, topic) or error from None
    except ResponseError:
        raise
    except ClientError:
        backend.drop_producer(producer)
        raise


async def _missing(backend: Backend, topic: str) -> RestError | None:
    """Return the error for a missing topic, None for an existing one."""
    described = (await backend.admin.topics([topic])).get(topic)
    if isinstance(described, ResponseError) and described.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return RestError(404, TOPIC_NOT_FOUND, f"there is no topic {topic!r}")
    return None


async def check_topic(backend: Backend, topic: str, partition: int | None = None) -> Producer:
    """Check that a topic and a partition exist; the topic is created if the broker creates topics automatically.

    Returns the producer. Raises RestError, ClientError.
    """
    producer = await backend.producer()
    try:
        with trio.fail_after(3.0):
            partitions = await producer.partitions(topic)
    except (trio.TooSlowError, TimedOutError):
        raise (
            await _missing(backend, topic)
            or RestError(500, 50003, f"the broker does not say in time what partitions topic {topic!r} has")
        ) from None
    if partition is not None and partition not in partitions:
        raise RestError(404, PARTITION_NOT_FOUND, f"topic {topic!r} has no partition {partition}")
    return producer


# --- schemas --------------------------------------------------------------------------------------------------


class Writer(NamedTuple):
    """A serializer with the schema's place in the registry."""

    serializer: Serializer
    format_name: str
    subject: str
    schema_id: int
    version: int | None


def subject_of(topic: str, *, is_key: bool) -> str:
    """Return the subject of a topic's keys or values."""
    return f"{topic}-key" if is_key else f"{topic}-value"


async def writer_of(
    backend: Backend,
    topic: str,
    *,
    is_key: bool,
    format_name: str | None = None,
    text: str | None = None,
    schema_id: int | None = None,
    version: int | None = None,
    subject: str | None = None,
    strategy: str | None = None,
) -> Writer:
    """Return the writer by a schema: of a text, which is registered, of an id or a version, else the newest.

    Raises RestError, RegistryError, SchemaError.
    """
    from barnabas.registry.decoding import source_of
    from barnabas.registry.encoding import Serializer

    registry, sandbox = backend.registry(), backend.sandbox
    name = subject or subject_of(topic, is_key=is_key)
    if strategy in ("RECORD_NAME", "TOPIC_RECORD_NAME") and schema_id is None:
        name = _subject_by_record(topic, strategy, text)
    try:
        if text is not None:
            assert format_name is not None
            schema = Schema(WITH_SCHEMAS[format_name], text)
            serializer = await Serializer.of_schema(registry, name, schema, sandbox)
            registered = await registry.lookup(name, schema)
            return Writer(serializer, format_name, name, registered.id, registered.version)
        if schema_id is not None:
            schema = await registry.schema(schema_id)
            return Writer(
                await Serializer.of_id(registry, schema_id, sandbox),
                BY_REGISTRYS.get(schema.format, schema.format.lower()),
                name,
                schema_id,
                await _version_of(backend, name, schema),
            )
        registered = await (registry.latest(name) if version is None else registry.version(name, version))
    except RegistryError as error:
        if error.code in (42201, 42202):
            raise RestError(422, INVALID_SCHEMA, error.message) from None
        raise
    source = await source_of(registry, registered.schema)
    return Writer(
        Serializer(registered.id, source, sandbox),
        BY_REGISTRYS.get(registered.schema.format, registered.schema.format.lower()),
        name,
        registered.id,
        registered.version,
    )


def _subject_by_record(topic: str, strategy: str, text: str | None) -> str:
    """Return a subject by the name of the record in a schema of Avro. Raises RestError."""
    try:
        schema = json.loads(text or "")
        namespace, name = schema.get("namespace"), schema["name"]
        full_name = f"{namespace}.{name}" if namespace and "." not in name else str(name)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RestError(
            400, 400, f"subject_name_strategy={strategy} needs the text of a schema that names its record"
        ) from None
    return full_name if strategy == "RECORD_NAME" else f"{topic}-{full_name}"


async def _version_of(backend: Backend, subject: str, schema: Schema) -> int | None:
    try:
        return (await backend.registry().lookup(subject, schema)).version
    except RegistryError:
        return None  # of another subject


# --- v2 -------------------------------------------------------------------------------------------------------


async def produce_batch(
    backend: Backend, topic: str, partition: int | None, format_name: str, batch: Batch
) -> dict[str, Any]:
    """Send the records of a v2 request; returns its answer. Raises RestError, ClientError, RegistryError, SchemaError."""
    await check_topic(backend, topic, partition)
    key_writer = value_writer = None
    if format_name in WITH_SCHEMAS:
        for is_key, text, schema_id in (
            (True, batch.key_schema, batch.key_schema_id),
            (False, batch.value_schema, batch.value_schema_id),
        ):
            if text is None and schema_id is None:
                continue
            writer = await writer_of(
                backend,
                topic,
                is_key=is_key,
                format_name=format_name,
                text=text if schema_id is None else None,
                schema_id=schema_id,
            )
            key_writer, value_writer = (writer, value_writer) if is_key else (key_writer, writer)
    keys = await _written(backend, [record.key for record in batch.records], key_writer, is_key=True)
    values = await _written(backend, [record.value for record in batch.records], value_writer, is_key=False)
    outcomes: list[Delivery | Exception] = []
    for record, key, value in zip(batch.records, keys, values, strict=True):
        try:
            number = record.partition if partition is None else partition
            outcomes.append(await send(backend, topic, number, key, value))
        except (RestError, ClientError) as error:
            outcomes.append(error)
    offsets = [await _offset(outcome) for outcome in outcomes]
    return {
        "offsets": offsets,
        "key_schema_id": None if key_writer is None else key_writer.schema_id,
        "value_schema_id": None if value_writer is None else value_writer.schema_id,
    }


async def _offset(outcome: Delivery | Exception) -> dict[str, Any]:
    from barnabas.rest.errors import failure_of

    try:
        if isinstance(outcome, Exception):
            raise outcome
        metadata = await outcome.wait()
    except (RestError, ClientError) as error:
        failure = failure_of(error, "producing")
        return {"partition": None, "offset": None, "error_code": failure.code, "error": failure.text}
    return {
        "partition": metadata.partition, "offset": metadata.offset, "error_code": None, "error": None,
    }  # fmt: skip


async def _written(
    backend: Backend, datas: Sequence[Data], writer: Writer | None, *, is_key: bool
) -> list[bytes | None]:
    """Return keys or values as bytes. Raises RestError, for the first that its schema does not write."""
    texts = [data.text for data in datas if isinstance(data, Unwritten)]
    if not texts:
        return [data if isinstance(data, bytes) else None for data in datas]
    if writer is None:
        what = "key" if is_key else "value"
        raise RestError(
            422,
            KEY_SCHEMA_MISSING if is_key else VALUE_SCHEMA_MISSING,
            f"there are {what}s, and no {what}_schema or {what}_schema_id",
        )
    payloads = iter(await writer.serializer.encode_many(texts, owner=backend.owner))
    results: list[bytes | None] = []
    for data in datas:
        payload = next(payloads) if isinstance(data, Unwritten) else data
        if isinstance(payload, SchemaError):
            raise RestError(400, 400, f"a {'key' if is_key else 'value'} does not fit its schema: {payload}")
        results.append(payload)
    return results


# --- v3 -------------------------------------------------------------------------------------------------------


class Acknowledged(NamedTuple):
    """An accepted v3 record; `wait` for its acknowledgement."""

    record: V3Record
    delivery: Delivery
    key: Written | None
    value: Written | None


class Writers:
    """Schemas of one stream of v3 records; each is looked up once."""

    def __init__(self, backend: Backend, topic: str) -> None:
        self._backend = backend
        self._topic = topic
        self._writers: dict[tuple[object, ...], Writer] = {}

    async def write(self, data: V3Data | None, *, is_key: bool) -> Written | None:
        """Return a key or value as bytes. Raises RestError, RegistryError, SchemaError."""
        if data is None:
            return None
        if data.format_name is not None and data.format_name not in WITH_SCHEMAS:
            assert not isinstance(data.data, Unwritten)
            return Written(data.data, data.format_name)
        is_named = any(
            part is not None
            for part in (data.subject, data.strategy, data.schema_id, data.version, data.schema)
        )
        if data.data is None and not is_named:
            return Written(None, BINARY)
        writer = await self._writer(data, is_key=is_key)
        payload: bytes | None = None
        if isinstance(data.data, Unwritten):
            try:
                payload = await writer.serializer.encode(data.data.text, owner=self._backend.owner)
            except SchemaError as error:
                what = "key" if is_key else "value"
                raise RestError(400, 400, f"the {what} does not fit its schema: {error}") from None
        return Written(payload, writer.format_name, writer.subject, writer.schema_id, writer.version)

    async def _writer(self, data: V3Data, *, is_key: bool) -> Writer:
        place = (is_key, *data[:-1])
        if place not in self._writers:
            if len(self._writers) >= 100:
                self._writers.clear()
            self._writers[place] = await writer_of(
                self._backend,
                self._topic,
                is_key=is_key,
                format_name=data.format_name,
                text=data.schema,
                schema_id=data.schema_id,
                version=data.version,
                subject=data.subject,
                strategy=data.strategy,
            )
        return self._writers[place]


async def take(backend: Backend, topic: str, record: V3Record, writers: Writers) -> Acknowledged:
    """Enqueue a v3 record. Raises RestError, ClientError, RegistryError, SchemaError."""
    key = await writers.write(record.key, is_key=True)
    value = await writers.write(record.value, is_key=False)
    delivery = await send(
        backend,
        topic,
        record.partition,
        None if key is None else key.data,
        None if value is None else value.data,
        record.headers,
        record.timestamp_ms,
    )
    return Acknowledged(record, delivery, key, value)


async def outcome_of(cluster_id: str, topic: str, taken: Acknowledged) -> dict[str, Any]:
    """Return the v3 result of a record, once it is acknowledged. Raises ClientError."""
    metadata: RecordMetadata = await taken.delivery.wait()
    result: dict[str, Any] = {
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": metadata.partition,
        "offset": metadata.offset,
        "timestamp": time_text(metadata.timestamp_ms),
    }
    for name, written in (("key", taken.key), ("value", taken.value)):
        if written is not None:
            result[name] = written.plain()
    return result


def time_text(timestamp_ms: int) -> str:
    """Return a time (ms since 1970) as ISO 8601 writes it."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
