"""The cases with Spark: its functions read what stands after the frame, by schemas that are asked for over REST."""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from harness import Cases
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro, to_avro

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from names import CASES, COUNT, ask, bootstrap, text_of, users, written_by_others

MODEL = "name string, age int"
lacks = {
    "protobuf": "Spark reads Protobuf by a compiled descriptor, which no registry gives",
    "references": "from_avro takes one text",
    "administration": "Spark has no client of registries",
}
cases = Cases(names=CASES, lacks=lacks)


@cache
def spark() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("schemas")
    settings = {
        "spark.jars": os.environ["COMPAT_JARS"],
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def register(subject: str, file: str, form: str = "AVRO") -> int:
    body = {"schema": text_of(file), "schemaType": form}
    return int(ask(cases.bootstrap, f"/subjects/{subject}/versions", body)["id"])


def write(topic: str, rows: list[dict[str, Any]], model: str, schema_id: int, encoded: Column) -> None:
    """Append rows, each framed by the id of its schema."""
    frame = f.lit(bytearray(b"\0" + schema_id.to_bytes(4, "big")))
    rows_of = spark().createDataFrame([tuple(row.values()) for row in rows], model)
    rows_of.select(f.concat(frame, encoded.cast("binary")).alias("value")).write.format("kafka").options(
        **{"kafka.bootstrap.servers": bootstrap(), "topic": topic}
    ).save()


def read(topic: str) -> DataFrame:
    """Return ids and data of a topic, followed as a stream until its end."""
    name = topic.replace("-", "_")
    options = {"kafka.bootstrap.servers": bootstrap(), "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark().readStream.format("kafka").options(**options).load()
    framed = stream.select(
        f.expr("cast(conv(hex(substring(value, 2, 4)), 16, 10) as int)").alias("id"),
        f.expr("substring(value, 6)").alias("data"),
    )
    framed.writeStream.format("memory").queryName(name).trigger(availableNow=True).start().awaitTermination()
    return spark().table(name)


def by_avro(framed: DataFrame, reader: str = "") -> list[dict[str, Any]]:
    """Read each record by its own schema, as another one if that is given."""
    people: list[dict[str, Any]] = []
    for (schema_id,) in framed.select("id").distinct().collect():
        writer = ask(cases.bootstrap, f"/schemas/ids/{schema_id}")["schema"]
        options = {"avroSchema": reader} if reader else {}
        values = framed.where(f.col("id") == schema_id).select(
            from_avro("data", writer, options).alias("one")
        )
        people += [json.loads(row[0]) for row in values.select(f.to_json("one")).collect()]
    return sorted(people, key=lambda value: value["age"])


def by_json(framed: DataFrame) -> list[dict[str, Any]]:
    rows = (
        framed.select(f.from_json(f.col("data").cast("string"), MODEL).alias("one")).select("one.*").collect()
    )
    return sorted((row.asDict() for row in rows), key=lambda value: value["age"])


@cases.case("avro")
def avro() -> str:
    topic = cases.topic("avro")
    schema_id = register(f"{topic}-value", "user.avsc")
    write(topic, users(), MODEL, schema_id, to_avro(f.struct("name", "age"), text_of("user.avsc")))
    assert by_avro(read(topic)) == users()
    return f"{COUNT} records by to_avro and from_avro"


@cases.case("json")
def json_schema() -> str:
    topic = cases.topic("json")
    schema_id = register(f"{topic}-value", "user.json", "JSON")
    write(topic, users(), MODEL, schema_id, f.to_json(f.struct("name", "age")))
    assert by_json(read(topic)) == users()
    return f"{COUNT} records by to_json and from_json"


@cases.case("evolution")
def evolution() -> str:
    topic = cases.topic("evolution")
    wider = text_of("user-wider.avsc")
    first, second = register(f"{topic}-value", "user.avsc"), register(f"{topic}-value", "user-wider.avsc")
    values = [{**user, "email": "a@b"} for user in users(COUNT)]
    write(topic, users(), MODEL, first, to_avro(f.struct("name", "age"), text_of("user.avsc")))
    write(topic, values, f"{MODEL}, email string", second, to_avro(f.struct("name", "age", "email"), wider))
    assert by_avro(read(topic), wider) == [{**user, "email": "none"} for user in users()] + values
    return "two versions, both read as the second"


@cases.case("refusal")
def refusal() -> str:
    subject = cases.topic("refusal")
    register(subject, "user.avsc")
    try:
        register(subject, "user-breaking.avsc")
    except HTTPError as error:
        assert (error.code, json.load(error)["error_code"]) == (409, 40901)
        return "409"
    raise AssertionError("it was taken")


@cases.case("interop")
def interop() -> str:
    chosen = written_by_others(("avro", "json"))
    for topic, form in chosen:
        framed = read(topic)
        assert (by_avro(framed) if form == "avro" else by_json(framed)) == users(), topic
    return f"{len(chosen)} topics of others"


spark()  # its functions of columns need a session
cases.main()
