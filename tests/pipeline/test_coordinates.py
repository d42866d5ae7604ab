"""Coordinates of the rows that files really have: those of a plain list, whatever the files are cut into and say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas_pipeline.lake import coordinates
from barnabas_pipeline.lake.columns import COORDINATES, DEAD_SCHEMA
from barnabas_pipeline.lake.coordinates import Seen, check_file, dead_offsets, row_offsets
from barnabas_pipeline.lake.iceberg import FileBounds
from barnabas_pipeline.lake.ledger import DataFile
from barnabas_pipeline.lake.scan import Piece
from barnabas_pipeline.lake.store import open_io, sha256_of
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import OffsetRange
from tests.support.effort import drawing

from .tables import load, local_place

TOPICS = ("id", "another")
ROW = tuple[str, int, int]
"""The incarnation, the partition and the offset of a row."""
IDENTITY = pa.schema([f for f in COORDINATES if f.name in ("_topic_id", "_topic_partition", "_offset")])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of files that the tests write by hand."""
    place = local_place(tmp_path)
    load(place, 1)
    return Table(place)


def file_of(path: Path, rows: list[ROW], **more: Any) -> DataFile:
    """Write a file as a load or a compaction does, and say of it what the ledger would."""
    columns = dict(zip(IDENTITY.names, zip(*rows, strict=True), strict=True)) if rows else {}
    built = pa.table(
        {name: pa.array(columns.get(name, ()), IDENTITY.field(name).type) for name in IDENTITY.names}
    )
    pq.write_table(
        built.rename_columns({"_topic_partition": more.pop("partition_name", "_topic_partition")}),
        path,
        **more,
    )
    location = f"file://{path}"
    return DataFile(location, len(rows), *sha256_of(open_io({}, location), location), "id")


def expected(files: list[tuple[list[ROW], Seen]], asked: OffsetRange) -> list[int]:
    """The offsets by a plain look at all rows. Of a file of ours the topic is that of its entry."""
    return sorted(
        offset
        for rows, seen in files
        for topic, partition, offset in rows
        if partition == asked.partition
        and asked.start <= offset < asked.end
        and (seen.is_ours or topic == "id")
    )


@pytest.mark.parametrize("run", range(6))
def test_offsets_are_those_of_a_plain_look_at_all_rows(table: Table, tmp_path: Path, run: int) -> None:
    draw = drawing(run)
    files: list[tuple[list[ROW], Seen]] = []
    for n in range(8):
        partitions = draw.choice([(0,), (1,), (0, 1, 2)])
        is_ours = draw.random() < 0.6
        rows = [
            ("id" if is_ours else draw.choice(TOPICS), draw.choice(partitions), draw.randrange(30))
            for _ in range(draw.randrange(40))
        ]
        entry = file_of(
            tmp_path / f"{n}.parquet",
            sorted(rows) if draw.random() < 0.5 else rows,
            row_group_size=draw.choice([1, 5, 100]),
            write_statistics=draw.choice([True, True, False]),
            partition_name=draw.choice(["_topic_partition", "_partition"]) if is_ours else "_topic_partition",
        )
        piece = Piece(entry.path, size=entry.size, rows=entry.rows)
        files.append((rows, Seen(entry, piece) if is_ours else Seen(None, piece)))
    for partition in range(3):
        for start, end in [
            (0, 30),
            (0, 1),
            (29, 30),
            (10, 10),
            *(sorted(draw.sample(range(31), 2)) for _ in range(12)),
        ]:
            asked = OffsetRange(partition, start, end)
            offsets = row_offsets(table.layout, [seen for _, seen in files], asked, "id")
            assert offsets.tolist() == expected(files, asked), asked


def test_rows_that_another_engine_has_deleted_are_not_there(table: Table, tmp_path: Path) -> None:
    entry = file_of(tmp_path / "a.parquet", [("id", 0, n) for n in range(10)])
    deletes = tmp_path / "deletes.parquet"
    pq.write_table(pa.table({"file_path": [entry.path] * 2, "pos": pa.array([0, 7], pa.int64())}), deletes)
    piece = Piece(entry.path, size=entry.size, rows=10, deletes=((f"file://{deletes}", "PARQUET"),))
    seen = Seen(entry, piece)
    assert not seen.is_ours
    asked = OffsetRange(0, 0, 8)
    assert row_offsets(table.layout, [seen], asked, "id").tolist() == [1, 2, 3, 4, 5, 6]
    assert check_file(table.layout, seen, "id") == (entry.path, "", 8, False)
    assert check_file(table.layout, seen, "another") == (entry.path, "", 0, False)


def test_what_cannot_be_read_has_no_rows_and_says_so(table: Table, tmp_path: Path) -> None:
    rows = [("id", 0, n) for n in range(4)]
    good = file_of(tmp_path / "good.parquet", rows)
    gone, broken = replace(good, path="file:///none"), tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no")
    bad = replace(good, path=f"file://{broken}")
    longer = file_of(tmp_path / "longer.parquet", [*rows, ("id", 0, 4)])

    def piece(entry: DataFile, rows: int = 4) -> Piece:
        return Piece(entry.path, size=entry.size, rows=rows)

    for seen, problem, count, is_ours in (
        (Seen(good, piece(good)), "", 4, True),
        (Seen(good), "", 4, True),
        (Seen(None, piece(good)), "", 4, False),
        (Seen(gone, piece(gone, 7)), "is missing: 4 rows", -1, True),
        (Seen(None, piece(gone, 7)), "is missing: 7 rows", -1, False),
        (Seen(bad, piece(bad)), "is not as it was written, and no Parquet", -1, True),
        (Seen(None, piece(bad)), "is not as it was written, and no Parquet", -1, False),
        (Seen(replace(longer, size=1), piece(longer)), "is not as it was written", 5, True),
        (Seen(replace(longer, sha256="0"), piece(longer)), "is not as it was written", 5, True),
        (Seen(replace(longer, rows=4), piece(longer, 5)), "has 5 rows, the ledger says 4", 5, True),
        (Seen(longer, piece(longer, 4)), "has 5 rows, the snapshot says 4", 5, True),
    ):
        assert check_file(table.layout, seen, "id") == (
            seen.path, f"{seen.path} {problem}" if problem else "", count, is_ours,
        )  # fmt: skip
        offsets = row_offsets(table.layout, [seen], OffsetRange(0, 0, 4), "id")
        assert offsets.tolist() == ([0, 1, 2, 3] if count > 0 else [])


@pytest.mark.parametrize("run", range(3))
def test_dead_letters_stand_for_the_offsets_of_their_spans(table: Table, tmp_path: Path, run: int) -> None:
    draw = drawing(run)
    letters: list[tuple[int, int, int]] = []
    files = []
    for n in range(3):
        mine = [(draw.randrange(2), low, low + draw.choice([1, 1, 4])) for low in draw.sample(range(40), 9)]
        rows = [dict(zip(("partition", "offset", "end_offset"), row, strict=True)) for row in mine]
        path = tmp_path / f"dead{n}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, DEAD_SCHEMA), path, row_group_size=4)
        letters += mine
        files.append(Seen(DataFile(f"file://{path}", 9, 0, "", "id")))
    for start, end in [(0, 40), *(sorted(draw.sample(range(41), 2)) for _ in range(10))]:
        chosen = [row for row in letters if row[0] == 1 and start <= row[1] < end]
        count, offsets = dead_offsets(table.layout, files, OffsetRange(1, start, end))
        assert count == len(chosen)
        assert offsets.tolist() == sorted(at for _, low, high in chosen for at in range(low, high))


@pytest.mark.parametrize(
    ("asked", "groups", "is_sure"),
    [
        (OffsetRange(0, 0, 100), [0, 1, 2], False),
        (OffsetRange(0, 0, 15), [0, 1], True),
        (OffsetRange(0, 4, 5), [0], True),
        (OffsetRange(0, 5, 10), [], True),
        (OffsetRange(0, 14, 15), [1], True),
        (OffsetRange(0, 5, 11), [1], True),
        (OffsetRange(0, 15, 30), [2], False),  # has rows of partition 1 and of 3 too
        (OffsetRange(2, 15, 30), [2], False),
        (OffsetRange(3, 0, 100), [2], False),
        (OffsetRange(4, 0, 100), [], True),
    ],
)
def test_only_row_groups_that_may_have_the_offsets_are_read(
    tmp_path: Path, asked: OffsetRange, groups: list[int], is_sure: bool
) -> None:
    """And the partitions are looked at where one of those parts may have others."""
    rows: list[ROW] = [("id", 0, n) for n in (*range(5), *range(10, 15))]
    rows += [("id", partition, n) for n, partition in zip(range(20, 25), (0, 1, 3, 1, 0), strict=True)]
    file_of(tmp_path / "a", rows, row_group_size=5)
    metadata = pq.read_metadata(tmp_path / "a")
    assert coordinates.choose(metadata, asked, "_topic_partition", "_offset") == (groups, is_sure)
    file_of(tmp_path / "b", rows, row_group_size=5, write_statistics=False)
    metadata = pq.read_metadata(tmp_path / "b")
    assert coordinates.choose(metadata, asked, "_topic_partition", "_offset") == ([0, 1, 2], False)


# --- which files are read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(-1, -1, -1), (-1, 10, 20), (0, -1, -1), (0, 10, 20), (1, 10, 20)])
def test_a_file_may_have_what_nothing_says_it_has_not(bounds: tuple[int, int, int]) -> None:
    """An entry and a snapshot say the same things of a file in two ways; -1 and "" say nothing."""
    partition, low, high = bounds
    entry = DataFile("e", 1, 1, "", "id", partition, offset_min=low, offset_max=high)
    piece = Piece("p", bounds=FileBounds("id", partition, low, high))
    ends = range(low, high + 1) if high >= 0 else range(30)
    for start in range(30):
        for end in range(start + 1, 31):
            expected = partition in (0, -1) and (high < 0 or any(at in ends for at in range(start, end)))
            for seen in (Seen(entry, piece), Seen(entry), Seen(None, piece)):
                assert seen.may_have(0, start, end) is expected
    assert (Seen(entry, piece).path, Seen(entry).path, Seen(None, piece).path, Seen(None).path) == (
        "p",
        "e",
        "p",
        "",
    )
    assert not Seen(None).may_have(0, 0, 1)


def test_file_may_be_of_its_incarnation_or_of_any_without_one() -> None:
    for name, expected in (("id", True), ("another", False), ("", True)):
        entry, piece = DataFile("e", 1, 1, "", name), Piece("p", bounds=FileBounds(name, -1, -1, -1))
        for seen in (
            Seen(entry),
            Seen(None, piece),
            Seen(entry, Piece("p", bounds=FileBounds("x", 0, 0, 0))),
        ):
            assert seen.may_be_of("id") is expected
    assert Seen(None).may_be_of("id")
    assert Seen(None).is_ours is False
