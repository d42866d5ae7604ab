"""Topics of view events of ten fields as JSON, Avro and Protobuf: `session` is the number of the record.

The rule: these numbers identify lost and duplicate records, so they are unique within a topic.
"""

from __future__ import annotations

import io
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.formats import AVRO, FIELDS, PROTO, SQL

FORMATS = ("json", "avro", "protobuf")
PARTITIONS = 4
TEMPLATES = 5_000
MESSAGE = PROTO % ""


def topic_of(format_name: str, count: int) -> str:
    """The name of a topic, which is also that of its table."""
    return f"views_{format_name}_{count}"


def templates() -> list[dict[str, Any]]:
    """Return events of a simulated site, without a time and a session."""
    from barnabas_pipeline.simulate.model import Simulation, Site

    views = (view for view in Simulation(Site(events=TEMPLATES)).events() if view.kind == "views")
    events = [json.loads(view.value) for view in views]
    return [{name: event.get(name) for name in FIELDS} for event in events[:TEMPLATES]]


def encoder(format_name: str, schema_id: int) -> Callable[[dict[str, Any]], bytes]:
    """Return the encoder of an event's value; Avro and Protobuf are framed as by a registry's serializers."""
    framing = b"\0" + schema_id.to_bytes(4, "big")
    if format_name == "json":
        return lambda event: json.dumps(
            {name: cell for name, cell in event.items() if cell is not None}, separators=(",", ":")
        ).encode()
    if format_name == "avro":
        import fastavro

        schema = fastavro.parse_schema(AVRO)

        def avro(event: dict[str, Any]) -> bytes:
            out = io.BytesIO(framing)
            out.seek(len(framing))
            fastavro.schemaless_writer(out, schema, event)
            return out.getvalue()

        return avro
    from google.protobuf import message_factory

    pool = _parsed().pool
    message_class: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.View"))

    def protobuf(event: dict[str, Any]) -> bytes:
        cells = {name: cell for name, cell in event.items() if cell is not None}
        return framing + b"\0" + bytes(message_class(**cells).SerializeToString())

    return protobuf


def _parsed() -> Any:
    from barnabas.registry.formats import parse
    from barnabas.registry.schemas import Schema

    return parse(Schema("PROTOBUF", MESSAGE))


def register(registry: str, topic: str, format_name: str) -> int:
    """Register the schema of a topic's values; returns its id, 0 for JSON, which has none."""
    if format_name == "json":
        return 0
    text = json.dumps(AVRO) if format_name == "avro" else MESSAGE
    body = {"schemaType": format_name.upper(), "schema": text}
    request = urllib.request.Request(
        f"{registry}/subjects/{topic}-value/versions",
        json.dumps(body).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return int(json.load(response)["id"])


def write_schemas(directory: Path) -> Path:
    """Write the schemas that jobs without a registry read from files; returns the directory."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    from barnabas_pipeline.formats.avro import fields_of_text
    from barnabas_pipeline.schema import EventSchema

    directory.mkdir()
    (directory / "columns.sql").write_text(SQL.replace(", ", ",\n") + "\n")
    (directory / "view.avsc").write_text(json.dumps(AVRO, indent=1))
    file = FileDescriptorProto()
    _parsed().pool.FindMessageTypeByName("bench.View").file.CopyToProto(file)
    (directory / "view.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    fields = fields_of_text(json.dumps(AVRO))[1]
    text = json.dumps(EventSchema("views", "ts", fields).to_dict(), indent=1)
    (directory / "view.json").write_text(text)
    return directory


def values(format_name: str, schema_id: int, first: int = 0) -> Iterator[bytes]:
    """Yield values without end, with numbers from `first` on and the time of now."""
    encode, events = encoder(format_name, schema_id), templates()
    number = first
    while True:
        event = events[number % len(events)]
        event["ts"], event["session"] = int(time.time() * 1000), f"{number:09d}"
        yield encode(event)
        number += 1


def fill(bootstrap: str, registry: str, format_name: str, count: int, topic: str = "") -> str:
    """Create a topic of `count` records; returns its name."""
    from confluent_kafka import Producer

    from barnabas_pipeline.simulate import produce

    topic = topic or topic_of(format_name, count)
    produce.create_topics(bootstrap, [topic], PARTITIONS, {})
    encoded = values(format_name, register(registry, topic, format_name))
    producer = _producer(Producer, bootstrap)
    for number in range(count):
        producer.produce(topic, next(encoded), partition=number // 500 % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    unsent = producer.flush(120)
    assert not unsent, f"{unsent} records of {topic} were not sent"
    return topic


def send_at(bootstrap: str, topic: str, rate: int, seconds: float) -> int:
    """Send JSON at a rate for some seconds, each with the time when it was given to the client; returns the count."""
    from confluent_kafka import Producer

    producer, encoded = _producer(Producer, bootstrap), values("json", 0)
    began, sent = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        for _ in range(sent, int(passed * rate)):
            producer.produce(topic, next(encoded), partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0)
        time.sleep(0.01)
    assert not producer.flush(60), "not all was sent"
    return sent


def _producer(factory: Any, bootstrap: str) -> Any:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 5_000_000}
    return factory(settings | {"queue.buffering.max.kbytes": 1 << 20})
