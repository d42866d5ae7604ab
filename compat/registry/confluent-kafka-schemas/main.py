"""The cases with Confluent's client of registries and its serialisers of all formats."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict
from harness import Cases

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from names import CASES, COUNT, bootstrap, text_of, users, written_by_others

SECONDS_MAX = 60
cases = Cases(names=CASES)
Coder = Callable[[Any, SerializationContext], Any]


def client() -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": cases.bootstrap})


def exchange(topic: str, values: list[Any], write: Coder, read: Coder) -> list[Any]:
    """Write values to a topic, and read it from its beginning."""
    producer = Producer({"bootstrap.servers": bootstrap()})
    context = SerializationContext(topic, MessageField.VALUE)
    for value in values:
        producer.produce(topic, write(value, context))
    assert producer.flush(SECONDS_MAX) == 0
    return read_all(topic, len(values), read)


def read_all(topic: str, count: int, read: Coder) -> list[Any]:
    settings = {
        "bootstrap.servers": bootstrap(),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer({**settings, "group.id": cases.topic(f"of-{topic}")})
    consumer.subscribe([topic])
    values = []
    context = SerializationContext(topic, MessageField.VALUE)
    try:
        while len(values) < count:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"{len(values)} of {count} records"
            assert message.error() is None, message.error()
            values.append((message.partition(), message.offset(), read(message.value(), context)))
    finally:
        consumer.close()
    return [value for _, _, value in sorted(values, key=lambda row: row[:2])]


def same(values: list[Any], expected: list[Any]) -> None:
    """See that what was read is what was written; partitions may have mixed it."""
    assert sorted(values, key=lambda value: value["age"]) == expected, values[:3]


@cases.case("avro")
def avro() -> str:
    topic, registry = cases.topic("avro"), client()
    write, read = AvroSerializer(registry, text_of("user.avsc")), AvroDeserializer(registry)
    same(exchange(topic, users(), write, read), users())
    return f"{COUNT} records"


@cases.case("json")
def json_schema() -> str:
    topic, registry, text = cases.topic("json"), client(), text_of("user.json")
    write, read = JSONSerializer(text, registry), JSONDeserializer(text)
    same(exchange(topic, users(), write, read), users())
    return f"{COUNT} records"


def message_class() -> Any:
    """The class that protoc would make of user.proto."""
    file = descriptor_pb2.FileDescriptorProto(name="user.proto", package="compat", syntax="proto3")
    message = file.message_type.add(name="User")
    optional = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    message.field.add(
        name="name", number=1, label=optional, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    )
    message.field.add(
        name="age", number=2, label=optional, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("compat.User"))


def as_user(message: Any) -> dict[str, Any]:
    return MessageToDict(message, always_print_fields_with_no_presence=True)


@cases.case("protobuf")
def protobuf() -> str:
    topic, registry, user = cases.topic("protobuf"), client(), message_class()
    options = {"use.deprecated.format": False}
    write, read = ProtobufSerializer(user, registry, options), ProtobufDeserializer(user, options)
    values = exchange(topic, [user(**row) for row in users()], write, read)
    same([as_user(value) for value in values], users())
    return f"{COUNT} records"


@cases.case("evolution")
def evolution() -> str:
    topic, registry = cases.topic("evolution"), client()
    first, wider = (
        AvroSerializer(registry, text_of("user.avsc")),
        AvroSerializer(registry, text_of("user-wider.avsc")),
    )
    read = AvroDeserializer(registry, text_of("user-wider.avsc"))
    same(exchange(topic, users(), first, read), [{**user, "email": "none"} for user in users()])
    values = [{**user, "email": "a@b"} for user in users(COUNT)]
    producer = Producer({"bootstrap.servers": bootstrap()})
    for value in values:
        producer.produce(topic, wider(value, SerializationContext(topic, MessageField.VALUE)))
    assert producer.flush(SECONDS_MAX) == 0
    same(read_all(topic, 2 * COUNT, read), [{**user, "email": "none"} for user in users()] + values)
    same(read_all(topic, 2 * COUNT, AvroDeserializer(registry, text_of("user.avsc"))), users() + users(COUNT))
    assert registry.get_versions(f"{topic}-value") == [1, 2]
    return "two versions, each read as the other"


@cases.case("refusal")
def refusal() -> str:
    registry = client()
    for form, first, breaking in (
        ("AVRO", "user.avsc", "user-breaking.avsc"),
        ("JSON", "user.json", "user-breaking.json"),
        ("PROTOBUF", "user.proto", "user-breaking.proto"),
    ):
        subject = f"{cases.topic('refusal')}-{form}"
        registry.register_schema(subject, Schema(text_of(first), form))
        assert not registry.test_compatibility(subject, Schema(text_of(breaking), form)), form
        try:
            registry.register_schema(subject, Schema(text_of(breaking), form))
        except SchemaRegistryError as error:
            assert (error.http_status_code, error.error_code) == (409, 40901), error
        else:
            raise AssertionError(f"{form}: it was taken")
        try:
            registry.register_schema(f"{subject}-broken", Schema("{", form))
        except SchemaRegistryError as error:
            assert error.error_code == 42201, error
        else:
            raise AssertionError(f"{form}: nonsense was taken")
    return "409, and 42201 for what is no schema, in three formats"


@cases.case("references")
def references() -> str:
    topic, registry = cases.topic("references"), client()
    registry.register_schema(f"{topic}-user", Schema(text_of("user.avsc"), "AVRO"))
    refers = Schema(text_of("team.avsc"), "AVRO", [SchemaReference("compat.User", f"{topic}-user", 1)])
    values = [{"lead": user} for user in users()]
    read_back = exchange(topic, values, AvroSerializer(registry, refers), AvroDeserializer(registry))
    same([value["lead"] for value in read_back], users())
    return "Avro, of another subject"


@cases.case("administration")
def administration() -> str:
    registry, subject = client(), cases.topic("administration")
    registry.register_schema(subject, Schema(text_of("user.avsc"), "AVRO"))
    assert registry.get_compatibility() == "BACKWARD"
    registry.set_compatibility(subject, "NONE")
    assert registry.get_compatibility(subject) == "NONE"
    schema_id = registry.register_schema(subject, Schema(text_of("user-breaking.avsc"), "AVRO"))
    assert (
        registry.lookup_schema(subject, Schema(text_of("user-breaking.avsc"), "AVRO")).schema_id == schema_id
    )
    assert json.loads(registry.get_schema(schema_id).schema_str)["name"] == "User"
    assert subject in registry.get_subjects()
    assert registry.delete_version(subject, 1) == 1
    assert registry.delete_subject(subject) == [2]
    assert registry.delete_subject(subject, permanent=True) == [1, 2]
    try:
        registry.get_latest_version(subject)
    except SchemaRegistryError as error:
        assert error.error_code == 40401, error
    return "levels, versions, deletion"


@cases.case("interop")
def interop() -> str:
    registry, user = client(), message_class()
    protobuf_reader = ProtobufDeserializer(user, {"use.deprecated.format": False})
    readers: dict[str, Coder] = {
        "avro": AvroDeserializer(registry),
        "json": JSONDeserializer(text_of("user.json")),
        "protobuf": lambda data, context: as_user(protobuf_reader(data, context)),
    }
    chosen = written_by_others(("avro", "json", "protobuf"))
    for topic, form in chosen:
        same(read_all(topic, COUNT, readers[form]), users())
    return f"{len(chosen)} topics of others"


cases.main()
