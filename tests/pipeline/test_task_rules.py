"""Work of one task of a load: each offset of its range is a row, a dead letter, or counted; what it writes and leaves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.records.batch import read_any_header
from barnabas.records.building import encode_batch
from barnabas.records.control import encode_end_marker
from barnabas.records.record import Record
from barnabas_pipeline.errors import DataLossError, IncompleteError, MissingOffsets
from barnabas_pipeline.formats.base import DECODER_VERSION, TIME_MAX_MS, TIME_MIN_MS, BadRecord
from barnabas_pipeline.formats.json import JsonDecoder
from barnabas_pipeline.lake import files, task
from barnabas_pipeline.lake.columns import lake_schema
from barnabas_pipeline.lake.files import TableWriter
from barnabas_pipeline.lake.ledger import HOUR_MS, DataFile
from barnabas_pipeline.lake.store import local_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import LoadTask, TaskResult, run, run_all
from barnabas_pipeline.log.columns import HEADERS_TYPE, Columns
from barnabas_pipeline.log.model import CorruptSpan, LogOptions, OffsetRange, RawBatch

from .tables import BEGAN_MS, SCHEMA, local_place, rows
from .topics import WRITTEN_MS, login

PARTITION, EPOCH = 3, 6


@pytest.fixture
def table(tmp_path: Path) -> Table:
    found = Table(local_place(tmp_path))
    found.prepare(SCHEMA)
    return found


class FakeLog:
    """A topic whose partition has these items."""

    def __init__(self, *items: RawBatch | CorruptSpan | Exception) -> None:
        self.items = items
        self.opened: list[tuple[LogOptions, str]] = []
        self.closed = 0

    def open(self, options: LogOptions, topic_id: str) -> FakeLog:
        self.opened.append((options, topic_id))
        return self

    def read(self, wanted: OffsetRange) -> Iterator[RawBatch | CorruptSpan]:
        for one in self.items:
            if isinstance(one, Exception):
                raise one
            yield one

    def close(self) -> None:
        self.closed += 1


def batch(first: int, *values: bytes, aborted: bool = False, **more: Any) -> RawBatch:
    records = [
        Record(first + n, WRITTEN_MS + n, b"key %d" % (first + n), value, [("kind", b"%d" % n)])
        for n, value in enumerate(values)
    ]
    data = encode_batch(records, base_offset=first, leader_epoch=EPOCH, **more)
    return RawBatch(data, read_any_header(data), aborted)


def marker(offset: int) -> RawBatch:
    data = encode_end_marker(
        commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=WRITTEN_MS, base_offset=offset
    )  # fmt: skip
    return RawBatch(data, read_any_header(data), False)


def task_of(table: Table, start: int, end: int, **more: Any) -> LoadTask:
    options = LogOptions("logins", "wire", more.pop("bootstrap", "h:1"))
    wanted = OffsetRange(PARTITION, start, end)
    return LoadTask(options, JsonDecoder(SCHEMA), table.layout, "id", wanted, more.pop("target", 1 << 20))


def rows_in(made: list[DataFile]) -> list[dict[str, Any]]:
    rows = [row for one in made for row in pq.ParquetFile(local_path(one.path)).read().to_pylist()]
    return sorted(rows, key=lambda row: row.get("_offset", row.get("offset", 0)))


def test_each_offset_of_a_range_is_a_row_or_a_letter_or_is_counted(table: Table) -> None:
    log = FakeLog(
        batch(10, login(0, "a"), b"no JSON", login(1, "b"), login(1, "c")),
        CorruptSpan(14, 19, "crc", "the checksum is wrong", b"bytes"),
        batch(20, login(2, "d"), login(2, "e"), aborted=True, producer_id=7, producer_epoch=0, base_sequence=0,
              transactional=True),
        marker(22),
        batch(25, login(2, "f")),
    )  # fmt: skip
    wanted = task_of(table, 10, 30)
    result = run(wanted, log)  # type: ignore[arg-type]
    assert log.opened == [(wanted.log, "id")]
    assert log.closed == 1
    assert result.offset_range == wanted.offset_range
    counts = (result.loaded, result.dead, result.control, result.aborted, result.compacted)
    assert counts == (4, 6, 1, 2, 7)
    assert sum(counts) == len(wanted.offset_range)
    assert result.bytes_read == sum(len(one.data) for one in log.items if isinstance(one, RawBatch))
    assert result.digest
    rows = rows_in(result.files)
    assert [(row["_offset"], row["member"], row["ts"] - BEGAN_MS) for row in rows] == [
        (10, "a", 0), (12, "b", HOUR_MS), (13, "c", HOUR_MS), (25, "f", 2 * HOUR_MS),
    ]  # fmt: skip
    assert sum(one.rows for one in result.files) == 4
    assert {(one.topic_id, one.partition) for one in (*result.files, *result.dead_files)} == {
        ("id", PARTITION)
    }
    [letters] = result.dead_files
    assert (letters.rows, letters.offsets, letters.offset_min, letters.offset_max) == (2, 6, 11, 18)
    assert letters.reasons == {"json": 1, "crc": 1}


def test_rows_and_letters_have_the_coordinates_of_their_records(table: Table) -> None:
    log = FakeLog(batch(10, b"no JSON", login(0), b"{"), CorruptSpan(13, 15, "crc", "wrong", b"bytes"))
    result = run(task_of(table, 10, 15), log)  # type: ignore[arg-type]
    [row] = rows_in(result.files)
    assert (row["_topic_id"], row["_topic_partition"], row["_offset"], row["_leader_epoch"]) == (
        "id", PARTITION, 11, EPOCH,
    )  # fmt: skip
    assert (row["_key"], row["_headers"]) == (b"key 11", [{"key": "kind", "value": b"1"}])
    assert row["_timestamp"].timestamp() * 1000 == WRITTEN_MS + 1
    first, second, span = rows_in(result.dead_files)
    for number, letter in ((0, first), (2, second)):
        assert (letter["topic_id"], letter["partition"]) == ("id", PARTITION)
        assert (letter["offset"], letter["end_offset"]) == (10 + number, 11 + number)
        assert letter["timestamp_ms"] == WRITTEN_MS + number
        assert letter["timestamp"].timestamp() * 1000 == WRITTEN_MS + number
        assert letter["leader_epoch"] == EPOCH
        assert (letter["key"], letter["value"]) == (
            b"key %d" % (10 + number),
            (b"no JSON", b"", b"{")[number],
        )
        assert letter["headers"] == [{"key": "kind", "value": b"%d" % number}]
        assert (letter["reason"], letter["decoder_version"], letter["schema_name"]) == (
            "json", DECODER_VERSION, "logins",
        )  # fmt: skip
        assert letter["detail"]
    said = {name: value for name, value in span.items() if value is not None}
    assert said == {
        "topic_id": "id", "partition": PARTITION, "offset": 13, "end_offset": 15, "value": b"bytes", "reason": "crc",
        "detail": "wrong", "decoder_version": DECODER_VERSION, "schema_name": "logins",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("timestamp_ms", "is_time"),
    [
        (TIME_MIN_MS - 1, False),
        (TIME_MIN_MS, True),
        (-1, True),
        (TIME_MAX_MS, True),
        (TIME_MAX_MS + 1, False),
    ],
)
def test_a_letter_has_its_timestamp_as_it_came_and_as_a_time_if_it_is_one(
    table: Table, timestamp_ms: int, is_time: bool
) -> None:
    arrays = [
        pa.array([each, each], kind)
        for each, kind in ((b"k", pa.binary()), (None, pa.binary()), ([], HEADERS_TYPE))
    ]
    columns = Columns(
        np.array([5, 8]), np.array([0, timestamp_ms]), np.zeros(2, np.int32), np.array([1, 2], np.int32), *arrays
    )  # fmt: skip
    found = task._dead_record(task_of(table, 0, 9), columns, BadRecord(1, "why", "more"))
    assert (found["offset"], found["end_offset"], found["leader_epoch"]) == (8, 9, 2)
    assert found["timestamp_ms"] == timestamp_ms
    assert found["timestamp"] == (timestamp_ms * 1000 if is_time else None)
    assert (found["value"], found["reason"], found["detail"]) == (None, "why", "more")


def test_a_range_without_rows_or_letters_writes_no_file(table: Table, tmp_path: Path) -> None:
    result = run(task_of(table, 10, 13), FakeLog(marker(11)))  # type: ignore[arg-type]
    assert result == TaskResult(OffsetRange(PARTITION, 10, 13), control=1, compacted=2, bytes_read=result.bytes_read,
                                digest=result.digest)  # fmt: skip
    assert [*tmp_path.rglob("*.parquet")] == []


def test_a_log_is_closed_whatever_happens(table: Table) -> None:
    loss = DataLossError("gone", [MissingOffsets(3, 10, 12)])
    log = FakeLog(batch(10, login(0)), loss)
    with pytest.raises(DataLossError) as raised:
        run(task_of(table, 10, 12), log)  # type: ignore[arg-type]
    assert raised.value is loss
    assert log.closed == 1


# --- several ----------------------------------------------------------------------------------------------------------


def test_of_several_tasks_each_has_its_result_in_order_and_a_failure_is_one(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [task_of(table, n, n + 1, bootstrap=f"h:{n}") for n in range(6)]
    loss, expected = DataLossError("gone", [MissingOffsets(3, 1, 2)]), []

    class Logs:
        def __enter__(self) -> Logs:
            return self

        def __exit__(self, *_: object) -> None:
            expected.append("closed")

        def expect(self, topics: Any) -> None:
            expected.append([one.bootstrap for one in topics])

        def open(self, options: LogOptions, topic_id: str) -> FakeLog:
            number = int(options.bootstrap[2:])
            errors = {1: loss, 2: OSError(28, "No space left on device"), 4: IncompleteError("away")}
            return FakeLog(*([errors[number]] if number in errors else [batch(number, login(number))]))

    monkeypatch.setattr(task, "Logs", Logs)
    results = run_all(tasks)
    assert expected == [[f"h:{n}" for n in range(6)], "closed"]
    for number in (0, 3, 5):
        found = results[number]
        assert isinstance(found, TaskResult)
        assert (found.offset_range.start, found.loaded) == (number, 1)
    assert results[1] is loss
    assert [str(results[n]) for n in (2, 4)] == [
        "a task could not read or write: [Errno 28] No space left on device",
        "away",
    ]
    assert type(results[2]) is IncompleteError


def test_a_mistake_in_a_task_is_none_of_its_results(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(task, "run", fail)
    with pytest.raises(ZeroDivisionError):
        run_all([task_of(table, 0, 1)])


# --- open files -------------------------------------------------------------------------------------------------------


def test_of_more_partitions_than_files_may_be_open_the_one_that_has_waited_longest_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "OPEN_FILES_MAX", 3)
    table = Table(local_place(tmp_path, "member"))
    table.prepare(SCHEMA)
    writer = TableWriter(table.layout, SCHEMA, "id", 0)

    def write(member: str, offset: int) -> list[str]:
        row = dict.fromkeys(lake_schema(SCHEMA).names)
        row |= {"ts": BEGAN_MS, "member": member, "ip": "i", "ok": True, "_topic_id": "id", "_offset": offset}
        writer.write(pa.Table.from_pylist([row], lake_schema(SCHEMA)))
        return [one.iceberg["partition"][0] for one in writer.done]

    assert [write(member, n) for n, member in enumerate("abca")] == [[], [], [], []]
    assert write("d", 4) == ["b"], "a was written to since"
    assert write("c", 5) == ["b"]
    assert write("e", 6) == ["b", "a"]
    assert write("b", 7) == ["b", "a", "d"]
    found = {
        (one.iceberg["partition"][0], one.rows, one.offset_min, one.offset_max) for one in writer.close()
    }
    assert found == {
        ("a", 2, 0, 3), ("b", 1, 1, 1), ("b", 1, 7, 7), ("c", 2, 2, 5), ("d", 1, 4, 4), ("e", 1, 6, 6),
    }  # fmt: skip


@pytest.mark.parametrize("portions", [1, 2, 3])
def test_a_file_ends_with_the_portion_that_makes_it_as_large_as_it_should_be(
    tmp_path: Path, portions: int
) -> None:
    table = Table(local_place(tmp_path, "none"))
    table.prepare(SCHEMA)
    size = rows(0, 5).cast(table_schema(table)).nbytes
    writer = TableWriter(table.layout, SCHEMA, "id", 0, target_bytes=portions * size)
    for n in range(6):
        writer.write(rows(0, 5))
        assert len(writer.done) == (n + 1) // portions
    assert [one.rows for one in writer.close()] == [5 * portions] * (6 // portions)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 1), (5, 9)], (0, 8)),
        ([(5, 9), (0, 1)], (0, 8)),
        ([(3, 9), (4, 5)], (3, 8)),
        ([(4, 5), (3, 9)], (3, 8)),
        ([(7, 8)], (7, 7)),
    ],
)
def test_what_is_said_of_a_file_is_true_of_all_its_portions(
    spans: list[tuple[int, int]], expected: tuple[int, int]
) -> None:
    """Offsets and times of events are bounds of their own: events come late."""
    entry = DataFile("x", 0, 0, "", "id", 0)
    for low, high in spans:
        offsets = np.arange(low, high)
        part = pa.table({"ts": (20 - offsets) * HOUR_MS + offsets, "_offset": offsets})
        files._note(entry, part, "ts")
    low, high = expected
    assert (entry.offset_min, entry.offset_max) == expected
    assert (entry.event_time_min, entry.event_time_max) == (
        (20 - high) * HOUR_MS + high,
        (20 - low) * HOUR_MS + low,
    )
    assert entry.hours == sorted({20 - n for span in spans for n in range(*span)})


def table_schema(table: Table) -> Any:
    """The columns of files of a table."""
    metadata, _ = table.layout.open()
    return files.numbered(lake_schema(SCHEMA), metadata.schema())
