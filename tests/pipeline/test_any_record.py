"""Any record that a client can write becomes a row or a dead letter, and nothing of it is altered; without Spark."""

from __future__ import annotations

import json
import os
import resource
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_pipeline.formats.base import EXTRA, TIME_MAX_MS, TIME_MIN_MS
from barnabas_pipeline.formats.json import JsonDecoder as Decoder
from barnabas_pipeline.jobs import redrive
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.lake import task as load_task
from barnabas_pipeline.lake.files import TableWriter, read_dead, write_dead
from barnabas_pipeline.lake.ledger import hour_name, hour_number
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import LoadTask, to_table
from barnabas_pipeline.log.columns import HEADERS_TYPE, Columns
from barnabas_pipeline.log.model import LogOptions, OffsetRange
from barnabas_pipeline.schema import EventSchema, Field

SCHEMA = EventSchema("t", "at", (Field("at", "long", required=True), Field("id", "long")))
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NOW = 1_700_000_000_000
TIMES = INT64 | st.sampled_from(
    [edge + n for edge in (0, -1, NOW, NOW * 1_000, NOW * 1_000_000, TIME_MIN_MS, TIME_MAX_MS, 1 << 62) for n in (-1, 0, 1)]
)  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
HEADERS = st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=5)), max_size=3)


class AnyRecord:
    """A record as a client may have written it."""

    def __init__(self, timestamp_ms: int, value: bytes | None, key: bytes | None, headers: list[Any]) -> None:
        self.timestamp_ms = timestamp_ms
        self.value = value
        self.key = key
        self.headers = [{"key": name, "value": held} for name, held in headers]


def event(at: int, **more: Any) -> bytes:
    return json.dumps({"at": at, **more}).encode()


VALUES = st.none() | st.binary(max_size=20) | TIMES.map(event)
RECORDS = st.builds(
    AnyRecord, TIMES, VALUES, st.none() | st.binary(max_size=5), HEADERS
) | TIMES.flatmap(lambda at: st.just(AnyRecord(at, event(at), None, [])))  # fmt: skip


def columns_of(records: list[AnyRecord]) -> Columns:
    count = len(records)
    return Columns(
        np.arange(count), np.array([record.timestamp_ms for record in records], np.int64),
        np.zeros(count, np.int32), np.zeros(count, np.int32),
        pa.array([r.key for r in records], pa.binary()), pa.array([r.value for r in records], pa.binary()),
        pa.array([record.headers for record in records], HEADERS_TYPE),
    )  # fmt: skip


def stored(root: Path, records: list[AnyRecord], decoder: Decoder) -> tuple[list[Any], Any]:
    """Load records as a task does: the files' rows, and the dead letters as they are read again."""
    columns = columns_of(records)
    table, bad = to_table(columns, decoder, "id", 0)
    lake = Table(root / "t")
    lake.prepare(decoder.schema)
    writer = TableWriter(lake.layout, decoder.schema, "id", 0)
    if table.num_rows:
        writer.write(table)
    rows: list[Any] = []
    for file in writer.close():
        part = pq.ParquetFile(local_path(file.path)).read()
        times = part["at"].to_pylist()
        assert (min(times), max(times)) == (file.event_time_min, file.event_time_max)
        assert {*file.hours} == {at // 3_600_000 for at in times}
        assert len(file.hours) == 1
        rows += part.to_pylist()
    task = LoadTask(LogOptions("t"), decoder, lake.layout, "id", OffsetRange(0, 0, len(records)), 1 << 20)
    letters = [load_task.dead_record(task, columns, row) for row in bad]
    if not letters:
        return rows, None
    entry = write_dead(lake.layout, pa.Table.from_pylist(letters, schema=load_task.DEAD_SCHEMA), "id", 0)
    return rows, pq.ParquetFile(local_path(entry.path)).read()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RECORDS, min_size=1, max_size=6), st.sampled_from([30 * 86_400_000, 1 << 62]))
def test_any_record_is_a_row_or_a_dead_letter(
    tmp_path: Path, records: list[AnyRecord], past_max_ms: int
) -> None:
    decoder = Decoder(SCHEMA, past_max_ms=past_max_ms)
    rows, letters = stored(tmp_path, records, decoder)
    dead = [] if letters is None else letters.drop_columns(["timestamp"]).to_pylist()
    assert sorted([row["_offset"] for row in rows] + [letter["offset"] for letter in dead]) == [
        *range(len(records))
    ]
    for letter in dead:
        came = records[letter["offset"]]
        assert (letter["value"], letter["key"], letter["timestamp_ms"], letter["headers"]) == (
            came.value, came.key, came.timestamp_ms, came.headers,
        )  # fmt: skip
    for row in rows:
        came = records[row["_offset"]]
        assert (json.loads(came.value or b"")["at"], came.key, came.headers) == (
            row["at"],
            row["_key"],
            row["_headers"],
        )
    if letters is not None:  # what is tried again is judged as before
        good, _ = redrive.decode_again(letters, redrive.chosen_letters(letters, None, None), decoder, "id", 0)
        assert not good.any()
        letters["timestamp"].to_pylist()


@pytest.mark.parametrize("unit", [1_000, 1_000_000])
def test_record_stamped_in_micro_or_nanoseconds_is_a_dead_letter(tmp_path: Path, unit: int) -> None:
    records = [AnyRecord(NOW, event(NOW), None, []), AnyRecord(NOW * unit, event(NOW * unit), None, [])]
    rows, letters = stored(tmp_path, records, Decoder(SCHEMA))
    assert [row["_offset"] for row in rows] == [0]
    assert letters["reason"].to_pylist() == ["time"]
    assert letters["timestamp_ms"].to_pylist() == [NOW * unit]
    assert str(NOW * unit) in letters["detail"].to_pylist()[0]


def test_dead_letters_of_an_earlier_version_are_redriven(tmp_path: Path) -> None:
    late = event(NOW - 40 * 86_400_000)
    records = [
        AnyRecord(NOW, late, None, []),
        AnyRecord(NOW, b"no JSON", b"k", []),
        AnyRecord(NOW, late, None, []),
    ]
    _, letters = stored(tmp_path, records, Decoder(SCHEMA))
    earlier = letters.drop_columns(["timestamp_ms"])
    path = tmp_path / "earlier.parquet"
    pq.write_table(earlier, path)
    lake = Table(tmp_path / "t")
    table = read_dead(lake.io, f"file://{path}")
    assert table["timestamp_ms"].to_pylist() == [NOW] * 3
    good, rows = redrive.decode_again(
        table, redrive.chosen_letters(table, None, NOW), Decoder(SCHEMA, past_max_ms=1 << 50), "id", 0
    )
    assert (good.tolist(), rows["_offset"].to_pylist()) == ([True, False, True], [0, 2])
    remaining = write_dead(lake.layout, table.filter(pa.array(~good)), "id", 0)
    assert read_dead(lake.io, remaining.path).to_pylist() == letters.slice(1, 1).to_pylist()


@pytest.mark.parametrize("hour", [0, -1, 472_222, TIME_MIN_MS // 3_600_000, TIME_MAX_MS // 3_600_000])
def test_hours_have_names_that_sort_and_can_be_read(hour: int) -> None:
    assert hour_number(hour_name(hour)) == hour
    assert hour_name(hour) < hour_name(hour + 1) if hour_name(hour) < "9999-12-31T23" else True
    assert len(hour_name(hour)) == len("2023-11-14T22")


def test_more_event_hours_than_files_may_be_open_are_written(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    mine = len(os.listdir("/proc/self/fd"))  # tests before this one have left some open
    resource.setrlimit(resource.RLIMIT_NOFILE, (mine + 200, hard))
    try:
        hours = [NOW + n * 3_600_000 for n in range(400)] * 2
        records = [AnyRecord(NOW, event(at), None, []) for at in hours]
        decoder = Decoder(SCHEMA, past_max_ms=1 << 62, future_max_ms=1 << 62)
        rows, letters = stored(tmp_path, records, decoder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert letters is None
    assert sorted(row["_offset"] for row in rows) == [*range(800)]


# --- unknown fields ---------------------------------------------------------------------------------------------------

NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,4})?", fullmatch=True)
JSON_TEXT = st.recursive(
    NUMBERS | st.sampled_from(["true", "false", "null", '"\\u00e4\\n"', '"ä"', '" , } "']),
    lambda inner: st.lists(inner, max_size=3).map(lambda held: f"[ {' , '.join(held)} ]")
    | st.lists(inner, max_size=2).map(lambda held: "{" + ",".join(f'"{n}" : {text}' for n, text in enumerate(held)) + "}"),
    max_leaves=5,
)  # fmt: skip


def exact(text: str) -> Any:
    """JSON with numbers as they are written."""
    return json.loads(
        text, parse_float=Decimal, parse_int=Decimal, parse_constant=lambda name: pytest.fail(name)
    )


@given(st.lists(JSON_TEXT, min_size=1, max_size=3), st.integers(0, 3), st.sampled_from(["", " ", "\n\t "]))
def test_unknown_fields_are_kept_as_they_are_written(members: list[str], place: int, space: str) -> None:
    texts = [f'"x{n}"{space}:{space}{member}' for n, member in enumerate(members)]
    texts.insert(min(place, len(texts)), f'"at":{NOW}')
    value = f"{space}{{{space}{f'{space},{space}'.join(texts)}{space}}}{space}"
    row = Decoder(SCHEMA).decode_one(value.encode(), NOW)
    assert exact(row[EXTRA]) == {f"x{n}": exact(member) for n, member in enumerate(members)}
    for member in members:
        assert member in row[EXTRA]


@pytest.mark.parametrize("digits", [40, 400, 401, 5_000])
def test_long_integers_are_refused_in_known_fields_only(digits: int) -> None:
    text = "9" * digits
    row = Decoder(SCHEMA).decode_one(b'{"at":%d,"x":-%s}' % (NOW, text.encode()), NOW)
    assert row[EXTRA] == f'{{"x":-{text}}}'
    _, _, (bad,) = Decoder(SCHEMA).decode(
        columns_of([AnyRecord(NOW, f'{{"at":{NOW},"id":{text}}}'.encode(), None, [])])
    )
    assert bad.reason == "range"


def test_how_large_an_event_may_be_is_an_option(tmp_path: Path) -> None:
    large = event(NOW, x="v" * (2 << 20))
    for limit, reasons in ((1 << 20, ["too_large"]), (4 << 20, [])):
        options = LoadOptions(LogOptions("t"), str(tmp_path), SCHEMA, value_bytes_max=limit)
        _, _, bad = options.decoder.decode(columns_of([AnyRecord(NOW, large, None, [])]))
        assert [letter.reason for letter in bad] == reasons
        assert options.decoder.limits()["value_bytes_max"] == limit
