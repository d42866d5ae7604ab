"""`python -m bench.formats`: decoding JSON, Avro and Protobuf beside Spark's `from_json`, `from_avro` and `from_protobuf`.

Needs the extra `formats`, and Spark's jars for Avro and Protobuf (`--jars DIR`; Maven fetches them with bench/formats.xml).
If a mirror lacks the jar for Protobuf, Spark's arm for it is skipped. The events are stored as bytes in Parquet files; each
arm reads them in two Spark tasks, decodes them to typed columns, and discards the columns. Reading alone is a separate arm.
Wall and CPU time are those of all processes; the arms take turns, and the first round does not count.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILES = 2
BLOCK_ROWS = 16_384
FIELDS = ("ts", "member", "session", "ip", "item", "url", "status", "took_ms", "js", "agent")
AVRO = {"type": "record", "name": "View", "fields": [
    {"name": "ts", "type": "long"}, {"name": "member", "type": ["null", "string"]}, {"name": "session", "type": "string"},
    {"name": "ip", "type": "string"}, {"name": "item", "type": ["null", "string"]}, {"name": "url", "type": "string"},
    {"name": "status", "type": "int"}, {"name": "took_ms", "type": ["null", "double"]},
    {"name": "js", "type": ["null", "boolean"]},
    {"name": "agent", "type": ["null", "string"]},
]}  # fmt: skip
NESTED = {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
    {"name": "item", "type": "string"}, {"name": "count", "type": "int"},
]}}}  # fmt: skip
PROTO = """syntax = "proto3"; package bench; message View {
int64 ts = 1; optional string member = 2; string session = 3; string ip = 4;
optional string item = 5; string url = 6; int32 status = 7; optional double took_ms = 8; optional bool js = 9;
optional string agent = 10;
%s }"""
PROTO_NESTED = "repeated Line lines = 11; message Line { string item = 1; int32 count = 2; }"
SQL = (
    "ts bigint, member string, session string, ip string, item string, url string, status int, took_ms double, js boolean, "
    "agent string"
)
SQL_NESTED = ", lines array<struct<item: string, count: int>>"


def _events(count: int, *, nested: bool) -> list[dict[str, Any]]:
    from barnabas_pipeline.simulate.model import Simulation, Site

    events = [
        json.loads(view.value)
        for view in Simulation(Site(events=count // 2)).events()
        if view.kind == "views"
    ]
    texts = []
    for n in range(count):
        event = {name: events[n % len(events)].get(name) for name in FIELDS}
        if nested:
            event["lines"] = [{"item": f"i{m}", "count": m} for m in range(n % 4)]
        texts.append(event)
    return texts


def _encoders(*, nested: bool) -> dict[str, Callable[[dict[str, Any]], bytes]]:
    import fastavro
    from google.protobuf import json_format, message_factory

    schema = fastavro.parse_schema(_avro(nested=nested))
    pool = _parsed(nested=nested).pool
    cls = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.View"))

    def avro(event: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, event)
        return out.getvalue()

    def protobuf(event: dict[str, Any]) -> bytes:
        held = {name: value for name, value in event.items() if value is not None}
        return json_format.ParseDict(held, cls()).SerializeToString()

    def plain(event: dict[str, Any]) -> bytes:
        return json.dumps(
            {name: value for name, value in event.items() if value is not None}, separators=(",", ":")
        ).encode()

    return {"json": plain, "avro": avro, "protobuf": protobuf}


def _avro(*, nested: bool) -> dict[str, Any]:
    fields = AVRO["fields"]
    assert isinstance(fields, list)
    return {**AVRO, "fields": [*fields, NESTED]} if nested else dict(AVRO)


def _parsed(*, nested: bool) -> Any:
    from barnabas.registry.formats import parse
    from barnabas.registry.schemas import Schema

    return parse(Schema("PROTOBUF", PROTO % (PROTO_NESTED if nested else "")))


def _decoders(*, nested: bool) -> dict[str, Any]:
    from barnabas_pipeline import formats
    from barnabas_pipeline.formats.avro import fields_of_text as avro_fields
    from barnabas_pipeline.formats.protobuf import fields_of_text as protobuf_fields
    from barnabas_pipeline.schema import EventSchema

    avro, proto = json.dumps(_avro(nested=nested)), PROTO % (PROTO_NESTED if nested else "")
    schema = EventSchema("views", "_timestamp", avro_fields(avro)[1])
    mine = EventSchema("views", "_timestamp", protobuf_fields(proto)[1])
    return {
        "json": formats.restore(schema, {}),
        "avro": formats.restore(schema, {"format": "avro", "text": avro}),
        "protobuf": formats.restore(mine, {"format": "protobuf", "text": proto}),
    }


def _blocks(path: str) -> Iterator[Any]:
    from barnabas_pipeline.log.columns import Columns, no_headers

    for batch in pq.ParquetFile(path).iter_batches(BLOCK_ROWS):
        count = batch.num_rows
        zeros = np.zeros(count, np.int32)
        times = np.full(count, 1_700_000_000_000)
        yield Columns(
            np.arange(count),
            times,
            zeros,
            zeros,
            pa.nulls(count, pa.binary()),
            batch.column(0),
            no_headers(count),
        )


def _arms(spark: Any, root: Path, jars: list[str], *, nested: bool) -> dict[str, Callable[[], int]]:
    from pyspark.sql import functions as sf
    from pyspark.sql.avro.functions import from_avro

    sql = SQL + (SQL_NESTED if nested else "")
    value = sf.col("value")
    theirs = {
        "json": sf.from_json(value.cast("string"), sql),
        "avro": from_avro(value, json.dumps(_avro(nested=nested))),
    }
    if any("spark-protobuf" in jar for jar in jars):
        from pyspark.sql.protobuf.functions import from_protobuf

        theirs["protobuf"] = from_protobuf(value, "bench.View", str(root / "views.desc"))
    decoders = _decoders(nested=nested)

    def spark_arm(name: str, column: Any) -> Callable[[], int]:
        def run() -> int:
            frame = spark.read.parquet(str(root / name))
            frame = frame if column is None else frame.select(column.alias("event")).select("event.*")
            frame.write.format("noop").mode("overwrite").save()
            return 0

        return run

    def our_arm(name: str, decoder: Any) -> Callable[[], int]:
        paths = sorted(str(path) for path in (root / name).glob("*.parquet"))

        def work(path: str) -> int:
            return sum(len(raw) if decoder is None else len(decoder.decode(raw)[0]) for raw in _blocks(path))

        return lambda: int(spark.sparkContext.parallelize(paths, FILES).map(work).sum())

    arms: dict[str, Callable[[], int]] = {}
    for name in decoders:
        if name in theirs:
            arms[f"Spark, only read {name}"] = spark_arm(name, None)
            arms[f"Spark, from_{name}"] = spark_arm(name, theirs[name])
        arms[f"ours, only read {name}"] = our_arm(name, None)
        arms[f"ours, {name}"] = our_arm(name, decoders[name])
    return arms


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants."""
    tick = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    row = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry)], used[int(entry)] = int(row[1]), sum(map(int, row[11:15]))
    mine = {os.getpid()}
    while grown := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= grown
    return sum(used.get(pid, 0) for pid in mine) / tick


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.formats", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--nested", action="store_true", help="with an array of records in each event")
    parser.add_argument("--jars", type=Path, required=True)
    args = parser.parse_args()
    from barnabas_pipeline.spark import session

    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        _write(root, args.records, nested=args.nested)
        jars = sorted(str(path) for path in args.jars.glob("*.jar"))
        spark = session.create(
            "bench", master=args.master, conf={"spark.driver.memory": "2g", "spark.jars": ",".join(jars)}
        )
        arms = _arms(spark, root, jars, nested=args.nested)
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
        for number in range(args.rounds + 1):
            for name, run in arms.items():
                began, cpu = time.perf_counter(), cpu_seconds()
                done = run()
                assert done in (0, args.records), (name, done)
                if number:
                    figures[name].append((time.perf_counter() - began, cpu_seconds() - cpu))
            print(f"round {number} of {args.rounds}", file=sys.stderr)
        spark.stop()
    _tell(figures, args.records)


def _write(root: Path, count: int, *, nested: bool) -> None:
    from google.protobuf import descriptor_pb2

    events = _events(count, nested=nested)
    for name, encode in _encoders(nested=nested).items():
        (root / name).mkdir()
        values = [encode(event) for event in events]
        print(f"{name}: {sum(map(len, values)) / count:.0f} B a value", file=sys.stderr)
        share = -(-count // FILES)
        for n in range(FILES):
            table = pa.table({"value": pa.array(values[n * share : (n + 1) * share], pa.binary())})
            pq.write_table(table, root / name / f"{n}.parquet", use_dictionary=False, compression="none")
    descriptors = descriptor_pb2.FileDescriptorSet(file=[_parsed(nested=nested).file])
    (root / "views.desc").write_bytes(descriptors.SerializeToString())


def _tell(figures: dict[str, list[tuple[float, float]]], count: int) -> None:
    middle = {name: tuple(median(row[n] for row in rows) for n in (0, 1)) for name, rows in figures.items()}
    for name, (wall, cpu) in middle.items():
        low, high = min(row[0] for row in figures[name]), max(row[0] for row in figures[name])
        speed = f"{count / wall:12,.0f} records/s ({low:.2f} to {high:.2f} s)"
        print(f"{name:26}{speed}, {cpu / count * 1e6:6.2f} us of CPU a record")
    for name in ("json", "avro", "protobuf"):
        if f"Spark, from_{name}" not in middle:
            continue
        theirs, ours = middle[f"Spark, from_{name}"], middle[f"ours, {name}"]
        rest = [middle[f"Spark, only read {name}"], middle[f"ours, only read {name}"]]
        whole = [theirs[n] / ours[n] for n in (0, 1)]
        alone = [(theirs[n] - rest[0][n]) / max(ours[n] - rest[1][n], 1e-9) for n in (0, 1)]
        print(
            f"{name}: {whole[0]:.1f} times as fast, {whole[1]:.1f} in CPU; alone {alone[0]:.1f} and {alone[1]:.1f}"
        )


if __name__ == "__main__":
    main()
