"""Stock clients of schema registries: Confluent's serialisers for all formats, with our broker and our registry."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory

from barnabas.registry.client import RegistryClient
from barnabas.registry.decoding import Deserializer
from barnabas.registry.formats import parse
from barnabas.registry.schemas import Schema as Ours
from barnabas.sandbox.pool import Sandbox
from tests.e2e.conftest import _start
from tests.support import odd_schemas

pytestmark = pytest.mark.e2e

SECONDS_MAX = 30
USER = '{"type":"record","name":"User","namespace":"n","fields":[{"name":"name","type":"string"}]}'
OLDER_USER = (
    '{"type":"record","name":"User","namespace":"n","fields":'
    '[{"name":"name","type":"string"},{"name":"age","type":"int","default":3}]}'
)
STRANGER = '{"type":"record","name":"User","namespace":"n","fields":[{"name":"other","type":"string"}]}'
COLOR = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Color", "enum": ["red", "blue"]}
CAR = {
    "$schema": "http://json-schema.org/draft-07/schema#", "title": "Car", "type": "object", "required": ["color"],
    "properties": {"color": {"$ref": "color.json"}, "doors": {"type": "integer"}}, "additionalProperties": False,
}  # fmt: skip
PLACE = 'syntax = "proto3"; package geo; message Place { string name = 1; }'
TRIP = """syntax = "proto3"; package geo; import "registry_test_place.proto"; import "google/protobuf/timestamp.proto";
message Trip { Place to = 1; google.protobuf.Timestamp at = 2; map<string, string> tags = 3; repeated Stop stops = 4;
message Stop { string name = 1; } }"""


class Stack:
    """A broker with its registry, as one command starts them."""

    def __init__(self, bootstrap: str, url: str, client: SchemaRegistryClient) -> None:
        self.bootstrap = bootstrap
        self.url = url
        self.client = client

    def exchanged(self, topic: str, *values: bytes) -> list[bytes]:
        """Send values through the broker."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(SECONDS_MAX) == 0
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        result: list[bytes] = []
        try:
            while len(result) < len(values):
                message = consumer.poll(SECONDS_MAX)
                assert message is not None
                assert message.error() is None
                result.append(message.value())
        finally:
            consumer.close()
        return result

    def decoded(self, *values: bytes) -> list[Any]:
        """Read values with our own client."""

        async def read() -> list[Any]:
            async with Sandbox() as sandbox:
                deserializer = Deserializer(RegistryClient(self.url), sandbox)
                return [await deserializer.decode(value) for value in values]

        return [None if value is None else (value.value, value.format) for value in trio.run(read)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    data = tmp_path_factory.mktemp("registry") / "data"
    broker = _start(data, "group.initial.rebalance.delay.ms=0", options=["--registry", "127.0.0.1:0"])
    with SchemaRegistryClient({"url": broker.registry_url}) as client:
        yield Stack(broker.bootstrap, broker.registry_url, client)
    assert broker.stop() == 0


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_evolves(stack: Stack) -> None:
    topic, client = "avro", stack.client
    old, new = AvroSerializer(client, USER), AvroSerializer(client, OLDER_USER)
    values = stack.exchanged(
        topic, old({"name": "ann"}, context(topic)), new({"name": "bob", "age": 7}, context(topic))
    )
    as_new = AvroDeserializer(client, OLDER_USER)
    assert [as_new(value, context(topic)) for value in values] == [
        {"name": "ann", "age": 3},
        {"name": "bob", "age": 7},
    ]
    assert [AvroDeserializer(client, USER)(value, context(topic)) for value in values] == [
        {"name": "ann"},
        {"name": "bob"},
    ]
    assert stack.decoded(*values, b"plain") == [
        ({"name": "ann"}, "AVRO"),
        ({"name": "bob", "age": 7}, "AVRO"),
        None,
    ]
    with pytest.raises(SchemaRegistryError) as refused:
        AvroSerializer(client, STRANGER)({"other": "x"}, context(topic))
    assert refused.value.http_status_code == 409
    assert client.get_versions(f"{topic}-value") == [1, 2]


def test_avro_refers_to_another_subject(stack: Stack) -> None:
    topic, client = "avro-references", stack.client
    client.register_schema("n.User", Schema(USER, "AVRO"))
    text = '{"type":"record","name":"Team","fields":[{"name":"lead","type":"n.User"}]}'
    schema = Schema(text, "AVRO", [SchemaReference("n.User", "n.User", 1)])
    [value] = stack.exchanged(
        topic, AvroSerializer(client, schema)({"lead": {"name": "ann"}}, context(topic))
    )
    assert AvroDeserializer(client)(value, context(topic)) == {"lead": {"name": "ann"}}
    assert stack.decoded(value) == [({"lead": {"name": "ann"}}, "AVRO")]
    assert client.lookup_schema(f"{topic}-value", schema).version == 1


def test_json_schemas_evolve_and_refer(stack: Stack) -> None:
    topic, client = "json", stack.client
    client.register_schema("color", Schema(json.dumps(COLOR), "JSON"))
    schema = Schema(json.dumps(CAR), "JSON", [SchemaReference("color.json", "color", 1)])
    [value] = stack.exchanged(topic, JSONSerializer(schema, client)({"color": "red"}, context(topic)))
    assert JSONDeserializer(schema, schema_registry_client=client)(value, context(topic)) == {"color": "red"}
    assert stack.decoded(value) == [({"color": "red"}, "JSON")]
    more = {**CAR, "properties": {**CAR["properties"], "seats": {"type": "integer"}}}  # type: ignore[dict-item]
    wider = Schema(json.dumps(more), "JSON", schema.references)
    assert client.test_compatibility(f"{topic}-value", wider)
    narrower = Schema(json.dumps({**CAR, "required": ["color", "doors"]}), "JSON", schema.references)
    assert not client.test_compatibility(f"{topic}-value", narrower)


def test_protobuf_with_what_it_imports(stack: Stack) -> None:
    topic, client = "protobuf", stack.client
    message_class = _compiled()
    message = message_class(to={"name": "Rome"}, tags={"k": "v"}, stops=[{"name": "Pisa"}])
    message.at.FromSeconds(1)
    options = {"use.deprecated.format": False}
    data = ProtobufSerializer(message_class, client, options)(message, context(topic))
    stop_class = message_factory.GetMessageClass(message_class.DESCRIPTOR.nested_types_by_name["Stop"])
    other = ProtobufSerializer(stop_class, client, options)(stop_class(name="Bari"), context(topic))
    values = stack.exchanged(topic, data, other)
    assert ProtobufDeserializer(message_class, options, client)(values[0], context(topic)) == message
    assert ProtobufDeserializer(stop_class, options, client)(values[1], context(topic)).name == "Bari"
    assert stack.decoded(*values) == [
        (
            {
                "to": {"name": "Rome"}, "at": "1970-01-01T00:00:01Z", "tags": {"k": "v"}, "stops": [{"name": "Pisa"}],
            },
            "PROTOBUF",
        ),
        ({"name": "Bari"}, "PROTOBUF"),
    ]  # fmt: skip
    assert (
        client.get_latest_version(f"{topic}-value").schema.references[0].name == "registry_test_place.proto"
    )


def _compiled() -> Any:
    """Return the class of a message, as protoc would generate it."""
    place = parse(Ours("PROTOBUF", PLACE)).file  # type: ignore[attr-defined]
    trip = parse(Ours("PROTOBUF", TRIP), [("registry_test_place.proto", PLACE)]).file  # type: ignore[attr-defined]
    pool = descriptor_pool.Default()
    for name, file in (("registry_test_place.proto", place), ("registry_test_trip.proto", trip)):
        file.name = name
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("geo.Trip"))


def test_the_client_that_administers(stack: Stack) -> None:
    client = stack.client
    client.register_schema("admin", Schema(USER, "AVRO"))
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("admin", "NONE")
    assert client.get_compatibility("admin") == "NONE"
    client.register_schema("admin", Schema(STRANGER, "AVRO"))
    assert client.get_latest_version("admin").version == 2
    assert "admin" in client.get_subjects()
    assert client.delete_version("admin", 1) == 1
    assert client.delete_subject("admin") == [2]
    assert client.delete_subject("admin", permanent=True) == [1, 2]
    assert "admin" not in client.get_subjects()


def test_broker_ends_while_schemas_are_worked_on(tmp_path: Path) -> None:
    """Small schemas that lead to very much hold up neither other requests nor the end."""
    broker = _start(tmp_path / "data", options=["--registry", "127.0.0.1:0"])
    slow = odd_schemas.protobuf_union("string", 20_000)
    body = json.dumps({"schemaType": "PROTOBUF", "schema": slow}).encode()

    def register(subject: str, content: bytes) -> int:
        url = f"{broker.registry_url}/subjects/{subject}/versions"
        asking = urllib.request.Request(url, content, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asking, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(register, f"slow{number}", body) for number in range(3)]
        time.sleep(1)
        assert register("quick", b'{"schema": "\\"int\\""}') == 200
        begin = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - begin < 10
        assert {future.result() for future in asked} <= {0, 422}
