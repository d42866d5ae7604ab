"""The cases with FastStream on aiokafka, and the client of registries that its users take for schemas."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from faststream.kafka import KafkaBroker, KafkaMessage
from harness import Cases
from schema_registry.client import AsyncSchemaRegistryClient, schema
from schema_registry.client.errors import ClientError
from schema_registry.serializers import AsyncAvroMessageSerializer, AsyncJsonMessageSerializer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from names import CASES, COUNT, bootstrap, text_of, users, written_by_others

SECONDS_MAX = 60
NO_PROTOBUF = "python-schema-registry-client 2.6 knows Avro and JSON Schema alone"
NO_REFERENCES = "python-schema-registry-client 2.6 has no references"
cases = Cases(names=CASES, lacks={"protobuf": NO_PROTOBUF, "references": NO_REFERENCES})
SERIALIZERS = {"avro": AsyncAvroMessageSerializer, "json": AsyncJsonMessageSerializer}
SCHEMAS = {"AVRO": schema.AvroSchema, "JSON": schema.JsonSchema}


def client() -> AsyncSchemaRegistryClient:
    return AsyncSchemaRegistryClient(url=cases.bootstrap)


async def send(topic: str, values: list[Any], serializer: Any, parsed: Any) -> None:
    async with KafkaBroker(bootstrap()) as broker:
        await broker.start()
        for value in values:
            data = await serializer.encode_record_with_schema(f"{topic}-value", parsed, value)
            await broker.publish(data, topic)


async def receive(topic: str, count: int, serializer: Any) -> list[Any]:
    """Read with a subscriber and its decoder, which asks the registry."""
    values: list[Any] = []
    whole = asyncio.Event()

    async def decode(message: KafkaMessage) -> Any:
        return await serializer.decode_message(message.body)

    broker = KafkaBroker(bootstrap())

    @broker.subscriber(
        topic, group_id=cases.topic(f"of-{topic}"), auto_offset_reset="earliest", decoder=decode
    )
    async def handle(value: Any) -> None:
        values.append(value)
        if len(values) >= count:
            whole.set()

    async with broker:
        await broker.start()
        await asyncio.wait_for(whole.wait(), SECONDS_MAX)
    return sorted(values, key=lambda row: row["age"])


async def _exchange(topic: str, form: str, parsed: Any) -> str:
    serializer = SERIALIZERS[form](client())
    await send(topic, users(), serializer, parsed)
    assert await receive(topic, COUNT, serializer) == users()
    return f"{COUNT} records"


@cases.case("avro")
def avro() -> str:
    return asyncio.run(_exchange(cases.topic("avro"), "avro", schema.AvroSchema(text_of("user.avsc"))))


@cases.case("json")
def json_schema() -> str:
    return asyncio.run(_exchange(cases.topic("json"), "json", schema.JsonSchema(text_of("user.json"))))


async def _evolution() -> str:
    topic, registry = cases.topic("evolution"), client()
    serializer = AsyncAvroMessageSerializer(registry)
    wider = schema.AvroSchema(text_of("user-wider.avsc"))
    values = [{**user, "email": "a@b"} for user in users(COUNT)]
    await send(topic, users(), serializer, schema.AvroSchema(text_of("user.avsc")))
    await send(topic, values, serializer, wider)
    assert (await registry.get_versions(f"{topic}-value")) == [1, 2]
    as_wider = AsyncAvroMessageSerializer(client(), reader_schema=wider.schema)
    assert await receive(topic, 2 * COUNT, as_wider) == [{**row, "email": "none"} for row in users()] + values
    return "two versions, both read as the second"


@cases.case("evolution")
def evolution() -> str:
    return asyncio.run(_evolution())


async def _refusal() -> str:
    registry = client()
    for form, first, breaking in (
        ("AVRO", "user.avsc", "user-breaking.avsc"),
        ("JSON", "user.json", "user-breaking.json"),
    ):
        subject, kind = f"{cases.topic('refusal')}-{form}", SCHEMAS[form]
        await registry.register(subject, kind(text_of(first)), schema_type=form)
        assert not await registry.test_compatibility(subject, kind(text_of(breaking)), schema_type=form)
        try:
            await registry.register(subject, kind(text_of(breaking)), schema_type=form)
        except ClientError as error:
            assert error.http_code == 409, error
        else:
            raise AssertionError(f"{form}: it was taken")
    return "409 in two formats"


@cases.case("refusal")
def refusal() -> str:
    return asyncio.run(_refusal())


async def _administration() -> str:
    registry, subject = client(), cases.topic("administration")
    first = schema.AvroSchema(text_of("user.avsc"))
    schema_id = await registry.register(subject, first)
    assert await registry.get_compatibility() == "BACKWARD"
    assert await registry.update_compatibility("NONE", subject)
    assert await registry.get_compatibility(subject) == "NONE"
    await registry.register(subject, schema.AvroSchema(text_of("user-breaking.avsc")))
    version = await registry.check_version(subject, first)
    assert version is not None
    assert (version.schema_id, version.version) == (schema_id, 1)
    assert subject in await registry.get_subjects()
    assert await registry.delete_version(subject, 1) == 1
    assert await registry.delete_subject(subject) == [2]
    return "levels, versions, deletion"


@cases.case("administration")
def administration() -> str:
    return asyncio.run(_administration())


async def _interop() -> str:
    chosen = written_by_others(tuple(SERIALIZERS))
    for topic, form in chosen:
        assert await receive(topic, COUNT, SERIALIZERS[form](client())) == users(), topic
    return f"{len(chosen)} topics of others"


@cases.case("interop")
def interop() -> str:
    return asyncio.run(_interop())


cases.main()
