"""JSON is judged as an event or refused with a reason; the fast way and the slow way agree."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.formats.base import EXTRA, FUTURE_MAX_MS, PAST_MAX_MS
from barnabas_pipeline.formats.json import JsonDecoder as Decoder
from barnabas_pipeline.log.columns import Columns, no_headers
from barnabas_pipeline.schema import BUILT_IN, EventSchema, Field

SCHEMA = EventSchema(
    "t",
    "ts",
    (
        Field("ts", "long", required=True, min=0),
        Field("name", "string", required=True, min=1, max=5),
        Field("score", "double"),
        Field("flag", "boolean"),
    ),
)
DECODER = Decoder(SCHEMA, value_bytes_max=200)
NOW = 1_700_000_000_000


def columns(values: list[bytes | None], timestamp_ms: int = NOW) -> Columns:
    count = len(values)
    return Columns(
        np.arange(count), np.full(count, timestamp_ms), np.zeros(count, np.int32), np.zeros(count, np.int32),
        pa.nulls(count, pa.binary()), pa.array(values, pa.binary()), no_headers(count),
    )  # fmt: skip


def verdict(values: list[bytes | None]) -> list[Any]:
    """Each value's row, or the reason why it has none."""
    rows, table, bad = DECODER.decode(columns(values))
    verdicts: list[Any] = [None] * len(values)
    for row, fields in zip(rows.tolist(), table.to_pylist(), strict=True):
        verdicts[row] = fields
    for letter in bad:
        verdicts[letter.row] = letter.reason
    return verdicts


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b'{"ts":%d,"name":"\xff"}' % NOW, "utf8"),
        (b'{"ts":%d,"name":"\\ud800"}' % NOW, "utf8"),
        (b'{"ts":%d,"name":"a"' % NOW, "json"),
        (b"{'ts':1}", "json"),
        (b'{"ts":NaN,"name":"a"}', "json"),
        (b"[" * 199, "json"),
        (b'{"ts":%d,"name":"a"}{"ts":1}' % NOW, "trailing"),
        (b'{"ts":%d,"name":"a","name":"b"}' % NOW, "duplicate_key"),
        (b'{"ts":%d,"name":"a","x":{"y":1,"y":2}}' % NOW, "duplicate_key"),
        (b'{"name":"a"}', "missing_field"),
        (b'{"TS":%d,"name":"a"}' % NOW, "missing_field"),
        (b'{"ts":"1","name":"a"}', "type"),
        (b'{"ts":1.0,"name":"a"}', "type"),
        (b'{"ts":true,"name":"a"}', "type"),
        (b'{"ts":null,"name":"a"}', "type"),
        (b'{"ts":%d,"name":7}' % NOW, "type"),
        (b"[1]", "type"),
        (b'{"ts":-1,"name":"a"}', "range"),
        (b'{"ts":%d,"name":""}' % NOW, "range"),
        (b'{"ts":%d,"name":"abcdef"}' % NOW, "range"),
        (b'{"ts":99999999999999999999,"name":"a"}', "range"),
        (b'{"ts":%d,"name":"a","score":1e999}' % NOW, "range"),
        (b'{"ts":1,"name":"a"}', "time"),
        (b'{"ts":%d,"name":"a"}' % (NOW + FUTURE_MAX_MS + 1), "time"),
        (b'{"ts":%d,"name":"a"}' % (NOW - PAST_MAX_MS - 1), "time"),
        (b'{"ts":%d,"name":"a","x":"%s"}' % (NOW, b"x" * 200), "too_large"),
    ],
)
def test_bad_records_have_a_reason_alone_and_among_good_ones(value: bytes | None, reason: str) -> None:
    good = b'{"ts":%d,"name":"g"}' % NOW
    row = {"ts": NOW, "name": "g", "score": None, "flag": None, EXTRA: None}
    assert verdict([value]) == [reason]
    assert verdict([good, value, good]) == [row, reason, row]


@pytest.mark.parametrize("ts", [NOW + FUTURE_MAX_MS, NOW - PAST_MAX_MS, NOW])
def test_event_time_is_bounded_by_the_record_timestamp(ts: int) -> None:
    (row,) = verdict([b'{"ts":%d,"name":"g"}' % ts])
    assert row["ts"] == ts


def test_unknown_fields_are_kept() -> None:
    (row,) = verdict([b'{"ts":%d,"name":"a","new":[1,{"b":null}],"score":2}' % NOW])
    assert json.loads(row[EXTRA]) == {"new": [1, {"b": None}]}
    assert row["score"] == 2.0


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
NAMES = st.sampled_from(["ts", "name", "score", "flag", "extra", "TS"])
LIKELY = st.fixed_dictionaries(
    {"ts": st.integers(NOW - 10, NOW + 10) | JSON_VALUES, "name": st.text(max_size=6) | JSON_VALUES},
    optional={"score": JSON_VALUES, "flag": st.booleans() | JSON_VALUES, "extra": JSON_VALUES},
)
TEXTS = st.builds(
    lambda event, indent, ascii_only, noise: (
        json.dumps(event, indent=indent, ensure_ascii=ascii_only) + noise
    ),
    LIKELY | st.dictionaries(NAMES, JSON_VALUES) | JSON_VALUES,
    st.sampled_from([None, None, 1]),
    st.booleans(),
    st.sampled_from(["", "", "", " ", "\n", "{}", "}", '{"ts":1}']),
)
VALUES = TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=30) | st.none()
GOOD = st.builds(
    lambda ts, name, score: json.dumps({"ts": ts, "name": name, "score": score}).encode(),
    st.integers(NOW - 10, NOW + 10),
    st.text("abc\n\u2028é\U0001f600", min_size=1, max_size=5),
    st.none() | st.floats(-5, 5),
)


@given(st.lists(GOOD | VALUES, min_size=1, max_size=5))
@settings(max_examples=500)
def test_a_record_is_judged_the_same_in_any_company(values: list[bytes | None]) -> None:
    assert verdict(values) == [row for value in values for row in verdict([value])]
    slow_rows, slow_table, slow_bad = DECODER._decode_each(columns(values))
    rows, table, bad = DECODER.decode(columns(values))
    assert (rows.tolist(), table.to_pylist(), bad) == (slow_rows.tolist(), slow_table.to_pylist(), slow_bad)


def test_schemas_grow_by_nullable_fields_only() -> None:
    old = BUILT_IN["clicks"]
    grown = EventSchema("clicks", "ts", (*old.fields, Field("position", "long")))
    old.check_evolution(grown)
    for fields, text in (
        ((*old.fields, Field("position", "long", required=True)), "must be nullable"),
        (old.fields[:-1], "cannot go"),
        ((*old.fields[:-1], Field("item", "long")), "cannot become"),
    ):
        with pytest.raises(UsageError, match=text):
            old.check_evolution(EventSchema("clicks", "ts", fields))
