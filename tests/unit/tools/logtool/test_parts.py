"""Parts of `barnabas log` by themselves: figures of batches, rows of files, checks of one index, a disk that pretends."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.log.disk import OsDisk
from barnabas.log.format import txn_index
from barnabas.tools.logtool.dump import Dumper, describe_batch, padding
from barnabas.tools.logtool.overlay import Change, OverlayDisk, OverlayFile
from barnabas.tools.logtool.stats import LogStats
from barnabas.tools.logtool.verify import Finding, SegmentMap, Verifier

HEADER = {
    "base_offset": 11, "last_offset": 13, "next_offset": 14, "records_count": 3, "size": 200, "magic": 2, "crc": 17,
    "codec": 3, "timestamp_type": 1, "base_timestamp": 50, "max_timestamp": 70, "leader_epoch": 19, "producer_id": 23,
    "producer_epoch": 29, "base_sequence": 31, "last_sequence": 33, "is_transactional": True, "is_control": False,
    "delete_horizon_ms": None, "has_delete_horizon": False,
}  # fmt: skip


def header(**more: Any) -> Any:
    return SimpleNamespace(**HEADER | more)


# --- figures --------------------------------------------------------------------------------------------------------


def test_a_batch_is_a_row_with_each_of_its_fields() -> None:
    row = describe_batch(41, header())
    expected = {
        "kind": "batch", "base_offset": 11, "last_offset": 13, "count": 3, "position": 41, "size": 200, "magic": 2,
        "crc": 17, "codec": "lz4", "timestamp_type": 1, "base_timestamp": 50, "max_timestamp": 70, "leader_epoch": 19,
        "producer_id": 23, "producer_epoch": 29, "base_sequence": 31, "last_sequence": 33, "transactional": True,
        "control": False, "delete_horizon_ms": None,
    }  # fmt: skip
    assert row == expected
    old = describe_batch(41, header(magic=1, codec=7))
    assert old == dict(list(expected.items())[:12]) | {"magic": 1, "codec": 7}
    assert describe_batch(0, header(codec=4))["codec"] == "zstd"
    assert describe_batch(0, header(codec=5))["codec"] == 5


def test_figures_of_a_log_are_sums_and_ends_of_its_batches() -> None:
    stats = LogStats(segments=2, log_bytes=900, other_bytes=80)
    assert "batch_bytes_mean" not in stats.row("t-0")
    stats.add(header())
    stats.add(
        header(codec=0, size=101, producer_id=-1, is_transactional=False, base_timestamp=40, max_timestamp=60)
    )
    stats.add(header(
        magic=1, codec=9, size=400, base_offset=20, next_offset=30, records_count=-1, producer_id=0, is_control=True,
        base_timestamp=-1, max_timestamp=90,
    ))  # fmt: skip
    stats.add(header(producer_id=23, size=10, max_timestamp=-1, base_timestamp=1))
    assert stats.row("t-0") == {
        "kind": "stats", "name": "t-0", "segments": 2, "log_bytes": 900, "other_bytes": 80, "first_offset": 11,
        "end_offset": 14, "batches": 4, "records": 9, "records_per_batch": 2.25, "batch_bytes_mean": 711 // 4,
        "batch_bytes_max": 400, "min_timestamp": 40, "max_timestamp": 90,
        "codecs": {"9": 1, "lz4": 2, "none": 1}, "codec_bytes": {"9": 400, "lz4": 210, "none": 101},
        "magics": {1: 1, 2: 3}, "producers": 2, "transactional_batches": 3, "control_batches": 1,
    }  # fmt: skip


# --- rows of files --------------------------------------------------------------------------------------------------


def rows(path: Path, **more: Any) -> list[Any]:
    return list(Dumper(OsDisk(), **more).file(str(path)))


def test_entries_of_indexes_are_shown_from_one_offset_to_another(tmp_path: Path) -> None:
    offsets, times = tmp_path / f"{100:020}.index", tmp_path / f"{100:020}.timeindex"
    offsets.write_bytes(struct.pack(">iiiiii", 1, 70, 5, 300, 9, 500) + bytes(16))
    times.write_bytes(struct.pack(">qiqiqi", 1000, 1, 2000, 5, 3000, 9) + bytes(24))
    by_offset = [
        {"kind": "offset_index_entry", "offset": 100 + entry, "position": at}
        for entry, at in ((1, 70), (5, 300), (9, 500))
    ]
    by_time = [
        {"kind": "time_index_entry", "timestamp": at, "offset": 100 + entry}
        for entry, at in ((1, 1000), (5, 2000), (9, 3000))
    ]
    for path, expected in ((offsets, by_offset), (times, by_time)):
        assert rows(path) == expected
        assert rows(path, first=101, last=105) == expected[:2]
        assert rows(path, first=102, last=104) == []
        assert rows(path, first=105, last=105) == expected[1:2]
        path.write_bytes(path.read_bytes()[:-1])
        size = path.stat().st_size
        assert rows(path) == [
            *expected,
            {"kind": "problem", "text": f"{size} bytes are no whole number of entries"},
        ]
    offsets.write_bytes(struct.pack(">ii", 256, 70 << 24))
    assert [row["offset"] for row in rows(offsets)] == [356], "zeros at the end of an entry are its own"
    assert [padding(data) for data in (b"", b"\0\0", b"a\0", b"a")] == [0, 2, 1, 0]


# --- checks of one index --------------------------------------------------------------------------------------------


class Checked:
    """A verifier over a directory, and what it found."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.found: list[Finding] = []
        self.verifier = Verifier(OsDisk(), self.found.append)
        self.segment = SegmentMap(100)
        for position, base, last in ((0, 100, 104), (300, 105, 109), (700, 112, 114)):
            self.segment.add(position, header(
                base_offset=base, last_offset_delta=last - base, size=300, max_timestamp=last * 10,
            ))  # fmt: skip

    def texts(self) -> list[tuple[str, int]]:
        result = [(entry.text, entry.position) for entry in self.found]
        self.found.clear()
        return result

    def index(self, *entries: tuple[int, int]) -> list[tuple[str, int]]:
        path = self.directory / f"{100:020}.index"
        path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
        self.verifier._offset_index(str(path), self.segment)
        return self.texts()

    def times(self, *entries: tuple[int, int]) -> list[tuple[str, int]]:
        path = self.directory / f"{100:020}.timeindex"
        path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
        self.verifier._time_index(str(path), self.segment)
        return self.texts()

    def transactions(self, *there: txn_index.AbortedTransaction) -> list[str]:
        path = self.directory / f"{100:020}.txnindex"
        path.write_bytes(txn_index.encode(there))
        place = SimpleNamespace(file=lambda base, suffix: f"{self.directory}/{base:020}{suffix}")
        self.verifier._txn_index(place, self.segment, has_file=True)  # type: ignore[arg-type]
        return [text for text, _ in self.texts()]


def test_offset_index_entries_are_checked_against_batches(tmp_path: Path) -> None:
    checked = Checked(tmp_path)
    assert checked.index((9, 300), (14, 700)) == []
    assert checked.index((8, 300)) == [("offset 108 is not at 300: 109 is there", 0)]
    assert checked.index((15, 700)) == [("offset 115 is not at 700: 114 is there", 0)]
    assert checked.index((10, 300)) == [], "offsets that were compacted away are of the batch before them"
    assert checked.index((9, 301)) == [("no batch begins at 301, where offset 109 shall be", 0)]
    assert checked.index((9, 300), (9, 700)) == [
        ("entry 109 at 700 does not follow the one before it", 8), ("offset 109 is not at 700: 114 is there", 8),
    ]  # fmt: skip
    assert checked.index((9, 300), (14, 300)) == [("entry 114 at 300 does not follow the one before it", 8)]
    checked.segment.is_whole = False
    assert checked.index((20, 1000)) == []
    assert checked.index((20, 999)) == [("no batch begins at 999, where offset 120 shall be", 0)]


def test_each_entry_of_a_time_index_is_checked_against_its_batch(tmp_path: Path) -> None:
    checked = Checked(tmp_path)
    assert checked.times((1040, 4), (1090, 9), (1140, 14)) == []
    assert checked.times((1041, 4)) == [("the largest timestamp up to offset 104 is 1040, not 1041", 0)]
    assert checked.times((1040, 4), (1040, 4)) == [
        ("entry 1040 at offset 104 does not follow the one before it", 12)
    ]
    assert checked.times((1090, 9), (1140, 8)) == [
        ("entry 1140 at offset 108 does not follow the one before it", 12),
        ("the largest timestamp up to offset 108 is 1090, not 1140", 12),
    ]  # fmt: skip
    assert checked.times((1140, 14), (1150, 15)) == [("offset 115 is not in the segment", 12)]
    checked.segment.is_whole = False
    assert checked.times((1150, 15)) == []


def test_aborted_transactions_are_checked_against_the_log(tmp_path: Path) -> None:
    checked = Checked(tmp_path)
    entry = txn_index.AbortedTransaction
    expected = entry(7, 101, 112, 100)
    assert checked.transactions(entry(7, 90, 112, 80)) == [], "it may have begun before"
    checked.segment.aborted = [expected]
    assert checked.transactions(expected) == []
    assert checked.transactions(expected._replace(first_offset=90)) == []
    assert checked.transactions() == ["the transaction that was aborted at offset 112 is missing"]
    right = "should be the aborted transaction of producer 7, 101 to 112"
    assert checked.transactions(expected._replace(producer_id=8)) == [
        f"the aborted transaction of producer 8, 101 to 112 {right}"
    ]
    assert checked.transactions(expected._replace(first_offset=102)) == [
        f"the aborted transaction of producer 7, 102 to 112 {right}"
    ]
    after = entry(9, 103, 115, 100)
    assert checked.transactions(expected, after) == [
        "the aborted transaction of producer 9, 103 to 115 ends after the segment"
    ]
    assert checked.transactions(expected, after._replace(last_offset=114)) == []
    checked.segment.is_whole = False
    assert checked.transactions(expected, after) == []


def test_a_segment_is_mapped_by_its_batches(tmp_path: Path) -> None:
    segment = Checked(tmp_path).segment
    assert (segment.positions, segment.base_offsets, segment.last_offsets) == (
        [0, 300, 700],
        [100, 105, 112],
        [104, 109, 114],
    )
    assert (segment.max_timestamps, segment.end_offset, segment.size) == ([1040, 1090, 1140], 115, 1000)
    assert SegmentMap(100).end_offset == 100
    segment.add(1000, header(base_offset=115, last_offset_delta=0, size=50, max_timestamp=5))
    assert (segment.max_timestamps[-1], segment.size) == (1140, 1050)


# --- a disk that pretends -------------------------------------------------------------------------------------------


def test_what_ends_as_it_was_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    path = f"{tmp_path}/a"
    overlay = OverlayDisk(OsDisk())
    assert overlay.changes() == []
    overlay.open(path).truncate(4)
    assert overlay.changes() == [Change("cut", path, size=4)]
    overlay.open(path).write(b"ef", 4)
    assert overlay.changes() == []
    overlay.open(path).write(b"X", 5)
    assert overlay.changes() == [Change("write", path, data=b"abcdeX")]
    with pytest.raises(FileNotFoundError):
        overlay.open(f"{tmp_path}/none")
    overlay.remove(f"{tmp_path}/none")
    overlay.make_private(f"{tmp_path}/new")
    assert overlay.changes()[1:] == [Change("write", f"{tmp_path}/new", data=b"")]
    assert overlay.open(path).is_at(path)
    assert OverlayFile(None).size() == 0
    result = [
        Change("rename", "x", "d/y"),
        Change("cut", "x", size=5),
        Change("remove", "x"),
        Change("write", "x"),
    ]
    assert [change.describe() for change in result] == ["rename to y", "cut to 5 bytes", "remove", "write"]
