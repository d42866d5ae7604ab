"""The comparison of loads, `bench.pipeline_peers`, as far as it can be tried without Spark and Kafka Connect."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from bench.formats import AVRO, FIELDS
from bench.pipeline_peers import planning, tables, topics
from bench.pipeline_peers.processes import Job
from tests.support.systems import has_ended

from .tables import load, local_place, stock

ROOT = Path(__file__).resolve().parents[2]


def test_help_of_the_comparison_names_its_parts() -> None:
    path = os.pathsep.join(str(ROOT / name) for name in ("server", "pipeline", ""))
    done = subprocess.run(
        [sys.executable, "-m", "bench.pipeline_peers", "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for word in ("spark", "sink", "barnabas", "freshness", "kills", "planning", "--count"):
        assert word in done.stdout


@pytest.mark.parametrize("layout", ["spark", "sink", "barnabas"])
def test_tables_of_a_year_are_planned_file_by_file(tmp_path: Path, layout: str) -> None:
    figures = planning.measure(tmp_path / layout, layout, 12)
    assert sorted(figures) == ["plan all, s", "plan newest hour, s"]


def test_lost_and_doubled_records_are_counted(tmp_path: Path) -> None:
    rows = pa.table({"session": [f"{number:09d}" for number in (0, 1, 1, 3, 3, 3)]})
    catalog = tables.catalog(tmp_path)
    catalog.create_namespace(tables.NAMESPACE)
    catalog.create_table(f"{tables.NAMESPACE}.views", rows.schema).append(rows)
    assert tables.visible_rows(tmp_path, "views") == 6
    assert tables.account(tmp_path, "views", 5) == tables.Account(lost=2, doubled=3)
    files = tables.files_left(tmp_path, "views")
    assert (files.commits, files.data_files) == (1, 1)


def test_values_of_all_formats_have_the_same_fields_and_numbers(tmp_path: Path) -> None:
    plain = json.loads(next(topics.values("json", 0, 7)))
    framed = next(topics.values("avro", 258, 7))
    assert framed[:5] == b"\0\0\0\1\2"
    avro = fastavro.schemaless_reader(io.BytesIO(framed[5:]), AVRO, AVRO)
    assert isinstance(avro, dict)
    assert sorted(avro) == sorted(FIELDS)
    assert plain["session"] == avro["session"] == "000000007"
    message = next(topics.values("protobuf", 258, 7))
    assert message[:6] == b"\0\0\0\1\2\0"
    assert b"000000007" in message
    schemas = topics.write_schemas(tmp_path / "schemas")
    assert {path.name for path in schemas.iterdir()} == {"columns.sql", "view.avsc", "view.desc", "view.json"}


def test_killed_job_leaves_no_process(tmp_path: Path) -> None:
    job = Job(["sh", "-c", "sleep 60 & echo $!; wait"], tmp_path / "log", {})
    deadline = time.monotonic() + 30
    while not (text := (tmp_path / "log").read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert job.kill() >= 0
    assert not job.is_running
    while not has_ended(int(text)):  # a signal takes a moment
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_snapshots_are_noted_although_their_metadata_goes(tmp_path: Path) -> None:
    place = local_place(tmp_path)
    watch = tables.Watch(tmp_path / "lake", "logins")
    watch.start()
    for count in (1, 2, 3):
        load(place, 1)
        deadline = time.monotonic() + 30
        while len(watch.seen) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        newest = tables.location(tmp_path / "lake", "logins")
        for path in (tmp_path / "lake" / "logins" / "metadata").glob("*.metadata.json"):
            if str(path) != newest:
                path.unlink()
    watch.end()
    assert [*watch.seen] == [snapshot.snapshot_id for snapshot in stock(place).snapshots()]
    assert sorted(watch.seen.values()) == [*watch.seen.values()]
