"""Whole columns as the careful way has one value; samples for drafts, heads of Connect's envelope, a registry's address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from barnabas.records.batch import read_any_header
from barnabas.records.building import encode_batch
from barnabas.records.record import Record as Written
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.field_types import Array, Field, Record, arrow_type
from barnabas_pipeline.formats import connect, inference, resolve
from barnabas_pipeline.formats.registry import Registry
from barnabas_pipeline.log.columns import NotSureError
from barnabas_pipeline.log.model import Bounds, LogOptions, OffsetRange, RawBatch

# --- whole columns ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "writer", "reader", "expected", "good"),
    [
        ([1, None, 3], Field("a", "int"), Field("a", "long"), [1, None, 3], [True, True, True]),
        ([1, None, 3], Field("a", "int"), Field("a", "long", True), [1, None, 3], [True, False, True]),
        ([4, 5, 9, 10, None], Field("a", "int"), Field("a", "int", min=5, max=9), [4, 5, 9, 10, None],
         [False, True, True, False, True]),
        (["", "ä", "äb"], Field("a", "string"), Field("a", "string", min=1, max=1), ["", "ä", "äb"],
         [False, True, False]),
        ([1.5, 2.5], Field("a", "double"), Field("a", "double", max=2), [1.5, 2.5], [True, False]),
        ([1], Field("a", "int"), Field("b", "long"), [None], [True]),
        ([1], Field("a", "int"), Field("b", "long", aliases=("a",)), [1], [True]),
        ([1], Field("a", "int"), Field("b", "long", True, default=7), [7], [True]),
        ([b"x"], Field("a", "bytes"), Field("a", "string"), ["x"], [True]),
        (["x"], Field("a", "string"), Field("a", "bytes"), [b"x"], [True]),
        ([16_777_217], Field("a", "int"), Field("a", "float"), [16_777_216.0], [True]),
        ([[1], None, []], Field("a", Array(Field("e", "int"))), Field("a", Array(Field("e", "long"))),
         [[1], None, []], [True] * 3),
        ([{"x": 1}, None], Field("a", Record((Field("x", "int"),))),
         Field("a", Record((Field("x", "long"), Field("y", "long")))), [{"x": 1, "y": None}, None], [True] * 2),
    ],
)  # fmt: skip
def test_columns_are_resolved_to_the_tables_fields_with_the_rows_that_fit(
    values: list[Any], writer: Field, reader: Field, expected: list[Any], good: list[bool]
) -> None:
    column = pa.array(values, arrow_type(writer.type))
    [made], fits = resolve.record_columns([column], (writer,), (reader,), len(values))
    assert made.type == arrow_type(reader.type)
    assert (made.to_pylist(), fits.tolist()) == (expected, good)


@pytest.mark.parametrize(
    ("values", "writer", "reader"),
    [
        ([1], Field("a", "int"), Field("b", "long", True)),
        ([1], Field("a", "int"), Field("b", "long", default="no number")),
        (["x"], Field("a", "string"), Field("a", "long")),
        ([[1, None]], Field("a", Array(Field("e", "int"))), Field("a", Array(Field("e", "long", True)))),
        ([[1]], Field("a", Array(Field("e", "int"))), Field("a", Array(Field("e", "long", min=0)))),
        ([[1]], Field("a", Array(Field("e", "int"))), Field("a", Array(Field("e", "long", max=9)))),
        ([[1]], Field("a", Array(Field("e", "int"))), Field("a", Array(Field("e", "int")), max=9)),
        (
            [{"x": None}],
            Field("a", Record((Field("x", "int"),))),
            Field("a", Record((Field("x", "long", True),))),
        ),
    ],
)
def test_what_a_whole_column_is_not_sure_of_is_left_to_the_careful_way(
    values: list[Any], writer: Field, reader: Field
) -> None:
    column = pa.array(values, arrow_type(writer.type))
    with pytest.raises(NotSureError):
        resolve.record_columns([column], (writer,), (reader,), len(values))


def test_of_no_rows_nothing_is_missing() -> None:
    [made], fits = resolve.record_columns([], (), (Field("b", "long", True),), 0)
    assert (made.to_pylist(), fits.tolist()) == ([], [])


# --- drafts -----------------------------------------------------------------------------------------------------------


class Sampled:
    """A log whose partitions have so many records."""

    def __init__(self, *counts: int) -> None:
        self.counts, self.closed = counts, 0

    def bounds(self) -> dict[int, Bounds]:
        return {n: Bounds(10, 10 + count, 10 + count, 0) for n, count in enumerate(self.counts)}

    def read(self, wanted: OffsetRange) -> Iterator[RawBatch]:
        for at in range(wanted.start, wanted.end, 4):
            records = [
                Written(n, 5, None, b"%d/%d" % (wanted.partition, n - 10))
                for n in range(at, min(at + 4, wanted.end))
            ]
            data = encode_batch(records, base_offset=at)
            yield RawBatch(data, read_any_header(data), False)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("counts", "wanted", "shares"),
    [
        ((9, 9), 6, (3, 3)),
        ((9, 9, 9), 10, (3, 3, 4)),
        ((1, 9), 6, (1, 5)),
        ((9, 0, 9), 6, (3, 0, 3)),
        ((2, 3), 99, (2, 3)),
        ((0, 0), 5, (0, 0)),
        ((9, 1), 6, (3, 1)),
    ],
)
def test_a_sample_has_the_first_values_of_each_partition_in_equal_shares(
    monkeypatch: pytest.MonkeyPatch, counts: tuple[int, ...], wanted: int, shares: tuple[int, ...]
) -> None:
    log = Sampled(*counts)
    monkeypatch.setattr(inference, "open_log", lambda options: log)
    found = inference.sampled(LogOptions("t"), wanted)
    assert found == [b"%d/%d" % (n, at) for n, share in enumerate(shares) for at in range(share)]
    assert log.closed == 1


# --- the envelope of Connect ------------------------------------------------------------------------------------------


def test_heads_are_kept_up_to_a_limit_and_are_those_of_their_payloads_alone() -> None:
    heads = connect._Heads()
    values = [b'{"schema":{"n":%d},"payload":{"v":%d}}' % (n, n) for n in range(70)]
    assert [heads.payload(one, 99) for one in values] == [b'{"v":%d}' % n for n in range(70)]
    assert len(heads._known) == connect.HEADS_MAX == 64
    assert heads.payload(b'{"schema":{"n":3},"payload":{"v":5}}', 99) == b'{"v":5}'
    assert heads.payload(b'{"schema":{"n":69},"payload":{"v":5}}', 99) == b'{"v":5}'
    assert heads.payload(None, 99) is None
    other = connect._Heads()
    for value, payload in (
        (b'{"payload":{"v":1},"schema":{}}', b'{"v":1}'),
        (b'{"schema":{},"payload": {"v":1}}', b'{"v":1}'),
        (b'{"schema":{},"payload":{"v":1} }', b'{"v":1}'),
        (b'{"schema":{},"payload":5}', b'{"value":5}'),
        (b'{"v":1}', b'{"v":1}'),
    ):
        assert other.payload(value, 99) == payload
    assert other._known == []


@pytest.mark.parametrize("key", ["ca", "cert", "key"])
def test_a_registry_is_kept_with_its_files_and_without_a_login(key: str) -> None:
    one = Registry("http://r:1", login=("user", "secret"), token="more", **{key: "file"})
    assert one.to_dict() == {"url": "http://r:1", key: "file"}
    assert "secret" not in repr(one)
    with pytest.raises(UsageError, match=r"^--registry: .+"):
        Registry.at("no address")


def test_numbers_of_times_are_theirs_also_within() -> None:
    at = pa.timestamp("us", "UTC")
    kind = pa.struct([pa.field("at", at), pa.field("day", pa.date32())])
    given = pa.array([{"at": 5, "day": 3}, None], kind)
    assert resolve.numbers_of(given).to_pylist() == [{"at": 5, "day": 3}, None]
    listed = pa.array([[{"at": 5, "day": 3}], None, []], pa.list_(kind))
    assert resolve.numbers_of(listed).to_pylist() == [[{"at": 5, "day": 3}], None, []]
    mapped = pa.array([[("k", 7)], None], pa.map_(pa.string(), pa.time64("us")))
    assert resolve.numbers_of(mapped).to_pylist() == [[("k", 7)], None]
    assert resolve.numbers_of(pa.array([np.datetime64(9, "us")])).to_pylist() == [9]
