"""Loads of each format from a broker with its registry, by stock producers, with a schema that grows in between; all
audited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema as Registered
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, StringSerializer
from google.protobuf import message_factory

from barnabas.registry.formats import parse
from barnabas.registry.schemas import Schema as Ours
from barnabas_pipeline import cli
from barnabas_pipeline.errors import EXIT_DONE, EXIT_INCOMPLETE, EXIT_USAGE
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.simulate import produce
from barnabas_pipeline.simulate.model import KINDS
from tests.pipeline.conftest import ROOT, STOP_SECONDS_MAX

NOW = 1_700_000_000_000
WHEN = datetime.fromtimestamp(NOW / 1000, UTC)


class Stack:
    """A broker and its registry."""

    def __init__(self, process: subprocess.Popen[str], bootstrap: str, url: str) -> None:
        self.process = process
        self.bootstrap = bootstrap
        self.url = url
        self.client = SchemaRegistryClient({"url": url})
        self.producer = Producer({"bootstrap.servers": bootstrap})

    def send(self, topic: str, serializer: Any, values: list[Any], key: Any = None) -> None:
        """Send values, a `bytes` as it is."""
        context = SerializationContext(topic, MessageField.VALUE)
        for n, value in enumerate(values):
            data = value if value is None or type(value) is bytes else serializer(value, context)
            self.producer.produce(topic, data, key=key(n) if key else None, timestamp=NOW + n)
        assert self.producer.flush(30) == 0


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    data = tmp_path_factory.mktemp("formats") / "data"
    command = [sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    command += [
        "--registry",
        "127.0.0.1:0",
        "--set",
        "log.message.timestamp.before.max.ms=9223372036854775807",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "server")}
    with (data.parent / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    settings = dict(pair.split("=", 1) for pair in line.split() if "=" in pair)
    running = Stack(process, settings["bootstrap.servers"], settings["registry"])
    yield running
    running.client.close()
    process.terminate()
    process.wait(STOP_SECONDS_MAX)
    process.stdout.close()


@pytest.fixture
def run(stack: Stack, spark: Any, tmp_path: Path) -> Any:
    """Run a job on a topic of the stack."""

    def job(name: str, topic: str, *options: str) -> int:
        words = [name, "--topic", topic, "--lake", str(tmp_path / "lake"), "--bootstrap", stack.bootstrap]
        return cli.main([*words, *options])

    return job


def table_of(tmp_path: Path, topic: str) -> Table:
    return Table(str(tmp_path / "lake" / topic))


def rows_of(spark: Any, tmp_path: Path, topic: str) -> list[dict[str, Any]]:
    frame = frames.events(spark, table_of(tmp_path, topic)).orderBy("_offset")
    return [row.asDict(recursive=True) for row in frame.collect()]


def reasons_of(spark: Any, tmp_path: Path, topic: str) -> list[str]:
    frame = frames.dead_letters(spark, table_of(tmp_path, topic)).orderBy("offset")
    return [row["reason"] for row in frame.collect()]


BAD = [b"", b"\x00\x00", b"\x01\x00\x00\x00\x01x", b"\x00\x7f\xff\xff\xffx", None]
BAD_REASONS = ["framing", "framing", "framing", "schema_id", "empty"]

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
NEWER_ORDER = {
    **ORDER,
    "fields": [
        *ORDER["fields"][:2],
        {"name": "priority", "type": "int", "default": 5},
        *ORDER["fields"][2:],  # type: ignore[index]
    ],
}


def order(n: int) -> dict[str, Any]:
    return {
        "id": f"o{n}",
        "at": WHEN,
        "total": Decimal(n) / 100,
        "status": "PAID" if n % 2 else "NEW",
        "lines": [{"item": "x", "count": n}] * (n % 3),
        "tags": {"a": "b"},
        "note": None if n % 2 else "hm",
    }


def test_stock_avro_is_loaded_evolved_and_audited(stack: Stack, spark: Any, run: Any, tmp_path: Path) -> None:
    topic = "orders"
    produce.create_topics(stack.bootstrap, [topic], 1, {"retention.ms": "-1"})
    first = AvroSerializer(stack.client, json.dumps(ORDER))
    keys = AvroSerializer(
        stack.client, '{"type":"record","name":"Key","fields":[{"name":"shop","type":"int"}]}'
    )
    key_context = SerializationContext(topic, MessageField.KEY)
    stack.send(
        topic,
        first,
        [order(n) for n in range(100)],
        key=lambda n: keys({"shop": n % 5}, key_context) if n else None,
    )
    stack.send(topic, first, list(BAD))
    options = ("--registry", stack.url, "--format", "avro", "--key-format", "avro")
    assert run("load", topic, *options, "--event-time", "at") == EXIT_DONE
    rows = rows_of(spark, tmp_path, topic)
    assert [row["id"] for row in rows] == [f"o{n}" for n in range(100)]
    assert rows[7] | {"_key": None} == rows[7] | {
        "at": rows[7]["at"],
        "total": Decimal("0.07"),
        "status": "PAID",
        "lines": [{"item": "x", "count": 7}],
        "tags": {"a": "b"},
        "note": None,
        "_key_fields": {"shop": 2},
        "_extra": None,
        "_key": None,
    }
    assert rows[0]["_key_fields"] is None
    assert int(rows[7]["at"].replace(tzinfo=rows[7]["at"].tzinfo or None).timestamp() * 1000) == NOW
    assert reasons_of(spark, tmp_path, topic) == BAD_REASONS

    second = AvroSerializer(stack.client, json.dumps(NEWER_ORDER))
    stack.send(topic, second, [order(n) | {"priority": n} for n in range(10)])
    assert run("load", topic, *options) == EXIT_DONE
    rows = rows_of(spark, tmp_path, topic)
    assert "priority" not in rows[-1]
    assert json.loads(rows[-1]["_extra"]) == {"priority": 9}

    stack.send(topic, first, [order(1)])
    stack.send(topic, second, [order(n) | {"priority": n} for n in range(10)])
    assert run("load", topic, *options, "--evolve") == EXIT_DONE
    rows = rows_of(spark, tmp_path, topic)
    assert [row["priority"] for row in rows[-12:]] == [None, 5, *range(10)]
    assert rows[-1]["_extra"] is None
    for how in ((), ("--deep",)):
        assert run("audit", topic, *options, *how) == EXIT_DONE


PLACE = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Wrong { int32 x = 1; }
message Visit { string page = 1; google.protobuf.Timestamp at = 2; repeated int32 marks = 3; map<string, double> scores = 4;
  optional bool ok = 5; Where where = 6; message Where { double lat = 1; } Kind kind = 7; uint64 large = 8; %s }
enum Kind { OTHER = 0; HUMAN = 1; }"""


def test_stock_protobuf_is_loaded_evolved_and_audited(
    stack: Stack, spark: Any, run: Any, tmp_path: Path
) -> None:
    topic = "visits"
    produce.create_topics(stack.bootstrap, [topic], 1, {"retention.ms": "-1"})
    pools = [parse(Ours("PROTOBUF", PLACE % more)).pool for more in ("", "string agent = 9;")]  # type: ignore[attr-defined]
    older, newer = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Visit")) for pool in pools
    )
    wrong = message_factory.GetMessageClass(pools[0].FindMessageTypeByName("shop.Wrong"))

    def visit(cls: Any, n: int, **more: Any) -> Any:
        message = cls(page=f"/p{n}", marks=[n, -n], kind=n % 2, large=(1 << 64) - 1 - n, **more)
        message.scores["a"] = n / 2
        message.at.FromMilliseconds(NOW + n)
        if n % 2:
            message.ok = False
            message.where.lat = 1.5
        return message

    settings = {"use.deprecated.format": False}
    stack.send(topic, ProtobufSerializer(older, stack.client, settings), [visit(older, n) for n in range(60)])
    stack.send(topic, ProtobufSerializer(wrong, stack.client, settings), [wrong(x=1)])
    stack.send(topic, None, list(BAD))
    options = ("--registry", stack.url, "--format", "protobuf", "--record", "shop.Visit")
    assert run("load", topic, *options, "--event-time", "at") == EXIT_DONE
    rows = rows_of(spark, tmp_path, topic)
    assert [row["page"] for row in rows] == [f"/p{n}" for n in range(60)]
    row = rows[3]
    assert (row["marks"], row["scores"], row["ok"], row["where"], row["kind"], row["large"]) == (
        [3, -3],
        {"a": 1.5},
        False,
        {"lat": 1.5},
        "HUMAN",
        Decimal((1 << 64) - 4),
    )
    assert (rows[2]["ok"], rows[2]["where"]) == (None, None)
    assert reasons_of(spark, tmp_path, topic) == ["type", *BAD_REASONS]

    stack.send(
        topic,
        ProtobufSerializer(newer, stack.client, settings),
        [visit(newer, n, agent="x") for n in range(5)],
    )
    assert run("load", topic, *options) == EXIT_DONE
    assert json.loads(rows_of(spark, tmp_path, topic)[-1]["_extra"]) == {"agent": "x"}
    stack.send(
        topic,
        ProtobufSerializer(newer, stack.client, settings),
        [visit(newer, n, agent="y") for n in range(5)],
    )
    assert run("load", topic, *options, "--evolve") == EXIT_DONE
    assert [row["agent"] for row in rows_of(spark, tmp_path, topic)[-6:]] == [None, *"yyyyy"]
    for how in ((), ("--deep",)):
        assert run("audit", topic, *options, *how) == EXIT_DONE


USER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "User",
    "type": "object",
    "required": ["name", "at"],
    "properties": {
        "name": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "age": {"type": "integer"},
        "address": {"$ref": "#/definitions/address"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "definitions": {"address": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
NEWER_USER = {**USER, "properties": {**USER["properties"], "size": {"type": ["null", "number"]}}}  # type: ignore[dict-item]


def test_stock_json_is_loaded_evolved_and_audited(stack: Stack, spark: Any, run: Any, tmp_path: Path) -> None:
    topic = "users"
    produce.create_topics(stack.bootstrap, [topic], 1, {"retention.ms": "-1"})
    stack.client.set_compatibility(f"{topic}-value", "NONE")

    def user(n: int, **more: Any) -> dict[str, Any]:
        return {
            "name": f"u{n}",
            "at": WHEN.isoformat(),
            "age": n,
            "address": {"city": "x"},
            "tags": ["a"] * (n % 3),
            **more,
        }

    first, second = (JSONSerializer(json.dumps(schema), stack.client) for schema in (USER, NEWER_USER))
    stack.send(topic, first, [user(n) for n in range(60)], key=lambda n: f"k{n}".encode())
    stack.send(topic, first, list(BAD))
    options = ("--registry", stack.url, "--key-format", "string")
    assert run("load", topic, *options, "--event-time", "at") == EXIT_DONE
    rows = rows_of(spark, tmp_path, topic)
    assert [(row["name"], row["age"], row["tags"]) for row in rows] == [
        (f"u{n}", n, ["a"] * (n % 3)) for n in range(60)
    ]
    assert (rows[0]["address"], rows[0]["_key_fields"]) == ({"city": "x"}, {"value": "k0"})
    assert reasons_of(spark, tmp_path, topic) == BAD_REASONS
    stack.send(topic, second, [user(n, size=n / 2) for n in range(5)], key=lambda n: f"k{n}".encode())
    assert run("load", topic, *options, "--evolve") == EXIT_DONE
    assert [row["size"] for row in rows_of(spark, tmp_path, topic)[-6:]] == [None, 0.0, 0.5, 1.0, 1.5, 2.0]
    for how in ((), ("--deep",)):
        assert run("audit", topic, *options, *how) == EXIT_DONE


def test_values_that_are_only_bytes_or_text_are_loaded(
    stack: Stack, spark: Any, run: Any, tmp_path: Path
) -> None:
    for name, values in (("raw", [b"\xff", b"", b"x"]), ("string", [b"a", "ä".encode(), b"\xff"])):
        produce.create_topics(stack.bootstrap, [name], 1, {"retention.ms": "-1"})
        stack.send(name, StringSerializer(), [*values, None])
        assert run("load", name, "--format", name, "--tombstones", "keep") == EXIT_DONE
        rows = rows_of(spark, tmp_path, name)
        good = [bytearray(value) for value in values] if name == "raw" else ["a", "ä"]
        assert [row["value"] for row in rows] == [*good, None]
        assert json.loads(rows[-1]["_extra"]) == {"_tombstone": True}
        assert reasons_of(spark, tmp_path, name) == ([] if name == "raw" else ["utf8"])
        assert run("audit", name, "--format", name, "--deep") == EXIT_DONE


def test_a_registry_that_does_not_answer_makes_no_dead_letters(
    stack: Stack, run: Any, tmp_path: Path, capsys: Any
) -> None:
    topic = "unread"
    produce.create_topics(stack.bootstrap, [topic], 1, {"retention.ms": "-1"})
    text = json.dumps(ORDER)
    stack.send(topic, AvroSerializer(stack.client, text), [order(1)])
    schema = tmp_path / "order.avsc"
    schema.write_text(text)
    gone = ("--registry", "http://127.0.0.1:9", "--format", "avro", "--schema", str(schema))
    assert run("load", topic, *gone) == EXIT_INCOMPLETE
    assert "schema registry" in capsys.readouterr().err
    assert (
        run("load", topic, "--registry", stack.url, "--format", "avro", "--schema", str(schema)) == EXIT_DONE
    )


def test_a_drafted_schema_loads_what_it_was_drafted_from(
    stack: Stack, spark: Any, run: Any, tmp_path: Path, capsys: Any
) -> None:
    topic = "plain"
    produce.create_topics(stack.bootstrap, [topic], 2, {"retention.ms": "-1"})
    values = [{"id": n, "at": NOW + n, "deep": {"name": "x", "marks": [1.5]}} for n in range(50)]
    stack.send(topic, None, [json.dumps(value).encode() for value in values])
    drafted = tmp_path / "plain.json"
    words = ["infer-schema", "--topic", topic, "--bootstrap", stack.bootstrap]
    assert cli.main([*words, "--out", str(drafted)]) == EXIT_DONE
    assert cli.main([*words, "--out", str(drafted)]) == EXIT_USAGE
    assert json.loads(drafted.read_text())["event_time"] == "at"
    assert run("load", topic, "--schema", str(drafted)) == EXIT_DONE
    rows = sorted((row["id"], row["at"], row["deep"]) for row in rows_of(spark, tmp_path, topic))
    assert rows == [(value["id"], value["at"], value["deep"]) for value in values]
    assert run("audit", topic, "--schema", str(drafted), "--deep") == EXIT_DONE

    stack.client.register_schema("drafted-value", Registered(json.dumps(ORDER), "AVRO"))
    capsys.readouterr()
    words = ["infer-schema", "--topic", "drafted", "--bootstrap", stack.bootstrap, "--registry", stack.url]
    assert cli.main([*words, "--format", "avro"]) == EXIT_DONE
    assert [f["name"] for f in json.loads(capsys.readouterr().out)["fields"]][:3] == ["id", "at", "total"]


def test_simulated_avro_is_loaded_but_for_spoilt_events(
    stack: Stack, spark: Any, tmp_path: Path, capsys: Any
) -> None:
    assert spark is not None
    avro = ("--bootstrap", stack.bootstrap, "--format", "avro", "--registry", stack.url, "--json")
    words = ["simulate", "--events", "600", "--bad", "0.1", "--prefix", "site-", *avro]
    assert cli.main(words) == EXIT_DONE
    sent = json.loads(capsys.readouterr().out)
    assert set(sent["bad"]) == {"framing", "schema_id", "avro", "time"}
    page, topics = tmp_path / "load.html", ",".join(f"site-{kind}" for kind in KINDS)
    words = [
        "load",
        "--topic",
        topics,
        "--event-time",
        "ts",
        "--lake",
        str(tmp_path),
        "--page",
        str(page),
        *avro,
    ]
    assert cli.main(words) == EXIT_DONE
    loaded = json.loads(capsys.readouterr().out)
    assert loaded["reasons"] == sent["bad"]
    assert loaded["loaded"] == sent["events"] - sum(sent["bad"].values())
    assert "site-views" in page.read_text()
