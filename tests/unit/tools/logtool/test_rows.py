"""Rows and what is counted in them: values as text and as JSON, findings by file, numbers of batches, kinds of places."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.tools.logtool.rows import to_text
from barnabas.tools.logtool.stats import LogStats


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
    for entry in (
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
        stats.add(entry)
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
