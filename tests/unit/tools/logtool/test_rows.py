"""Rows and what is counted in them: values as text and as JSON, findings by file, numbers of batches, kinds of places."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.log.disk import OsDisk
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.tools.logtool.grouping import PLACES_MAX, FindingRows
from barnabas.tools.logtool.places import PlaceError, PlaceKind, find_place, lock_path_for, partitions_of
from barnabas.tools.logtool.rows import plain, to_json, to_text
from barnabas.tools.logtool.stats import LogStats
from barnabas.tools.logtool.verify import Finding, Severity


class Color(Enum):
    RED = 5


@dataclass
class Message:
    topic_id: bytes
    name: str
    unknown_tagged_fields: Any = None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        ("ä", "ä"),
        (b"text\n", "text\n"),
        (b"", ""),
        (b"\xff", {"base64": "/w=="}),
        (b"\0", {"base64": "AA=="}),
        (bytearray(b"a"), "a"),
        (memoryview(b"a"), "a"),
        ("\udcff", {"base64": "/w=="}),
        (Color.RED, "red"),
        ({1: b"a", "b": [Color.RED]}, {"1": "a", "b": ["red"]}),
        ((1, b"a"), [1, "a"]),
        (Message(bytes(16), "n"), {"topic_id": "AAAAAAAAAAAAAAAAAAAAAA", "name": "n"}),
        (
            Message(b"short", "n", {3: b"x"}),
            {"topic_id": "short", "name": "n", "unknown_tagged_fields": {"3": "x"}},
        ),
    ],
)
def test_values_are_what_json_knows(value, expected):
    assert plain(value) == expected
    assert json.loads(to_json({"kind": "k", "value": value})) == {"kind": "k", "value": expected}


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("word", "word"),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('a"b', '"a\\"b"'),
        ("", '""'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("ä", "ä"),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (1.5, "1.5"),
        ([1, "a"], '[1, "a"]'),
        (b"\xff", '{"base64": "/w=="}'),
    ],
    ids=str,
)
def test_a_row_as_text_has_a_word_for_each_field_that_is_there(value, word):
    assert to_text({"kind": "k", "a": value, "b": None, "c": 1}) == f"k a={word} c=1"


def test_what_no_row_can_hold_is_a_defect():
    with pytest.raises(TypeError):
        plain(object())


# --- findings -------------------------------------------------------------------------------------------------------


def finding(path: str, position: int = 5, severity: Severity = Severity.ERROR, text: str = "bad") -> Finding:
    return Finding(severity, path, text, position)


def test_findings_of_a_file_and_a_severity_are_one_row_with_the_next_places():
    rows: list[Any] = []
    found = FindingRows(rows.append)
    other = next(one for one in Severity if one is not Severity.ERROR)
    for position in (1, 2, -1, 3, 4, 5):
        found.add(finding("a", position))
    found.add(finding("a", 7, other))
    found.add(finding("b", -1))
    assert rows == []
    found.flush()
    assert PLACES_MAX == 3
    assert rows == [
        {"kind": "error", "path": "a", "position": 1, "text": "bad", "count": 6, "next_positions": [2, 3, 4]},
        {"kind": other.name.lower(), "path": "a", "position": 7, "text": "bad"},
        {"kind": "error", "path": "b", "position": None, "text": "bad"},
    ]
    assert (found.counts[Severity.ERROR], found.counts[other]) == (7, 1)
    found.flush()
    assert len(rows) == 3, "each is told once"


@pytest.mark.parametrize("each", [True, False])
def test_quietly_only_errors_are_told_and_all_are_counted(each):
    rows: list[Any] = []
    before: list[int] = []
    found = FindingRows(rows.append, each=each, quiet=True)
    found.before_row = lambda: before.append(len(rows))
    other = next(one for one in Severity if one is not Severity.ERROR)
    for position in (0, 1):
        found.add(finding("a", position, other))
        found.add(finding("a", position))
    assert len(rows) == (2 if each else 0)
    found.flush()
    assert [row["kind"] for row in rows] == ["error"] * (2 if each else 1)
    assert rows[0]["position"] == 0
    assert before == [*range(len(rows))]
    assert found.counts[other] == found.counts[Severity.ERROR] == 2


# --- numbers --------------------------------------------------------------------------------------------------------


def header(**more: Any) -> Any:
    usual = {
        "codec": 0, "records_count": 2, "is_control": False, "is_transactional": False, "size": 100, "magic": 2,
        "producer_id": -1, "max_timestamp": 20, "base_timestamp": 10, "has_delete_horizon": False, "base_offset": 0,
        "next_offset": 2,
    }  # fmt: skip
    return SimpleNamespace(**{**usual, **more})


def test_batches_are_counted_and_summed_up():
    stats = LogStats()
    assert stats.row("t-0")["batches"] == 0
    assert "records_per_batch" not in stats.row("t-0")
    for one in (
        header(base_offset=5, next_offset=7),
        header(codec=1, size=301, producer_id=0, is_transactional=True, base_timestamp=5, max_timestamp=7),
        header(
            codec=4, records_count=-1, is_control=True, is_transactional=True, producer_id=9, max_timestamp=-1
        ),
        header(
            codec=7,
            records_count=1,
            magic=1,
            base_timestamp=-1,
            max_timestamp=30,
            base_offset=8,
            next_offset=9,
        ),
        header(codec=0, size=50, base_timestamp=1, max_timestamp=15, has_delete_horizon=True, next_offset=12),
    ):
        stats.add(one)
    row = stats.row("t-0")
    assert (row["batches"], row["records"], row["records_per_batch"]) == (5, 7, 1.4)
    assert (row["batch_bytes_mean"], row["batch_bytes_max"]) == (651 // 5, 301)
    assert (row["first_offset"], row["end_offset"]) == (5, 12)
    assert (row["min_timestamp"], row["max_timestamp"]) == (5, 30)
    assert row["codecs"] == {"7": 1, "gzip": 1, "none": 2, "zstd": 1}
    assert row["codec_bytes"] == {"7": 100, "gzip": 301, "none": 150, "zstd": 100}
    assert (row["magics"], row["producers"]) == ({1: 1, 2: 4}, 2)
    assert (row["transactional_batches"], row["control_batches"]) == (2, 1)
    assert "distinct_keys" not in row
    assert "problems" not in row


def test_records_are_counted_by_their_keys_and_values():
    stats = LogStats(is_deep=True)
    records = [(b"a", b"12"), (b"a", None), (None, b"345"), (b"bc", b"")]
    data = encode_batch([Record(n, 1, key, value) for n, (key, value) in enumerate(records)])
    stats.open(header(), bytes(data))
    stats.open(header(is_control=True), bytes(data))
    row = stats.row("t-0")
    assert (row["distinct_keys"], row["null_keys"], row["tombstones"]) == (2, 1, 1)
    assert (row["key_bytes"], row["value_bytes"]) == (4, 5)


# --- places ---------------------------------------------------------------------------------------------------------


def test_a_place_is_told_by_what_is_in_it(tmp_path):
    disk = OsDisk()
    log_dir, copied = tmp_path / "logs", tmp_path / "copies" / "t-0"
    for path in (
        log_dir / "t-1",
        log_dir / "t-0",
        log_dir / "u-0",
        log_dir / "u-3.0a-delete",
        copied,
        tmp_path / "x",
    ):
        path.mkdir(parents=True)
    (log_dir / "meta.properties").touch()
    segment = log_dir / "t-0" / f"{0:020d}.log"
    segment.touch()
    for path, kind in (
        (log_dir, PlaceKind.LOG_DIR), (log_dir / "t-0", PlaceKind.PARTITION), (log_dir / "t-1", PlaceKind.PARTITION),
        (segment, PlaceKind.FILE), (copied, PlaceKind.PARTITION), (tmp_path / "copies", PlaceKind.LOG_DIR),
    ):  # fmt: skip
        place = find_place(disk, f"{path}/" if kind is not PlaceKind.FILE else str(path))
        assert (place.kind, place.path) == (kind, str(path))
        lock = lock_path_for(disk, place)
        in_log_dir = str(path).startswith(str(log_dir))
        expected = f"{log_dir}/.lock" if in_log_dir else None
        assert lock == (f"{tmp_path}/copies/.lock" if path == tmp_path / "copies" else expected)
    for wrong in (tmp_path / "x", tmp_path / "none"):
        with pytest.raises(PlaceError, match=str(wrong)):
            find_place(disk, str(wrong))

    def listed(wanted: str = "") -> list[str]:
        return [place.name for place in partitions_of(disk, str(log_dir), wanted)]

    assert listed() == ["t-0", "t-1", "u-0"]
    assert listed("t") == ["t-0", "t-1"]
    assert listed("t-1") == ["t-1"]
    assert listed("w") == []
